"""The engine's promises: neutral values, one client, resume, edge rules, BatchNorm, selection, randomness, memory."""

from __future__ import annotations

import copy
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import (
    Quadratic,
    Recorder,
    bn_dropout,
    class_run,
    classes,
    federation,
    mlp,
    one_parameter,
    ones,
    problem_of,
    run,
    same,
    seeded,
    two_parameters,
    with_rules,
)
from torch import Tensor, nn
from torch.optim.sgd import sgd

from benchmark.config.schedules import learning_rate
from benchmark.engine import randomness
from benchmark.engine.aggregation import Buffers
from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Diverged, FederationState, Interrupted, Problem, RoundReport, Schedule
from benchmark.errors import ConfigError
from benchmark.models.networks import Net
from methods.core.contexts import Batch, ClientContext, Federation, Loss, Phase, RoundView, State, Trained
from methods.core.rules import ClientPool, ClientProbe, ClientRule, Method, Selection
from methods.core.vectors import Layout, LayoutError
from methods.fedavg import MeanDirection, SizeWeights

CONF_MOMENTUM = {"name": "momentum", "beta": 0.9, "lr": 0.5}


def bn_first() -> Net:
    """BatchNorm on the raw input, so that its statistics are those of the data whatever the weights."""
    return Net(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3), nn.Tanh()), nn.Linear(3, 2), 3).double()


def two_features(sizes: Sequence[int]) -> Problem:
    rng = np.random.default_rng(1)
    return problem_of(
        [rng.normal(k, 1 + k, size=(n, 2)) for k, n in enumerate(sizes)],
        [np.arange(n) % 2 for n in sizes],
        2,
    )


class Fixed(Selection):
    """The clients given for each round."""

    key: ClassVar[str] = "fixed"
    turns: tuple[tuple[int, ...], ...]

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        return self.turns[round % len(self.turns)], state


# Neutral values ------------------------------------------------------------------------------------------------


