"""Clients whose loss is a parabola, so that every fixed point can be derived by hand.

f_k(v) = a_k/2 (v - b_k)^2. One local step from v is v <- v - eta a_k (v - b_k), so v - b_k shrinks by 1 - eta
a_k and tau steps from w end at w + c_k (b_k - w) with c_k = 1 - (1 - eta a_k)^tau. FedAvg: w <- w + sum_k p_k
c_k (b_k - w); at rest sum_k p_k c_k (b_k - w) = 0, so w* = sum_k p_k c_k b_k / sum_k p_k c_k. (The minimum of
the mean loss is the same with a_k in place of c_k.) Here eta = 0.05, tau = 10."""

from typing import Any

import numpy as np
import pytest
from federations import Quadratic, federation, one_parameter, ones, run, with_rules

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Diverged

ETA, TAU = 0.05, 10
A, B = (1.0, 10.0), (1.0, -1.0)


def pull(a: float) -> float:
    """c_k: how much of the way to its fixed point client k goes in one round."""
    return 1 - (1 - ETA * a) ** TAU


def quadratic(
    config: dict[str, Any], sizes: tuple[int, ...], a: tuple[float, ...], b: tuple[float, ...], start: float = 3.0,
    **options: Any,
) -> FederatedRun:  # fmt: skip
    """Clients of ``sizes`` with the parabolas a and b; w starts at ``start``."""
    method = with_rules(Quadratic(a=a, b=b), config=config)
    options = {"lr": ETA, "epochs": TAU, "w0": np.array([start])} | options
    return federation(ones(*sizes), method, one_parameter(), **options)


def final(config: dict[str, Any], sizes: tuple[int, ...] = (1, 1), rounds: int = 28) -> float:
    return float(run(quadratic(config, sizes, A, B, rounds=rounds))[-1].w)


def test_fedavg_settles_where_the_local_progress_balances() -> None:
    """c = (1 - .95^10, 1 - .5^10) = (.401263, .999023), so w* = (.401263 - .999023)/(.401263 + .999023) = -.4269."""
    w = final({})
    assert w == pytest.approx(-0.4269, abs=5e-5)
    assert w == pytest.approx((pull(1) - pull(10)) / (pull(1) + pull(10)), abs=1e-12)


def test_fedavg_weights_clients_by_size() -> None:
    """Three samples and one, each in one batch: p = (3/4, 1/4), w* = (3 c_1 - c_2)/(3 c_1 + c_2)."""
    assert final({}, sizes=(3, 1), rounds=42) == pytest.approx(
        (3 * pull(1) - pull(10)) / (3 * pull(1) + pull(10)), abs=1e-12
    )
    uniform = final({"server": {"weights": {"name": "uniform"}}}, sizes=(3, 1))
    assert uniform == pytest.approx((pull(1) - pull(10)) / (pull(1) + pull(10)), abs=1e-12)


def test_unsquared_proximal_term_has_constant_size() -> None:
    """mu |v - w| pulls with mu whatever the distance; the first step, at v = w, has no pull at all.

    One client, a = 1, b = 1, w = 0, eta = .05, mu = .4, two steps: v_1 = .05; v_2 = .05 + .05 (.95 - .4) = .0775.
    """
    config = {"client": {"fedprox": {"mu": 0.4, "prox_norm": "unsquared_per_tensor"}}}
    model = quadratic(config, (1,), (1.0,), (1.0,), start=0.0, rounds=1, epochs=2)
    assert float(run(model)[-1].w) == pytest.approx(0.0775, abs=1e-15)


@pytest.mark.parametrize("selection", ["uniform", "round_robin"])
@pytest.mark.parametrize("kappa", [1, 2])
def test_partial_participation_follows_the_chosen_clients(selection: str, kappa: int) -> None:
    """w <- w + (1/m) sum over S of c_k (b_k - w), for the clients that took part; sizes (1, 2, 1) weigh them."""
    a, b, sizes = (1.0, 10.0, 4.0), (1.0, -1.0, 2.0), (1, 2, 1)
    config = {"selection": {"name": selection}}
    model = quadratic(config, sizes, a, b, start=1.0, clients_per_round=kappa)
    state, w, seen = model.initial_state(), 1.0, set()
    for _ in range(15):
        state, report = model.run_round(state)
        total = sum(sizes[k] for k in report.clients)
        w += sum(sizes[k] / total * pull(a[k]) * (b[k] - w) for k in report.clients)
        assert len(report.clients) == kappa
        assert float(state.w) == pytest.approx(w, abs=1e-12)
        seen.add(report.clients)
    assert len(seen) == 3  # three clients, or three pairs


def test_a_loss_that_overflows_ends_the_run_as_diverged() -> None:
    """a_k eta = 200: the second client's parameter grows by a factor of -199 per step until it overflows."""
    with pytest.raises(Diverged, match="client 1 is not finite"):
        run(quadratic({}, (1, 1), (1.0, 4000.0), (1.0, 1.0), rounds=50))
