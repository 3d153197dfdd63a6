"""Measures of features: FedMR's spread of eigenvalues (its Table 7), by hand and against its Lemma 1."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import federation, mlp, problem_of
from scipy.linalg import hadamard
from torch import Tensor

from benchmark.engine.measures import spread
from methods.core.samples import Samples


def data(z: np.ndarray | Tensor, y: list[int] | np.ndarray) -> Samples:
    return Samples(torch.as_tensor(z), torch.as_tensor(y), lambda x: x)


def test_two_features_by_hand() -> None:
    """(+-1, +-1) in step: M = [[2, 2], [2, 2]], eigenvalues 4 and 0, (2^2 + 2^2)/128. All four signs: M = 4/3 I, 0."""
    together = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    assert spread(together) == pytest.approx(8 / 128, rel=1e-12)
    every = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert spread(every) == pytest.approx(0, abs=1e-12)
    # Neither scale nor place of a feature matters, nor its sign.
    moved = together.double() * torch.tensor([3.0, -0.01]) + torch.tensor([5.0, 700.0])
    assert spread(moved) == pytest.approx(8 / 128, rel=1e-9)


def test_only_the_fifty_largest_count() -> None:
    """60 columns of a Hadamard matrix, two of them repeats of the first but for it orthogonal: with a = 128/127 the
    eigenvalues are 3a, a 57 times, 0 twice. Mean of the first 50: 52a/50; (1.96^2 + 49 * .04^2) a^2 / 128."""
    columns = torch.from_numpy(hadamard(128)[:, 1:59].astype(np.float64))
    z = torch.cat([columns, columns[:, :1], columns[:, :1]], dim=1)
    assert z.shape == (128, 60)
    a = 128 / 127
    assert spread(z) == pytest.approx((1.96**2 + 49 * 0.04**2) * a**2 / 128, rel=1e-10)
    # Two samples in 60 dimensions that all vary: one eigenvalue 120, and 49 zeros that count.
    z = torch.stack([torch.ones(60), -torch.ones(60)])
    assert spread(z) == pytest.approx((117.6**2 + 49 * 2.4**2) / 128, rel=1e-12)


@pytest.mark.parametrize(("samples", "dims"), [(128, 7), (40, 30), (9, 20)])
def test_lemma_1(samples: int, dims: int) -> None:
    """sum (lam_i - mean)^2 = ||M||_F^2 - d for a unit diagonal. With M's divisor n - 1 its diagonal is n/(n - 1), so
    the identity holds for M (n - 1)/n, and for M with d (n/(n - 1))^2."""
    rng = np.random.default_rng(dims)
    z = rng.normal(size=(samples, dims)) @ rng.normal(size=(dims, dims))
    standard = (z - z.mean(0)) / z.std(0)
    m = standard.T @ standard / (samples - 1)
    ratio = samples / (samples - 1)
    np.testing.assert_allclose(np.diag(m), ratio, rtol=1e-12)
    assert 128 * spread(torch.from_numpy(z)) / ratio**2 == pytest.approx(
        ((m / ratio) ** 2).sum() - dims, rel=1e-9
    )


def test_recorded_at_every_evaluation() -> None:
    """The global model's features of the test set, in evaluation mode, under both names."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(20, 6)), np.arange(20) % 3
    problem = problem_of([x], [y], 3)
    problem = replace(problem, evaluation_sets={"test": data(x, y)})
    run = replace(federation(problem, {}, mlp(), rounds=1), measures=("eigenvalue_spread",))
    state, _ = run.run_round(run.initial_state())
    recorded = {r.metric: r.value for r in run.evaluate(state) if r.metric.startswith("eigenvalue")}
    w1, b1 = state.w[:48].view(8, 6), state.w[48:56]
    z = torch.tanh(torch.from_numpy(x) @ w1.T + b1)
    assert recorded["eigenvalue_spread"] == pytest.approx(spread(z), rel=1e-9)
    assert set(recorded) == {"eigenvalue_spread", "eigenvalue_spread_class"}
