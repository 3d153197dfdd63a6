"""FedTables from Python: the commands as functions, with their results as pandas data frames.

    from benchmark import api

    run = api.run(method="fedprox", train={"rounds": 5})
    run.final["test"]["accuracy"]
    runs = api.sweep(method=["fedavg", "fedprox"], seed=range(3))
    runs.frame().groupby("method")["test.accuracy"].mean()
    api.table("fedmr_table1", rows="fedavg,fedmr", seeds=1).frame()

The command line parses words and calls these functions, so options have the same names and meanings:
``python -m benchmark COMMAND --help`` describes them. Settings of a run are groups as mappings, or dotted keys in a
mapping behind ``**``: ``train={"lr": 0.1}`` is ``**{"train.lr": 0.1}``. A key with ``+`` before it is added.

Raises:
    UserError: From every function, with the message that the command would print: a setting or option that does not
        exist or has a wrong value, data that are missing, a folder that cannot be used.
    KeyboardInterrupt: From every function that carries out runs, if it was stopped. The same call goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from benchmark.paths import require_usable

require_usable()  # before the packages below are imported, which must be ours

from benchmark.commands.export import (
    ArchiveOptions,
    ExportOptions,
    WandbOptions,
    archive_runs,
    export_weights,
    send_runs,
)
from benchmark.commands.figures import FigureOptions, make_figures
from benchmark.commands.launching import remember_rates, run_missing, tracker
from benchmark.commands.options import LaunchOptions, checked
from benchmark.commands.planning import Needs, PlanOptions, needs_of
from benchmark.commands.report import ReportOptions, write_report
from benchmark.commands.results import Files, RunFailed, Runs, Table, Tables, require_ended
from benchmark.commands.status import States, states_of
from benchmark.commands.tables import TableOptions, make_tables
from benchmark.commands.tuning import TuneOptions, choose_values
from benchmark.config.compose import configured, load_group, resolve
from benchmark.config.merge import flat
from benchmark.errors import ConfigError, Stopped, UserError
from benchmark.experiments.metrics import Show
from benchmark.experiments.plan import PlannedCell, check_run
from benchmark.experiments.selection import ShowOptions, TableQuery, find_cell
from benchmark.experiments.sweeps import Sweep
from benchmark.launch.launch import run_here
from benchmark.runs.archive import Imported, import_archive
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.listing import Run, as_text, find_runs, listed
from benchmark.runs.status import RunState
from datasets.core.base import Dataset
from datasets.core.prepare import locate, prepare

if TYPE_CHECKING:
    from benchmark.runs.execute import Progress

__all__ = [
    "Files", "Imported", "Run", "RunFailed", "Runs", "Table", "Tables", "UserError", "data", "export", "export_archive",
    "export_wandb", "figure", "import_runs", "plan", "report", "run", "runs", "show", "status", "sweep", "table",
    "tune",
]  # fmt: skip

Options = Mapping[str, Any] | None
Stale = Literal["rerun", "keep"]
Made = TypeVar("Made", Files, Tables)


# Make ------------------------------------------------------------------------------------------------------------


def run(
    settings: Options = None, /, *, tracking: str | None = None, tracking_settings: Options = None,
    progress: Progress | None = None, **groups: Any,
) -> Run:  # fmt: skip
    """Carry out one run in this process, or read it if it is there.

    Args:
        settings: Settings of the run by their dotted keys, as ``python -m benchmark run``.
        tracking: ``off``, ``wandb`` or another file of ``conf/tracking``.
        tracking_settings: Settings of tracking on top of it.
        progress: Called with (round, rounds, records) after each round.
        groups: More settings; a mapping holds those of a group.

    Raises `RunFailed` if the run ended with an error.
    """
    options = checked(LaunchOptions, {"tracking": tracking, "tracking_settings": tracking_settings})
    config = resolve(configured(_settings(settings, groups)))
    check_run(config)
    index = RunIndex(ResultsFolder(Path(config.paths.results), config.runtime.stale).open())
    wandb, had_ended = tracker(options, index.results.root), index.has_ended(config.key)
    outcome = run_here(index, config, progress or (lambda *_: None), wandb)
    if outcome.state is RunState.MISSING:
        raise Stopped(f"{config.key}: {outcome.message}")
    if not had_ended:
        index.refresh([config.key])
        remember_rates(index, [config])
    return require_ended(Runs(listed(index, [config.key])))[0]


def sweep(
    axes: Options = None, /, *, launcher: str = "local", launcher_settings: Options = None, workers: int | None = None,
    verbose: bool = False, tracking: str | None = None, tracking_settings: Options = None, command: str = "",
    **groups: Any,
) -> Runs:  # fmt: skip
    """Carry out every combination of values. A list, tuple or range is an axis; a value that is a list is ``[[1, 2]]``.

    Args:
        axes: Settings by their dotted keys, each with one value or several.
        launcher: ``local``, ``inline``, ``slurm`` or another file of ``conf/launcher``.
        launcher_settings: Settings of the launcher on top of it.
        workers: Processes of the local launcher; None: one per core or GPU.
        verbose: Whether to print a line for every run that has ended.
        tracking: As of `run`.
        tracking_settings: As of `run`.
        command: What repeats the sweep, for the report; if left out: this call.
        groups: As of `run`, each with one value or several.

    Raises `RunFailed` if a run ended with an error. The others have been carried out.
    """
    values = _settings(axes, groups)
    swept = Sweep.of({key: value if isinstance(value, list) else [value] for key, value in values.items()})
    configs = [run.config for run in swept.runs]
    paths, runtime = configs[0].paths, configs[0].runtime
    if any((config.paths, config.runtime) != (paths, runtime) for config in configs):
        raise ConfigError("run: paths and runtime are the same for all runs of a sweep; give each one value.")
    options = checked(LaunchOptions, {
        "launcher": launcher, "launcher_settings": launcher_settings, "workers": workers, "verbose": verbose,
        "tracking": tracking, "tracking_settings": tracking_settings,
        "threads": runtime.threads, "device": runtime.device,
    })  # fmt: skip
    index = RunIndex(ResultsFolder(Path(paths.results), runtime.stale).open())
    names = {run.config.key: run.name for run in swept.runs}
    with run_missing(options, index, [swept.table()], names=names) as code:
        from benchmark.reports.sweeps import write_sweep

        printed, where = write_sweep(swept, command or f"benchmark.api.sweep({values!r})", index)
        if code == 130:
            raise Stopped
        found = Runs(listed(index, dict.fromkeys(config.key for config in configs)))
        found.table, found.files, found.failed = printed, where, code != 0
        return require_ended(found)


def table(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, table: int | None = None,
    rows: str | None = None, columns: str | None = None, row_settings: Options = None,
    column_settings: Options = None, seeds: int | None = None, tuned: str | None = None,
    show: Show = "both", base: str | None = None, curves: bool = False, freeze: str | None = None,
    out: str | Path | None = None, results: str | Path = "results",
    stale: Stale = "rerun", dataset_options: Options = None, data: str | Path | None = None,
    launcher: str = "local", launcher_settings: Options = None, workers: int | None = None,
    threads: int | None = None, device: str = "auto", cuda_graphs: bool | None = None, verbose: bool = False,
    tracking: str | None = None, tracking_settings: Options = None,
) -> Tables:  # fmt: skip
    """Carry out the missing runs of tables, and write the tables and the report.

    Args:
        name: A file of ``conf/table``, or an analysis; None: ``paper`` and ``table`` choose.
        preset: A file of ``conf/preset`` that the table has: data, model and budget.
        paper: Short name of a paper.
        table: Number in the paper.
        rows: Keys and patterns of rows, ``fedavg,fed*``; if left out: all.
        columns: Keys and patterns of columns.
        row_settings: Settings of single rows, ``{"fedprox.method.client.fedprox.mu": 1.0}``.
        column_settings: Settings of single columns.
        seeds: Number of seeds; if left out: as many as the table says.
        tuned: Folder of tuned values, or ``off``.
        show: Numbers in the table.
        base: Base row of ``show="difference"``.
        curves: Also write how runs come on over their rounds.
        freeze: Date of the leaderboard's version that is written.
        out: Folder of the tables.
        results: The results folder.
        stale: Whether finished runs of a method whose code has changed are carried out again.
        dataset_options: Options of the data set of every cell.
        data: Folder of raw files.
        launcher: As of `sweep`.
        launcher_settings: As of `sweep`.
        workers: As of `sweep`.
        verbose: As of `sweep`.
        threads: Threads of a run.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:NUMBER``.
        cuda_graphs: Whether local steps on a GPU are recorded as CUDA graphs.
        tracking: As of `run`.
        tracking_settings: As of `run`.
    """
    code, made = make_tables(checked(TableOptions, locals()))
    return _made(code, Tables(made))


def figure(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, figure: int | None = None,
    seeds: int | None = None, tuned: str | None = None, out: str | Path | None = None,
    results: str | Path = "results", stale: Stale = "rerun",
    dataset_options: Options = None, data: str | Path | None = None,
    launcher: str = "local", launcher_settings: Options = None, workers: int | None = None,
    threads: int | None = None, device: str = "auto", cuda_graphs: bool | None = None, verbose: bool = False,
    tracking: str | None = None, tracking_settings: Options = None,
) -> Files:  # fmt: skip
    """Carry out the missing runs of figures and draw them; the files without their endings (png, pdf, csv, md).

    A figure of which no run is done is left out. If a run failed, figures show the others. ``name`` is a file of
    ``conf/figure``; without it ``paper`` and ``figure``, the number in it, choose. The other options are as of `table`.
    """
    code, drawn = make_figures(checked(FigureOptions, locals()))
    return _made(code, Files(drawn))


def tune(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, table: int | None = None,
    method: str = "", trials: int | None = None, grid_settings: Options = None, validation: float | None = None,
    seeds: int = 1, rows: str | None = None, columns: str | None = None, out: str | Path | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
    data: str | Path | None = None, launcher: str = "local", launcher_settings: Options = None,
    workers: int | None = None, threads: int | None = None, device: str = "auto", cuda_graphs: bool | None = None,
    verbose: bool = False, tracking: str | None = None, tracking_settings: Options = None,
) -> Files:  # fmt: skip
    """Try values in each cell of a table on a validation split, and write the best; the files of chosen values.

    ``method`` is a file of ``conf/tune``; without it all methods that have one are tuned. ``trials`` is the largest
    number of trials in each cell of every method, in place of the whole grid, and ``grid_settings`` are values to try
    in place of those of the file, ``{"train.lr": [0.1, 0.3]}``. ``validation`` is the share of every client's
    training data that is held out; if left out, the cell's own, or 0.1. The other options are as of `table`.
    Cells whose runs failed or all diverged have no choice, which is printed.
    """
    code, written = choose_values(checked(TuneOptions, locals()))
    return _made(code, Files(written))


def report(
    *, out: str | Path | None = None, preset: str = "quick", paper: str | None = None, table: int | None = None,
    name: str | None = None, rows: str | None = None, columns: str | None = None, seeds: int | None = None,
    tuned: str | None = None, results: str | Path = "results", stale: Stale = "rerun",
    dataset_options: Options = None,
) -> Path:  # fmt: skip
    """Write all tables of the results folder as one page for the browser; its path. Options as of `table`."""
    options = checked(ReportOptions, locals())
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    return write_report(options, index, options.out)


# Look ------------------------------------------------------------------------------------------------------------


def plan(
    *, device: str = "auto", launcher: str = "local", launcher_settings: Options = None, preset: str = "quick",
    paper: str | None = None, table: int | None = None, name: str | None = None, rows: str | None = None,
    columns: str | None = None, row_settings: Options = None, column_settings: Options = None,
    seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> Needs:  # fmt: skip
    """What tables still need before they are made: runs, hours, disk space, data and weights.

    Options as of `table`.
    """
    return needs_of(checked(PlanOptions, locals()))


def status(
    *, preset: str = "quick", paper: str | None = None, table: int | None = None, name: str | None = None,
    rows: str | None = None, columns: str | None = None, row_settings: Options = None, column_settings: Options = None,
    seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> States:  # fmt: skip
    """How many runs of tables are done, running, failed or missing. Options as of `table`."""
    return states_of(checked(TableQuery, locals()))


def runs(results: str | Path = "results", **where: Any) -> Runs:
    """The runs of a results folder that fit ``where``: any key of a configuration, or ``state``.

    A value is a text with patterns as of the command (``method="fed*"``), or a list of values.
    """
    index = RunIndex(ResultsFolder(Path(results)).existing())
    found = Runs(find_runs(index, _conditions(where)))
    found.problems = tuple(index.problems.values())
    return found


def show(
    row: str, column: str, *, preset: str = "quick", paper: str | None = None, table: int | None = None,
    name: str | None = None, seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> PlannedCell:  # fmt: skip
    """One cell of a table: its runs, and the layers that set their settings. Options as of `table`."""
    return find_cell(checked(ShowOptions, locals()))


# Prepare ---------------------------------------------------------------------------------------------------------


def data(
    dataset: str, *, dataset_options: Options = None, data: str | Path | None = None, cache: str | Path | None = None,
) -> Dataset:  # fmt: skip
    """Prepare and load a data set.

    Args:
        dataset: A file of ``conf/dataset``.
        dataset_options: Options on top of those in the file.
        data: Folder of raw files; None: FEDTABLES_DATA, else ``data/``.
        cache: Folder of prepared arrays; None: FEDTABLES_CACHE, else ``.cache/datasets``.
    """
    node, folders = load_group("dataset", dataset), [Path(path) if path else None for path in (data, cache)]
    return prepare(locate(node["name"], {**node["options"], **(dataset_options or {})}, *folders))


def export(run: str, name: str, *, out: str | Path | None = None, results: str | Path = "results") -> Path:
    """Write the trained body of a run as a file that other runs start from (``model.start``); its path.

    Args:
        run: A part of the run's folder, and ``/seedK`` where it has several seeds.
        name: First part of the file's name; the digest of its content follows.
        out: Folder of the file; None: that of all weights.
        results: The results folder.
    """
    return export_weights(checked(ExportOptions, locals()))


def export_archive(
    by: str, *, out: str | Path | None = None, results: str | Path = "results", **where: Any,
) -> tuple[Path, Runs]:  # fmt: skip
    """Write finished runs as one file, which other results folders import; the file, and the runs.

    Args:
        by: Who ran them: at most 40 letters, digits, - and _.
        out: The file; None: ``<by>.zip``.
        results: The results folder. Runs that were imported into it are left out.
        where: As of `runs`.
    """
    options = checked(ArchiveOptions, {"by": by, "out": out, "results": results})
    return archive_runs(options, _conditions(where))


def import_runs(file: str | Path, *, results: str | Path = "results") -> Imported:
    """Put the runs of an archive beside those of a results folder, after all of them were checked.

    Tables count them as done, unless the folder has the same run. No launch changes or repeats them.
    """
    return import_archive(Path(file), ResultsFolder(Path(results)).open())


def export_wandb(
    *, results: str | Path = "results", tracking: str | None = None, tracking_settings: Options = None,
) -> tuple[int, bool]:  # fmt: skip
    """Send what is missing of finished runs to W&B: how many were sent, and whether W&B cannot be used."""
    return send_runs(checked(WandbOptions, locals()))


def _made(code: int, made: Made) -> Made:
    """What was written, unless runs were stopped."""
    if code == 130:
        raise Stopped
    made.failed = code != 0
    return made


def _settings(given: Mapping[str, Any] | None, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their dotted keys."""
    return {key: _plain(value) for key, value in {**(given or {}), **dict(flat(groups))}.items()}


def _conditions(where: Mapping[str, Any]) -> dict[str, str]:
    """Conditions on runs as the words of a command."""
    conditions = {}
    for key, value in flat(where):
        plain = _plain(value)
        values = plain if isinstance(plain, list) else [plain]
        conditions[key] = ",".join(one if isinstance(one, str) else as_text(one) for one in values)
    return conditions


def _plain(value: Any) -> Any:
    """A value as YAML would give it: numbers of NumPy become Python's, paths become text, ranges become lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
