"""Kills, and two commands at once: the same command then gives the table that an undisturbed one gives."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from desk import finished
from processes import descendants, is_alive, wait_until
from tiny_runs import FORKS, command

from benchmark.runs.folder import ResultsFolder

pytestmark = pytest.mark.slow

TABLE = (
    "table",
    "name=fedld_table1",
    "seeds=1",
    "rows=fedavg,fedpac",
    "columns=retina_split1,retina_split2,retina_split3",
)
KILLS = int(os.environ.get("KILLS", "12"))
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Start = Callable[..., BaseProcess]
Found = tuple[bytes, dict[str, tuple[bytes, str]]]


def in_group(words: list[str], output: Path) -> None:
    os.setsid()
    command(words, output)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """``start(results, words)``: the command that makes the table, in a process group of its own."""
    started: list[BaseProcess] = []

    def call(results: Path, *words: str) -> BaseProcess:
        results.mkdir(exist_ok=True)
        given = [*TABLE, f"results={results}", *(words or ("workers=2",))]
        process = FORKS.Process(target=in_group, args=(given, results / "output"))
        process.start()
        started.append(process)
        return process

    yield call
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


@pytest.fixture(scope="module")
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Found:
    results = tmp_path_factory.mktemp("undisturbed")
    process = start(results, "launcher=inline")
    process.join()
    assert process.exitcode == 0
    return found(results)


def found(root: Path) -> Found:
    """The table and the runs."""
    runs = finished(ResultsFolder(root))
    assert len(runs) == 6
    return (root / "tables/quick/fedld_table1_part.csv").read_bytes(), runs


def test_random_kills(start: Start, undisturbed: Found, tmp_path: Path) -> None:
    """Of the launcher, a worker or the whole group, while workers start and while they work."""
    rng, results, seen = np.random.default_rng(KILLS), tmp_path / "results", set[int]()
    left, launcher = KILLS, start(results)
    while left:
        workers = descendants(launcher.pid or 0)
        seen |= {*workers, launcher.pid or 0}
        if launcher.exitcode is not None:
            for path in (results / "runs").glob("*") if launcher.exitcode == 0 else ():
                path.rename(tmp_path / f"{left}-{path.name}")  # all is done: once more
            launcher = start(results)
        elif workers:
            time.sleep(rng.exponential(2.0))
            number, target = rng.choice(SIGNALS), rng.choice(["launcher", "worker", "group"])
            with suppress(ProcessLookupError):
                if target == "group":
                    os.killpg(launcher.pid or 0, number)
                else:
                    os.kill(launcher.pid or 0 if target == "launcher" else int(rng.choice(workers)), number)
            left -= 1
            if target != "worker":
                launcher.join()
    launcher.join()
    last = start(results)
    last.join()
    assert last.exitcode == 0, (results / "output").read_text()
    assert found(results) == undisturbed
    wait_until(lambda: not any(map(is_alive, seen)), "the end of all processes")


def test_two_commands_at_once(start: Start, undisturbed: Found, tmp_path: Path) -> None:
    both = [start(tmp_path / "results") for _ in range(2)]
    for process in both:
        process.join()
    output = (tmp_path / "results" / "output").read_text()
    assert [process.exitcode for process in both] == [0, 0], output
    assert output.count("6/6 runs in ") == 2 and "failed" not in output
    assert found(tmp_path / "results") == undisturbed
