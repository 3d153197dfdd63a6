"""POW-D, FedPNS, round robin as in the code, and what holds for every selection."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import (
    Quadratic,
    asked,
    assert_resumes,
    bn_dropout,
    classes,
    federation,
    mlp,
    near,
    one_parameter,
    ones,
    run,
    seeded,
    with_rules,
)
from golden_cases import stored, stored_problem
from selection_cases import HCS, HICS, MOMENTUM, PNS, Fake, rng
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.views import client_pool
from methods.core.method import build
from methods.core.vectors import gram
from methods.selection.fedpns import FedPNS, agreement, flag
from methods.selection.powd import PowD
from methods.selection.round_robin import RoundRobin

POWD, FEDPNS = stored("baselines/powd"), stored("baselines/fedpns")


# All of them -----------------------------------------------------------------------------------------------------

ALL: dict[str, dict[str, Any]] = {
    "powd": {"name": "powd", "d": None},
    "powd, 3 candidates": {"name": "powd", "d": 3},
    "powd, reference": {"name": "powd", "d": 3, "variant": "reference", "batch_size": 2},
    "fedpns": PNS,
    "fedpns, probability": PNS | {"weights": "probability"},
    "fedpns, reference": PNS | {"variant": "reference", "min_keep": 1},
    "hcsfed": HCS,
    "hcsfed, reference": HCS | {"variant": "reference"},
    "hicsfl": HICS,
    "hicsfl, reference": HICS | {"variant": "reference"},
    "round robin, reference": {"name": "round_robin", "variant": "reference"},
}
SIZES = (5, 9, 3, 7, 4)


def built(name: str, net_seed: int = 0, sizes: Sequence[int] = SIZES, **options: Any) -> FederatedRun:
    method = {"selection": ALL[name], "server": MOMENTUM}
    options = {"clients_per_round": 2, "rounds": 6, "momentum": 0.9, "batch_size": 4, "order": None} | options
    net = options.pop("net", bn_dropout)
    return federation(classes(sizes), method, seeded(net, net_seed), **options)


@pytest.mark.parametrize("name", ALL)
def test_resume_is_bit_for_bit(name: str, tmp_path: Path) -> None:
    """What is drawn depends on seed, round and state alone."""
    assert_resumes(lambda seed: built(name, net_seed=seed, rounds=4), tmp_path)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("sizes", [(6,), (5, 4, 6)])
def test_everybody_takes_part_where_kappa_is_k(name: str, sizes: tuple[int, ...]) -> None:
    """K = 1, and kappa = K: the same bits as uniform selection of everybody."""
    options: dict[str, Any] = {"sizes": sizes, "clients_per_round": len(sizes), "rounds": 3, "net": mlp}
    single: dict[str, Any] = {"Hc": 1} if "Hc" in ALL[name] else {}
    if name.startswith("fedpns, "):
        single = {"weights": "method"}
    elif "d" in ALL[name]:
        single = {"d": len(sizes)}
    chosen = build({"selection": ALL[name] | single, "server": MOMENTUM})
    uniform = build({"server": MOMENTUM})
    states, others = (run(replace(built(name, **options), method=method)) for method in (chosen, uniform))
    assert all(torch.equal(state.w, other.w) for state, other in zip(states, others, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_equal_clients(name: str) -> None:
    """All losses, updates (zero) and norms are equal: nothing is divided by zero, nothing warns; kappa take part."""
    method = {"selection": ALL[name] | ({"Hc": 3} if "Hc" in ALL[name] else {}), "server": MOMENTUM}
    model = federation(ones(2, 2, 2, 2, 2), method, mlp(1, 1, 1), clients_per_round=2)
    first: tuple[int, ...] = (5,) if name.startswith("hcsfed") else ()
    first = (2, 2, 1) if name.startswith("hicsfl") else first
    state = model.initial_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kappa in (*first, 2, 2):
            state, report = model.run_round(state)
            assert len(report.clients) == kappa
            assert bool(torch.isfinite(state.w).all())


# POW-D -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["full", "mini"])
def test_powd_rounds(schedule: str) -> None:
    """Losses, chosen clients and global vectors of three rounds; the authors weight the chosen ones equally."""
    budget = {"full": {"epochs": 3, "batch_size": 1000}, "mini": {"epochs": 2, "batch_size": 8}}[schedule]
    problem = stored_problem(POWD, "uneq")
    method = {"selection": {"name": "powd", "d": 4}, "server": {"weights": {"name": "uniform"}}}
    model = federation(problem, method, mlp(), lr=0.05, w0=POWD["w0"], clients_per_round=2, **budget)
    state = model.initial_state()
    for t in range(3):
        losses = client_pool(model.clients, state, Cost()).ask(range(4), PowD(d=4)._loss)[:, 0]
        near(losses, POWD[f"uneq_{schedule}_losses"][t], 1e-8)
        state, report = model.run_round(state)
        assert set(report.clients) == set(POWD[f"uneq_{schedule}_selected"][t])
        assert report.cost == Cost(scalars_up=4, forward=60)
        near(state.w, POWD[f"uneq_{schedule}_w"][t], 1e-9)


def test_powd_takes_the_highest_of_the_candidates() -> None:
    for candidates, selected in zip(POWD["sel_candidates"], POWD["sel_selected"], strict=True):
        fake = Fake(POWD["sel_n"][candidates], POWD["sel_loss"][candidates])
        ids, _ = PowD(d=None).choose(0, 3, fake, {}, rng())
        assert set(candidates[list(ids)]) == set(selected)
        ids, _ = PowD(d=None, prefer="lowest").choose(0, 2, fake, {}, rng())
        assert not set(candidates[list(ids)]) & set(selected)


def test_powd_loss_is_the_mean_over_samples_in_evaluation_mode() -> None:
    """600 samples come in batches of 512 and 88; dropout is off and BatchNorm's statistics are the running ones."""
    problem = classes((600, 11))
    model = federation(problem, {}, bn_dropout(), batch_size=8)
    state = model.initial_state()
    net = model.model.net.eval()
    with torch.no_grad():
        each = F.cross_entropy(net.classify(net.features(problem.images)), problem.labels, reduction="none")
    each = each.numpy()
    found, _ = asked(model, PowD(d=2)._loss)
    np.testing.assert_allclose(found[:, 0], [each[:600].mean(), each[600:].mean()], rtol=1e-12)
    # FedDiverse's code: mean losses of batches of 4, 4 and 3 samples, summed, by 11.
    parts = each[600:604].mean() + each[604:608].mean() + each[608:].mean()
    for options in ({"variant": "reference"}, {"loss": "batch_means"}):
        found, _ = asked(model, PowD(d=2, batch_size=4, **options)._loss)
        np.testing.assert_allclose(found[1], [parts / 11], rtol=1e-12)
    found, _ = asked(model, PowD(d=2, variant="reference", loss="mean")._loss)
    np.testing.assert_allclose(found[1], [each[600:].mean()], rtol=1e-12)
    assert torch.equal(state.buffers, model.model.buffers)


