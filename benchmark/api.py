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

require_usable()

# Behind the check that the packages below are ours.
from benchmark.commands.results import (  # noqa: E402
    Files,
    Run,
    RunFailed,
    Runs,
    Table,
    Tables,
    listed_runs,
    require_ended,
)  # fmt: skip
from benchmark.config.merge import flat  # noqa: E402
from benchmark.errors import Stopped, UserError  # noqa: E402

if TYPE_CHECKING:
    from benchmark.commands.planning import Needs
    from benchmark.commands.status import States
    from benchmark.experiments.metrics import Show
    from benchmark.experiments.plan import PlannedCell
    from benchmark.runs.execute import Progress
    from datasets.core.base import Dataset

__all__ = [
    "Files", "Run", "RunFailed", "Runs", "Table", "Tables", "UserError", "data", "export", "export_wandb", "figure",
    "plan", "report", "run", "runs", "show", "status", "sweep", "table", "tune",
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
    from benchmark.commands.options import LaunchOptions, checked
    from benchmark.commands.runs import carry_out
    from benchmark.config.compose import configured, resolve
    from benchmark.runs.folder import ResultsFolder
    from benchmark.runs.status import RunState

    options = checked(LaunchOptions, {"tracking": tracking, "tracking_settings": tracking_settings or {}})
    config = resolve(configured(_settings(settings, groups)))
    results = ResultsFolder(Path(config.paths.results), config.runtime.stale)
    outcome = carry_out(options, config, progress or (lambda *_: None))
    if outcome.state is RunState.MISSING:
        raise Stopped(f"{config.key}: {outcome.message}")
    return require_ended(Runs(listed_runs(results, {config.key: config}), results.root))[0]


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
    from benchmark.commands.options import LaunchOptions, checked
    from benchmark.commands.runs import sweep_missing
    from benchmark.experiments.sweeps import Sweep

    options = checked(LaunchOptions, {
        "launcher": launcher, "launcher_settings": launcher_settings or {}, "workers": workers, "verbose": verbose,
        "tracking": tracking, "tracking_settings": tracking_settings or {},
    })  # fmt: skip
    values = _settings(axes, groups)
    swept = Sweep.of({key: value if isinstance(value, list) else [value] for key, value in values.items()})
    with sweep_missing(options, swept) as (index, code):
        from benchmark.reports.sweeps import write_sweep

        printed, where = write_sweep(swept, command or f"benchmark.api.sweep({values!r})", index)
        if code == 130:
            raise Stopped
        found = listed_runs(index.results, {run.config.key: run.config for run in swept.runs})
        return require_ended(Runs(found, index.results.root, printed, where, failed=code != 0))


def table(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, table: int | None = None,
    rows: str | None = None, columns: str | None = None, seeds: int | None = None, tuned: str | None = None,
    show: Show = "both", base: str | None = None, curves: bool = False, freeze: str | None = None,
    out: str | Path | None = None, values: str | Path | None = None, results: str | Path = "results",
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
        seeds: Number of seeds; if left out: as many as the table says.
        tuned: Folder of tuned values, or ``off``.
        show: Numbers in the table.
        base: Base row of ``show="difference"``.
        curves: Also write how runs come on over their rounds.
        freeze: Date of the leaderboard's version that is written.
        out: Folder of the tables.
        values: Folder of written tables whose numbers take the place of runs.
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
    given = _given(locals())
    from benchmark.commands.options import checked
    from benchmark.commands.tables import TableOptions, make_tables

    code, made = make_tables(checked(TableOptions, given))
    return _made(code, Tables(map(Table, made)))


def figure(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, figure: int | None = None,
    seeds: int | None = None, tuned: str | None = None, out: str | Path | None = None,
    values: str | Path | None = None, results: str | Path = "results", stale: Stale = "rerun",
    dataset_options: Options = None, data: str | Path | None = None,
    launcher: str = "local", launcher_settings: Options = None, workers: int | None = None,
    threads: int | None = None, device: str = "auto", cuda_graphs: bool | None = None, verbose: bool = False,
    tracking: str | None = None, tracking_settings: Options = None,
) -> Files:  # fmt: skip
    """Carry out the missing runs of figures and draw them; the files without their endings (png, pdf, csv, md).

    A figure of which no run is done is left out. If a run failed, figures show the others. ``name`` is a file of
    ``conf/figure``; without it ``paper`` and ``figure``, the number in it, choose. The other options are as of `table`.
    """
    given = _given(locals())
    from benchmark.commands.figures import FigureOptions, make_figures
    from benchmark.commands.options import checked

    code, drawn = make_figures(checked(FigureOptions, given))
    return _made(code, Files(drawn))


def tune(
    name: str | None = None, preset: str = "quick", *, paper: str | None = None, table: int | None = None,
    method: str = "", trials: int | None = None, validation: float | None = None, seeds: int = 1,
    rows: str | None = None, columns: str | None = None, out: str | Path | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
    data: str | Path | None = None, launcher: str = "local", launcher_settings: Options = None,
    workers: int | None = None, threads: int | None = None, device: str = "auto", cuda_graphs: bool | None = None,
    verbose: bool = False, tracking: str | None = None, tracking_settings: Options = None,
) -> Files:  # fmt: skip
    """Try values in each cell of a table on a validation split, and write the best; the files of chosen values.

    ``method`` is a file of ``conf/tune``; without it all methods that have one are tuned. ``trials`` is the largest
    number of trials in each cell of every method, in place of the whole grid. ``validation`` is the share of every
    client's training data that is held out; if left out, the cell's own, or 0.1. The other options are as of `table`.
    Cells whose runs failed or all diverged have no choice, which is printed.
    """
    given = _given(locals())
    from benchmark.commands import tuning
    from benchmark.commands.options import checked

    code, written = tuning.tune(checked(tuning.TuneOptions, given))
    return _made(code, Files(written))


def report(
    *, out: str | Path | None = None, preset: str = "quick", paper: str | None = None, table: int | None = None,
    name: str | None = None, rows: str | None = None, columns: str | None = None, seeds: int | None = None,
    tuned: str | None = None, results: str | Path = "results", stale: Stale = "rerun",
    dataset_options: Options = None,
) -> Path:  # fmt: skip
    """Write all tables of the results folder as one page for the browser; its path. Options as of `table`."""
    given = _given(locals())
    from benchmark.commands.options import checked
    from benchmark.commands.report import ReportOptions, write_report
    from benchmark.runs.folder import ResultsFolder
    from benchmark.runs.index import RunIndex

    options = checked(ReportOptions, given)
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    return write_report(options, index, options.out)


# Look ------------------------------------------------------------------------------------------------------------


def plan(
    *, timing: Literal["on", "again", "off"] = "on", device: str = "auto", preset: str = "quick",
    paper: str | None = None, table: int | None = None, name: str | None = None, rows: str | None = None,
    columns: str | None = None, seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> Needs:  # fmt: skip
    """What tables still need before they are made: runs, hours on this device, disk space, data and weights.

    ``timing``: whether a round of each kind of run is measured here, if it has not been yet. The other options are as
    of `table`.
    """
    given = _given(locals())
    from benchmark.commands.options import checked
    from benchmark.commands.planning import PlanOptions, needs_of

    return needs_of(checked(PlanOptions, given))


def status(
    *, preset: str = "quick", paper: str | None = None, table: int | None = None, name: str | None = None,
    rows: str | None = None, columns: str | None = None, seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> States:  # fmt: skip
    """How many runs of tables are done, running, failed or missing. Options as of `table`."""
    given = _given(locals())
    from benchmark.commands.options import checked
    from benchmark.commands.status import states_of
    from benchmark.experiments.selection import TableQuery

    return states_of(checked(TableQuery, given))


def runs(results: str | Path = "results", **where: Any) -> Runs:
    """The runs of a results folder that fit ``where``: any key of a configuration, or ``state``.

    A value is a text with patterns as of the command (``method="fed*"``), or a list of values.
    """
    from benchmark.runs.folder import ResultsFolder
    from benchmark.runs.index import RunIndex
    from benchmark.runs.listing import as_text, find_runs

    folder = ResultsFolder(Path(results)).existing()
    conditions = {}
    for key, value in flat(where):
        plain = _plain(value)
        values = plain if isinstance(plain, list) else [plain]
        conditions[key] = ",".join(one if isinstance(one, str) else as_text(one) for one in values)
    index = RunIndex(folder)
    fitting = tuple(Run(one, folder.run(one.key)) for one in find_runs(index, conditions))
    return Runs(fitting, Path(results), problems=tuple(index.problems.values()))


def show(
    row: str, column: str, *, preset: str = "quick", paper: str | None = None, table: int | None = None,
    name: str | None = None, seeds: int | None = None, tuned: str | None = None,
    results: str | Path = "results", stale: Stale = "rerun", dataset_options: Options = None,
) -> PlannedCell:  # fmt: skip
    """One cell of a table: its runs, and the layers that set their settings. Options as of `table`."""
    given = _given(locals())
    from benchmark.commands.options import checked
    from benchmark.experiments.selection import ShowOptions, find_cell

    return find_cell(checked(ShowOptions, given))


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
    from benchmark.config.compose import load_group
    from datasets.core.prepare import locate, prepare

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
    given = _given(locals())
    from benchmark.commands.export import ExportOptions, export_weights
    from benchmark.commands.options import checked

    return export_weights(checked(ExportOptions, given))


def export_wandb(
    *,
    results: str | Path = "results",
    tracking: str | None = None,
    tracking_settings: Options = None,
) -> tuple[int, bool]:
    """Send what is missing of finished runs to W&B: how many were sent, and whether W&B cannot be used."""
    given = _given(locals())
    from benchmark.commands.export import WandbOptions, send_runs
    from benchmark.commands.options import checked

    return send_runs(checked(WandbOptions, given))


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that were given. Those that are None have the default of the option."""
    return {key: value for key, value in arguments.items() if value is not None}


def _made(code: int, made: Made) -> Made:
    """What was written, unless runs were stopped."""
    if code == 130:
        raise Stopped
    made.failed = code != 0
    return made


def _settings(given: Mapping[str, Any] | None, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their dotted keys."""
    return {key: _plain(value) for key, value in {**(given or {}), **dict(flat(groups))}.items()}


def _plain(value: Any) -> Any:
    """A value as YAML would give it: numbers of NumPy become Python's, paths become text, ranges become lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
