"""Every method of conf/method on quadratic clients with a known optimum.

Client k holds f_k(v) = a_k/2 (v - b_k)^2. Two clients (a = 1, 10; b = 1, -1): the mean loss is least at sum a b / sum
a = -9/11 = -0.8182; FedAvg settles elsewhere, where local progress balances. A third client (a = 4,
b = 3) moves the minimum to 3/15 = 0.2. The model is z = theta x, logits = phi z; the parabola is one in z, so that
theta is w and phi, which every method may treat as its head, has no gradient.

Methods that remove the bias must end at the minimum, also with part of the clients and with client momentum. Of all
others the whole way is followed, round by round, by a scalar recursion written from their papers.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from federations import Quadratic, federation, ones, reported, two_parameters, with_rules

from benchmark.config.compose import group_names, load_group

ETA, TAU = 0.05, 4
A, B = (1.0, 10.0, 4.0), (1.0, -1.0, 3.0)
START = 3.0

Round = tuple[int, ...]
Step = Callable[[float, Sequence[float]], float]
"""(w, updates of the participants) -> w."""


def local(k: int, w: float, rho: float, *, tau: int = TAU, **terms: float) -> float:
    """The update of client k: tau steps of SGD with momentum rho on f_k + mu/2 (v - w)^2.

    The gradient of f_k is taken ``e`` further up, where there is a way up; it counts ``own``, and ``delta`` is added.
    """
    mu, e, own, delta = (terms.get(name, 0.0) for name in ("mu", "e", "own", "delta"))
    v, velocity = w, 0.0
    for _ in range(tau):
        climbed = v + e * ((v > B[k]) - (v < B[k]))
        velocity = rho * velocity + (own or 1.0) * A[k] * (climbed - B[k]) + mu * (v - w) + delta
        v -= ETA * velocity
    return v - w


def mean(w: float, updates: Sequence[float]) -> float:
    return w + sum(updates) / len(updates)


def momentum(beta: float, lr: float) -> Iterator[Step]:
    """v <- beta v + Dbar, w <- w + eta_s v."""
    v = 0.0

    def step(w: float, updates: Sequence[float]) -> float:
        nonlocal v
        v = beta * v + sum(updates) / len(updates)
        return w + lr * v

    yield step


def adaptive(
    beta1: float, second: Callable[[float, float], float], eta: float = 0.01, tau: float = 0.001
) -> Iterator[Step]:
    """m <- beta1 m + (1 - beta1) Dbar, w <- w + eta m/(sqrt v + tau), v_0 = tau^2."""
    m, v = 0.0, tau**2

    def step(w: float, updates: Sequence[float]) -> float:
        nonlocal m, v
        dbar = sum(updates) / len(updates)
        m, v = beta1 * m + (1 - beta1) * dbar, second(v, dbar**2)
        return w + eta * m / (v**0.5 + tau)

    yield step


def yogi(v: float, squared: float) -> float:
    return v - 0.01 * squared * ((v > squared) - (v < squared))


def harmonised(w: float, updates: Sequence[float]) -> float:
    """On a line an update that conflicts with any other is projected to 0."""
    kept = [d if all(d * other >= 0 for other in updates) else 0.0 for d in updates]
    return w + sum(kept) / len(kept)


# Whole runs, for methods that change more than the server's step: (participants of each round, rho) -> w by round.


def fedcm(turns: Sequence[Round], rho: float) -> list[float]:
    """alpha = 0.1; a_k = sum over steps i of (1 - rho^i)/(1 - rho), which is tau for rho = 0."""
    weight = sum(sum(rho**j for j in range(i + 1)) for i in range(TAU))
    found, delta = [START], 0.0
    for chosen in turns:
        updates = [local(k, found[-1], rho, own=0.1, delta=0.9 * delta) for k in chosen]
        found.append(mean(found[-1], updates))
        delta = -sum(updates) / len(updates) / (ETA * weight)
    return found


def fedacg(turns: Sequence[Round], rho: float) -> list[float]:
    """lambda = 0.5, beta = 0.1; theta is what is found, clients start at theta + lambda m."""
    found, m = [START], 0.0
    for chosen in turns:
        sent = found[-1] + 0.5 * m
        updates = [local(k, sent, rho, mu=0.1) for k in chosen]
        m = 0.5 * m + sum(updates) / len(updates)
        found.append(found[-1] + m)
    return found


def extrapolated(w: float, updates: Sequence[float]) -> float:
    """eps = 0.001."""
    mean = sum(updates) / len(updates)
    return w + max(1.0, sum(d * d for d in updates) / len(updates) / (2 * (mean**2 + 0.001))) * mean


def fedlesam(turns: Sequence[Round], rho: float) -> list[float]:
    """rho = 0.1 uphill of the way since the client's last round: on a parabola the gradient grows by a_k times that."""
    found, old = [START], dict[int, float]()
    for chosen in turns:
        w = found[-1]
        up = {k: 0.1 * ((old[k] > w) - (old[k] < w)) if k in old else 0.0 for k in chosen}
        found.append(mean(w, [local(k, w, rho, delta=A[k] * up[k]) for k in chosen]))
        old |= dict.fromkeys(chosen, w)
    return found


