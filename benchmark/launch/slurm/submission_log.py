"""What was submitted from a results folder: ``<results>/launcher/batches``, one file per job array."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmark.launch.slurm.queue import Queued, QueuedTask
from benchmark.runs.files import write_atomically
from benchmark.runs.store import Results


@dataclass(frozen=True)
class Batch:
    """One job array: its name, which its jobs have too, the runs of each task, and tasks that a user cancelled."""

    name: str
    packs: tuple[tuple[str, ...], ...]
    cancelled: tuple[int, ...] = ()

    @classmethod
    def new(cls, packs: Iterable[Iterable[str]]) -> Batch:
        """A batch with a new name. Names sort by time."""
        now = time.time_ns()
        stamp = f"{time.strftime('%y%m%d%H%M%S', time.gmtime(now // 10**9))}.{now % 10**9 // 1000:06d}"
        return cls(f"fedtables-{stamp}-{secrets.token_hex(2)}", tuple(map(tuple, packs)))


@dataclass(frozen=True)
class Place:
    """Where a run was submitted last: the batch, and the task in it."""

    batch: Batch
    index: int

    @property
    def cancelled(self) -> bool:
        """Whether a user cancelled the task."""
        return self.index in self.batch.cancelled


class SubmissionLog:
    """The batches of a results folder, in the order in which they were submitted."""

    def __init__(self, results: Results) -> None:
        self.folder = results.root / "launcher" / "batches"
        self._read: dict[Path, tuple[int, Batch]] = {}

    def write(self, batch: Batch) -> None:
        """Write a batch, or what has changed of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / f"{batch.name}.json", json.dumps(asdict(batch)).encode())

    def remove(self, batch: Batch) -> None:
        """Remove a batch that was not submitted."""
        (self.folder / f"{batch.name}.json").unlink(missing_ok=True)

    def batches(self) -> list[Batch]:
        """All batches. Only files that have changed since the last call are read."""
        found = []
        for path in sorted(self.folder.glob("*.json")) if self.folder.exists() else ():
            changed = path.stat().st_mtime_ns
            known = self._read.get(path)
            if known is None or known[0] != changed:
                plain = json.loads(path.read_bytes())
                packs = tuple(map(tuple, plain["packs"]))
                known = changed, Batch(plain["name"], packs, tuple(plain["cancelled"]))
                self._read[path] = known
            found.append(known[1])
        return found

    def living(self, queued: Queued | None) -> dict[str, QueuedTask]:
        """Run -> its task that waits or runs. If the queue is not known, everything submitted may run."""
        alive: dict[str, QueuedTask] = {}
        for batch in self.batches():
            unknown = {index: QueuedTask("", True) for index in range(len(batch.packs))}
            tasks = unknown if queued is None else queued.get(batch.name, {})
            for index, task in tasks.items():
                if index < len(batch.packs):
                    alive.update(dict.fromkeys(batch.packs[index], task))
        return alive

    def places(self) -> dict[str, Place]:
        """Run -> where it was submitted last."""
        return {
            key: Place(batch, index)
            for batch in self.batches()
            for index, pack in enumerate(batch.packs)
            for key in pack
        }

    def cancel(self, queued: Queued, keys: Collection[str]) -> tuple[list[QueuedTask], int]:
        """Mark the living tasks with any of these runs as cancelled: (the tasks, number of other runs in them)."""
        tasks, others = [], 0
        for batch in self.batches():
            alive = queued.get(batch.name, {})
            hit = [i for i in alive if i < len(batch.packs) and not set(keys).isdisjoint(batch.packs[i])]
            if hit:
                self.write(replace(batch, cancelled=tuple(sorted({*batch.cancelled, *hit}))))
            tasks += [alive[index] for index in hit]
            others += sum(key not in keys for index in hit for key in batch.packs[index])
        return tasks, others


def task_log(jobs: Path, place: Place) -> Path | None:
    """The log of a task below ``jobs``, submitit's folder; None before it begins."""
    # The name of an array with one task has no index.
    alone = r"|\d+_0_log\.out" if place.index == 0 else ""
    pattern = re.compile(rf"\d+_{place.index}_0_log\.out{alone}")
    paths = (jobs / place.batch.name).glob("*_log.out")
    return max((path for path in paths if pattern.fullmatch(path.name)), default=None)