NEUTRAL = {
    "fedprox mu=0": {"client": {"fedprox": {"mu": 0.0}}},
    "fedprox mu=0, unsquared": {"client": {"fedprox": {"mu": 0.0, "prox_norm": "unsquared_per_tensor"}}},
    "fedavgm beta=0, lr=1": {"server": {"optimizer": {"name": "momentum", "beta": 0.0, "lr": 1.0}}},
    "fedavgm nesterov": {
        "server": {"optimizer": {"name": "momentum", "beta": 0.0, "lr": 1.0, "momentum_form": "nesterov"}}
    },
    "both": {
        "client": {"fedprox": {"mu": 0.0}},
        "server": {"optimizer": {"name": "momentum", "beta": 0.0, "lr": 1.0}},
    },
    "spelled out": {
        "server": {
            "weights": {"name": "size"},
            "direction": {"name": "mean"},
            "optimizer": {"name": "add"},
            "post": {"name": "none"},
        },
        "prediction": {"name": "global"},
    },
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_are_fedavg_bit_for_bit(name: str) -> None:
    options = {"momentum": 0.9, "weight_decay": 1e-3, "clients_per_round": 3, "rounds": 4}
    expected = run(class_run({}, **options))[-1]
    assert torch.equal(run(class_run(NEUTRAL[name], **options))[-1].w, expected.w)
    assert not torch.equal(expected.w, run(class_run({}, **options), rounds=0)[0].w)


def test_other_values_are_not() -> None:
    plain = run(class_run({}))[-1].w
    for config in ({"client": {"fedprox": {"mu": 0.1}}}, {"server": {"optimizer": CONF_MOMENTUM}}):
        assert not torch.allclose(run(class_run(config))[-1].w, plain, atol=1e-6)


# One client ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_one_client_is_sgd(momentum: float, weight_decay: float) -> None:
    """An independent loop with the step of torch.optim.SGD, whose momentum starts afresh in every round.

    (Its function, not its class: the class imports torch's compiler, which takes seconds.)
    """
    problem = classes((10,))
    options = {"momentum": momentum, "weight_decay": weight_decay}
    model_ = class_run({}, problem=problem, order=lambda r, c, e, n: np.arange(n), **options)
    net = seeded(mlp, 0)
    parameters = list(net.parameters())
    for _ in range(3):
        buffers: list[Tensor | None] = [None] * len(parameters)
        for start in [0, 4, 8] * 2:
            part = slice(start, start + 4)
            loss = F.cross_entropy(net(problem.images[part]), problem.labels[part])
            gradients = list(torch.autograd.grad(loss, parameters))
            with torch.no_grad():
                sgd(
                    parameters, gradients, buffers, **options,
                    lr=0.1, dampening=0.0, nesterov=False, maximize=False, foreach=False,
                )  # fmt: skip
    expected = torch.cat([p.detach().flatten() for p in net.parameters()])
    np.testing.assert_allclose(run(model_)[-1].w, expected, rtol=0, atol=1e-12)


def test_train_loss_is_the_mean_cross_entropy_over_samples_weighted_by_size() -> None:
    """Rate 0: the loss is that of the start, over 9 + 5 + 12 + 7 samples."""
    model_ = class_run({}, lr=0.0)
    problem = model_.problem
    with torch.no_grad():
        expected = F.cross_entropy(model_.model.net(problem.images), problem.labels)
    state, report = model_.step(model_.initial_state())
    assert report.train_loss == pytest.approx(float(expected), abs=1e-12)
    assert report.clients == (0, 1, 2, 3)
    assert report.weights == pytest.approx((9 / 33, 5 / 33, 12 / 33, 7 / 33))
    assert state.round == 1


# Stop and resume -----------------------------------------------------------------------------------------------


class Drift(ClientRule):
    """Keeps the last w_k and pulls towards it; its server side counts uploads; personal norm group and buffers."""

    key: ClassVar[str] = "drift"
    personal: ClassVar[tuple[str, ...]] = ("norm",)
    buffers: ClassVar[str | None] = "local"
    reducers: ClassVar[dict] = {"w": "mean"}

    def setup(self, federation: Federation) -> State:
        return {"mean": torch.zeros_like(federation.w), "seen": 0}

    def send(self, server: State, client: int, view: RoundView) -> State:
        return {"mean": server["mean"]}

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        if ctx.state:
            g.add_(w - ctx.state["last"], alpha=0.1)
        g.sub_(ctx.received["mean"], alpha=0.01)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {"last": trained.w, "turns": ctx.state.get("turns", 0) + 1}, {"w": trained.w}

    def receive(self, server: State, view: RoundView) -> State:
        return {"mean": view.payload["w"], "seen": server["seen"] + len(view.clients)}


RESUMED: dict[str, Callable[[], Method | dict]] = {
    "fedavg": dict,
    "fedprox": lambda: {"client": {"fedprox": {"mu": 0.3}}},
    "fedavgm": lambda: {"server": {"optimizer": CONF_MOMENTUM}},
    "round robin": lambda: {"selection": {"name": "round_robin"}},
    "client state, personal groups, local buffers": lambda: with_rules(
        Drift(), config={"selection": {"name": "round_robin"}, "server": {"optimizer": CONF_MOMENTUM}}
    ),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("stop", [1, 3])
def test_resume_is_bit_for_bit(name: str, stop: int, tmp_path: Path) -> None:
    """The new run starts from other random weights and from a file: the state alone carries everything."""
    options = {"rounds": 5, "clients_per_round": 2, "momentum": 0.9, "net": bn_dropout}
    whole = run(class_run(RESUMED[name](), **options))
    torch.save(run(class_run(RESUMED[name](), **options), rounds=stop)[-1].to_dict(), tmp_path / "checkpoint")
    loaded = FederationState(**torch.load(tmp_path / "checkpoint", weights_only=True))
    assert same(loaded, whole[stop])
    resumed = list(rounds(class_run(RESUMED[name](), net_seed=99, **options), loaded))
    assert len(resumed) == 5 - stop
    assert same(resumed[-1][0], whole[-1])
    # A federation that is as good as its word about state may also be replayed from any earlier one.
    again = class_run(RESUMED[name](), **options)
    run(again)
    assert same(run(again, whole[stop], rounds=5 - stop)[-1], whole[-1])


def test_stop_between_clients_leaves_the_state_intact() -> None:
    method = with_rules(Drift(), config={"server": {"optimizer": CONF_MOMENTUM}})
    whole = run(class_run(method, net=bn_dropout))
    asked = itertools.count()
    # Four clients a round: the sixth question comes before the second client of the second round.
    stopped = replace(class_run(method, net=bn_dropout), stop=lambda: next(asked) == 5)
    state, _ = stopped.step(stopped.initial_state())
    before = copy.deepcopy(state)
    with pytest.raises(Interrupted):
        stopped.step(state)
    assert same(state, before)
    assert same(run(stopped, state, rounds=2)[-1], whole[-1])


def test_rounds_runs_what_is_left() -> None:
    model_ = class_run({}, rounds=3)
    states = [state for state, _ in rounds(model_, model_.initial_state())]
    assert [s.round for s in states] == [1, 2, 3]
    assert list(rounds(model_, states[-1])) == []


# Budget and edge rules (X1 to X6, X8, X11 of the algorithm notes) ------------------------------------------------


def recorded(sizes: Sequence[int], net: Callable[[], Net] = mlp, **options: Any) -> Recorder:
    log = Recorder.new()
    features = 2 if net is bn_first else 6
    problem = classes(sizes) if features == 6 else two_features(sizes)
    run(class_run(with_rules(log), problem=problem, net=net, rounds=1, **({"epochs": 1} | options)))
    return log


@pytest.mark.parametrize(
    ("n", "options", "sizes"),
    [
        (3, {}, [3]),  # X1: fewer than a batch
        (4, {}, [4]),
        (10, {}, [4, 4, 2]),
        (10, {"epochs": 2}, [4, 4, 2, 4, 4, 2]),
        (10, {"drop_last": True}, [4, 4]),
        (3, {"drop_last": True}, [3]),  # X1: the short batch of a small client is kept
        (9, {}, [4, 4, 1]),  # no BatchNorm: a single sample is a batch like others
        (10, {"epochs": None, "steps": 7}, [4, 4, 2, 4, 4, 2, 4]),
        (3, {"epochs": None, "steps": 2}, [3, 3]),
        (10, {"epochs": None, "steps": 3, "drop_last": True}, [4, 4, 4]),
    ],
)
def test_batches(n: int, options: dict[str, Any], sizes: list[int]) -> None:
    log = recorded((n,), **options)
    assert log.sizes() == sizes
    assert log.ends[0][2].steps == len(sizes)


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(9, [4, 4]), (5, [4]), (10, [4, 4, 2]), (2, [2]), (1, [1])],
)
def test_batch_norm_skips_a_single_sample_if_there_is_another_batch(n: int, sizes: list[int]) -> None:
    log = recorded((n,), bn_first)
    assert log.sizes() == sizes
    assert bool(torch.isfinite(log.ends[0][2].w).all())


