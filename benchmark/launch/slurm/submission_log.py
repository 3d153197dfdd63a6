"""What was submitted from a results folder: ``<results>/launcher/batches``, one file per job array."""

import json
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmark.errors import StorageError
from benchmark.launch.slurm.queue import Queued, QueuedTask
from benchmark.runs.files import write_with_folder
from benchmark.runs.store import ResultsFolder


@dataclass(frozen=True)
class Batch:
    """One job array: its name, which its jobs have too, the runs of each task, and tasks that a user cancelled."""

    name: str
    packs: Sequence[Sequence[str]]
    cancelled: Sequence[int] = ()

    @classmethod
    def new(cls, packs: Sequence[Sequence[str]]) -> "Batch":
        """A batch with a new name. Names sort by time."""
        return cls(f"fedtables-{datetime.now(UTC):%y%m%d%H%M%S.%f}-{secrets.token_hex(2)}", packs)


@dataclass(frozen=True)
class Place:
    """Where a run was submitted last: name of the batch, the task in it, and whether a user cancelled the task."""

    batch: str
    index: int
    cancelled: bool


class SubmissionLog:
    """The batches of a results folder."""

    def __init__(self, results: ResultsFolder) -> None:
        self.folder = results.root / "launcher" / "batches"

    def write(self, batch: Batch) -> None:
        """Write a batch, or what has changed of it."""
        write_with_folder(self.folder / f"{batch.name}.json", json.dumps(asdict(batch)).encode())

    def remove(self, batch: Batch) -> None:
        """Remove a batch that was not submitted."""
        (self.folder / f"{batch.name}.json").unlink(missing_ok=True)

    def batches(self) -> list[Batch]:
        """All batches, in the order in which they were submitted."""
        return [_read(path) for path in sorted(self.folder.glob("*.json"))]

    def living(self, queued: Queued | None) -> dict[str, QueuedTask]:
        """Run -> its task that waits or runs. If the queue is not known, everything submitted may run."""
        return {
            key: QueuedTask("", True) if queued is None else queued[batch.name][index]
            for batch in self.batches()
            for index, pack in enumerate(batch.packs)
            if queued is None or index in queued.get(batch.name, {})
            for key in pack
        }

    def places(self) -> dict[str, Place]:
        """Run -> where it was submitted last."""
        return {
            key: Place(batch.name, index, index in batch.cancelled)
            for batch in self.batches()
            for index, pack in enumerate(batch.packs)
            for key in pack
        }

    def cancel(self, queued: Queued, keys: Collection[str]) -> tuple[list[QueuedTask], int]:
        """Mark the living tasks with any of these runs as cancelled: (the tasks, number of other runs in them)."""
        tasks, others = [], 0
        for batch in self.batches():
            alive = queued.get(batch.name, {})
            hit = [i for i, pack in enumerate(batch.packs) if i in alive and not set(keys).isdisjoint(pack)]
            if hit:
                self.write(replace(batch, cancelled=sorted({*batch.cancelled, *hit})))
            tasks += [alive[index] for index in hit]
            others += sum(key not in keys for index in hit for key in batch.packs[index])
        return tasks, others


def _read(path: Path) -> Batch:
    try:
        return Batch(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"{path.absolute()}: damaged ({error}). Remove it when `squeue` shows no job called {path.stem}."
        ) from error


def task_log(jobs: Path, place: Place) -> Path | None:
    """The log of a task below ``jobs``, submitit's folder; None before it begins."""
    # The name of an array with one task has no index.
    alone = r"|\d+_0_log\.out" if place.index == 0 else ""
    pattern = re.compile(rf"\d+_{place.index}_0_log\.out{alone}")
    paths = (jobs / place.batch).glob("*_log.out")
    return max((path for path in paths if pattern.fullmatch(path.name)), default=None)
