"""Local training: batches, optimizer, BatchNorm, values that are not finite."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    Recorder,
    class_run,
    classes,
    federation,
    mlp,
    near,
    ones,
    problem_of,
    run,
    seeded,
    stored_order,
    two_parameters,
    with_rules,
)
from torch import Tensor, nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import Problem
from benchmark.models.networks import Net
from methods.core.contexts import ClientContext, Phase
from methods.core.method import Method
from methods.core.rules import ClientRule


def bn_first() -> Net:
    """BatchNorm on the raw input, so that its statistics are those of the data whatever the weights."""
    return Net(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3), nn.Tanh()), nn.Linear(3, 2), 3).double()


def two_features(sizes: Sequence[int]) -> Problem:
    rng = np.random.default_rng(1)
    xs = [rng.normal(k, 1 + k, size=(n, 2)) for k, n in enumerate(sizes)]
    return problem_of(xs, [np.arange(n) % 2 for n in sizes], 2)


class Push(ClientRule):
    """Adds a constant gradient (3 on theta, 4 on phi)."""

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.add_(torch.tensor([3.0, 4.0], dtype=g.dtype))


# Batches and special cases --------------------------------------------------------------------------------------


def recorded(sizes: Sequence[int], problem: Problem | None = None, **options: Any) -> Recorder:
    log = Recorder()
    problem = problem or classes(sizes)
    run(class_run(with_rules(log), problem=problem, rounds=1, **({"epochs": 1} | options)))
    return log


FRESH = [0.0, 0.0, 1.0, 1.0, 0.0]
"""Mean, variance and counter of ``bn_first`` as drawn."""

BATCH_NORM = {"net": bn_first, "buffers": "average"}


@pytest.mark.parametrize(
    ("n", "options", "sizes"),
    [
        (0, {}, []),
        (0, {"epochs": None, "steps": 3}, []),  # there is nothing to fill them with
        (3, {}, [3]),  # fewer than a batch
        (4, {}, [4]),
        (10, {"epochs": 2}, [4, 4, 2, 4, 4, 2]),
        (10, {"drop_last": True}, [4, 4]),
        (3, {"drop_last": True}, [3]),  # the short batch of a small client is kept
        (9, {}, [4, 4, 1]),  # no BatchNorm: a single sample is a batch like others
        (10, {"epochs": None, "steps": 7}, [4, 4, 2, 4, 4, 2, 4]),
        (3, {"epochs": None, "steps": 2}, [3, 3]),
        (10, {"epochs": None, "steps": 3, "drop_last": True}, [4, 4, 4]),
        (9, BATCH_NORM, [4, 4]),  # BatchNorm needs a second sample, if there is another batch
        (5, BATCH_NORM, [4]),
        (10, BATCH_NORM, [4, 4, 2]),
        (2, BATCH_NORM, [2]),
        (1, BATCH_NORM, [1]),
        (9, BATCH_NORM | {"buffers": "frozen"}, [4, 4, 1]),  # frozen statistics need no second sample
    ],
)
def test_batches(n: int, options: dict[str, Any], sizes: list[int]) -> None:
    log = recorded((3, n), two_features((3, n)) if "net" in options else None, **options)
    assert [len(y) for _, client, _, y, _ in log.batches if client == 1] == sizes
    end = log.ends[1][2]
    assert end.steps == len(sizes)
    assert bool(torch.isfinite(end.w).all())
    assert bool((end.update == 0).all()) == (n == 0)


def with_running_statistics(x: Tensor) -> Tensor:
    """Features of ``bn_first`` as drawn, with mean 0 and variance 1: BatchNorm divides by sqrt(1 + eps)."""
    body = seeded(bn_first, 0).body
    return body[2](body[1](x / np.sqrt(1 + 1e-5))).detach()


def test_every_sample_is_visited_once_per_epoch_in_a_new_order() -> None:
    rows = torch.cat([x for _, _, x, _, _ in recorded((11,), epochs=2).batches]).tolist()
    assert sorted(rows[:11]) == sorted(rows[11:]) == sorted(classes((11,)).images.tolist())
    assert rows[:11] != rows[11:]


# Local optimizer ------------------------------------------------------------------------------------------------


class Body(ClientRule):
    """One phase that trains the body alone."""

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return (Phase(groups=("body",)),)


def test_clip_and_weight_decay() -> None:
    """The gradient (3, 4) at (1, 2) has norm 5; clipped to 1 it is (.6, .8). Rate .1.

    Weight decay is added after the clip: (.6, .8) + .5 (1, 2) = (1.1, 1.8). In a phase that trains the body alone the
    clipped gradient is (3,): its norm is 3, and theta moves by .1.
    """

    def pushed(*rules: ClientRule, **options: Any) -> list[float]:
        options |= {"lr": 0.1, "rounds": 1, "w0": np.array([1.0, 2.0])}
        model_ = federation(ones(1), with_rules(Push(), *rules), two_parameters(), **options)
        return run(model_)[-1].w.tolist()

    assert pushed(clip=1.0) == pytest.approx([1 - 0.06, 2 - 0.08], abs=1e-12)
    assert pushed(clip=6.0) == pushed() == pytest.approx([0.7, 1.6], abs=1e-15)
    assert pushed(clip=1.0, weight_decay=0.5) == pytest.approx([0.89, 1.82], abs=1e-12)
    assert pushed(Body(), clip=1.0) == pytest.approx([0.9, 2.0], abs=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_is_that_of_torch(name: str) -> None:
    """The same batches through torch.optim on the network's own tensors end in the same bits, in float64."""
    log, options = Recorder(), {"lr": 0.01, "weight_decay": 0.1}
    problem = classes((11,))
    states = run(class_run(with_rules(log), problem=problem, rounds=2, optimizer=name, **options))
    net = seeded(mlp, 0)
    for round in range(2):  # a new optimizer in each round
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](net.parameters(), **options)
        for _, _, x, y, _ in [batch for batch in log.batches if batch[0] == round]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        assert torch.equal(log.ends[round][2].w, nn.utils.parameters_to_vector(net.parameters()))
    assert len(log.batches) == 2 * 2 * 3
    assert log.ends[0][2].step_norm == 6, "the gradients have no momentum"
    assert not torch.equal(states[1].w, states[2].w)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_does_not_move_a_frozen_group(name: str) -> None:
    """A first step is the rate in the direction of the gradient; weight decay leaves the head alone too."""
    options = {"lr": 0.1, "rounds": 1, "w0": np.array([1.0, 2.0]), "optimizer": name}
    model_ = federation(ones(1), with_rules(Push(), Body()), two_parameters(), weight_decay=0.5, **options)
    decay = 0.1 * 0.5 if name == "adamw" else 0.0
    assert run(model_)[-1].w.tolist() == pytest.approx([1 - 0.1 - decay, 2.0], abs=1e-8)


