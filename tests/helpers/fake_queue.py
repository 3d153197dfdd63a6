"""A queue of SLURM that does as it is told, and a launcher that submits to it."""

from collections.abc import Callable, Sequence
from typing import Any

from finished_runs import put_status

from benchmark.launch.slurm.preflight import PreflightCheck
from benchmark.launch.slurm.queue import Queued, QueuedTask, QueueFullError, SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submissions import Cluster
from benchmark.launch.tasks import Task
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder

KEYS = [f"method-{m}/seed{s}" for m in range(4) for s in range(3)]


def tasks(keys: Sequence[str] = KEYS) -> list[Task]:
    return [Task(key, {}) for key in keys]


class FakeQueue(SlurmQueue):
    """Arrays by name, with those of their tasks that wait or run; ``room`` for so many tasks."""

    def __init__(self, largest: int = 1000, room: int = 1000) -> None:
        self.largest, self.room = largest, room
        self.answers = True
        self.arrays: dict[str, list[list[str]]] = {}
        self.alive: dict[str, set[int]] = {}
        self.running: dict[str, set[int]] = {}
        self.parallel: list[int] = []
        self.waits_for: list[str | None] = []
        self.probes: list[PreflightCheck] = []
        self.asked = 0
        self.after: Callable[[], None] = lambda: None
        """Called at the end of each submission."""

    def submit(self, name: str, jobs: Sequence[Any], parallel: int = 1, after: str | None = None) -> str:
        self.asked += 1
        if sum(map(len, self.alive.values())) + len(jobs) > self.room:
            raise QueueFullError
        self.arrays[name] = [[task.key for task in job.tasks] for job in jobs]
        self.alive[name] = set(range(len(jobs)))
        self.parallel.append(parallel)
        self.waits_for.append(after)
        self.after()
        return f"{name}_0"

    def submit_preflight(self, check: PreflightCheck) -> str:
        if not self.room:
            raise QueueFullError
        self.alive[check.name] = {0}
        self.probes.append(check)
        return f"{check.name}_0"

    def tasks(self) -> Queued | None:
        if not self.answers:
            return None
        return {
            name: {i: QueuedTask(f"{name}_{i}", i in self.running.get(name, ())) for i in found}
            for name, found in self.alive.items()
            if found
        }

    def cancel(self, tasks: Sequence[QueuedTask]) -> None:
        for task in tasks:
            name, _, index = task.id.rpartition("_")
            self.alive[name].discard(int(index))

    def largest_array(self) -> int:
        return self.largest

    def submitted(self) -> list[str]:
        """Every run, as often as it was submitted."""
        return [key for packs in self.arrays.values() for pack in packs for key in pack]


def end(results: ResultsFolder, *keys: str, state: str = "done", seconds: float = 0.0) -> None:
    """Write how runs ended."""
    for key in keys:
        folder = results.run(key)
        folder.path.mkdir(parents=True, exist_ok=True)
        status = Status(RunState(state), 1, 1, "why", seconds=seconds)
        put_status(folder, status)


def cluster(results: ResultsFolder, queue: FakeQueue, **settings: Any) -> Cluster:
    """A launcher that looks often."""
    queue.folder = results.root / "launcher" / "jobs"
    chosen = SlurmSettings.of({"poll": 0.01, "probe": False, **settings})
    return Cluster(RunIndex(results), queue, chosen, "module:work")
