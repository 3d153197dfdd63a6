"""FedExP, with values by hand: three rules of the server and none of the client.

Two clients with gradients (v - 1) and 3 (v + 1), one step at rate 0.1, eps = 0.0025:
from w = 0: D = .1, -.3, mean -.1: eta_g = .1 / (4 (.01 + .0025)) = 2, w = -.2;
then D = .12, -.24, mean -.06: eta_g = .072 / (4 (.0036 + .0025)) = .072 / .0244, w = -.2 - .00432 / .0244.
From w = 3: D = -.2, -1.2, mean -.7: 1.48 / (4 (.49 + .0025)) < 1, so eta_g = 1, w = 2.3;
then D = -.13, -.99, mean -.56: (.0169 + .9801) / (4 (.3136 + .0025)) < 1, w = 1.74.
"""

import numpy as np
import pytest
import torch
from federations import Quadratic, federation, one_parameter, ones, run, with_rules

from benchmark.config.compose import load_group
from benchmark.config.merge import merge
from benchmark.engine.federation import FederatedRun
from benchmark.engine.views import server_view
from methods.fedexp import Extrapolate

EPS = 0.0025


def fedexp(w0: float = 0.0, rounds: int = 2) -> FederatedRun:
    config = merge(load_group("method", "fedexp"), {"server": {"direction": {"eps": EPS}}})
    method = with_rules(Quadratic(a=(1.0, 3.0), b=(1.0, -1.0)), config=config)
    return federation(ones(1, 1), method, one_parameter(), lr=0.1, rounds=rounds, w0=np.array([w0]))


@pytest.mark.parametrize(
    ("iterates"), [(0.0, -0.2, -0.2 - 0.00432 / 0.0244), (3.0, 2.3, 1.74)], ids=["extrapolates", "is FedAvg"]
)
def test_the_iterates_and_their_mean(iterates: tuple[float, ...]) -> None:
    model = fedexp(iterates[0])
    states = run(model)
    assert [float(state.w) for state in states] == pytest.approx(iterates, abs=1e-14)
    before = (iterates[0], *iterates)
    for state, *pair in zip(states, iterates, before, strict=False):
        (answer,) = model.method.prediction.predictors(server_view(model.clients, state))
        assert float(answer(torch.ones(1, 1, dtype=torch.float64))) == pytest.approx(sum(pair) / 2, abs=1e-14)


def test_weights_and_the_authors_eps() -> None:
    """p = 1/4, 3/4, squared norms 4 and 1, mean (.5, .75): 1.75 / (2 (.8125 + .0625)) = 1, with 2 eps less.

    With eps = .0125 it is 1.75 / 1.65, and 1.75 / 1.675 with the code's 2 eps.
    """
    updates, p = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0.25, 0.75], dtype=torch.float64)
    mean = torch.tensor([0.5, 0.75])
    for eps, variant, eta in [
        (0.0625, "paper", 1.0),
        (0.0625, "reference", 1.0),
        (0.0125, "paper", 1.75 / 1.65),
        (0.0125, "reference", 1.75 / 1.675),
    ]:
        found, _ = Extrapolate(eps=eps, variant=variant).direction(updates, p, None, {})
        torch.testing.assert_close(found, eta * mean)
