"""The state of a run: one word, and what ``status.json`` says beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from benchmark.config.schema import FORMAT


class RunState(StrEnum):
    """What became of a run. Used by the run's folder, workers, launchers, tables and the command line alike."""

    MISSING = "missing"
    """Not started, or its process was killed. The next launch carries it out, from its checkpoint if it has one."""
    WAITING = "waiting"
    """Submitted to a cluster, not started."""
    RUNNING = "running"
    """A living process works on it."""
    INTERRUPTED = "interrupted"
    """Stopped on request, state saved. Tables count it as missing."""
    DONE = "done"
    DIVERGED = "diverged"
    """A value became NaN or infinite. As final as `DONE`: the same configuration diverges again."""
    FAILED = "failed"
    """Ended by an error, or its process died."""
    STALE = "stale"
    """Ended, but the code of its method or its data have changed since. The next launch carries it out again."""
    DAMAGED = "damaged"
    """Its files are not what was written. `verify --repair` sets it aside."""

    @property
    def ended(self) -> bool:
        """Done or diverged: a deterministic result that the same command leaves as it is."""
        return self in (RunState.DONE, RunState.DIVERGED)


class RunResult(NamedTuple):
    """How a process left a run.

    Attributes:
        state: Done, diverged, interrupted or failed. Running: another process works on it.
        message: The reason, or an empty string.
        error: Name of the class of the exception by which it failed; empty for a user's mistake.
    """

    state: RunState
    message: str = ""
    error: str = ""


ORIGIN = ("code", "engine", "data", "partition", "torch", "threads", "dispatch", "device")
"""The attributes of a `Status` on which bits depend. All parts of a run have the same."""


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of `ORIGIN` has another value now, in words."""
    others = []
    for key in ORIGIN:
        old, new = before[key], now[key]
        if key == "code":
            others += [f"code of {name}" for name in sorted({**old, **new}) if old.get(name) != new.get(name)]
        elif old != new:
            is_digest = key in ("engine", "data", "partition")  # it says nothing to a reader
            others.append(f"the {key}" if is_digest else f"{key} ({old}, now {new})")
    return others


@dataclass(frozen=True)
class Status:
    """What ``status.json`` says.

    Attributes:
        hash, seed: The configuration and the seed. The folder of a run has both in its name.
        final: The last evaluation, {split: {metric: value}} for the whole set.
        code: Digests of the method's own files, by name (`benchmark.digests.own`).
        engine: Digest of the code that every run executes.
        data: Fingerprint of the data set.
        partition: Digest of the indices of all clients.
        torch, threads, device: Version, number, and type with the name of a GPU.
        dispatch: The instructions of the processor that torch may use, and variables that limit them.
        processor: Types of the processors of all processes that worked on the run.
        prepared: Folder of the prepared data.
        builder: Digests of the files of the data set's builder, by name.
        mixed: What differed between parts of the run that were put together on request (``stale=keep``).
        files: SHA-256 of the other files of an ended run, by name.
    """

    state: RunState
    round: int = 0
    rounds: int = 0
    message: str = ""
    updated: float = 0.0
    host: str = ""
    pid: int = 0
    seconds: float = 0.0
    records_bytes: int = 0
    records_sha256: str = ""
    model_sha256: str = ""
    final: dict[str, dict[str, float]] = field(default_factory=dict)
    hash: str = ""
    seed: int = 0
    code: dict[str, str] = field(default_factory=dict)
    engine: str = ""
    data: str = ""
    partition: str = ""
    torch: str = ""
    threads: int = 0
    dispatch: str = ""
    device: str = ""
    processor: str = ""
    prepared: str = ""
    builder: dict[str, str] = field(default_factory=dict)
    mixed: str = ""
    files: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def ended(self) -> bool:
        """Done or diverged."""
        return self.state.ended

    @property
    def instructions(self) -> str:
        """The type of processor, and ``dispatch``: of processors with one name, not all compute the same bits."""
        return f"{self.processor} {self.dispatch}".strip()
