"""What became of a run: one word, and what ``result.json`` says of a finished one."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class RunState(StrEnum):
    """What became of a run. Used by the run's folder, launchers, tables and the command line alike."""

    MISSING = "missing"
    """Not begun, or stopped. The next launch carries it out, from its checkpoint if it has one."""
    RUNNING = "running"
    """A living process works on it."""
    DONE = "done"
    DIVERGED = "diverged"
    """A value became NaN or infinite. As final as `DONE`: the same configuration diverges again."""
    FAILED = "failed"
    """Ended by an error, or its process died several times. The next launch tries it again."""
    DIFFERS = "differs"
    """Finished, but its own code or its data are others now, or its files are damaged. The next launch moves it."""


class RunResult(NamedTuple):
    """How a process left a run.

    Attributes:
        state: Done, diverged or failed. Missing: stopped on request. Running: another process works on it.
        message: The reason, or an empty string.
    """

    state: RunState
    message: str = ""


@dataclass(frozen=True)
class Result:
    """What ``result.json`` says.

    Attributes:
        state: Done or diverged.
        round: Rounds that were carried out.
        seconds: Time of all processes that worked on the run.
        hash, seed: The configuration and the seed. The folder of the run has both in its name.
        final: The last evaluation, {split: {metric: value}} for the whole set.
        records_bytes, records_sha256: Of ``records.jsonl``.
        model_sha256: Of the last model.
        origin: What the numbers depend on beside the configuration (`benchmark.runs.origin`).
        parts: What differed between parts of the run that were put together on request (``stale=keep``).
        made: Where and by which code: host, processor, versions, commit, snapshot of the code, prepared data, and
            the samples of each class that clients have.
        updated: When it was written, in seconds since 1970.
    """

    state: RunState
    message: str
    round: int
    seconds: float
    hash: str
    seed: int
    final: dict[str, dict[str, float]]
    records_bytes: int
    records_sha256: str
    model_sha256: str
    origin: dict[str, Any]
    made: dict[str, Any]
    parts: str = ""
    updated: float = field(default=0.0, compare=False)

    @property
    def instructions(self) -> str:
        """The type of processor and what torch uses of it: not all of one name compute the same bits."""
        return f"{self.made['processor']} {self.origin['dispatch']}".strip()
