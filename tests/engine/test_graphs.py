"""Recorded local steps, with a recorder that repeats a step's operations where a GPU replays its graph."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from every_file import both_variants
from federations import class_run, reported, run, same, with_rules
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmark.engine.graphs import MOST_KEPT, USUAL_STEPS, Step, StepRecorder
from methods.core.contexts import Batch, ClientContext, Loss, Message, State, Trained
from methods.core.method import Method, build
from methods.core.rules import ClientRule

NOT_RECORDED = ("fedgloss", "fedlesam", "fedsam", "fedmr_lite10", "fedmr_lite50")
"""Methods whose steps climb, or draw on the host."""


WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""Operations for which a GPU waits, which a graph cannot hold."""


class Operations(TorchDispatchMode):
    """What is computed in the block: each operation on tensors, with its own tensors, and no line of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[Any, Any, dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITS:
            raise RuntimeError(f"{func} waits for the GPU")
        result = func(*args, **(kwargs or {}))
        self.taken.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def again(self) -> None:
        for func, args, kwargs, result in self.taken:
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(new, Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class Again(StepRecorder):
    """``sizes`` are the sizes of the recorded batches."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.sizes: list[int] = []

    @contextmanager
    def in_order(self) -> Iterator[None]:
        yield

    def record(self, step: Step, batch: Sequence[Tensor]) -> Any:
        self.sizes.append(len(batch[0]))
        with Operations() as operations:
            place, _ = step(*batch)
        times = count()  # a GPU computes nothing while it records, so that the first replay is done

        def replay() -> None:
            if next(times):
                operations.again()

        return SimpleNamespace(replay=replay), place


def recorded(method: Method | dict[str, Any], **options: Any) -> Again:
    """The recorder of a run whose bits and training losses are those of the run without it."""
    federation = class_run(method, **options)
    recorder = federation.clients.trainer.recorder = Again()
    states, reports = reported(federation)
    usual_states, usual_reports = reported(class_run(method, **options))
    assert same(states[-1], usual_states[-1])
    assert [one.train_loss for one in reports] == [one.train_loss for one in usual_reports]
    return recorder


@both_variants("method")
def test_methods(name: str, settings: dict[str, Any]) -> None:
    """Four clients with 9, 5, 12 and 7 samples in batches of 4, four times: a batch of 4 comes at least four times."""
    method = build({k: v for k, v in settings.items() if k not in ("label", "tables", "selection")})
    assert bool(recorded(method, momentum=0.5, epochs=4, rounds=2).sizes) == (name not in NOT_RECORDED)


@pytest.mark.parametrize(
    ("client", "sizes"),
    [
        ({}, [4, 1, 3]),
        ({"fedprox": {"mu": 0.1}}, [4, 1, 3]),
        ({"scaffold": {}}, [4, 1, 4, 1, 3]),  # a client's first visit has no c_k; later ones have
        ({"fedproc": {}}, [4, 1, 4, 1, 4, 1]),  # the loss depends on the round
    ],
)
def test_visits_share_a_step(client: dict[str, Any], sizes: list[int]) -> None:
    """Three rounds of two epochs in batches of 4; the last ones of 9, 5, 12 and 7 samples are 1, 1, none and 3.

    A size is recorded when it comes for the third time.
    """
    assert recorded({"client": client}, momentum=0.5).sizes == sizes


def test_another_rate_is_another_step() -> None:
    """Each round has its rate, and the oldest steps are forgotten."""
    federation = class_run({}, epochs=2, rounds=MOST_KEPT + 2)
    schedule = replace(federation.schedule, lr=lambda t: 0.1 / (1 + t))
    federation.schedule = federation.clients.schedule = schedule
    recorder = federation.clients.trainer.recorder = Again()
    run(federation)
    assert len(recorder.kept) == MOST_KEPT
    assert recorder.sizes.count(4) == MOST_KEPT + 2


class Weighted(ClientRule):
    """The loss is multiplied by the client's number."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(0.0, ce_weight=1.0 + ctx.client)


class OnDevice(ClientRule):
    """The loss of a step is multiplied by its number, a tensor, which the client keeps in the end."""

    def begin(self, ctx: ClientContext) -> Message:
        return {"t": ctx.state["t"].clone() if ctx.state else torch.zeros((), dtype=torch.float64)}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        ctx.local["t"].add_(1)
        return Loss(0.0, ce_weight=ctx.local["t"].clone())

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        return {"t": ctx.local["t"]}, {}


def test_what_a_step_reads_and_writes() -> None:
    """No client takes another one's step; two take two steps with 4 samples in each round, too few to record one."""
    assert recorded(with_rules(Weighted()), lr=0.01).sizes.count(4) == 3 * 2
    assert recorded(with_rules(OnDevice()), lr=0.01).sizes == [4, 1, 4, 1, 3]


def test_a_model_that_counts_samples_is_not_recorded() -> None:
    """MOON passes augmented images through two models, which is part of the cost."""
    costs = []
    for recorder in (None, Again()):
        federation = class_run({"client": {"moon": {"mu": 1.0, "T": 0.5}}}, augment=lambda x: x)
        federation.clients.trainer.recorder = recorder
        costs.append([report.cost for report in reported(federation)[1]])
    assert costs[0] == costs[1] and costs[0][-1].forward > 0


class Counter(ClientRule):
    """The loss of a step is multiplied by its number."""

    def begin(self, ctx: ClientContext) -> Message:
        return {"t": 0}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        ctx.local["t"] += 1
        return Loss(0.0, ce_weight=ctx.local["t"])


class Teacher(ClientRule):
    """Passes every batch through the model that the client was sent, which is counted."""

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss((ctx.frozen(ctx.w, ctx.buffers).features(batch.x) - batch.z).square().mean())


@pytest.mark.parametrize("rule", [Counter(), Teacher()], ids=["counts", "asks"])
def test_a_step_that_uses_the_host_is_not_recorded(rule: ClientRule) -> None:
    assert USUAL_STEPS < 6, "a client with 12 samples takes 6 steps"
    assert recorded(with_rules(rule)).sizes == []
