"""FedTables from Python: the commands as functions, with their results as pandas data frames.

    from benchmark import api

    run = api.run(method="fedprox", train={"rounds": 5})
    run.final["test"]["accuracy"]
    runs = api.sweep(method=["fedavg", "fedprox"], seed=range(3))
    runs.frame().groupby("method")["test.accuracy"].mean()

Settings are those of the command line. A group of settings is a mapping, or the dotted key in a mapping behind ``**``:
``train={"lr": 0.1}`` is ``**{"train.lr": 0.1}``. A mistake raises the error whose message the command would print.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from benchmark.paths import require_usable

require_usable()

import pandas as pd  # noqa: E402 (behind the check that the packages below are ours)

from benchmark.cli.options import LaunchOptions  # noqa: E402
from benchmark.cli.overrides import configuration  # noqa: E402
from benchmark.cli.overrides import sweep as swept_runs  # noqa: E402
from benchmark.cli.run import carry_out, sweep_missing  # noqa: E402
from benchmark.cli.table import TableOptions, make_tables  # noqa: E402
from benchmark.config.schema import RunConfig  # noqa: E402
from benchmark.errors import ConfigError, UserError, validate  # noqa: E402
from benchmark.reports.results import TableResults  # noqa: E402
from benchmark.reports.runs import record_frame, run_frame  # noqa: E402
from benchmark.reports.sweeps import write_sweep  # noqa: E402
from benchmark.runs.folder import ResultsFolder, RunFolder  # noqa: E402
from benchmark.runs.index import RunIndex  # noqa: E402
from benchmark.runs.listing import ListedRun, as_text, find_runs, listed  # noqa: E402
from benchmark.runs.result_files import read_records  # noqa: E402
from benchmark.runs.status import RunState  # noqa: E402

__all__ = ["Run", "RunFailed", "Runs", "Table", "UserError", "run", "runs", "sweep", "table"]

LINES = 60
"""Lines of a log that the error of a failed run shows."""


class RunFailed(RuntimeError):
    """A run ended with an error. The message has the last lines of its log."""


@dataclass(frozen=True)
class Run:
    """A run of a results folder."""

    listed: ListedRun
    files: RunFolder

    @property
    def key(self) -> str:
        """Its folder below ``runs`` in the results folder."""
        return self.listed.key

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.files.path

    @property
    def config(self) -> RunConfig:
        """Its configuration."""
        return self.listed.config

    @property
    def state(self) -> RunState:
        """What became of it: done, diverged, failed, ..."""
        return self.listed.state

    @property
    def final(self) -> dict[str, dict[str, float]]:
        """Its last evaluation, {split: {metric: value}}. Accuracies are fractions."""
        return self.listed.result.final if self.listed.result else {}

    def records(self) -> pd.DataFrame:
        """All that it recorded: round, split, group, metric, value. `UserError` unless it has ended."""
        result = self.files.result()
        if result is None:
            raise ConfigError(f"{self.folder}: the run is not finished.")
        return record_frame(read_records(self.folder, result))


@dataclass(frozen=True)
class Runs(Sequence[Run]):
    """Runs of one results folder."""

    runs: tuple[Run, ...]
    results: Path

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, place: int) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> "Runs": ...

    def __getitem__(self, place: int | slice) -> "Run | Runs":
        return Runs(self.runs[place], self.results) if isinstance(place, slice) else self.runs[place]

    def frame(self) -> pd.DataFrame:
        """One row for each run: the settings that differ, state, last round, final metrics, seconds, folder."""
        return run_frame([run.listed for run in self.runs], self.results)


@dataclass(frozen=True)
class Table:
    """A table of ``conf/table`` with what its runs have come to."""

    results: TableResults

    def frame(self) -> pd.DataFrame:
        """One row for each cell: row, column, mean, std, n, published, state; in the unit that the table prints."""
        return pd.DataFrame(
            {
                "row": cell.row.key,
                "column": cell.column.key,
                "mean": cell.summary.mean if cell.summary else None,
                "std": cell.summary.std if cell.summary else None,
                "n": len(cell.values),
                "published": cell.published_value,
                "state": cell.state,
            }
            for cell in self.results.cells.values()
        )

    def wide(self) -> pd.DataFrame:
        """The means, with the table's rows and columns by their labels."""
        spec, frame = self.results.spec, self.frame()
        wide = frame.pivot(index="row", columns="column", values="mean")
        wide = wide.loc[[row.key for row in spec.rows], [column.key for column in spec.columns]]
        rows, columns = ({part.key: part.label for part in parts} for parts in (spec.rows, spec.columns))
        return wide.rename(index=rows, columns=columns)


