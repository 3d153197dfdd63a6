"""FedMR's Table 3: counted from the models, beside the printed numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmark.experiments.selection import ResultsOptions
from benchmark.models.networks import Net
from benchmark.papers.communication import SETTINGS, communication, count, network


def test_counts_by_hand() -> None:
    """Linear 3 x 4 + 4, BatchNorm 4 + 4 with buffers 4 + 4 + 1, classifier 4 x 5 + 5; 5 prototypes of 4 numbers."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 5), 4)
    assert count(net, 5) == (16 + 8 + 25 + 9, 20)
    assert {p.device for p in network(SETTINGS[0]).parameters()} == {torch.device("meta")}  # takes no memory


def test_counted_beside_printed() -> None:
    """ResNet-18: 11,173,962 parameters for three channels, 11,172,810 for one, and 9,620 BatchNorm numbers."""
    table = communication(ResultsOptions())
    data = table.data
    assert table.name == "fedmr_table3"
    assert list(data["data"]) == ["FMNIST", "SVHN", "CIFAR-10", "CIFAR-100", "ISIC2019"]
    assert list(data["printed without"]) == ["11.182", "11.184", "11.184", "36.565", "4.875"]
    assert [f"{value:.3f}" for value in data["counted without"]] == list(data["printed without"])
    assert list(data["counted without"][:3]) == [11.182430, 11.183582, 11.183582]
    # The print adds 0.005: 11,187,550 would be 11.188.
    np.testing.assert_allclose(data["counted with"], data["printed with"].astype(float), rtol=0, atol=6e-4)
    assert data["counted with"][0] == 11.187550
    assert data["counted extra %"][0] == pytest.approx(100 * 5_120 / 11_182_430)
    # 100 classes of 640 features; 8 of 640, as the printed 0.005 says, which 8 of 1280 would not be.
    assert data["counted with"][3] == 36.564957 + 0.064
    assert data["counted with"][4] == pytest.approx(4.874581 + 0.00512)