def fedgloss(turns: Sequence[Round], rho: float) -> list[float]:
    """rho = rho_l = 0.15, beta = 10; K is how many clients ever take part."""
    num_clients = len({k for chosen in turns for k in chosen})
    found, pseudo, sigma, sigmas = [START], 0.0, 0.0, [0.0] * 3
    for chosen in turns:
        sent = found[-1] + 0.15 * ((pseudo > 0) - (pseudo < 0))
        updates = {k: local(k, sent, rho, e=0.15, mu=0.1, delta=-sigmas[k]) for k in chosen}
        for k, update in updates.items():
            sigmas[k] -= update / 10
        sigma -= sum(updates.values()) / 10 / num_clients
        pseudo = -sum(updates.values()) / len(updates)
        found.append(found[-1] - pseudo - 10 * sigma)
    return found


FEDAVG = "the rounds of FedAvg"
OPTIMUM = "the minimum of the mean loss"
SDC = {"server": lambda: next(momentum(0.5, 1.0))}
PROX = {"client": {"fedprox": {"mu": 0.1}}}
NO_INTRA = {"client": {"fedmr": {"mu1": 0.0}}}  # one feature cannot be decorrelated

EXPECTED: dict[str, Any] = {
    "fedavg": FEDAVG,
    "fedprox": {"change": PROX, "local": {"mu": 0.1}},
    "fedavgm": SDC,
    "fedavgm+fedprox": {
        "change": PROX | {"server": {"optimizer": {"beta": 0.5, "lr": 1.0}}},
        "server": lambda: next(momentum(0.5, 1.0)),
        "local": {"mu": 0.1},
    },
    "fedadam": {"server": lambda: next(adaptive(0.9, lambda v, s: 0.99 * v + 0.01 * s))},
    "fedyogi": {"server": lambda: next(adaptive(0.9, yogi))},
    "fedadagrad": {"server": lambda: next(adaptive(0.0, lambda v, s: v + s, 0.1, 0.01))},
    "fednova": FEDAVG,  # equal steps; unequal ones below
    "feddisco": FEDAVG,  # one class: all labels are as the target
    "fedgh": {"server": lambda: harmonised},
    "isfl": FEDAVG,  # one class: nothing to choose among
    "moon": FEDAVG,  # one feature: its cosine does not change
    "feddecorr": FEDAVG,  # one feature: nothing to decorrelate
    "feddecorr_code": FEDAVG,
    "fedntd": FEDAVG,  # one class: no other one to distil
    "fedrs": FEDAVG,  # one class: none is missing
    "fedlc": FEDAVG,  # one class: its probability is 1
    "fedvls": FEDAVG,  # one class: none is missing, and all samples have it
    "fedvls_code": FEDAVG,
    "balanced_sampling": FEDAVG,  # one class: nothing to balance
    "fedproc": FEDAVG,  # one class: nothing to contrast
    "fedbn": FEDAVG,  # no normalisation
    "fedrep": {"change": {"client": {"fedrep": {"E_b": None}}}},
    "fedpac": {"change": {"client": {"fedpac": {"lam": 0.0}}}},
    "fedld_principal": FEDAVG,  # on a line every direction is principal
    "fedld_margin": {"change": {"client": {"fedld_margin": {"lam": 0.0}}}},
    "fedld": {"change": {"client": {"fedld_margin": {"lam": 0.0}}}},
    **{f"fedsdc{part}": SDC for part in ("", "_m1", "_m2", "_m3", "_plus")},
    **{
        f"fedmr{part}": {"change": NO_INTRA}
        for part in ("", "_intra", "_lite10", "_lite50", "_proto50", "_proto80")
    },
    "fedmr_inter": FEDAVG,  # one class: no other prototype
    "feddyn": {"change": {"client": {"feddyn": {"alpha": 3.0}}}, "optimum": True},
    "feddc": {"change": {"client": {"feddc": {"alpha": 0.1}}}, "optimum": True},
    "scaffold": OPTIMUM,
    "fedsam": {"local": {"e": 0.05}},
    "fedcm": {"way": fedcm},
    "fedacg": {
        "change": {"client": {"fedprox": {"mu": 0.1}}, "server": {"optimizer": {"lam": 0.5}}},
        "way": fedacg,
    },
    "fedexp": {"server": lambda: extrapolated},
    "fedlesam": {"way": fedlesam},
    "fedgloss": {"way": fedgloss},
    "local": {
        "server": lambda: lambda w, updates: w
    },  # nothing is averaged; its models are in tests/runs/test_anchors.py
    "central": FEDAVG,  # who builds the run pools the data
    "fedetf": FEDAVG,  # one class: its loss is 0
    "fedgela": FEDAVG,  # one class
}
BESIDE_PROTOTYPES = ("feddc", "feddyn", "fednova", "fedprox", "moon")
"""With prototypes nothing changes, as there is one class: nothing to contrast."""

