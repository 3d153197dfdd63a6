"""Clients side by side (train.stack) give what the same clients give one after another."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    assert_close,
    assert_resumes,
    class_run,
    classes,
    near,
    problem_of,
    run,
    with_rules,
)
from torch import Tensor, nn

from benchmark.config.compose import group_names, load_group
from benchmark.engine.state import FederationState, Problem
from benchmark.models.networks import Net, build_net, model_names
from methods.core.contexts import Batch, ClientContext, Loss, Message, State, Trained
from methods.core.method import build
from methods.core.rules import ClientRule

ALONE = dict.fromkeys(("fedgloss", "fedlesam", "fedsam"), "the hook ascend") | {
    f"fedsdc{form}": "classifiers of different shapes" for form in ("", "_m1", "_m2", "_m3", "_plus")
}
"""Methods whose clients are trained one by one, and the reason that the log gives."""

SGD = {"momentum": 0.5, "clip": 1.0, "weight_decay": 1e-3}


def both(method: Any, stack: int = 3, **options: Any) -> tuple[FederationState, FederationState]:
    """The state after the rounds, with clients one by one and side by side."""
    alone, stacked = (run(class_run(method, stack=k, **options))[-1] for k in (1, stack))
    return alone, stacked


# Every method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", group_names("method"))
def test_every_method(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Four clients with 9, 5, 12 and 7 samples in batches of 4, in groups of 3 and 1, for three rounds in float64."""
    settings = {
        k: v for k, v in load_group("method", name).items() if k not in ("label", "tables", "selection")
    }
    with caplog.at_level(logging.INFO, "fedtables"):
        assert_close(*both(build(settings), **SGD))
    why = ALONE.get(name)
    told = [record.getMessage() for record in caplog.records if record.name == "fedtables"]
    assert told == ([f"train.stack=3: clients are trained one by one because of {why}."] if why else [])


@pytest.mark.parametrize(
    "name", [n for n in model_names() if n != "efficientnet_b0"]
)  # it drops paths at random
def test_networks(name: str) -> None:
    """BatchNorm, GroupNorm, convolutions. In float64; a deep network multiplies the rounding of a step."""
    pixels = 32 if name in ("resnet50", "resnet50_gn", "mobilenetv2_gn") else 8
    options = {"wrn28_10": {"widening_factor": 1}}.get(name, {})
    options = {"width_multiplier": 0.35} if "resnet" in name or "mobilenet" in name else options
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3, pixels, pixels)) for n in (4, 6, 4)]
    problem = problem_of(xs, [np.arange(len(x)) % 3 for x in xs], 3)
    assert_close(
        *both({}, net=lambda: build_net(name, 3, (3, pixels, pixels), options, 0).double(), problem=problem,
              epochs=1, rounds=2, lr=0.01),
        atol=1e-9,
    )  # fmt: skip


# Batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"epochs": 2},
        {"epochs": None, "steps": 7},  # the clients go through their samples at different paces
        {"epochs": 1, "drop_last": True},
    ],
)
def test_each_client_sees_its_own_batches_in_their_order(spec: dict[str, Any]) -> None:
    batches = []
    for stack in (1, 7):
        log = Recorder()
        run(
            class_run(with_rules(log), problem=classes((9, 5, 12, 7, 0, 8, 1)), stack=stack, rounds=2, **spec)
        )
        seen: dict[tuple[int, int], list[Tensor]] = {}
        for round, client, x, _, _ in log.batches:
            seen.setdefault((round, client), []).append(x)
        batches.append(seen)
        ends = {(round, client): (end.steps, end.step_norm) for round, client, end in log.ends}
        assert {key: end[0] for key, end in ends.items() if end[0]} == {
            key: len(xs) for key, xs in seen.items()
        }
    alone, stacked = batches
    assert alone.keys() == stacked.keys()
    for key, xs in alone.items():
        assert [x.tolist() for x in xs] == [x.tolist() for x in stacked[key]]


def test_losses_belong_to_their_clients() -> None:
    """The loss of a round is the mean over clients of their mean losses."""
    options = {"problem": classes((9, 5, 12, 7)), "rounds": 1}
    losses = [class_run({}, stack=k, **options) for k in (1, 2, 4)]
    found = [federation.run_round(federation.initial_state())[1].train_loss for federation in losses]
    near(found, [found[0]] * 3)


def test_a_client_with_one_sample_and_batch_norm(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=(n, 2)) for n in (1, 6)]
    problem = problem_of(xs, [np.arange(len(x)) % 2 for x in xs], 2)
    norm = lambda: Net(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3)), nn.Linear(3, 2), 3).double()  # noqa: E731
    with caplog.at_level(logging.INFO, "fedtables"):
        assert_close(*both({}, problem=problem, net=norm, buffers="average"), atol=0)
    assert "a client with a single sample" in caplog.text


def test_a_run_resumes(tmp_path: Any) -> None:
    scaffold = build({k: v for k, v in load_group("method", "scaffold").items() if k != "label"})
    assert_resumes(lambda seed: class_run(scaffold, net_seed=seed, stack=3, rounds=4), tmp_path)


# Hooks that vmap refuses -----------------------------------------------------------------------------------------


class OwnPull(ClientRule):
    """Reads what no two clients share, after it has changed the gradient."""

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.add_(w, alpha=0.1)
        g.mul_(1 + ctx.client)


class OwnWeight(ClientRule):
    """The weight of cross-entropy differs between clients."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(0.1 * batch.z.square().mean(), ce_weight=1 / (1 + ctx.client))


class Branch(ClientRule):
    """Decides by a value of the batch."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(batch.z.sum() if batch.ce > 1 else batch.z.square().sum())


class Keeps(ClientRule):
    """Adds up features in a tensor of its own, in a number and in a new entry, and sends them."""

    reducers = {"sums": "sum"}

    def begin(self, ctx: ClientContext) -> Message:
        return {"sum": torch.full((8,), float(ctx.client), dtype=torch.float64)}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        ctx.local["sum"].add_(batch.z.detach().sum(0))
        ctx.local["batches"] = ctx.local.get("batches", 0) + 1
        return Loss(0.01 * batch.z.square().sum())

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        assert ctx.local.get("batches", 0) == trained.steps
        return {}, {"sums": ctx.local["sum"]}

    def receive(self, server: State, view: Any) -> State:
        return {"sums": view.payload["sums"]}


class KeepsInPlace(Keeps):
    """As `Keeps`, in a tensor alone."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        ctx.local["sum"].add_(batch.z.detach().sum(0))
        return Loss(0.01 * batch.z.square().sum())

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {}, {"sums": ctx.local["sum"]}


@pytest.mark.parametrize("rule", [OwnPull, OwnWeight, Branch, Keeps, KeepsInPlace])
def test_hooks_that_cannot_be_stacked(rule: Callable[[], ClientRule]) -> None:
    assert_close(*both(with_rules(rule()), problem=classes((8, 8, 8)), **SGD))


class Wrong(ClientRule):
    """A mistake, not a refusal."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss((batch.z @ batch.z).mean())


def test_a_mistake_of_a_hook_is_raised() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run(class_run(with_rules(Wrong()), stack=3))


def test_the_gradient_of_unused_parameters_is_zero() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    problem: Problem = classes((8, 8, 8))
    assert_close(*both({}, problem=problem, net=lambda: Net(Unused(), nn.Linear(4, 3), 4).double(), **SGD))
