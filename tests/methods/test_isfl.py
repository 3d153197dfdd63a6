"""ISFL by hand: the target mix, its estimates of Lipschitz constants, and the draws."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    federation,
    near,
    problem_of,
    run,
    with_rules,
)
from torch import nn

from benchmark.models.networks import Net
from methods.isfl import ISFL, target_mix

P, PI = np.array([0.5, 0.3, 0.2]), np.array([0.8, 0.2, 0.0])


@pytest.mark.parametrize(
    ("lipschitz", "sigma", "q"),
    [
        # u = 1 - 3 (1, 1, 4)/6 = (.5, .5, -1); the step ends where class 2 reaches .02 * 0, so at p + .2 (.5, .5, -1).
        ([1.0, 1.0, 2.0], 0.02, [0.6, 0.4, 0.0]),
        # u = (-1, .5, .5); class 0 may fall from .5 to sigma pi = .25 * .8 = .2.
        ([2.0, 1.0, 1.0], 0.25, [0.2, 0.45, 0.35]),
        # A class without estimate counts as the mean of the others: squares (1, 7, 4), u = (.75, -.75, 0).
        ([1.0, 7**0.5, np.nan], 0.0, [0.8, 0.0, 0.2]),
        ([1.0, 1.0, 1.0], 0.02, P),
        ([0.0, 0.0, 0.0], 0.02, P),
        ([np.nan, np.nan, np.nan], 0.02, P),
    ],
)
def test_target_mix(lipschitz: list[float], sigma: float, q: list[float]) -> None:
    near(target_mix(P, PI, np.array(lipschitz), sigma), q)


def test_sample_weights() -> None:
    """The hand check of the notes: weights .75 = .6/.8 and 2 = .4/.2 up to the size of the client."""
    ctx = SimpleNamespace(
        received={"q": torch.tensor([0.6, 0.4, 0.0])},
        label_counts=np.array([8, 2, 0]),
        data=SimpleNamespace(y=torch.tensor([0] * 8 + [1] * 2)),
    )
    weights = ISFL(sigma=0.02, N_p=1).sample_weights(ctx)
    np.testing.assert_allclose(weights * 10, [0.75] * 8 + [2.0] * 2, rtol=1e-6)
    ctx.label_counts = np.array([10, 0, 0])
    ctx.data.y = torch.zeros(10, dtype=torch.long)
    assert ISFL(sigma=0.02, N_p=1).sample_weights(ctx) is None, "one class: plain epochs"


def classifier() -> Net:
    """logits = W x for x in R^2: the gradient of one sample's cross-entropy is (softmax - one_hot) x'."""
    return Net(nn.Flatten(), nn.Linear(2, 2, bias=False), 2).double()


@pytest.mark.parametrize("proxy", ["pooled", "local"])
def test_lipschitz_estimates(proxy: str) -> None:
    """Against the gradients of this model written out, at w and at the model after training."""
    rng = np.random.default_rng(3)
    xs, ys = [rng.normal(size=(4, 2)) for _ in range(2)], [np.array([0, 0, 1, 1]), np.array([1, 1, 1, 0])]
    recorder = Recorder()
    rule = ISFL(sigma=0.02, N_p=100, proxy=proxy)
    method = with_rules(rule, recorder, config={"server": {"weights": {"name": "uniform"}}})
    w0 = rng.normal(size=4)
    model = federation(problem_of(xs, ys, 2), method, classifier(), rounds=1, epochs=1, batch_size=4, w0=w0)
    state = run(model)[-1]
    counts = np.array([[2, 2], [1, 3]])
    p = counts.sum(0) / 8
    for _, k, end in recorder.ends:
        x, y = (np.concatenate(xs), np.concatenate(ys)) if proxy == "pooled" else (xs[k], ys[k])

        def gradients(w: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> np.ndarray:
            logits = x @ w.reshape(2, 2).T
            softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            return np.einsum("bc,bf->bcf", softmax - np.eye(2)[y], x)

        w = end.w.numpy()
        change = np.linalg.norm((gradients(w) - gradients(w0)).reshape(len(y), -1), axis=1)
        change /= np.linalg.norm(w - w0)
        lipschitz = np.array([change[y == c].max() for c in range(2)])
        expected = target_mix(p, counts[k] / 4, lipschitz, 0.02)
        near(state.rules["isfl"]["q"][str(k)], expected, 1e-9)


def test_draws_follow_the_mix() -> None:
    """Round 0 draws by the global mix: the pooled classes are even, so a client of 90 and 10 draws half and half."""
    recorder = Recorder()
    rule = ISFL(sigma=0.02, N_p=1, refresh_every=100)
    x = np.ones((100, 2))
    problem = problem_of([x, x], [np.array([0] * 90 + [1] * 10), np.array([1] * 90 + [0] * 10)], 2)
    model = federation(problem, with_rules(rule, recorder), classifier(), rounds=1, epochs=40, batch_size=100)
    run(model)
    drawn = np.concatenate([y.numpy() for _, client, _, y, _ in recorder.batches if client == 0])
    assert len(drawn) == 4000
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)