# FedPNS ----------------------------------------------------------------------------------------------------------


def test_fedpns_scores() -> None:
    whole, without = agreement(gram(torch.from_numpy(FEDPNS["G"])).numpy())
    np.testing.assert_allclose(whole, FEDPNS["score_all"], rtol=1e-12)
    np.testing.assert_allclose(without, FEDPNS["score_without"], rtol=1e-12)


@pytest.mark.parametrize(("min_keep", "flagged"), [(8, [8, 3]), (10, [8, 3]), (11, [8]), (12, [])])
def test_fedpns_flags_the_wrong_labels(min_keep: int, flagged: list[int]) -> None:
    """The authors' code flags 8, then 3, and stops by itself; min_keep would stop it there too."""
    assert FEDPNS["labelled"].tolist() == [8, 3]
    assert flag(gram(torch.from_numpy(FEDPNS["G"])).numpy(), min_keep) == flagged


def updates_with(bad: Sequence[int], m: int) -> Tensor:
    """1 for everybody but ``bad``, which have -1: En grows until all of those are gone, and falls then."""
    updates = torch.ones(m, 1)
    updates[list(bad)] = -1
    return updates


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_fedpns_probabilities(case: str) -> None:
    """The stored counts are those after the round."""
    before, counts = FEDPNS[f"prob_{case}_in"], FEDPNS[f"prob_{case}_count"]
    labelled = FEDPNS[f"prob_{case}_labeled"]
    f = counts[:, 1].copy()
    f[labelled] -= 1
    state = {"pr": before.tolist(), "s": (counts[:, 0] - 1).tolist(), "f": f.tolist()}
    rule = FedPNS(alpha=2, beta=0.7, cap=1)
    after = rule.observe(range(12), updates_with(labelled, 12), state)
    near(after["pr"], FEDPNS[f"prob_{case}_out"], 1e-15)
    assert after["s"] == counts[:, 0].tolist()
    assert after["f"] == counts[:, 1].tolist()


