"""Single runs and sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.commands.launching import run_missing, tracker
from benchmark.commands.options import LaunchOptions
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import check_run
from benchmark.experiments.sweeps import Sweep
from benchmark.launch.launch import run_here
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunResult

if TYPE_CHECKING:
    from benchmark.runs.execute import Progress


def carry_out(options: LaunchOptions, config: RunConfig, progress: Progress) -> RunResult:
    """Carry out one run in this process.

    Raises:
        ConfigError: A setting names what does not exist, or another process works on the run. No folder is made.
        UserError: The run failed because of a user's mistake.
    """
    check_run(config)
    index = RunIndex(ResultsFolder(Path(config.paths.results), config.runtime.stale).open())
    return run_here(index, config, progress, tracker(options, index.results.root))


@contextlib.contextmanager
def sweep_missing(options: LaunchOptions, swept: Sweep) -> Iterator[tuple[RunIndex, int]]:
    """Carry out what is missing of a sweep through the launcher of the tables; gives the runs and the exit code."""
    configs = [run.config for run in swept.runs]
    paths, runtime = configs[0].paths, configs[0].runtime
    if any((config.paths, config.runtime) != (paths, runtime) for config in configs):
        raise ConfigError("run: paths and runtime are the same for all runs of a sweep; give each one value.")
    options = options.model_copy(update={"threads": runtime.threads, "device": runtime.device})
    index = RunIndex(ResultsFolder(Path(paths.results), runtime.stale).open())
    names = {run.config.key: run.name for run in swept.runs}
    with run_missing(options, index, [swept.table()], names=names) as code:
        yield index, code