def test_frozen_statistics_need_no_second_sample() -> None:
    """X2 speaks of BatchNorm in training mode; with frozen statistics a single sample is a batch like others."""
    assert recorded((9,), bn_first, buffers="frozen").sizes() == [4, 4, 1]


def test_a_client_with_one_sample_uses_the_running_statistics() -> None:
    """Running mean 0 and variance 1: BatchNorm divides by sqrt(1 + eps) and the statistics do not move."""
    log = recorded((1, 6), bn_first, clients_per_round=2)
    (_, _, x, _, z) = next(b for b in log.batches if b[1] == 0)
    net = seeded(bn_first, 0)
    expected = net.body[2](net.body[1](x / np.sqrt(1 + 1e-5)))
    np.testing.assert_allclose(z, expected.detach(), rtol=0, atol=1e-12)
    mine, other = (end.buffers for _, _, end in log.ends)
    assert mine.tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert other.tolist()[-1] == 2.0  # the next client's BatchNorm is in training mode again
    assert not torch.equal(mine[:4], other[:4])


def test_a_client_without_samples_takes_no_steps() -> None:
    """Its update is zero and its weight 0, in a budget of steps too (there is nothing to fill them with)."""
    asked = itertools.count()

    def order(round: int, client: int, epoch: int, n: int) -> np.ndarray:
        if next(asked) > 20:
            raise AssertionError("the loop never ends")
        return np.arange(n)

    for budget in ({"epochs": 2}, {"epochs": None, "steps": 3}):
        log = Recorder.new()
        model_ = federation(
            ones(2, 0), with_rules(Push(), log), two_parameters(), lr=0.1, order=order, **budget
        )
        state, report = model_.step(model_.initial_state())
        assert report.weights == (1.0, 0.0)
        assert [end.steps for _, _, end in log.ends] == [budget["epochs"] or 3, 0]
        # w + (w_k - w) is w_k up to the last bit.
        np.testing.assert_allclose(state.w, log.ends[0][2].w, rtol=0, atol=1e-15)


def test_every_sample_is_visited_once_per_epoch_in_a_new_order() -> None:
    log = recorded((11,), epochs=2)
    rows = torch.cat([x for _, _, x, _, _ in log.batches])
    first, second = rows[:11], rows[11:]
    everything = classes((11,)).images
    for part in (first, second):
        assert sorted(map(tuple, part.tolist())) == sorted(map(tuple, everything.tolist()))
    assert not torch.equal(first, second)


def test_empty_selection_is_a_round_without_effect() -> None:
    """X4: the model, the server's momentum and all other states stay; the round counts."""
    method = with_rules(
        Drift(), config={"server": {"optimizer": CONF_MOMENTUM}}, selection=Fixed(turns=((0, 1), (), (2,)))
    )
    model_ = class_run(method, net=bn_dropout)
    first = run(model_, rounds=1)[-1]
    second, report = model_.step(first)
    assert same(replace(second, round=1), first)
    assert (second.round, report.round, report.clients, report.weights) == (2, 1, (), ())
    assert model_.step(second)[1].clients == (2,)


class Poison(ClientRule):
    """Makes one client's update non-finite in one round."""

    key: ClassVar[str] = "poison"
    round: int
    client: int
    value: float
    where: str = "body"

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        if (ctx.round, ctx.client) == (self.round, self.client):
            g[ctx.layout.mask(self.where)] = self.value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["body", "head"])
def test_a_non_finite_update_names_round_and_client(value: float, where: str) -> None:
    model_ = class_run(with_rules(Poison(round=1, client=2, value=value, where=where)))
    state, _ = model_.step(model_.initial_state())
    before = copy.deepcopy(state)
    with pytest.raises(Diverged, match="round 1: the update of client 2 is not finite") as error:
        model_.step(state)
    assert (error.value.round, error.value.client) == (1, 2)
    assert same(state, before)


def test_a_loss_that_overflows_is_noticed() -> None:
    """a_k eta = 200: the parameter grows by a factor of -199 per step until it overflows."""
    method = with_rules(Quadratic(a=(1.0, 4000.0), b=(1.0, 1.0)))
    model_ = federation(ones(1, 1), method, one_parameter(), lr=0.05, rounds=50, epochs=10, w0=np.zeros(1))
    with pytest.raises(Diverged) as error:
        run(model_)
    assert error.value.client == 1


