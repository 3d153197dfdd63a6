"""What can be counted without runs, beside what the papers print: FedMR's Table 3, FedDiverse's Tables 5 and 6.

Fan et al., FedMR, TMLR 2023, https://openreview.net/forum?id=jLJTqJXAG7, section 4.4
Nemeth et al., FedDiverse, 2025, https://arxiv.org/abs/2504.11216, appendix A

FedMR's numbers are counted from the models, FedDiverse's from the partitions at full size. The accuracies of
FedDiverse's Table 5 (centralised SGD) come from runs, of conf/table/feddiverse_table5*.yaml.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch

from benchmark.config.compose import load_group
from benchmark.experiments.selection import TableQuery
from benchmark.heterogeneity import triplets
from benchmark.models.networks import Net, build_net
from benchmark.paths import PUBLISHED
from benchmark.reports.published import read_published
from benchmark.reports.tables import Table, text_table
from partitions.core.base import IntArray
from partitions.interaction import Interaction

SENT = (
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


def communication(options: TableQuery) -> Table:
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
    return text_table("fedmr_table3", title, pd.DataFrame(rows), SENT, decimals=3)


PRINTED = {"CI": "class_imbalance", "AI": "attribute_imbalance", "SC": "spurious_correlation"}
"""The metrics of Table 5 and their names in the published file."""

TRIPLETS = (
    "CI, AI, SC: class imbalance, attribute imbalance, spurious correlation of the matrix (Eqs. 2-4), whose rows are "
    "classes and whose columns are attributes."
)

REBUILT = (
    "The matrices of Spawrious GCI are damaged in the text copy; those compared here were rebuilt from the printed "
    "triplets and the pooled matrix of Table 5."
)


def _written(matrix: IntArray) -> str:
    return "; ".join(" ".join(str(count) for count in row) for row in matrix.tolist())


def _same(printed: str, counted: str) -> str:
    rows, others = ([row.split() for row in text.split(";")] for text in (printed, counted))
    return "yes" if rows == others else "no"


def _beside(printed: Mapping[str, object], matrix: IntArray) -> dict[str, object]:
    """Printed and counted value of each metric of a matrix."""
    cells: dict[str, object] = {}
    for name, value in zip(PRINTED, triplets(matrix).tolist(), strict=True):
        cells |= {f"printed {name}": printed[name], f"counted {name}": value}
    return cells


def pooled_data(options: TableQuery) -> Table:
    """All clients' data together, class by attribute (FedDiverse, Table 5): printed and counted."""
    printed = read_published(PUBLISHED / "feddiverse_table5.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        pooled = Interaction(distribution=setting).matrices().sum(axis=0)
        lines = printed[printed["setting"] == setting].set_index("metric")
        matrix, counted = str(lines.loc["interaction_matrix", "matrix"]), _written(pooled)
        row = {"setting": setting, "printed matrix": matrix, "counted matrix": counted}
        row["same"] = _same(matrix, counted)
        rows.append(row | _beside({name: lines.loc[key, "mean"] for name, key in PRINTED.items()}, pooled))
    title = "FedDiverse (2025), Table 5: pooled training data of the settings"
    return text_table("feddiverse_table5_data", title, pd.DataFrame(rows), (TRIPLETS,), decimals=2)


def client_types(options: TableQuery) -> Table:
    """The types of clients of each setting (FedDiverse, Table 6): printed and counted."""
    printed = read_published(PUBLISHED / "feddiverse_table6.csv")
    rows = []
    for setting in dict.fromkeys(printed["setting"]):
        matrices_of_clients = Interaction(distribution=setting).matrices()
        clients = Counter(map(_written, matrices_of_clients))
        matrices = {_written(matrix): matrix for matrix in matrices_of_clients}
        lines = printed[printed["setting"] == setting]
        for (_, line), (text, matrix) in zip(lines.iterrows(), matrices.items(), strict=True):
            row = {
                "setting": setting,
                "type": int(line["client_type"]),
                "printed clients": int(line["n_clients"]),
                "clients": clients[text],
                "matrix": text,
                "as printed": _same(line["matrix"], text),
            }
            rows.append(row | _beside({name: line[name.lower()] for name in PRINTED}, matrix))
    title = "FedDiverse (2025), Table 6: types of clients"
    return text_table("feddiverse_table6", title, pd.DataFrame(rows), (TRIPLETS, REBUILT), decimals=2)
