"""FedMR's Table 3: counted from the models, beside the printed numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from benchmark.analyses.communication import SETTINGS, Counted, communication, count, network
from benchmark.analyses.registry import Options
from benchmark.models.flat import FlatModel
from benchmark.models.networks import Net


def test_counts_by_hand() -> None:
    """Linear 3 x 4 + 4, BatchNorm 4 + 4 with buffers 4 + 4 + 1, classifier 4 x 5 + 5; 5 prototypes of 4 numbers."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 5), 4)
    assert count(net, 5) == Counted(16 + 8 + 25, 9, 20)
    assert count(net, 5).model == 58
    model = FlatModel(net)
    assert (model.layout.size, model.buffer_layout.size) == (49, 9)


def test_resnet_18_of_the_paper() -> None:
    """11,173,962 parameters for three channels, 11,172,810 for one, and 9,620 BatchNorm numbers; 10 x 512 more."""
    counted = {setting.key: count(network(setting), setting.classes) for setting in SETTINGS[:3]}
    assert counted["fmnist"] == Counted(11_172_810, 9_620, 5_120)
    assert counted["svhn"] == counted["cifar10"] == Counted(11_173_962, 9_620, 5_120)
    assert {p.device for p in network(SETTINGS[0]).parameters()} == {torch.device("meta")}  # takes no memory


def test_counted_beside_printed() -> None:
    table = communication(Options())
    data = table.data
    assert table.name == "fedmr_table3"
    assert list(data["data"]) == ["FMNIST", "SVHN", "CIFAR-10", "CIFAR-100", "ISIC2019"]
    assert list(data["printed without"]) == ["11.182", "11.184", "11.184", "36.565", "4.875"]
    assert list(data["printed with"]) == ["11.187", "11.189", "11.189", "36.629", "4.880"]
    assert [f"{value:.3f}" for value in data["counted without"]] == list(data["printed without"])
    # The print adds 0.005: 11,187,550 would be 11.188.
    np.testing.assert_allclose(data["counted with"], data["printed with"].astype(float), rtol=0, atol=6e-4)
    assert data["counted with"][0] == 11.187550
    assert data["counted extra %"][0] == pytest.approx(100 * 5_120 / 11_182_430)
    np.testing.assert_allclose(data["counted extra %"][:3], 0.0458, atol=5e-5)
    # 100 classes of 640 features; 8 of 640, as the printed 0.005 says, which 8 of 1280 would not be.
    assert data["counted with"][3] == 36.564957 + 0.064
    assert data["counted with"][4] == pytest.approx(4.874581 + 0.00512)