def test_one_class_clients_train() -> None:
    """X6: plain cross-entropy, also over the classes that the client lacks."""
    problem = problem_of([np.ones((4, 6)), -np.ones((4, 6))], [np.zeros(4, int), np.full(4, 2)], 3)
    model_ = class_run({}, problem=problem, rounds=20)
    state = run(model_)[-1]
    with torch.no_grad():
        model_.model.w.copy_(state.w)
        assert model_.model.net(problem.images).argmax(1).tolist() == [0] * 4 + [2] * 4


def test_one_client_and_one_participant() -> None:
    """X11: every combination must run, and one participant's model is the new model."""
    for clients, kappa in ((1, 1), (4, 1)):
        log = Recorder.new()
        sizes = (9, 5, 12, 7)[:clients]
        model_ = class_run(with_rules(log), problem=classes(sizes), clients_per_round=kappa)
        states = run(model_)
        for state, (_, _, end) in zip(states[1:], log.ends, strict=True):
            np.testing.assert_allclose(state.w, end.w, rtol=0, atol=1e-15)


def test_more_clients_wanted_than_there_are() -> None:
    assert class_run({}, clients_per_round=50).step(class_run({}).initial_state())[1].clients == (0, 1, 2, 3)


# Local optimizer -----------------------------------------------------------------------------------------------


class Push(ClientRule):
    """Adds a constant gradient (3 on theta, 4 on phi)."""

    key: ClassVar[str] = "push"

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.add_(torch.tensor([3.0, 4.0], dtype=g.dtype))


class OnePhase(ClientRule):
    """One phase with the given options."""

    key: ClassVar[str] = "one_phase"
    phase: Phase

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return (self.phase,)


def pushed(*rules: ClientRule, **options: Any) -> list[float]:
    """(theta, phi) after one round of one client from (1, 2) at rate 0.1."""
    model_ = federation(
        ones(1),
        with_rules(Push(), *rules),
        two_parameters(),
        lr=0.1,
        rounds=1,
        w0=np.array([1.0, 2.0]),
        **options,
    )
    return run(model_)[-1].w.tolist()


def test_clip() -> None:
    """The gradient (3, 4) has norm 5; clipped to 1 it is (.6, .8). A bound above the norm changes nothing."""
    assert pushed(clip=1.0) == pytest.approx([1 - 0.06, 2 - 0.08], abs=1e-12)
    assert pushed(clip=6.0) == pushed() == pytest.approx([0.7, 1.6], abs=1e-15)


def test_weight_decay_is_added_after_the_clip() -> None:
    """(.6, .8) + .5 (1, 2) = (1.1, 1.8)."""
    assert pushed(clip=1.0, weight_decay=0.5) == pytest.approx([0.89, 1.82], abs=1e-12)


def test_clip_sees_only_what_trains() -> None:
    """In a phase that trains the body alone, the clipped gradient is (3,): its norm is 3, and theta moves by .1."""
    phase = OnePhase(phase=Phase("body", groups=("body",)))
    assert pushed(phase, clip=1.0) == pytest.approx([0.9, 2.0], abs=1e-12)


