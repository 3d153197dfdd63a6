"""Small federations that tests run: the stored problems of tests/golden and quadratic clients with known optima."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from torch import Tensor, nn

from benchmark.config.schema import TrainConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState, Problem, RoundReport, Schedule
from benchmark.engine.views import client_pool
from benchmark.models.flat import FlatModel
from benchmark.models.networks import Net
from methods.core.contexts import (
    Batch,
    Choice,
    ClientContext,
    ClientPool,
    ClientProbe,
    Loss,
    State,
    Trained,
)
from methods.core.method import Method, asked_heads, build
from methods.core.rules import ClientRule, Selection

CONF_MOMENTUM = {"name": "momentum", "beta": 0.9, "lr": 0.5}


def stored_order(round: int, client: int, phase: int, epoch: int, n: int) -> np.ndarray:
    """The samples as they are stored."""
    return np.arange(n)


def problem_of(
    xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], num_classes: int, attributes: np.ndarray | None = None
) -> Problem:
    """A problem whose client k holds xs[k], ys[k]; nothing is normalised and nothing is evaluated."""
    stops = np.cumsum([len(y) for y in ys])
    clients = [np.arange(stop - len(y), stop) for stop, y in zip(stops, ys, strict=True)]
    return Problem(
        images=torch.from_numpy(np.concatenate(xs)),
        labels=torch.from_numpy(np.concatenate(ys)),
        attributes=None if attributes is None else torch.from_numpy(attributes),
        clients=clients,
        num_classes=num_classes,
        num_attributes=0 if attributes is None else int(attributes.max()) + 1,
        transform=lambda x: x,
        evaluation_sets={},
    )


def mlp(features: int = 6, hidden: int = 8, classes: int = 3) -> Net:
    """W2 tanh(W1 x + b1) + b2 in float64: the model of tests/golden/baselines."""
    body = nn.Sequential(nn.Linear(features, hidden), nn.Tanh())
    return Net(body, nn.Linear(hidden, classes), hidden).double()


def federation(
    problem: Problem,
    method: Method | Mapping[str, Any],
    net: Net,
    *,
    rounds: int = 3,
    lr: float = 0.05,
    clients_per_round: int | None = None,
    seed: int = 0,
    w0: np.ndarray | None = None,
    order: Callable[..., np.ndarray] | None = stored_order,
    augment: Callable[[Tensor], Tensor] | None = None,
    **spec: Any,
) -> FederatedRun:
    """A run of ``method`` on ``problem``; ``w0`` replaces the first values of w."""
    method = method if isinstance(method, Method) else build(method)
    problem = replace(problem, augment=augment)
    draws = lambda purpose, *ids: np.random.default_rng([len(purpose), *ids])  # noqa: E731
    heads = asked_heads(method, net.feature_dim, problem.num_classes, len(problem.clients), draws)
    model = FlatModel(net, heads)
    if w0 is not None:
        first = torch.from_numpy(w0)[: len(model.w)]
        model.w.data[: len(first)] = first
    schedule = Schedule(rounds, clients_per_round or len(problem.clients), lambda t: lr)
    return FederatedRun(
        problem, method, model, TrainConfig(**{"momentum": 0.0, **spec}), schedule, seed, order
    )


def reported(
    federation: FederatedRun, state: FederationState | None = None, rounds: int | None = None
) -> tuple[list[FederationState], list[RoundReport]]:
    """States after each round (the first is the start), and the reports of the rounds."""
    states, reports = [federation.initial_state() if state is None else state], []
    for _ in range(federation.schedule.rounds if rounds is None else rounds):
        state, report = federation.run_round(states[-1])
        states.append(state)
        reports.append(report)
    return states, reports


def run(
    federation: FederatedRun, state: FederationState | None = None, rounds: int | None = None
) -> list[FederationState]:
    """States after each round (the first is the start)."""
    return reported(federation, state, rounds)[0]


def asked(model: FederatedRun, question: Callable[[ClientProbe], np.ndarray]) -> tuple[np.ndarray, Cost]:
    """What each client answers to a selection before round 0 [K, ...], and the cost."""
    cost = Cost()
    clients = client_pool(model.clients, model.initial_state(), cost)
    return clients.ask(range(clients.num_clients), question), cost


def assert_resumes(make: Callable[[int], FederatedRun], folder: Path) -> None:
    """A run stopped after 1 or 3 rounds goes on bit for bit, from a file; ``make`` takes the seed of the first weights.

    The resumed run starts from other weights: the state alone carries everything. No state is kept outside, so a
    federation can also be replayed from any earlier state.
    """
    replayed = make(0)
    whole = run(replayed)
    for stop in (1, 3):
        left = replayed.schedule.rounds - stop
        assert not same(replace(whole[-1], round=stop), whole[stop])
        torch.save(run(make(0), rounds=stop)[-1].to_dict(), folder / "checkpoint")
        loaded = FederationState(**torch.load(folder / "checkpoint", weights_only=True))
        assert same(loaded, whole[stop])
        assert same(run(make(99), loaded, rounds=left)[-1], whole[-1])
        assert same(run(replayed, whole[stop], rounds=left)[-1], whole[-1])


def with_rules(*rules: ClientRule, config: Mapping[str, Any] | None = None, **slots: Any) -> Method:
    """The method of ``config`` with these client rules (after its own) and server slots, unregistered ones too."""
    method = build(config or {})
    return replace(method, client=(*method.client, *rules), **slots)


class Turns(Selection):
    """The clients given for each round, over and over."""

    turns: tuple[tuple[int, ...], ...]

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        return self.turns[round % len(self.turns)], state


# Clients with classes ------------------------------------------------------------------------------------------


def classes(sizes: Sequence[int] = (9, 5, 12, 7), seed: int = 0) -> Problem:
    """Three classes, six features; client k holds sizes[k] samples."""
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=(n, 6)) for n in sizes]
    return problem_of(xs, [rng.integers(3, size=n) for n in sizes], 3)


def seeded(make: Callable[[], Net], seed: int) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def class_run(
    method: Method | dict, *, net: Callable[[], Net] = mlp, net_seed: int = 0, **options: Any
) -> FederatedRun:
    """A run on ``classes`` with mini-batches of 4 in random order."""
    problem = options.pop("problem", None) or classes()
    options = {"batch_size": 4, "epochs": 2, "order": None, "lr": 0.1} | options
    return federation(problem, method, seeded(net, net_seed), **options)


def bn_dropout() -> Net:
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3))
    return Net(body, nn.Linear(8, 3), 8).double()


# Quadratic clients ---------------------------------------------------------------------------------------------


class Quadratic(ClientRule):
    """f_k(w) = a_k/2 (w - b_k)^2 in place of cross-entropy, where z = w."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        away = batch.z[:, 0] - self.b[ctx.client]
        return Loss((self.a[ctx.client] / 2 * away**2).mean(), ce_weight=0.0)


