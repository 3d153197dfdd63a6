"""Whole rounds against numbers that public reference code produced (tests/golden/baselines)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from federations import federation, mlp, problem_of, run

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEDULES = {"full": {"epochs": 3, "batch_size": 1000}, "mini": {"epochs": 2, "batch_size": 8}}


def rounds_of(file: str, split: str, schedule: str, method: dict) -> tuple[np.ndarray, dict]:
    """(global vectors after rounds 1..3, the stored arrays)."""
    g = dict(np.load(GOLDEN / "baselines" / f"{file}.npz"))
    problem = problem_of([g[f"{split}_X{k}"] for k in range(4)], [g[f"{split}_y{k}"] for k in range(4)], 3)
    states = run(federation(problem, method, mlp(), lr=float(g["lr"]), w0=g["w0"], **SCHEDULES[schedule]))
    return np.stack([s.w.numpy() for s in states[1:]]), g


CASES = [(a, s) for a in ("uneq", "eq") for s in SCHEDULES]


@pytest.mark.parametrize(("split", "schedule"), CASES)
def test_fedavg(split: str, schedule: str) -> None:
    w, g = rounds_of("fedavg", split, schedule, {})
    np.testing.assert_allclose(w, g[f"{split}_{schedule}_w"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("split", "schedule"), CASES)
def test_fedprox(split: str, schedule: str) -> None:
    w, g = rounds_of("fedprox", split, schedule, {"client": {"fedprox": {"mu": 0.5}}})
    np.testing.assert_allclose(w, g[f"{split}_{schedule}_w"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("split", "schedule"), CASES)
@pytest.mark.parametrize("form", ["classic", "nesterov"])
@pytest.mark.parametrize(("suffix", "beta", "lr"), [("", 0.9, 1.0), ("2", 0.7, 0.5)])
def test_fedavgm(split: str, schedule: str, form: str, suffix: str, beta: float, lr: float) -> None:
    optimizer = {"name": "momentum", "beta": beta, "lr": lr, "momentum_form": form}
    w, g = rounds_of("fedavgm", split, schedule, {"server": {"optimizer": optimizer}})
    np.testing.assert_allclose(w, g[f"{split}_{schedule}_{form}{suffix}_w"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("setting", "beta", "lr"),
    [("beta0p5_lr1p0", 0.5, 1.0), ("beta0p0_lr1p0", 0.0, 1.0), ("beta0p9_lr0p3", 0.9, 0.3)],
)
def test_fedavgm_of_fedsdc_and_flower(setting: str, beta: float, lr: float) -> None:
    """FedSDC Eq. 4-5 and Flower's FedAvgM: the same rule, so the same numbers, on three layers and three rounds."""
    from methods.fedavgm import ServerMomentum

    g = dict(np.load(GOLDEN / "fedsdc_fedavgm.npz"))
    rule = ServerMomentum(beta=beta, lr=lr)

    def flat(name: str, *at: int) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([g[f"{name}_l{k}"][at].ravel() for k in range(3)]))

    w = flat("phi0")
    state = rule.setup(w)
    for t in range(3):
        p = g["n_samples"][t] / g["n_samples"][t].sum()
        # The paper's Delta is old minus new, ours new minus old.
        dbar = -sum(float(p[i]) * flat("Delta", t, i) for i in range(4))
        w, state = rule.step(w, dbar, state)
        np.testing.assert_allclose(w, flat(f"{setting}_phi_code", t + 1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(w, flat(f"{setting}_phi_paper", t + 1), rtol=0, atol=1e-12)
