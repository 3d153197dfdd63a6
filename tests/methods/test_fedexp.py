"""FedExP as a method of one's own: three rules of the server and none of the client, with values by hand.

Jhunjhunwala, Wang, Joshi: FedExP: Speeding up Federated Averaging via Extrapolation, ICLR 2023. With M participants and
the updates D_i,

    eta_g = max(1, sum_i ||D_i||^2 / (2 M (||mean of D||^2 + eps))),    w <- w + eta_g mean of D,

and the mean of the last two iterates answers, because the iterates swing around the optimum.

Two clients with gradients (v - 1) and 3 (v + 1), one step at rate 0.1, eps = 0.0025:
from w = 0: D = .1, -.3, mean -.1: eta_g = .1 / (4 (.01 + .0025)) = 2, w = -.2;
then D = .12, -.24, mean -.06: eta_g = .072 / (4 (.0036 + .0025)) = .072 / .0244, w = -.2 - .00432 / .0244.
From w = 3: D = -.2, -1.2, mean -.7: 1.48 / (4 (.49 + .0025)) < 1, so eta_g = 1, w = 2.3;
then D = -.13, -.99, mean -.56: (.0169 + .9801) / (4 (.3136 + .0025)) < 1, w = 1.74.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import Quadratic, assert_resumes, federation, one_parameter, ones, run, with_rules
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.views import server_view
from methods.core.contexts import Federation, Predictor, RoundView, ServerView, State
from methods.core.rules import Aggregator, Post, Prediction

EPS = 0.0025


class Extrapolation(Aggregator):
    """eta_g times the mean update."""

    eps: float

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        mean = updates.mean(dim=0)
        spread = updates.square().sum() / (2 * len(updates) * (mean.square().sum() + self.eps))
        return spread.clamp(min=1) * mean, state


class LastTwo(Post):
    """Keeps the last two iterates."""

    def setup(self, federation: Federation) -> State:
        return {"before": federation.w, "last": federation.w}

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        return w, {"before": state["last"], "last": w}


class MeanOfLastTwo(Prediction):
    """The mean of the two iterates answers."""

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        post = view.server["post"]
        yield view.model(w=(post["before"] + post["last"]) / 2).logits


def fedexp(w0: float = 0.0, rounds: int = 2) -> FederatedRun:
    method = with_rules(
        Quadratic(a=(1.0, 3.0), b=(1.0, -1.0)),
        direction=Extrapolation(eps=EPS),
        post=LastTwo(),
        prediction=MeanOfLastTwo(),
    )
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


def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes(lambda seed: fedexp(float(seed), rounds=5), tmp_path)
