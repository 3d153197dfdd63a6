"""Limits of a cluster, against scripts that refuse as SLURM does; submitit and our own side are the real ones."""

import re
from pathlib import Path

import pytest

from benchmark.bench.scale import main, scheduler, submit_all
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submissions import Cluster
from benchmark.launch.tasks import Task
from benchmark.runs.store import Results

KEYS = [f"method-{m}/seed{s}" for m in range(10) for s in range(10)]
TASKS = [Task(key, 1, {}) for key in KEYS]


# 50 tasks. An array of MaxArraySize itself is refused too; of 20, 20 and 10 tasks two fit into 45. Into 7 fit 50 / 8,
# 44 / 8, 39 / 8, 35 / 8, 31 / 4, 24 / 4, 18 / 4, 14 / 2 and 7 tasks, rounded down.
@pytest.mark.parametrize(
    ("max_array", "max_submit", "arrays"),
    [
        (1001, 4000, [50]),
        (21, 4000, [20, 20, 10]),
        (21, 45, [20, 20, 10]),
        (1001, 7, [6, 5, 4, 4, 7, 6, 4, 7, 7]),
    ],
)
def test_limits_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], max_array: int, max_submit: int, arrays: list[int]
) -> None:
    with scheduler(tmp_path / "slurm", max_array, max_submit) as queue:
        results = Results(tmp_path / "results").open()
        chosen = SlurmSettings.of({"runs_per_job": 2, "probe": False})
        jobs = results.root / "launcher" / "jobs"
        cluster = Cluster(results, SlurmQueue(chosen, jobs), chosen, "module:work")
        ended = submit_all(cluster, TASKS, queue)
    assert sorted(key for keys in ended for key in keys) == sorted(KEYS), "each once"
    assert [len(batch.packs) for batch in cluster.log.batches()] == arrays
    assert {path.name for path in cluster.queue.folder.iterdir() if path.is_dir()} >= {
        b.name for b in cluster.log.batches()
    }
    assert capfd.readouterr().err == "", "that the queue is full is no error"


def test_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    main(300, 10, max_array=6, max_submit=12)
    out = capsys.readouterr().out
    assert out.startswith(
        "320 runs (fedmr_table1, 2 seeds) in tasks of 10; MaxArraySize 6, MaxSubmitJobs 12\n"
    )
    # 32 tasks in arrays of 5: 5 and 5 find room, then 5 and 5 of 22, then the last 12 as 5, 5 and 2.
    assert "100 runs in 10 tasks, 2 arrays" in out and "2 times; 7 arrays in all" in out
    assert re.search(r"folder runs +161\n", out), "one for each configuration, and FORMAT"
