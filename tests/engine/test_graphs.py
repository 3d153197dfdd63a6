"""Recorded local steps, with a recorder that carries a step out again where a GPU replays its graph."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from every_file import both_variants
from federations import class_run, run, same, with_rules
from torch import Tensor

from benchmark.engine.graphs import MOST_KEPT, USUAL_STEPS, Step, StepRecorder
from methods.core.contexts import Batch, ClientContext, Loss, Message
from methods.core.method import Method, build
from methods.core.rules import ClientRule

NOT_RECORDED = ("fedgloss", "fedlesam", "fedsam", "fedmr_lite10", "fedmr_lite50")
"""Methods whose steps climb, or draw on the host."""


class Again(StepRecorder):
    """``sizes`` are the sizes of the recorded batches."""

    def __init__(self) -> None:
        self.kept, self.sizes = {}, []

    @contextmanager
    def in_order(self) -> Iterator[None]:
        yield

    def record(self, step: Step, batch: Sequence[Tensor]) -> Any:
        x, y, _ = batch
        self.sizes.append(len(x))
        place = x.new_empty(y.shape[:-1])
        return SimpleNamespace(replay=lambda: place.copy_(step(*batch)[0])), place


def recorded(method: Method | dict[str, Any], **options: Any) -> Again:
    """The recorder of a run whose bits are those of the run without it."""
    federation = class_run(method, **options)
    recorder = federation.clients.trainer.recorder = Again()
    assert same(run(federation)[-1], run(class_run(method, **options))[-1])
    return recorder


@both_variants("method")
def test_methods(name: str, settings: dict[str, Any]) -> None:
    """Four clients with 9, 5, 12 and 7 samples in batches of 4, four times: a batch of 4 comes at least four times."""
    method = build({k: v for k, v in settings.items() if k not in ("label", "tables", "selection")})
    assert bool(recorded(method, momentum=0.5, epochs=4, rounds=2).sizes) == (name not in NOT_RECORDED)


def test_without_rules_all_visits_share_a_step() -> None:
    """Batches of 4, and the last ones of 9, 5, 12 and 7 samples: 1, 1, none and 3; three rounds of two epochs."""
    assert recorded({}, momentum=0.5).sizes == [4, 1, 3]


def test_another_rate_is_another_step() -> None:
    """Each round has its rate, and the oldest steps are forgotten."""
    federation = class_run({}, epochs=2, rounds=MOST_KEPT + 2)
    schedule = replace(federation.schedule, lr=lambda t: 0.1 / (1 + t))
    federation.schedule = federation.clients.schedule = schedule
    recorder = federation.clients.trainer.recorder = Again()
    run(federation)
    assert len(recorder.kept) == MOST_KEPT
    assert recorder.sizes.count(4) == MOST_KEPT + 2


class Counter(ClientRule):
    """The loss of a step is multiplied by its number."""

    def begin(self, ctx: ClientContext) -> Message:
        return {"t": 0}

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        ctx.local["t"] += 1
        return Loss(0.0, ce_weight=ctx.local["t"])


def test_a_step_that_counts_is_not_recorded() -> None:
    assert USUAL_STEPS < 6, "a client with 12 samples takes 6 steps"
    assert recorded(with_rules(Counter())).sizes == []
