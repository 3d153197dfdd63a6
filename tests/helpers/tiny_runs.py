"""Runs of seconds on the fake data set, in this process or in others that a test may kill."""

import errno
import multiprocessing
import os
import pkgutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import methods
import partitions
from benchmark.config.compose import compose, resolve
from benchmark.config.schema import RunConfig
from benchmark.launch.launch import move_others
from benchmark.runs.execute import Launch, Progress, Stop, execute
from benchmark.runs.folder import ResultsFolder, RunFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import Result, RunResult

FAKE = {"name": "fake", "options": {"classes": 4, "train_size": 96, "test_size": 40}}
TINY: dict[str, Any] = {
    "dataset": FAKE,
    "partition": {"name": "iid", "clients": 6},
    "train": {"rounds": 3, "batch_size": 8},
    "evaluation": {"every": 2},
}
STATELESS = {"method": "fedavg", "selection": "uniform", "train": {"clients_per_round": 3}}
STATEFUL = {"method": "fedavgm", "selection": "round_robin", "train": {"clients_per_round": 2}}
"""Momentum at the server and turns taken are both state that must come back."""

# Forks of a server that has imported everything and computed nothing: started in a tenth of a second, and free of
# whatever threads this process has.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",
        "benchmark.runs.execute",
        "benchmark.cli.make",
        "torch.fx.experimental.symbolic_shapes",  # which the first backward pass imports
        *(
            module.name
            for package in (datasets, methods, partitions)
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ),
    ]
)


def tiny(results: Path, *layers: Mapping[str, Any], seed: int = 0, **runtime: Any) -> RunConfig:
    """A run of three rounds with six clients, changed by ``layers``."""
    outside = {
        "paths": {"results": str(results)},
        "runtime": {"checkpoint_every": 1, **runtime},
        "seed": seed,
    }
    return resolve(compose("quick", TINY, *layers, outside))


def index_of(config: RunConfig) -> RunIndex:
    return RunIndex(ResultsFolder(Path(config.paths.results), config.runtime.stale))


def carry_out(
    config: RunConfig,
    progress: Progress = lambda *_: None,
    stop: Stop = lambda: False,
    launch: str = "test",
) -> RunResult:
    """What a launch of one run does in this process, without its signals and its snapshot of the code."""
    index, folder = index_of(config), folder_of(config)
    move_others(index, [config.key])
    with folder.claimed() as is_ours:
        found = folder.result()
        if found is not None:
            return RunResult(found.state, found.message)
        assert is_ours, f"another process works on {folder.path}"
        return execute(config, folder, Launch(launch), progress, stop)


def interrupted(results: Path, *layers: Mapping[str, Any], **runtime: Any) -> RunConfig:
    """A run of three rounds, stopped in the second."""
    config = tiny(results, STATEFUL, *layers, **runtime)
    asked = iter([False] * 3 + [True] * 100)  # two clients a round, and one look after each
    result = carry_out(config, stop=lambda: next(asked))
    assert result.state == "missing" and result.message.startswith("stopped after round 1;")
    return config


def folder_of(config: RunConfig) -> RunFolder:
    return ResultsFolder(Path(config.paths.results)).run(config.key)


def result_of(config: RunConfig) -> Result:
    result = folder_of(config).result()
    assert result is not None
    return result


def bits(config: RunConfig) -> tuple[bytes, str, dict[str, dict[str, float]]]:
    """All that a finished run says: bytes of its records, digest of its model, final metrics."""
    folder, result = folder_of(config), folder_of(config).check()
    assert result is not None and result.state == "done"
    assert set(result.final) == {"test"}
    return (folder.path / "records.jsonl").read_bytes(), result.model_sha256, result.final


def round_on_disk(folder: RunFolder) -> int:
    """The last round that is recorded; -1 without an attempt."""
    return folder.rounds() if folder.attempts() else -1


def words_of(config: RunConfig) -> list[str]:
    """The command line of a `tiny` run, changed layers excepted."""
    return [
        "run",
        "dataset=fake",
        *(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items()),  # type: ignore[attr-defined]
        "partition=iid",
        "partition.clients=6",
        f"method={config.method['name']}",
        f"selection={config.selection['name']}",
        f"train.clients_per_round={config.train.clients_per_round}",
        f"train.rounds={config.train.rounds}",
        "train.batch_size=8",
        "evaluation.every=2",
        f"paths.results={config.paths.results}",
        f"runtime.checkpoint_every={config.runtime.checkpoint_every}",
    ]


def fill(place: Path) -> Path:
    """Leave not one byte."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    stream.write(b"\0" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return ballast


@dataclass(frozen=True)
class Gate:
    """A ``progress`` that lets no run go beyond ``limit`` rounds: it waits there for its end."""

    limit: int

    def __call__(self, round: int, *_: object) -> None:
        while round >= self.limit:
            time.sleep(1)


def command(words: Sequence[str], output: Path) -> None:
    """Be ``python -m benchmark WORDS`` in a fork: exit code and all, stdout and stderr into ``output``.

    Every round is written at once, for tests that wait for one.
    """
    from benchmark.__main__ import main
    from benchmark.runs import execute as run

    run.WRITE_SECONDS = 0.0
    with output.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)
