"""What 100,000 runs cost before the first one starts: planning, packing, submitting, asking how far they are.

``python -m benchmark bench scale``. The scheduler is made of scripts that keep jobs in a file and have SLURM's limits
(MaxArraySize, MaxSubmitJobs); everything on our side of it, submitit included, is what a real cluster gets.
"""

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmark.config.schema import RunConfig
from benchmark.experiments.plan import plan, unique_runs
from benchmark.experiments.tables import spec_called
from benchmark.launch.overview import RunOverview
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submissions import Cluster
from benchmark.launch.tasks import RUN_WORK, Task
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results

TABLE = "fedmr_table1"

T = TypeVar("T")

# Jobs are lines as of squeue; a job array is refused whole, as SLURM does.
_SBATCH = """#!/bin/sh
script=$(for word; do :; done; cat "$word")
name=$(echo "$script" | sed -n 's/^#SBATCH --job-name=//p')
last=$(echo "$script" | sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p')
tasks=$((${last:-0} + 1))
if [ "$tasks" -ge MAX_ARRAY ]; then
  echo "sbatch: error: Batch job submission failed: Invalid job array specification" >&2; exit 1
fi
if [ $(($(wc -l <QUEUE) + tasks)) -gt MAX_SUBMIT ]; then
  echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)" >&2
  exit 1
fi
job=$(($(wc -l <COUNT) + 1)); echo >>COUNT
seq 0 $((tasks - 1)) | sed "s/.*/${job}_&|PENDING|Priority|$name/" >>QUEUE
echo "Submitted batch job $job"
"""


@contextmanager
def scheduler(folder: Path, max_array: int, max_submit: int) -> Iterator[Path]:
    """Commands of SLURM, first on PATH, that keep jobs in a file; the file."""
    folder.mkdir(parents=True)
    queue, count = folder / "queue", folder / "count"
    for path in (queue, count):
        path.touch()
    texts = {
        "sbatch": _SBATCH.replace("QUEUE", str(queue)).replace("COUNT", str(count)),
        "squeue": f"#!/bin/sh\ncat {queue}\n",
        "srun": "#!/bin/sh\n",  # submitit looks for it
        "scontrol": f"#!/bin/sh\necho 'MaxArraySize            = {max_array}'\n",
    }
    for name, text in texts.items():
        path = folder / name
        path.write_text(text.replace("MAX_ARRAY", str(max_array)).replace("MAX_SUBMIT", str(max_submit)))
        path.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    try:
        yield queue
    finally:
        os.environ["PATH"] = before


def _timed(what: str, function: Callable[[], T]) -> T:
    began = time.perf_counter()
    value = function()
    print(f"  {what:<62} {time.perf_counter() - began:7.1f} s", flush=True)
    return value


def end_runs(cluster: Cluster, queue: Path) -> list[str]:
    """Let all jobs of the scheduler end, their runs done; the keys of these runs."""
    keys = list(cluster.log.living(cluster.queue.tasks()))
    for key in keys:
        folder = cluster.results.run(key)
        folder.path.mkdir(parents=True)
        folder.write_status(Status(RunState.DONE, 1, 1, seconds=1.0))
    queue.write_text("")
    return keys


def submit_all(cluster: Cluster, tasks: Sequence[Task], queue: Path) -> list[list[str]]:
    """Submit until there is nothing left, ending all jobs in between; the keys of each submission."""
    submissions = []
    while cluster.submit(tasks):
        submissions.append(end_runs(cluster, queue))
    return submissions


def main(runs: int, per_task: int, max_array: int = 1001, max_submit: int = 4000) -> None:
    """Print the times for so many runs."""
    spec = spec_called(TABLE)
    cells = len(unique_runs([plan(spec, "quick", [0])]))
    seeds = -(-runs // cells)
    print(
        f"{cells * seeds:,} runs ({TABLE}, {seeds} seeds) in tasks of {per_task}; MaxArraySize {max_array}, "
        f"MaxSubmitJobs {max_submit}"
    )
    planned: dict[str, RunConfig] = _timed("plan", lambda: unique_runs([plan(spec, "quick", range(seeds))]))
    with (
        tempfile.TemporaryDirectory() as name,
        scheduler(Path(name) / "slurm", max_array, max_submit) as queue,
    ):
        _submit(Results(Path(name) / "results").open(), planned, per_task, queue)


def _submit(results: Results, planned: dict[str, RunConfig], per_task: int, queue: Path) -> None:
    settings = SlurmSettings.of({"runs_per_job": per_task, "probe": False})
    cluster = Cluster(results, SlurmQueue(settings, results.root / "launcher" / "jobs"), settings, RUN_WORK)
    tasks = _timed(
        "one task description per run",
        lambda: [Task(key, run.train.rounds, run.model_dump(mode="json")) for key, run in planned.items()],
    )

    def status() -> Counter[str]:
        overview = RunOverview(results)
        overview.refresh(planned)
        return Counter(overview.state(key) for key in planned)

    _timed("status, nothing there yet", status)
    first = _timed("pack and submit as much as the queue takes", lambda: cluster.submit(tasks))
    print(f"  ... {first:,} runs in {first // per_task:,} tasks, {len(cluster.log.batches())} arrays")
    found = _timed("status, these waiting", status)
    assert found["waiting"] == first, found
    end_runs(cluster, queue)
    rest = _timed(
        "submit the rest, each time the queue has room (ends included)",
        lambda: submit_all(cluster, tasks, queue),
    )
    print(f"  ... {len(rest)} times; {len(cluster.log.batches())} arrays in all")
    found = _timed("status, all done", status)
    assert found["done"] == len(planned), found
    _timed("the same command again: nothing to submit", lambda: cluster.submit(tasks))
    entries = Counter(str(path.parent.relative_to(results.root)) for path in results.root.rglob("*"))
    for pattern in (r"runs", r"runs/[^/]+", r"launcher/batches", r"launcher/jobs", r"launcher/jobs/[^/]+"):
        most = max(number for name, number in entries.items() if re.fullmatch(pattern, name))
        print(f"  entries, at most, of a folder {pattern.replace('[^/]+', '*'):<32} {most:6,}")