def test_rate_follows_the_schedule() -> None:
    """Rates .1, .05: theta falls by .3, then by .15."""
    model_ = federation(ones(1), with_rules(Push()), two_parameters(), rounds=2, w0=np.array([1.0, 2.0]))
    model_ = replace(model_, schedule=Schedule(2, 1, lambda t: 0.1 / (t + 1)))
    assert [float(s.w[0]) for s in run(model_)] == pytest.approx([1.0, 0.7, 0.55], abs=1e-15)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({}, [0.8, 0.8, 0.8, 0.8, 0.8]),
        ({"name": "constant"}, [0.8, 0.8, 0.8, 0.8, 0.8]),
        ({"name": "step", "every": 2, "gamma": 0.5}, [0.8, 0.8, 0.4, 0.4, 0.2]),
        ({"name": "exponential", "gamma": 0.5}, [0.8, 0.4, 0.2, 0.1, 0.05]),
        ({"name": "cosine"}, [0.8, 0.4 + 0.2 * 2**0.5, 0.4, 0.4 - 0.2 * 2**0.5, 0.0]),
        ({"name": "cosine", "final": 0.5}, [0.8, 0.6 + 0.1 * 2**0.5, 0.6, 0.6 - 0.1 * 2**0.5, 0.4]),
    ],
)
def test_schedules(schedule: dict[str, Any], rates: list[float]) -> None:
    rate = learning_rate(0.8, 4, schedule)
    assert [rate(t) for t in range(5)] == pytest.approx(rates, abs=1e-15)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"name": "cosin"}, r"train\.schedule\.name: came 'cosin'\. Did you mean 'cosine'\?.*constant"),
        ({"name": "step", "every": 2}, r"train\.schedule: step also needs gamma"),
        ({"name": "step", "every": 0, "gamma": 0.5}, r"train\.schedule\.every: came 0"),
        (
            {"name": "exponential", "gama": 0.5},
            r"train\.schedule\.gama: unknown parameter.*Did you mean 'gamma'\?",
        ),
        ({"name": "exponential", "gamma": -1}, r"train\.schedule\.gamma: came -1"),
        ({"name": "constant", "gamma": 1}, r"train\.schedule\.gamma: unknown parameter of constant"),
    ],
)
def test_schedule_mistakes(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        learning_rate(0.8, 4, schedule)


# BatchNorm -----------------------------------------------------------------------------------------------------


def statistics(
    problem: Problem, client: int, batches: Sequence[slice], start: Sequence[float]
) -> list[float]:
    """Running mean, unbiased running variance (both with momentum .1) and counter after these batches, by hand."""
    mean, var, count = np.array(start[:2]), np.array(start[2:4]), start[4]
    x = problem.images.numpy()[problem.clients[client]]
    for batch in batches:
        mean = 0.9 * mean + 0.1 * x[batch].mean(0)
        var = 0.9 * var + 0.1 * x[batch].var(0, ddof=1)
        count += 1
    return [*mean, *var, count]


FRESH = [0.0, 0.0, 1.0, 1.0, 0.0]
SIX, TWO = [slice(0, 4), slice(4, 6)], [slice(0, 2)]


def bn_run(policy: str, method: Method | dict | None = None, **options: Any) -> FederatedRun:
    """Clients of 6 and 2 samples, batches of 4: two steps and one."""
    return class_run(
        method or {}, problem=two_features((6, 2)), net=bn_first, buffers=policy, epochs=1,
        order=lambda r, c, e, n: np.arange(n), **options,
    )  # fmt: skip


def test_buffers_average() -> None:
    """Weighted by p = (3/4, 1/4); the counter is the larger one. The next round starts from the average."""
    model_ = bn_run("average")
    problem = model_.problem
    start = FRESH
    for state in run(model_, rounds=2)[1:]:
        first, second = statistics(problem, 0, SIX, start), statistics(problem, 1, TWO, start)
        start = [*(0.75 * np.array(first[:4]) + 0.25 * np.array(second[:4])), max(first[4], second[4])]
        np.testing.assert_allclose(state.buffers, start, rtol=0, atol=1e-14)
        assert state.clients == {}
    assert start[4] == 4  # 2, then 2 + 2


def test_buffers_average_with_weights_that_do_not_sum_to_one() -> None:
    """Weights 3 and 1 mean 3/4 and 1/4; with weights 0 and 0 the buffers stay as they were."""
    buffers = [torch.tensor([4.0, 7.0]), torch.tensor([8.0, 3.0])]
    counters = torch.tensor([False, True])
    for known in (True, False):  # weights before training ends, or after
        for p, expected in (([3.0, 1.0], [5.0, 7.0]), ([0.0, 0.0], [0.0, 0.0])):
            mean = Buffers(torch.zeros(2), counters)
            for client, weight in zip(buffers, p, strict=True):
                mean.add(client, weight if known else None)
            assert mean.mean(np.array(p)).tolist() == expected


def test_buffers_local() -> None:
    """Each client continues its own statistics, and keeps them while it is absent."""
    model_ = bn_run("local", with_rules(selection=Fixed(turns=((0, 1), (0,), (0, 1)))))
    problem, states = model_.problem, run(model_)
    expected = {0: FRESH, 1: FRESH}
    for state, chosen in zip(states[1:], ((0, 1), (0,), (0, 1)), strict=True):
        for k in chosen:
            expected[k] = statistics(problem, k, (SIX, TWO)[k], expected[k])
        for k in (0, 1):
            np.testing.assert_allclose(state.clients[k]["buffers"], expected[k], rtol=0, atol=1e-14)
    assert expected[1][4] == 2


def test_buffers_frozen() -> None:
    """Statistics stay at mean 0, variance 1 and are what training uses; the affine part trains."""
    log = Recorder.new()
    model_ = bn_run("frozen", with_rules(log))
    states = run(model_, rounds=1)
    assert states[-1].buffers.tolist() == FRESH
    assert states[-1].clients == {}
    _, _, x, _, z = log.batches[0]
    net = seeded(bn_first, 0)
    np.testing.assert_allclose(
        z, net.body[2](net.body[1](x / np.sqrt(1 + 1e-5))).detach(), rtol=0, atol=1e-12
    )
    moved = (states[-1].w - states[0].w)[model_.layout.mask("norm")]
    assert len(moved) == 4
    assert bool((moved.abs() > 1e-6).all())


def test_frozen_buffers_keep_their_bits() -> None:
    """Not even the rounding of an average touches them."""
    model_ = class_run({}, problem=two_features((2,) * 7), net=bn_first, buffers="frozen")
    buffers = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 1, size=5))
    state, _ = model_.step(replace(model_.initial_state(), buffers=buffers.clone()))
    assert torch.equal(state.buffers, buffers)


class OwnNorm(ClientRule):
    """FedBN: the norm group and the statistics stay at the client."""

    key: ClassVar[str] = "own_norm"
    personal: ClassVar[tuple[str, ...]] = ("norm",)
    buffers: ClassVar[str | None] = "local"