def run(**settings: Any) -> Run:
    """Carry out one run in this process, or read it if it is there. ``settings``: as ``python -m benchmark run``.

    Raises:
        UserError: A setting does not exist or has a wrong value.
        RunFailed: The run ended with an error.
    """
    config = configuration(_words(settings))
    results = ResultsFolder(Path(config.paths.results), config.runtime.stale)
    outcome = carry_out(LaunchOptions(), config, lambda *_: None)
    if outcome.state is RunState.MISSING:
        raise KeyboardInterrupt
    return _runs(results, {config.key: config})[0]


def sweep(launcher: str = "local", workers: int | None = None, **axes: Any) -> "Runs":
    """Carry out every combination of values. A list, tuple or range is an axis; a value that is a list is ``[[1, 2]]``.

    Args:
        launcher: ``local``, ``inline``, ``slurm`` or another file of ``conf/launcher``.
        workers: Processes of the local launcher; None: one per core or GPU.
        axes: Settings as for `run`.

    Raises:
        UserError: A setting does not exist or has a wrong value.
        RunFailed: A run ended with an error. The others have been carried out.
    """
    words = _words(axes, many=True)
    swept = swept_runs(words)
    options = validate(LaunchOptions, {"launcher": launcher, "workers": workers})
    with sweep_missing(options, swept) as (index, code):
        write_sweep(swept, words, index)
        if code == 130:
            raise KeyboardInterrupt
        return _runs(index.results, {run.config.key: run.config for run in swept.runs})


def runs(results: str | Path = "results", **where: Any) -> "Runs":
    """The runs of a results folder that fit ``where``: any key of a configuration, or ``state``.

    A value is a text with patterns as of the command (``method="fed*"``), or a list of values.
    """
    folder = ResultsFolder(Path(results)).existing()
    conditions = {}
    for key, value in _flat(where):
        values = value if isinstance(value, list | tuple | range) else [value]
        conditions[key] = ",".join(one if isinstance(one, str) else as_text(one) for one in values)
    fitting = find_runs(RunIndex(folder), conditions)
    return Runs(tuple(Run(one, folder.run(one.key)) for one in fitting), Path(results))


def table(name: str, preset: str = "quick", **options: Any) -> Table:
    """Carry out the missing runs of a table, write it, and give its results.

    Args:
        name: A file of ``conf/table``.
        preset: A file of ``conf/preset`` that the table has.
        options: As of ``python -m benchmark table``: ``rows="fedavg,fed*"``, ``columns``, ``seeds``, ``launcher``,
            ``workers``, ``results``.

    Raises:
        UserError: An option does not exist or has a wrong value, or the table is made by an analysis.
        RunFailed: A run ended with an error. The others have been carried out.
    """
    given = validate(TableOptions, {"name": name, "preset": preset, **options})
    given.check()
    code, tables = make_tables(given)
    if code == 130:
        raise KeyboardInterrupt
    if not tables:
        raise ConfigError(f"table {name}: an analysis makes it; use `python -m benchmark analyse`.")
    return Table(tables[0])


def _runs(results: ResultsFolder, configs: Mapping[str, RunConfig]) -> Runs:
    """Runs that have been carried out. `RunFailed` for the first that failed."""
    index = RunIndex(results)
    done = tuple(Run(one, results.run(one.key)) for one in listed(index, configs))
    for one in done:
        if one.state is RunState.FAILED:
            message, folder = one.files.last_failure() or ("", one.folder)
            log = folder / "log.txt"
            lines = log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []
            raise RunFailed("\n".join([f"{one.key}: {message}", f"The end of {log}:", *lines]))
    return Runs(done, results.root)


def _words(settings: Mapping[str, Any], many: bool = False) -> list[str]:
    """Settings as words of the command line, in Hydra's grammar."""
    words = []
    for key, value in _flat(settings):
        axis = value if many and isinstance(value, list | tuple | range) else [value]
        words.append(f"{key}={','.join(map(_literal, axis))}")
    return words


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _literal(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | range):
        return f"[{','.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str | Path):
        text = str(value).replace("\\'", "\\\\'").replace("'", "\\'")
        return f"'{text}'"
    return str(value)
