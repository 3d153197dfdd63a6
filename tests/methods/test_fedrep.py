"""FedRep against the authors' code (golden), a NumPy evaluation of Algorithm 1, and personal prediction by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, mlp, near, problem_of, run
from golden_cases import BODY, stored, stored_problem
from torch import nn

from benchmark.config.compose import load_group
from benchmark.models.networks import Net
from methods.core.samples import Samples


def fedrep(**changes: Any) -> dict[str, Any]:
    """conf/method/fedrep.yaml with E_h = 2, E_b = 1 and these changes on top."""
    config = load_group("method", "fedrep")
    client = {"fedrep": {"E_h": 2, "E_b": 1} | changes.pop("client", {})}
    return config | {"client": client} | changes


def golden_problem(split: str) -> tuple[dict[str, np.ndarray], Any]:
    g = stored("baselines/fedrep")
    return g, stored_problem(g, split)


@pytest.mark.parametrize("split", ["uneq", "eq"])
@pytest.mark.parametrize(("schedule", "batch"), [("full", 1000), ("mini", 8)])
@pytest.mark.parametrize("weights", [None, "size"])
def test_golden(split: str, schedule: str, batch: int, weights: str | None) -> None:
    """Bodies and heads after each of three rounds; without a word the YAML weighs clients equally."""
    g, problem = golden_problem(split)
    config = fedrep() if weights is None else fedrep(server={"weights": {"name": weights}})
    # The run's own number of epochs must not count: the phases have theirs.
    states = run(
        federation(problem, config, mlp(), lr=float(g["lr"]), w0=g["w0"], batch_size=batch, epochs=7)
    )
    name = f"{split}_{schedule}_{weights or 'uniform'}"
    for t, state in enumerate(states[1:]):
        near(state.w[:BODY], g[f"{name}_body"][t], 1e-9)
        heads = np.stack([state.clients[k]["personal"].numpy() for k in range(4)])
        near(heads, g[f"{name}_heads"][t], 1e-9)


def test_normalisation_layers_train_with_the_body() -> None:
    """The affine parts of BatchNorm and LayerNorm move, and no client keeps its own."""
    _, problem = golden_problem("uneq")
    body = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.LayerNorm(8))
    net = Net(body, nn.Linear(8, 3), 8).double()
    model = federation(problem, fedrep(), net, rounds=1, batch_size=8)
    start, end = run(model)
    for entry in model.layout.entries:
        moved = (start.w != end.w)[entry.start : entry.stop].any()
        assert bool(moved) == (entry.group != "head"), entry.name
    assert all(len(end.clients[k]["personal"]) == 27 for k in range(4))


TESTED = ((1, 0), (2, 1), (-1, 1), (-3, 0))


def answers(heads: Mapping[int, Sequence[float]], theta: float) -> list[float]:
    """Accuracy and loss of three clients, z = theta x, logits = v z, on ``TESTED``; v is (0, 1) unless it is given."""
    x, y = (torch.tensor(column) for column in zip(*TESTED, strict=True))
    held = Samples(x.double()[:, None], y, lambda images: images, batch_size=3)
    problem = problem_of([np.ones((1, 1))] * 3, [np.zeros(1, int)] * 3, 2)
    net = Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1).double()
    w0 = np.array([theta, 0.0, 1.0])
    model = federation(replace(problem, evaluation_sets={"test": held}), fedrep(), net, w0=w0)
    kept = {k: {"personal": torch.tensor(v, dtype=torch.float64)} for k, v in heads.items()}
    records = model.evaluate(replace(model.initial_state(), clients=kept))
    found = {r.metric: r.value for r in records if r.group == "all"}
    return [found["accuracy"], found["loss"]]


def mean_loss(heads: Sequence[Sequence[float]], theta: float) -> float:
    logits = [(np.array(v) * theta * x, y) for v in heads for x, y in TESTED]
    return float(np.mean([np.log(np.exp(f).sum()) - f[y] for f, y in logits]))


def test_personal_prediction() -> None:
    """The metrics are the means over clients; client 2 never took part and has the model's own head (0, 1).

    Client 0 (1, 0) says class 0 for x > 0 and is right in 1 and -1, client 1 (1, 1) always says class 0, client 2
    class 1 for x > 0: each is right in half of the four. Bodies are the present one, as after the download.
    """
    accuracy, loss = answers({0: [1.0, 0.0], 1: [1.0, 1.0]}, 1.0)
    assert accuracy == pytest.approx(1 / 2)
    assert loss == pytest.approx(mean_loss([[1, 0], [1, 1], [0, 1]], 1.0), abs=1e-6)
    _, moved = answers({0: [1.0, 0.0]}, -2.0)
    assert moved == pytest.approx(mean_loss([[1, 0], [0, 1], [0, 1]], -2.0), abs=1e-6)