def test_a_rule_may_decide_the_policy() -> None:
    model_ = bn_run("average", with_rules(OwnNorm()))
    state = run(model_, rounds=1)[-1]
    np.testing.assert_allclose(
        state.clients[0]["buffers"], statistics(model_.problem, 0, SIX, FRESH), rtol=0, atol=1e-14
    )


def test_a_client_that_was_never_chosen_has_the_initial_norm_state() -> None:
    """FedBN: a client never selected starts from the initial parameters and the initial statistics."""
    model_ = bn_run("average", with_rules(OwnNorm(), selection=Fixed(turns=((0,),))))
    states = run(model_, rounds=2)
    norm = model_.layout.mask("norm")
    assert torch.equal(model_.clients.start_vector(states[-1], 1)[norm], states[0].w[norm])
    assert model_.clients.start_buffers(states[-1], 1).tolist() == FRESH


# Selection -----------------------------------------------------------------------------------------------------


def chosen(
    method: Method | dict, seed: int = 0, rounds: int = 12, problem: Problem | None = None
) -> list[tuple[int, ...]]:
    model_ = class_run(
        method, seed=seed, clients_per_round=3, problem=problem or classes((2,) * 10), epochs=1, rounds=rounds
    )
    state, out = model_.initial_state(), []
    for _ in range(rounds):
        state, report = model_.step(state)
        out.append(report.clients)
    return out


def test_uniform_selection_is_the_same_for_all_methods() -> None:
    """It depends on (seed, round) alone: not on the method, nor on what the clients hold."""
    first = chosen({})
    assert all(
        list(ids) == sorted(set(ids)) and len(ids) == 3 and set(ids) <= set(range(10)) for ids in first
    )
    assert len(set(first)) > 6
    assert chosen({"client": {"fedprox": {"mu": 0.1}}, "server": {"optimizer": CONF_MOMENTUM}}) == first
    assert chosen({}, problem=classes((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), seed=5)) == first
    assert chosen({}, seed=1) != first
    model_ = class_run({}, clients_per_round=3, problem=classes((2,) * 10), epochs=1)
    assert model_.step(replace(model_.initial_state(), round=7))[1].clients == first[7]


def test_uniform_selection_is_uniform() -> None:
    """3 of 10 in 4,000 rounds: 1,200 turns each, standard deviation sqrt(4000 * .3 * .7) = 29."""
    selection = with_rules().selection
    turns = np.zeros(10)
    clients = class_run({}, problem=classes((2,) * 10))
    for t in range(4000):
        ids, _ = selection.choose(t, 3, clients, {}, randomness.generator(0, "participation", t))
        turns[list(ids)] += 1
    assert np.abs(turns - 1200).max() < 5 * 29


def test_round_robin_gives_equal_turns() -> None:
    turns = np.zeros(10)
    orders = chosen({"selection": {"name": "round_robin"}}, rounds=20)
    for ids in orders:
        assert len(set(ids)) == 3
        turns[list(ids)] += 1
        assert turns.max() - turns.min() <= 1
    assert turns.tolist() == [6.0] * 10
    assert orders != chosen({"selection": {"name": "round_robin"}}, seed=1, rounds=20)


def test_first_round_may_be_full() -> None:
    model_ = class_run({}, clients_per_round=2)
    model_ = replace(model_, schedule=replace(model_.schedule, first_round_full=True))
    state, report = model_.step(model_.initial_state())
    assert report.clients == (0, 1, 2, 3)
    assert len(model_.step(state)[1].clients) == 2


@pytest.mark.parametrize("client", [{}, {"fedprox": {"mu": 0.1}}])
@pytest.mark.parametrize("optimizer", [{"name": "add"}, CONF_MOMENTUM])
@pytest.mark.parametrize("selection", ["uniform", "round_robin"])
@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_every_combination_runs(client: dict, optimizer: dict, selection: str, weights: str) -> None:
    config = {
        "client": client,
        "server": {"optimizer": optimizer, "weights": {"name": weights}},
        "selection": {"name": selection},
    }
    model_ = class_run(config, clients_per_round=2)
    state = model_.initial_state()
    for _ in range(3):
        before = state.w
        state, report = model_.step(state)
        assert bool(torch.isfinite(state.w).all())
        assert not torch.equal(state.w, before)
        assert sum(report.weights) == pytest.approx(1)
        if weights == "uniform":
            assert report.weights == (0.5, 0.5)


# Randomness ----------------------------------------------------------------------------------------------------


class Noisy(Selection):
    """Fixed clients, but asks others to evaluate and to train first, and draws numbers of its own."""

    key: ClassVar[str] = "noisy"
    turns: tuple[tuple[int, ...], ...]

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        def question(probe: ClientProbe) -> np.ndarray:
            x, _ = next(iter(probe.data.batches()))
            probe.model().features(x)
            return np.array([float(probe.train([], Phase(steps=3), "noise").sum()), rng.random()])

        clients.ask(range(clients.num_clients), question)
        torch.rand(17)
        return self.turns[round % len(self.turns)], state


