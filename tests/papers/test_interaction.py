"""FedDiverse's Tables 5 and 6: the partitions that runs use are the printed ones, and so are their metrics."""

import pandas as pd
import pytest

from benchmark.experiments.selection import ResultsOptions
from benchmark.papers.interaction import PRINTED, client_types, pooled_data


def same_as_printed(data: pd.DataFrame) -> None:
    """CI, AI and SC agree as far as they are printed: two decimals."""
    for name in PRINTED:
        for printed, counted in zip(data[f"printed {name}"], data[f"counted {name}"], strict=True):
            assert round(counted, 2) == pytest.approx(float(printed), abs=0.0051)


def test_pooled_data() -> None:
    data = pooled_data(ResultsOptions()).data
    assert len(data) == 6 and set(data["same"]) == {"yes"}
    same_as_printed(data)
    # By hand: 4,800 samples, 2,400 a class and an attribute; P = (11, 4; 4, 11)/30 gives I = .1122... nats of 2 log 2.
    gsc = data.set_index("setting").loc["spawrious_gsc"]
    assert (gsc["counted CI"], gsc["counted AI"]) == (0.0, 0.0)
    assert gsc["counted SC"] == pytest.approx(0.1633, abs=5e-4)


def test_client_types() -> None:
    data = client_types(ResultsOptions()).data
    assert len(data) == 46 and set(data["as printed"]) == {"yes"}
    assert (data["clients"] == data["printed clients"]).all()
    same_as_printed(data)
    by_setting = data.groupby("setting")["clients"].sum()
    assert by_setting.to_dict() == {
        "spawrious_gsc": 24, "cmnist_gsc": 24, "spawrious_gci": 24, "spawrious_gai": 25, "waterbirds_dist": 30,
        "spawrious4": 25, "spawrious_gci100": 100,
    }  # fmt: skip
