"""FedDiverse's Tables 5 and 6: the partitions that runs use are the printed ones, and so are their metrics."""

from __future__ import annotations

import pytest

from benchmark.analyses.interaction import PRINTED
from benchmark.analyses.registry import Report, find


def same_as_printed(report: Report) -> None:
    """CI, AI and SC agree as far as they are printed: two decimals."""
    for name in PRINTED:
        for printed, counted in zip(
            report.data[f"printed {name}"], report.data[f"counted {name}"], strict=True
        ):
            assert round(counted, 2) == pytest.approx(float(printed), abs=0.0051)


def test_pooled_data() -> None:
    report = find("pooled-data").compute({})
    assert report.name == "feddiverse_table5_data"
    assert len(report.data) == 6 and set(report.data["same"]) == {"yes"}
    same_as_printed(report)
    # By hand: 4,800 samples, 2,400 a class and an attribute; P = (11, 4; 4, 11)/30 gives I = .1122... nats of 2 log 2.
    gsc = report.data.set_index("setting").loc["spawrious_gsc"]
    assert (gsc["counted CI"], gsc["counted AI"]) == (0.0, 0.0)
    assert gsc["counted SC"] == pytest.approx(0.1633, abs=5e-4)


def test_client_types() -> None:
    report = find("client-types").compute({})
    assert report.name == "feddiverse_table6"
    assert len(report.data) == 46 and set(report.data["as printed"]) == {"yes"}
    assert (report.data["clients"] == report.data["printed clients"]).all()
    same_as_printed(report)
    by_setting = report.data.groupby("setting")["clients"].sum()
    assert by_setting.to_dict() == {
        "spawrious_gsc": 24, "cmnist_gsc": 24, "spawrious_gci": 24, "spawrious_gai": 25, "waterbirds_dist": 30,
        "spawrious4": 25, "spawrious_gci100": 100,
    }  # fmt: skip
