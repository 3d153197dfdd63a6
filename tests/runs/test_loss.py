"""The classification loss of local training."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import tiny

from benchmark.errors import ConfigError
from benchmark.models.flat import focal_loss
from benchmark.runs.build import build_problem, build_run
from benchmark.runs.data import load_data


def test_the_loss_of_local_training(tmp_path: Path) -> None:
    """The focal loss takes the place of cross-entropy."""
    layer = {"train": {"loss": {"gamma": 2, "weights": [1, 2, 3, 4]}}}
    config = tiny(tmp_path, layer)
    plain, model = (build_run(c, load_data(c)).model for c in (tiny(tmp_path), config))
    problem = build_problem(config, load_data(config), torch.device("cpu"))
    x, y = problem.transform(problem.images[:5]), torch.tensor([0, 1, 2, 3, 0])
    with torch.no_grad():
        _, logits, ce = plain.forward(x, y)
        expected = focal_loss(logits, y, 2, torch.tensor([1.0, 2.0, 3.0, 4.0]))
        assert float(ce) == pytest.approx(float(F.cross_entropy(logits, y)))
        assert float(model.forward(x, y)[2]) == pytest.approx(float(expected)) != pytest.approx(float(ce))
    with pytest.raises(ConfigError, match=r"train\.loss\.weights: got \[1\.0\]; expected 4 numbers"):
        wrong = tiny(tmp_path, {"train": {"loss": {"weights": [1]}}})
        build_run(wrong, load_data(wrong))
    assert tiny(tmp_path, {"train": {"loss": {"gamma": 0}}}).hash == tiny(tmp_path).hash
    assert config.hash != tiny(tmp_path).hash
