"""Runs on the shadow device beside the same runs on the CPU. `compare` is called in a process of its own."""

import contextlib
import functools
import inspect
import pkgutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import shadow_device
import torch
from federations import same
from shadow_device import Wait
from tiny_runs import carry_out, folder_of, tiny
from torch.utils._pytree import tree_leaves

from benchmark.config.schema import RunConfig
from benchmark.engine.clients import ClientSide
from benchmark.engine.federation import FederatedRun
from benchmark.engine.randomness import seed_torch
from benchmark.engine.round_values import RoundValues
from benchmark.engine.state import FederationState, RoundReport
from benchmark.engine.training import LocalTrainer
from benchmark.runs import build

BASE: dict[str, Any] = {
    "dataset": {
        "name": "fake",
        "options": {"classes": 4, "attributes": 2, "channels": 3, "train_size": 30, "test_size": 12},
    },
    "partition": {"name": "iid", "clients": 3},
    "model": "tiny_cnn",
    "train": {"batch_size": 5, "clients_per_round": 2},
    "evaluation": {"every": 1, "validation": 0.25},
}
"""Two of three clients in a round, each with a batch of 5 samples and a shorter one."""


@dataclass
class Comparison:
    """A run on the shadow device beside the same run on the CPU.

    Attributes:
        differences: Why the run failed there, or what has other bits.
        visits: The waits of each client's visit.
        steps: The waits of each local step.
        reads: The waits of the read at the end of each round.
        kept: The devices of the tensors that clients keep, after each round in which they have some.
    """

    differences: list[str] = field(default_factory=list)
    visits: list[list[Wait]] = field(default_factory=list)
    steps: list[list[Wait]] = field(default_factory=list)
    reads: list[list[Wait]] = field(default_factory=list)
    kept: list[set[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Mistake:
    """A text in the source of a function, and what a mistaken programmer writes in its place."""

    function: str
    right: str
    wrong: str

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Let the function be the mistaken one."""
        function = inspect.unwrap(pkgutil.resolve_name(self.function))
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.right) == 1, f"{self.function} no longer has one {self.right!r}"
        # A class around it, since `super()` needs one.
        source = f"class Mistaken:\n{textwrap.indent(source.replace(self.right, self.wrong), ' ')}"
        names: dict[str, Any] = {}
        exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, names)
        before = function.__code__
        function.__code__ = inspect.unwrap(vars(names["Mistaken"])[function.__name__]).__code__
        try:
            yield
        finally:
            function.__code__ = before


def compare(
    layers: Mapping[str, Any],
    mistake: Mistake | None = None,
    dispatched: bool = False,
    state: str | None = None,
) -> Comparison:
    """Three rounds on both devices, interrupted after the second and continued from the checkpoint.

    With ``dispatched`` the CPU's operations pass through Python too: torch has other formulas for some of them then.
    ``state`` is where clients' states are kept, `runtime.client_state`.
    """
    torch.set_num_threads(1)
    comparison = Comparison()
    with tempfile.TemporaryDirectory() as folder, mistake.planted() if mistake else contextlib.nullcontext():
        on_cpu, there = (
            tiny(
                Path(folder) / device,
                BASE,
                layers,
                checkpoint_every=10,
                keep_checkpoint=True,
                client_state=state,
            )
            for device in ("cpu", "shadow")
        )
        with shadow_device.device() if dispatched else contextlib.nullcontext():
            failure = _interrupted_once(on_cpu)
        assert not failure, f"on the CPU: {failure}"
        with _shadow(comparison):
            failure = _interrupted_once(there)
        comparison.differences = [failure] if failure else _differences(on_cpu, there)
    return comparison


def _interrupted_once(config: RunConfig) -> str:
    """Carry out a run in two parts, the second from a checkpoint; returns why it failed."""
    rounds: list[int] = []
    first = carry_out(config, lambda done, *_: rounds.append(done), lambda: rounds[-1:] == [2])
    if first.state != "missing":
        return first.message
    second = carry_out(config)
    return "" if second.state == "done" else second.message


def _differences(a: RunConfig, b: RunConfig) -> list[str]:
    """What is not the same, bit for bit, in the results of two runs."""
    states = [torch.load(folder_of(config).path / "checkpoint.pt", weights_only=True)["state"] for config in (a, b)]
    found = [name for name in states[0] if not same(states[0][name], states[1][name])]
    records = [(folder_of(config).path / "records.jsonl").read_bytes() for config in (a, b)]
    return found + (["records"] if records[0] != records[1] else [])


@contextlib.contextmanager
def _shadow(comparison: Comparison) -> Iterator[None]:
    """Let runs use the shadow device; their waits go into ``comparison``."""
    make_step, run_round = LocalTrainer.step_function, FederatedRun.run_round

    def step_function(*args: Any) -> Callable[..., Any]:
        return _noting(make_step(*args), comparison.steps)

    def round(run: FederatedRun, state: FederationState) -> tuple[FederationState, RoundReport]:
        new, report = run_round(run, state)
        kept = {
            x.device.type for x in tree_leaves([state.clients, new.clients]) if isinstance(x, torch.Tensor)
        }
        comparison.kept += [kept] if kept else []
        return new, report

    train = _noting(ClientSide.train, comparison.visits)
    read = _noting(RoundValues.read, comparison.reads)
    with (
        shadow_device.device(),
        mock.patch.object(build, "choose_device", lambda name: torch.device("shadow:0")),
        mock.patch.object(FederatedRun, "run_round", round),
        mock.patch.object(ClientSide, "train", train),
        mock.patch.object(RoundValues, "read", read),
        mock.patch.object(LocalTrainer, "step_function", step_function),
    ):
        yield


def _noting(function: Callable[..., Any], into: list[list[Wait]]) -> Callable[..., Any]:
    """The function; each call adds the list of its waits to ``into``."""

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        before = len(shadow_device.waits)
        result = function(*args, **kwargs)
        into.append(shadow_device.waits[before:])
        return result

    return noting


def reaction(expression: str) -> str | list[str]:
    """What an expression with ``host`` [2] on the CPU and ``there`` [2] on the device raises, or why it waits."""
    with shadow_device.device():
        host = torch.tensor([0.0, 1.0])
        there = shadow_device.to_device(host.clone())
        before = len(shadow_device.waits)
        try:
            eval(expression, {"torch": torch, "host": host, "there": there})
        except (RuntimeError, TypeError) as error:
            return type(error).__name__
        return [wait.operation for wait in shadow_device.waits[before:]]


def draws_after_seeding(seed: int) -> list[float]:
    """A draw on the CPU and one on the device after `seed_torch`. torch.manual_seed cannot be called meanwhile."""
    with shadow_device.device(), mock.patch("torch.manual_seed", None):
        seed_torch(seed, torch.device("shadow"))
        return [float(torch.rand(())), float(torch.rand((), device="shadow").cpu())]