# BatchNorm ------------------------------------------------------------------------------------------------------


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


SIX, TWO = [slice(0, 4), slice(4, 6)], [slice(0, 2)]


def bn_run(policy: str, method: Method | dict | None = None, **options: Any) -> FederatedRun:
    """Clients of 6 and 2 samples, batches of 4: two steps and one."""
    return class_run(
        method or {}, problem=two_features((6, 2)), net=bn_first, buffers=policy, epochs=1,
        order=stored_order, **options,
    )  # fmt: skip


def test_buffers_average() -> None:
    """Weighted by p = (3/4, 1/4); the counter is the larger one. The next round starts from the average."""
    model_ = bn_run("average")
    problem = model_.problem
    start = FRESH
    for state in run(model_, rounds=2)[1:]:
        first, second = statistics(problem, 0, SIX, start), statistics(problem, 1, TWO, start)
        start = [*(0.75 * np.array(first[:4]) + 0.25 * np.array(second[:4])), max(first[4], second[4])]
        near(state.buffers, start, 1e-14)
        assert state.clients == {}
    assert start[4] == 4  # 2, then 2 + 2


def test_buffers_frozen() -> None:
    """Statistics keep their bits and are what training uses; the affine part trains."""
    log = Recorder()
    model_ = bn_run("frozen", with_rules(log))
    states = run(model_, rounds=1)
    assert states[-1].buffers.tolist() == FRESH
    assert states[-1].clients == {}
    assert [layer.training for layer in model_.model.net.body] == [False, True, True]
    _, _, x, _, z = log.batches[0]
    near(z, with_running_statistics(x))
    moved = (states[-1].w - states[0].w)[model_.layout.mask("norm")]
    assert len(moved) == 4
    assert bool((moved.abs() > 1e-6).all())
    buffers = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 1, size=5))
    seven = class_run({}, problem=two_features((2,) * 7), net=bn_first, buffers="frozen")
    state, _ = seven.run_round(replace(seven.initial_state(), buffers=buffers.clone()))
    assert torch.equal(state.buffers, buffers)  # an average of seven would round