def test_fedpns_by_hand() -> None:
    """D = 1, 1, -1 of clients 0, 2, 3 of 4: En = 1/3, without the last 2, then at most 1: client 3 is flagged.

    f/s = 1, so the cap .99 applies: .2475 of its .25 go to clients 0, 1, 2, client 1 was absent but not flagged.
    """
    rule = FedPNS(alpha=2, beta=0.7)
    state = rule.setup(Fake([1, 1, 1, 1]))
    after = rule.observe((0, 2, 3), torch.tensor([[1.0], [1.0], [-1.0]]), state)
    near(after["pr"], [0.3325, 0.3325, 0.3325, 0.0025], 1e-15)
    assert (after["s"], after["f"]) == ([1, 0, 1, 1], [0, 0, 0, 1])
    assert rule.measures(after) == {"flags": 1}
    # Unflagged next time: s grows, nothing moves. Flagged again: f/s = 2/3, (2/3 + .7)^2 > 1.
    still = rule.observe((0, 3), torch.tensor([[1.0], [1.0]]), after)
    assert still["pr"] == after["pr"]
    assert still["s"] == [2, 0, 1, 2]
    mild = FedPNS(alpha=2, beta=0.1)
    moved = mild.observe((0, 2, 3), torch.tensor([[1.0], [1.0], [-1.0]]), still)
    cut = 0.0025 * (2 / 3 + 0.1) ** 2
    near(moved["pr"], [0.3325 + cut / 3] * 3 + [0.0025 - cut], 1e-15)


def pulled(targets: Sequence[float], selection: dict, sizes: Sequence[int]) -> FederatedRun:
    """Clients whose updates from w = 0 are their targets: one full step of rate 1 on (w - b)^2 / 2."""
    rule = Quadratic(a=(1.0,) * len(targets), b=tuple(targets))
    method = with_rules(rule, config={"selection": selection})
    return federation(ones(*sizes), method, one_parameter(), lr=1.0, w0=np.zeros(1), epochs=1)


def test_fedpns_may_leave_flagged_updates_out_of_the_mean() -> None:
    """Updates 1, 2, -3.5 of sizes 1, 3, 4: En of all .25/3; without 1 2.25/2, 2 6.25/2, -3.5 9/2; then 4/1 < 9/2."""
    sizes, targets = (1, 3, 4), (1.0, 2.0, -3.5)
    assert flag(np.outer(targets, targets), 1) == [2]
    for selection, w in (
        (PNS, (1 + 6 - 14) / 8),
        (PNS | {"weights": "drop"}, 7 / 4),
        (PNS | {"variant": "reference", "min_keep": 1}, 7 / 4),
        (PNS | {"variant": "reference"}, (1 + 6 - 14) / 8),  # min_keep 8: nobody is flagged
        (PNS | {"variant": "reference", "min_keep": 1, "weights": "method"}, (1 + 6 - 14) / 8),
    ):
        model = pulled(targets, selection, sizes=sizes)
        state, report = model.run_round(model.initial_state())
        assert state.w.tolist() == pytest.approx([w], abs=1e-15)
        assert sum(report.weights) == pytest.approx(1)
        assert (report.weights[2] == 0) == (w == 7 / 4)


def test_fedpns_may_weigh_by_the_probabilities_after_the_rounds_flags() -> None:
    """FedDiverse's code. Updates 1, 2, -3.5: client 2 is flagged, f/s = 1, so that the cap leaves it 1 % of its 1/3.

    The others get .99/6 each: 1/3 + .33/2 = .4983, and .00333. Sizes do not count, and the sum of the weights stays 1.
    Next round w is 1.48 and the updates are -.48, .52 and -4.98: clients 1 and 0 are flagged, (1/2 + .7)^2 > .99.
    """
    model = pulled((1.0, 2.0, -3.5), PNS | {"weights": "probability"}, sizes=(1, 3, 4))
    state, report = model.run_round(model.initial_state())
    p = np.array([1 / 3 + 0.165, 1 / 3 + 0.165, 0.01 / 3])
    near(report.weights, p, 1e-12)
    near(state.selection["pr"], p, 1e-12)
    near(state.w, [0.495 + 0.99 + (3 - 3.5) * 0.01 / 3], 1e-12)
    _, report = model.run_round(state)
    near(report.weights, [p[0] / 100, p[1] / 100, p[2] + 0.99 * (p[0] + p[1])], 1e-12)


# Round robin, as in the public code ------------------------------------------------------------------------------


def test_round_robin_as_in_the_code() -> None:
    """9 of 24 in 200 rounds: a free draw, then one from the 15 others; turns are a binomial of 100 at 3/4 (sd 4.3)."""
    rule, clients = RoundRobin(variant="reference"), Fake([1] * 24)
    state, turns, draws = rule.setup(clients), np.zeros(24), []
    for t in range(200):
        ids, state = rule.choose(t, 9, clients, state, rng(t))
        assert len(set(ids)) == 9
        turns[list(ids)] += 1
        draws.append(set(ids))
    assert all(not a & b for a, b in zip(draws[::2], draws[1::2], strict=True))
    assert sum(bool(a & b) for a, b in zip(draws[1::2], draws[2::2], strict=False)) > 90
    assert turns.sum() == 1800
    assert 4 < np.ptp(turns) < 8 * 4.4
    assert np.abs(turns - 75).max() < 4 * 4.4
