"""How much updates agree, by hand."""

import math

import numpy as np
import pytest
import torch

from benchmark.analyses.update_geometry import UpdateGeometryOptions, geometry, update_geometry
from benchmark.errors import ConfigError
from methods.core.contexts import RoundView

VIEW = RoundView(0, 0.1, 2, (0, 1), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((2, 1)))


def of(rows: list[list[float]]) -> dict[str, float]:
    updates = torch.tensor(rows)
    p = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    return geometry(updates, p, updates.mean(0), VIEW)


def test_geometry_by_hand() -> None:
    """Equal updates: cosine 1, one eigenvalue, and the principal aggregate is the mean.

    (2, 0) and (0, 1): eigenvalues 4 and 1; L = floor(1.6) = 1 keeps (1, 0), on which the second has no projection. So
    the aggregate is (1/2)(2, 0) = (1, 0) where the mean is (1, 1/2): length 1/sqrt(1.25), angle 1/sqrt(1.25).
    """
    columns = of([[3.0, 4.0], [3.0, 4.0]])
    assert columns == pytest.approx({"cosine": 1, "first": 1, "second": 0, "length": 1, "angle": 1}, abs=1e-6)
    columns = of([[2.0, 0.0], [0.0, 1.0]])
    short = 1 / math.sqrt(1.25)
    expected = {"cosine": 0, "first": 0.8, "second": 0.2, "length": short, "angle": short}
    assert columns == pytest.approx(expected, abs=1e-6)


def test_rounds_and_mistakes() -> None:
    data = update_geometry(UpdateGeometryOptions(rounds=2, column="retina_split3")).data
    assert data["round"].tolist() == [1, 2]
    assert data["angle"].between(-1, 1).all() and (data["length"] > 0).all()
    for options in ({"name": "fedld"}, {"column": "x"}):
        with pytest.raises(ConfigError, match=f"'{next(iter(options.values()))}'"):
            update_geometry(UpdateGeometryOptions(**options))
