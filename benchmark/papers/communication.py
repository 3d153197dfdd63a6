"""What a client sends in a round, with and without prototypes: FedMR's Table 3, printed numbers beside counted ones.

Fan et al., FedMR, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7, section 4.4

Counted from the models, not measured on runs: all parameters, and BatchNorm's statistics and counters, as the printed
numbers do; with prototypes one feature vector for each class more. The same in both directions.
"""

from typing import NamedTuple

import pandas as pd
import torch

from benchmark.config.compose import load_group
from benchmark.experiments.selection import ResultsOptions
from benchmark.models.networks import Net, build_net
from benchmark.paths import PUBLISHED
from benchmark.reports.published import read_published
from benchmark.reports.tables import Table, text_table

NOTES = (
    "Millions of numbers that one client sends to the server in one round; it receives as many. Counted: parameters, "
    "BatchNorm's statistics and counters, and one feature vector per class with prototypes (FedProc, FedMR).",
    "Not counted, as in the print: FedMR's counts of samples (up) and which classes have a prototype (down), C numbers "
    "each; the control variates of FedDC. The records of a run hold what it really sent beyond the model.",
    "The printed sizes with prototypes are those without plus 0.005, 0.064 and 0.005 (on FMNIST 11,187,550 is counted, "
    "which rounds to 11.188), and the printed extra is their quotient, cut off: 0.0447 % on FMNIST, counted 0.0458 %.",
    "EfficientNet-b0 with 8 classes has 4.060 million numbers and prototypes of 0.010; the printed 4.875 and 0.005 are "
    "those of the network with a layer of 640 neurons before the classifier, and of no other width.",
)


class PaperSetting(NamedTuple):
    """A column of Table 3: the model, and the number of classes and shape of images that it is built for."""

    label: str
    key: str
    model: str
    classes: int
    shape: tuple[int, int, int]


SETTINGS = (
    PaperSetting("FMNIST", "fmnist", "resnet18_32", 10, (1, 28, 28)),
    PaperSetting("SVHN", "svhn", "resnet18_32", 10, (3, 32, 32)),
    PaperSetting("CIFAR-10", "cifar10", "resnet18_32", 10, (3, 32, 32)),
    PaperSetting("CIFAR-100", "cifar100", "wrn28_10", 100, (3, 32, 32)),
    PaperSetting("ISIC2019", "isic2019", "efficientnet_b0", 8, (3, 200, 200)),
)


def count(net: Net, num_classes: int) -> tuple[int, int]:
    """Numbers that a client with ``net`` sends: (parameters and BatchNorm buffers, prototypes)."""
    model = sum(values.numel() for values in (*net.parameters(), *net.buffers()))
    return model, num_classes * net.feature_dim


def network(setting: PaperSetting) -> Net:
    """The network of a setting, without memory for its values."""
    settings = load_group("model", setting.model)
    parameters = {key: value for key, value in settings.items() if key not in ("name", "pretrained")}
    with torch.device("meta"):
        return build_net(setting.model, setting.classes, setting.shape, parameters, 0)


def communication(options: ResultsOptions) -> Table:
    """Numbers that a client sends in a round with and without prototypes (FedMR, Table 3): printed and counted."""
    lines = read_published(PUBLISHED / "fedmr_table3.csv")
    printed = lines.set_index(["method", "setting", "metric"])["mean"]
    sent = "parameters_sent_per_round"
    rows = []
    for setting in SETTINGS:
        model, prototypes = count(network(setting), setting.classes)
        row = {
            "data": setting.label,
            "model": setting.model,
            "printed without": printed["without_prototypes", setting.key, sent],
            "counted without": model / 1e6,
            "printed with": printed["with_prototypes", setting.key, sent],
            "counted with": (model + prototypes) / 1e6,
            "printed extra %": printed["with_prototypes", setting.key, "additional_cost"],
            "counted extra %": 100 * prototypes / model,
        }
        rows.append(row)
    title = "FedMR (TMLR 2023), Table 3: numbers sent per client and round, in millions"
    return text_table("fedmr_table3", title, pd.DataFrame(rows), NOTES, decimals=3)
