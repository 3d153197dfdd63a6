"""FedMR's Table 3 counted from models, FedDiverse's Tables 5 and 6 from partitions, beside the printed numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmark.experiments.selection import TableQuery
from benchmark.models.networks import Net
from benchmark.papers.counted import (
    PRINTED,
    SETTINGS,
    client_types,
    communication,
    count,
    network,
    pooled_data,
)


def test_counts_by_hand() -> None:
    """Linear 3 x 4 + 4, BatchNorm 4 + 4 with buffers 4 + 4 + 1, classifier 4 x 5 + 5; 5 prototypes of 4 numbers."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 5), 4)
    assert count(net, 5) == (16 + 8 + 25 + 9, 20)
    assert {p.device for p in network(SETTINGS[0]).parameters()} == {torch.device("meta")}  # takes no memory


def test_counted_beside_printed() -> None:
    """ResNet-18: 11,173,962 parameters for three channels, 11,172,810 for one, and 9,620 BatchNorm numbers."""
    table = communication(TableQuery())
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


def same_as_printed(data: pd.DataFrame) -> None:
    """CI, AI and SC agree as far as they are printed: two decimals."""
    for name in PRINTED:
        for printed, counted in zip(data[f"printed {name}"], data[f"counted {name}"], strict=True):
            assert round(counted, 2) == pytest.approx(float(printed), abs=0.0051)


def test_pooled_data() -> None:
    data = pooled_data(TableQuery()).data
    assert len(data) == 6 and set(data["same"]) == {"yes"}
    same_as_printed(data)
    # By hand: 4,800 samples, 2,400 a class and an attribute; P = (11, 4; 4, 11)/30 gives I = .1122... nats of 2 log 2.
    gsc = data.set_index("setting").loc["spawrious_gsc"]
    assert (gsc["counted CI"], gsc["counted AI"]) == (0.0, 0.0)
    assert gsc["counted SC"] == pytest.approx(0.1633, abs=5e-4)


def test_client_types() -> None:
    data = client_types(TableQuery()).data
    assert len(data) == 46 and set(data["as printed"]) == {"yes"}
    assert (data["clients"] == data["printed clients"]).all()
    same_as_printed(data)
    by_setting = data.groupby("setting")["clients"].sum()
    assert by_setting.to_dict() == {
        "spawrious_gsc": 24, "cmnist_gsc": 24, "spawrious_gci": 24, "spawrious_gai": 25, "waterbirds_dist": 30,
        "spawrious4": 25, "spawrious_gci100": 100,
    }  # fmt: skip