def test_dropout_gives_the_same_bits_whatever_else_draws() -> None:
    turns = ((0, 1, 2), (1, 3), (0, 2, 3))
    quiet = run(class_run(with_rules(selection=Fixed(turns=turns)), net=bn_dropout))
    noisy = run(class_run(with_rules(selection=Noisy(turns=turns)), net=bn_dropout))
    for a, b in zip(quiet, noisy, strict=True):
        assert torch.equal(a.w, b.w)
        assert torch.equal(a.buffers, b.buffers)


def test_a_clients_round_does_not_depend_on_who_else_takes_part() -> None:
    ends = []
    for turns in (((0, 1, 2, 3),), ((2,),), ((2, 3),)):
        log = Recorder.new()
        run(class_run(with_rules(log, selection=Fixed(turns=turns)), net=bn_dropout), rounds=1)
        ends.append(next(end for _, client, end in log.ends if client == 2))
    assert all(same(e.w, ends[0].w) and same(e.buffers, ends[0].buffers) for e in ends)


def test_rounds_and_clients_drop_different_units() -> None:
    log = Recorder.new()
    problem = problem_of([np.ones((4, 6))] * 2, [np.zeros(4, int)] * 2, 3)
    net: Callable[[], Net] = lambda: Net(nn.Dropout(0.5), nn.Linear(6, 3), 6).double()  # noqa: E731
    run(class_run(with_rules(log), problem=problem, net=net, epochs=1, lr=1e-9, rounds=2))
    masks = {(t, k): tuple((z != 0).flatten().tolist()) for t, k, _, _, z in log.batches}
    assert len(masks) == 4
    assert len(set(masks.values())) == 4


def test_seeds_and_purposes_are_independent() -> None:
    draws = [
        tuple(randomness.generator(*key).integers(2**62, size=2))
        for key in (
            (0, "a"),
            (1, "a"),
            (0, "b"),
            (0, "a", 1),
            (0, "a", 1, 2),
            (0, "a", 2, 1),
            (0, "a", 0),
            (0, "a", 0, 0),
        )
    ]
    assert len(set(draws)) == len(draws)
    again = randomness.generator(0, "a", 1, 2)
    assert tuple(again.integers(2**62, size=2)) == draws[4]


# Memory --------------------------------------------------------------------------------------------------------


class SeesAll(MeanDirection):
    """The mean, from all updates at once."""

    key: ClassVar[str] = "sees_all"
    streams: ClassVar[bool] = False


class AfterTraining(SizeWeights):
    """Weights by size, known after training only."""

    key: ClassVar[str] = "after_training"
    needs_training: ClassVar[bool] = True


def test_streaming_mean_equals_the_mean_of_a_matrix() -> None:
    plain = with_rules(config={"client": {"fedprox": {"mu": 0.1}}})
    assert not plain.keeps_updates(0)
    expected = run(class_run(plain))[-1].w
    for slots in ({"direction": SeesAll()}, {"weights": AfterTraining()}):
        method = replace(plain, **slots)
        assert method.keeps_updates(0)
        assert torch.equal(run(class_run(method))[-1].w, expected)


def rounds(run: FederatedRun, state: FederationState) -> Iterator[tuple[FederationState, RoundReport]]:
    """All remaining rounds."""
    while state.round < run.schedule.rounds:
        state, report = run.step(state)
        yield state, report


