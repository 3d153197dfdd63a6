"""FedMR's Table 3: counted from the layouts, beside the printed numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from benchmark.analyses import communication
from benchmark.analyses.communication import SETTINGS, Counted, count
from benchmark.analyses.registry import find
from benchmark.models.networks import FlatModel, Net


def test_counts_by_hand() -> None:
    """Linear 3 x 4 + 4, BatchNorm 4 + 4 with buffers 4 + 4 + 1, classifier 4 x 5 + 5; 5 prototypes of 4 numbers."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 5), 4)
    assert count(net, 5) == Counted(16 + 8 + 25, 9, 20)
    assert count(net, 5).model == 58
    model = FlatModel(net)
    assert (model.layout.size, model.buffer_layout.size) == (49, 9)


def test_resnet_18_of_the_paper() -> None:
    """11,173,962 parameters for three channels, 11,172,810 for one, and 9,620 BatchNorm numbers; 10 x 512 more."""
    counted = {s.key: count(communication._network(s), s.classes) for s in SETTINGS[:3]}  # type: ignore[arg-type]
    assert counted["fmnist"] == Counted(11_172_810, 9_620, 5_120)
    assert counted["svhn"] == counted["cifar10"] == Counted(11_173_962, 9_620, 5_120)


def test_report_puts_them_beside_the_printed_numbers() -> None:
    report = find("communication").compute({})
    assert report.name == "fedmr_table3"
    assert list(report.data["data"]) == ["FMNIST", "SVHN", "CIFAR-10", "CIFAR-100", "ISIC2019"]
    assert list(report.data["printed without"]) == ["11.182", "11.184", "11.184", "36.565", "4.875"]
    assert list(report.data["printed with"]) == ["11.187", "11.189", "11.189", "36.629", "4.880"]
    known = report.data["counted without"].notna()
    assert known.all()
    assert [f"{v:.3f}" for v in report.data["counted without"][known]] == list(
        report.data["printed without"][known]
    )
    # The print adds 0.005: 11,187,550 would be 11.188.
    printed = report.data["printed with"][known].astype(float)
    np.testing.assert_allclose(report.data["counted with"][known], printed, rtol=0, atol=6e-4)
    assert report.data["counted with"][0] == 11.187550
    assert report.data["counted extra %"][0] == pytest.approx(100 * 5_120 / 11_182_430)
    np.testing.assert_allclose(report.data["counted extra %"][:3], 0.0458, atol=5e-5)
    # 100 classes of 640 features; 8 of 640, as the printed 0.005 says, which 8 of 1280 would not be.
    assert report.data["counted with"][3] == 36.564957 + 0.064
    assert report.data["counted with"][4] == pytest.approx(4.874581 + 0.00512)


def test_models_that_do_not_exist_yet_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "group_names", lambda group: [])
    report = find("communication").compute({})
    assert report.data["counted with"].isna().all()
    assert set(report.data["model"].str.partition(": ")[2]) == {"model not available yet"}


def test_networks_take_no_memory() -> None:
    net = communication._network(SETTINGS[0])
    assert net is not None
    assert {p.device for p in net.parameters()} == {torch.device("meta")}
