"""``status``: what the folders of runs say, and a cluster's queue."""

from pathlib import Path
from typing import Any

import pytest
from command_line import numbers
from fake_queue import fake_queue
from finished_runs import fail, finish

from benchmark.cli.options import parse
from benchmark.commands.launching import plans_of
from benchmark.config.schema import RunConfig
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.runs.folder import ResultsFolder

TABLE = ("name=toy_table1", "seeds=3", "rows=fedavg")


@pytest.fixture
def runs(cli: Any, toy: Any) -> list[RunConfig]:
    """The planned runs of `TABLE`."""
    query = TableQuery.model_validate(parse(TABLE, "status", TableQuery))
    found = list(unique_runs([cells for _, cells in plans_of(query)]).values())
    assert len(found) == 6
    return found


def test_status(cli: Any, runs: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = ResultsFolder(Path("results")).open()
    finish(results, runs[0])
    fail(results, runs[1], "ValueError: seven\nand a traceback")
    finish(results, runs[2], state="diverged")
    results.run(runs[3].key).begin(runs[3], "launch").end("stopped")
    damaged = finish(results, runs[5])
    (damaged / "result.json").write_text("{}")
    with results.run(runs[4].key).claimed(), monkeypatch.context() as patch:
        patch.setenv("PATH", "")  # a machine without SLURM
        code, out, err = cli("status", *TABLE)
    assert (code, err) == (0, "")
    states = ("done", "running", "failed", "diverged", "missing", "differs")
    assert numbers(out) == dict.fromkeys(states, 1)
    assert "6 runs: 1 missing, 1 running, 1 done, 1 diverged, 1 failed, 1 differs\n" in out
    assert f"failed: {runs[1].key}: ValueError: seven (" in out and "traceback" not in out
    assert f"differs: {runs[5].key}: " in out and "damaged" in out
    queue = fake_queue(tmp_path / "slurm", monkeypatch)
    queue.hold("7", 2)
    assert (
        "2 missing, 1 done, 1 diverged, 1 failed, 1 differs; 2 tasks waiting\n" in cli("status", *TABLE).out
    )


def test_runs_of_no_table(cli: Any, runs: list[RunConfig]) -> None:
    """They have a row of their own."""
    results = ResultsFolder(Path("results")).open()
    for seed in (7, 8):
        finish(results, runs[0].model_copy(update={"seed": seed}))
    assert numbers(cli("status").out, "other runs") == {"done": 2}
    assert "other runs" not in cli("status", *TABLE).out