MINIMUM = [(2, 2, 0.0, 50), (2, 2, 0.9, 50), (3, 2, 0.9, 150), (3, 1, 0.0, 160)]
TO_OPTIMUM = [n for n, e in EXPECTED.items() if e == OPTIMUM or (isinstance(e, dict) and e.get("optimum"))]


def merged(config: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """``config`` with the leaves of ``change`` put in."""
    out = copy.deepcopy(config)
    for key, value in change.items():
        out[key] = merged(out.get(key) or {}, value) if isinstance(value, dict) else value
    return out


def way(
    config: dict[str, Any], sizes: Sequence[int], kappa: int, rho: float, rounds: int, **options: Any
) -> tuple[list[float], list[Round]]:
    """(w after 0, 1, ... rounds, the clients of each) of a method."""
    method = with_rules(Quadratic(a=A, b=B), config=config)
    w0 = torch.tensor([START, 0.7], dtype=torch.float64).numpy()
    options = {"lr": ETA, "epochs": TAU, "momentum": rho, "clients_per_round": kappa, "w0": w0} | options
    model = federation(ones(*sizes), method, two_parameters(), rounds=rounds, **options)
    states, reports = reported(model)
    return [float(state.w[0]) for state in states], [report.clients for report in reports]


def configured(name: str, prototypes: bool = False) -> dict[str, Any]:
    """A method of conf/method, with the parameters of ``EXPECTED``."""
    config, says = load_group("method", f"{name}+prototypes" if prototypes else name), EXPECTED[name]
    return merged(config, says.get("change", {})) if isinstance(says, dict) else config


def test_every_method_is_here() -> None:
    assert sorted([*EXPECTED, *(f"{name}+prototypes" for name in BESIDE_PROTOTYPES)]) == group_names("method")


@pytest.mark.parametrize(("clients", "kappa", "rho", "rounds"), MINIMUM)
@pytest.mark.parametrize("name", TO_OPTIMUM)
def test_reaches_the_minimum(name: str, clients: int, kappa: int, rho: float, rounds: int) -> None:
    found, turns = way(configured(name), [1] * clients, kappa, rho, rounds)
    assert found[-1] == pytest.approx(-9 / 11 if clients == 2 else 0.2, abs=1e-4)
    assert len(set(turns)) == (1 if kappa == clients else 3)


@pytest.mark.parametrize(("clients", "kappa", "rho"), [(2, 2, 0.0), (3, 2, 0.9), (3, 1, 0.0)])
@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in TO_OPTIMUM])
def test_follows_its_paper(name: str, clients: int, kappa: int, rho: float) -> None:
    says = EXPECTED[name] if isinstance(EXPECTED[name], dict) else {}
    found, turns = way(configured(name), [1] * clients, kappa, rho, 12)
    assert {len(chosen) for chosen in turns} == {kappa}
    if "way" in says:
        expected = says["way"](turns, rho)
    else:
        step, expected = says.get("server", lambda: mean)(), [START]
        for chosen in turns:
            w = expected[-1]
            expected.append(step(w, [local(k, w, rho, **says.get("local", {})) for k in chosen]))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_fedavg_settles_where_the_local_progress_balances() -> None:
    """10 steps go c_k = 1 - (1 - eta a_k)^10 of the way to b_k: .401263 and .999023. With p_k = n_k/n (3/4, 1/4) the
    pulls p_k c_k (b_k - w) balance at (3 x .401263 - .999023)/(3 x .401263 + .999023) = .0929565."""
    found, _ = way({}, (3, 1), 2, 0.0, 42, epochs=10)
    assert found[-1] == pytest.approx(0.0929565, abs=1e-6)


