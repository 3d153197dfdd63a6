"""The state of a run: one word, and what ``status.json`` says beside it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

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
    """A client sent NaN or infinity. As final as `DONE`: the same configuration diverges again."""
    FAILED = "failed"
    """Ended by an error, or its process died."""
    STALE = "stale"
    """Ended, but the code of its method has changed since. The next launch carries it out again."""
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


@dataclass(frozen=True)
class Status:
    """What ``status.json`` says.

    Attributes:
        hash, seed: The configuration and the seed. The folder of a run has both in its name.
        final: The last evaluation, {split: {metric: value}} for the whole set.
        code: Digests of the method's own files, by path (`benchmark.runs.code`).
        engine: Digest of the code that every run executes; empty for runs from before digests were stored.
        files: SHA-256 of ``config.yaml`` and ``meta.json``, by name.
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
    files: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def ended(self) -> bool:
        """Done or diverged."""
        return self.state.ended