def held_bytes() -> int:
    """Bytes of all tensors that are alive, each storage once."""
    gc.collect()  # what other tests left in cycles must not go between two looks
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (Tensor, nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def wide() -> Net:
    return Net(nn.Sequential(nn.Linear(6, 512), nn.Tanh()), nn.Linear(512, 3), 512).double()


@pytest.mark.parametrize("client", [{}, {"fedprox": {"mu": 0.1}}])
def test_a_stateless_method_holds_no_more_for_more_clients(client: dict) -> None:
    """Measured between clients; the model has 5,123 parameters of 8 bytes, so one kept update would show."""
    problem = classes((2,) * 40)
    seen: dict[int, int] = {}
    asked = itertools.count()

    def look() -> bool:
        number = next(asked)
        if number in (2, 39, 42, 79):  # near the start and at the end of both rounds
            seen[number] = held_bytes()
        return False

    method = {"client": client, "server": {"optimizer": CONF_MOMENTUM}}
    model_ = replace(class_run(method, problem=problem, net=wide, epochs=1, momentum=0.9), stop=look)
    states = run(model_, rounds=2)
    assert seen[2] > 5123 * 8
    assert abs(seen[39] - seen[2]) < 0.5 * 5123 * 8
    assert abs(seen[79] - seen[42]) < 0.5 * 5123 * 8
    assert states[-1].clients == {}
    assert all(rule == {} for rule in states[-1].rules.values())


def test_personal_groups_cost_what_they_hold() -> None:
    """FedBN's client state is its norm group and buffers (16 and 17 numbers of 99 here), not a whole model."""
    state = run(class_run(with_rules(OwnNorm()), net=bn_dropout), rounds=1)[-1]

    def numbers(value: Any) -> int:
        if isinstance(value, dict):
            return sum(map(numbers, value.values()))
        return value.untyped_storage().nbytes() // value.element_size() if isinstance(value, Tensor) else 0

    assert len(state.w) == 99
    assert {numbers(entry) for entry in state.clients.values()} == {16 + 17}


def test_what_is_kept_is_a_copy() -> None:
    """Client state and payloads are given as views of the engine's vectors; the next client must not change them."""

    class Keep(ClientRule):
        key: ClassVar[str] = "keep"
        reducers: ClassVar[dict] = {"w": "keep", "sum": "sum"}

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            nested = {"w": trained.w, "update": trained.update, "buffers": trained.buffers}
            return {"deep": nested}, {"w": trained.w, "sum": trained.update}

        def receive(self, server: State, view: RoundView) -> State:
            return view.payload

    log = Recorder.new()
    model_ = class_run(with_rules(Keep(), log), net=bn_dropout)
    state = run(model_, rounds=1)[-1]
    run(model_, state, rounds=1)
    ends = {client: end for t, client, end in log.ends if t == 0}
    for k, end in ends.items():
        kept = state.clients[k]["rules"]["keep"]["deep"]
        assert same(kept, {"w": end.w, "update": end.update, "buffers": end.buffers})
        assert torch.equal(state.rules["keep"]["w"][k], end.w)
    total = sum((end.update for end in ends.values()), torch.zeros_like(state.w))
    np.testing.assert_allclose(state.rules["keep"]["sum"], total, rtol=0, atol=1e-15)


def test_a_rule_can_drop_its_client_state() -> None:
    """What ``finish`` returns is the new state, also if it is empty."""

    class Once(ClientRule):
        key: ClassVar[str] = "once"

        def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
            return ({} if ctx.state else {"first": True}), {}

    states = run(class_run(with_rules(Once())), rounds=2)
    assert states[1].clients[0] == {"rules": {"once": {"first": True}}}
    assert states[2].clients.get(0, {}).get("rules", {}) == {}


def test_initial_state_is_the_model_as_it_was_built() -> None:
    model_ = class_run({})
    built = model_.model.w.detach().clone()
    first = model_.initial_state()
    assert torch.equal(first.w, built)
    run(model_, first, rounds=1)
    assert torch.equal(first.w, built)
    with pytest.raises(RuntimeError, match="has trained already"):
        model_.initial_state()


# Layouts -------------------------------------------------------------------------------------------------------


LAYOUT = Layout.of(
    [("body.weight", (2, 3), "body"), ("norm.weight", (2,), "norm"), ("classifier.bias", (4,), "head")]
)


def test_layout() -> None:
    assert LAYOUT.size == 12
    assert LAYOUT.groups == {"body", "norm", "head"}
    assert LAYOUT.mask("norm").nonzero().flatten().tolist() == [6, 7]
    assert LAYOUT.mask("body", "head").sum() == 10
    assert LAYOUT.mask().sum() == 0
    vector = torch.arange(12.0)
    assert LAYOUT.view(vector, "body.weight").tolist() == [[0, 1, 2], [3, 4, 5]]
    LAYOUT.view(vector, "classifier.bias").zero_()
    assert vector[8:].tolist() == [0, 0, 0, 0]
    with pytest.raises(KeyError, match="nothing"):
        LAYOUT.view(vector, "nothing")


def test_channels_last_layout_is_a_permuted_view() -> None:
    """[O, I, h, w] = [2, 3, 1, 2] is stored as O, h, w, I: element (o, i, h, w) at ((o h + h) w + w) I + i."""
    layout = Layout.of([("conv", (2, 3, 1, 2), "body"), ("bias", (2,), "body")], channels_last=True)
    view = layout.view(torch.arange(14.0), "conv")
    assert view.shape == (2, 3, 1, 2)
    assert view[1, 2, 0, 1] == ((1 * 1 + 0) * 2 + 1) * 3 + 2
    assert view.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            [
                ("body.weight", (3, 2), "body"),
                ("norm.weight", (2,), "norm"),
                ("classifier.bias", (4,), "head"),
            ],
            r"sum: tensor 'body.weight' \(3, 2\) stands where 'body.weight' \(2, 3\) is expected",
        ),
        (
            [
                ("body.weight", (2, 3), "body"),
                ("classifier.bias", (4,), "head"),
                ("norm.weight", (2,), "norm"),
            ],
            r"tensor 'classifier.bias' \(4,\) stands where 'norm.weight' \(2,\) is expected",
        ),
        ([("body.weight", (2, 3), "body")], r"1 tensors came, 3 are expected"),
        (
            [
                ("body.weight", (2, 3), "body"),
                ("norm.weight", (2,), "body"),
                ("classifier.bias", (4,), "head"),
            ],
            r"norm.weight",
        ),
    ],
)
def test_layouts_are_compared_strictly(tensors: list, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        LAYOUT.require_same(Layout.of(tensors), "sum")


def test_equal_layouts_pass() -> None:
    LAYOUT.require_same(Layout(LAYOUT.entries), "sum")


class Scale(ClientRule):
    """Multiplies the cross-entropy."""

    key: ClassVar[str] = "scale"
    by: float

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(0.0, ce_weight=self.by)


def test_a_neutral_loss_rule_is_fedavg_bit_for_bit() -> None:
    assert torch.equal(run(class_run(with_rules(Scale(by=1.0))))[-1].w, run(class_run({}))[-1].w)