def ones(*sizes: int) -> Problem:
    """Clients of the given sizes whose inputs are all 1 and whose only class is 0 (cross-entropy is exactly 0)."""
    return problem_of([np.ones((n, 1)) for n in sizes], [np.zeros(n, dtype=np.int64) for n in sizes], 1)


def one_parameter() -> Net:
    """z = w x, logits = z."""
    return Net(nn.Linear(1, 1, bias=False), nn.Identity(), 1).double()


def two_parameters() -> Net:
    """z = theta x (body), logits = phi z (head): w = (theta, phi)."""
    return Net(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), 1).double()


# What happened -------------------------------------------------------------------------------------------------


class Recorder(ClientRule):
    """Writes down every batch (round, client, x, y, z) and every end of training; changes nothing."""

    batches: Any = Field(default_factory=list)
    ends: Any = Field(default_factory=list)

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        self.batches.append(
            (ctx.round, ctx.client, batch.x.clone(), batch.y.clone(), batch.z.detach().clone())
        )
        return Loss(0.0)

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        copies = {name: getattr(trained, name).clone() for name in ("w", "update", "buffers")}
        self.ends.append((ctx.round, ctx.client, replace(trained, **copies)))
        return {}, {}


def near(found: Any, expected: Any, atol: float = 1e-12) -> None:
    """Assert that two arrays are equal up to rounding."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def same(a: Any, b: Any) -> bool:
    """Whether two states (nested containers of tensors and numbers) are equal bit for bit."""
    if isinstance(a, FederationState):
        return isinstance(b, FederationState) and same(a.to_dict(), b.to_dict())
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def numbers(value: Any) -> list[Tensor]:
    """The tensors in a state."""
    if isinstance(value, Tensor):
        return [value.double().cpu()]
    if isinstance(value, Mapping):
        return [t for _, item in sorted(value.items(), key=lambda pair: str(pair[0])) for t in numbers(item)]
    return [t for item in value for t in numbers(item)] if isinstance(value, list | tuple) else []


def assert_close(a: FederationState, b: FederationState, atol: float = 1e-12) -> None:
    """Everything that the server and the clients hold is equal up to rounding."""
    ours, theirs = numbers(a.to_dict()), numbers(b.to_dict())
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        near(mine, other, atol)