def test_unsquared_proximal_term_has_constant_size() -> None:
    """mu |v - w| pulls with mu whatever the distance; the first step, at v = w, has no pull at all.

    One client, a = 1, b = 1, w = 3, mu = .4, two steps: v_1 = 3 - .05 2 = 2.9; v_2 = 2.9 - .05 (1.9 - .4) = 2.825.
    """
    config = {"client": {"fedprox": {"mu": 0.4, "prox_norm": "unsquared_per_tensor"}}}
    found, _ = way(config, (1,), 1, 0.0, 1, epochs=2)
    assert found[-1] == pytest.approx(2.825, abs=1e-14)


@pytest.mark.parametrize("name", BESIDE_PROTOTYPES)
def test_prototypes_change_nothing_for_a_single_class(name: str) -> None:
    with_them, without = (way(configured(name, both), (1, 1, 1), 2, 0.9, 5) for both in (True, False))
    assert with_them == without


@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.5), (0.9, 0.5)])
def test_fednova_with_unequal_steps(rho: float, mu: float) -> None:
    """Clients of 1 and 3 samples take 4 and 12 steps of one sample: w <- w + tau_eff sum_k p_k D_k / a_k.

    a_k is the sum of the coefficients of the gradients in -D_k/eta: a step's gradient shrinks by (1 - eta mu) and comes
    again with momentum rho. tau_eff = sum_k p_k a_k, with a proximal term sum_k p_k tau_k.
    """
    p, taus, a = (0.25, 0.75), (TAU, 3 * TAU), []
    for tau in taus:
        way_gone, velocity = 0.0, 0.0
        for _ in range(tau):  # every gradient counts 1; the pull of mu is what it does to the way gone
            velocity = rho * velocity + 1 - ETA * mu * way_gone
            way_gone += velocity
        a.append(way_gone)
    tau_eff = sum(p[k] * (taus if mu else a)[k] for k in range(2))
    config = {"server": {"direction": {"name": "nova"}}, "client": {"fedprox": {"mu": mu}}}
    found, _ = way(config, (1, 3), 2, rho, 6, batch_size=1)
    expected = [START]
    for w in found[:-1]:
        expected.append(
            w + tau_eff * sum(p[k] * local(k, w, rho, mu=mu, tau=taus[k]) / a[k] for k in range(2))
        )
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_tau_k_diverges_under_momentum(name: str) -> None:
    """Why a_k is the default: at momentum .9 ten steps weigh a_k = 41 gradients, and tau_k overrates them fourfold."""
    for scale, diverges in (("a_k", False), ("tau_k", True)):
        config = merged(load_group("method", name), {"client": {name: {"control_scale": scale}}})
        found, _ = way(config, (1, 1, 1), 2, 0.9, 40, epochs=10)
        assert (abs(found[-1] - 0.2) > 1e3) == diverges
