"""The commands that look at what there is, and `export`."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field
from rich.table import Table as TextTable
from rich.text import Text

from benchmark import api
from benchmark.cli.options import parse, words_of
from benchmark.commands.export import ArchiveOptions, ExportOptions, WandbOptions
from benchmark.commands.launching import in_words
from benchmark.commands.options import checked
from benchmark.commands.planning import Needs, PlanOptions
from benchmark.config.compose import group_names, load_group
from benchmark.config.merge import flat
from benchmark.config.schema import IDENTITY
from benchmark.errors import ConfigError, UserError, printable, wrong
from benchmark.experiments import estimate
from benchmark.experiments.estimate import RunBlock
from benchmark.experiments.figures import find_figures
from benchmark.experiments.patterns import matching
from benchmark.experiments.selection import PATTERNS, ResultsOptions, RunQuery, ShowOptions, TableQuery
from benchmark.experiments.tables import find_specs
from benchmark.papers.registry import ANALYSES
from benchmark.paths import conf_files
from benchmark.registry import broken_files
from benchmark.reports.render.console import TextConsole
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.listing import LONGEST, MOST, as_text, telling
from benchmark.runs.status import RunState

SHOWN = 20
"""Runs that ended badly that are told one by one."""

METRICS = ("test.accuracy", "test.worst_group_accuracy", "test.loss")
"""The metrics in the table of `runs`. ``format=csv`` has all."""

KINDS = tuple("methods datasets partitions selections models rules tables figures analyses".split())


# plan ------------------------------------------------------------------------------------------------------------


def plan(argv: Sequence[str]) -> int:
    """Print what the chosen tables need; exit code 0."""
    needs = api.plan(**parse(argv, "plan", PlanOptions))
    for name, (number, ended) in needs.runs.items():
        print(f"{name}: {number} runs, {ended} ended")
    view = TextTable(title="missing runs; hours on one core and on one GPU")
    for name in ("table", "data", "model"):
        view.add_column(name)
    for name in ("runs", "core-hours", "GPU-hours", "rates", "results"):
        view.add_column(name, justify="right")
    groups: dict[tuple[str, str, str], list[RunBlock]] = {}
    for block in needs.blocks:
        groups.setdefault((block.table, block.run.dataset.name, block.run.model.name), []).append(block)
    for names, blocks in groups.items():
        view.add_row(*names, *_totals(needs, blocks))
    view.add_section()
    view.add_row("all", "", "", *_totals(needs, needs.blocks))
    TextConsole().print(view)
    print("\n".join(_advice(needs)), flush=True)
    for path, source in needs.weights.items():  # last, as it needs PyTorch
        absent = f"not there; downloads by itself ({source.megabytes} MB, {source.url})"
        if source.is_exported:
            absent = f"not there. {source.source}"
        print(f"weights {path}: {'there' if path.exists() else absent}")
    return 0


def _totals(needs: Needs, blocks: Sequence[RunBlock]) -> tuple[str, ...]:
    times = []
    for device in ("cpu", "cuda"):
        hours = needs.hours(blocks, device)
        some = hours is not None and any((block.shape, device) not in needs.rates for block in blocks)
        times.append("?" if hours is None else "> " * some + estimate.in_words(hours))
    found = [needs.rates[key] for block in blocks if (key := (block.shape, needs.device)) in needs.rates]
    kinds = {"measured" if rate.is_measured else "estimated" for rate in found}
    size = _size(sum(block.result_bytes for block in blocks))
    return f"{sum(block.runs for block in blocks):,}", *times, ", ".join(sorted(kinds)), size


def _advice(needs: Needs) -> list[str]:
    """Lines on time, disk, GPU and data."""
    lines = [f"disk: {_size(needs.free_bytes)} free in the results folder; GPU: {needs.gpu}"]
    if needs.wait is not None and needs.blocks:
        places = f"{needs.places:,} {'GPU' if needs.device == 'cuda' else 'core'}{'s' * (needs.places > 1)}"
        unit = " hours" if needs.wait < estimate.YEAR else ""
        lines.insert(0, f"with this launcher, on {places} at a time: {estimate.in_words(needs.wait)}{unit}")
    if needs.request and needs.blocks:
        lines.insert(1, f"each task asks for {needs.request}")
    if needs.device == "cpu" and (needs.wait or 0) > estimate.YEAR:
        lines.append("this needs GPUs (device=cuda, or launcher=slurm)")
    if needs.uncounted:
        lines.append(
            f"and {needs.uncounted:,} runs on data of whose size nothing is known before they are there"
        )
    lines.append(f"data sets, {_size(sum(need.prepared_bytes for need in needs.data))} when prepared:")
    for need in needs.data:
        size_text = f" ({_size(need.prepared_bytes)} when prepared)" if need.prepared_bytes else ""
        first, *rest = need.state.splitlines()
        lines += [f"  {need.name}{size_text}: {first}", *(f"    {line.strip()}" for line in rest)]
    return lines


def _size(number: float) -> str:
    units = ["B", "kB", "MB", "GB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:,.{0 if number >= 10 or units[0] == 'B' else 1}f} {units[0]}"


# status ----------------------------------------------------------------------------------------------------------


def status(argv: Sequence[str]) -> int:
    """Print the states of the selected tables' runs or, if none is selected, of all runs; exit code 0."""
    query = parse(argv, "status", TableQuery)
    states = api.status(**query)
    view = TextTable(
        "table", title=f"preset {query.get('preset', 'quick')}, {query.get('results', 'results')}/runs"
    )
    for state in RunState:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for name, counts in states.tables.items():
        gaps = ", ".join(f"{number} {state}" for state, number in sorted(states.gaps[name].items()))
        view.add_row(name, *(str(counts[state]) for state in RunState), gaps)
    if states.others:
        view.add_row("other runs", *(str(states.others[state]) for state in RunState), "")
    TextConsole().print(view)
    queue = "".join(f"; {number} tasks {state}" for state, number in states.queue.items())
    print(f"{len(states.runs)} runs: {in_words(states.counts) or 'none'}{queue}")
    for key, (message, log) in list(states.failed.items())[:SHOWN]:
        print(printable(f"failed: {key}: {message} ({log})"))
    if len(states.failed) > SHOWN:
        print(f"and {len(states.failed) - SHOWN} more")
    for key, why in list(states.differs.items())[:SHOWN]:
        print(printable(f"differs: {key}: {why}"))
    return 0


# runs ------------------------------------------------------------------------------------------------------------


class RunsOptions(ResultsOptions):
    """Options of `runs`."""

    format: Literal["table", "csv"] = Field("table", description="what is printed; csv has all, uncut")
    columns: str | None = Field(
        None,
        title=PATTERNS,
        description="settings, metrics, state, round, seconds or folder that are printed; if left out: at most "
        f"{MOST} settings that differ, and of csv all of them",
    )
    delete: bool = Field(
        False,
        description="move finished runs away (.seedK.old-N; --purge frees their space), and remove attempts",
    )
    purge: bool = Field(
        False,
        description="free the disk space of runs that were moved away, and of snapshots that no run names",
    )
    import_: Path | None = Field(
        None,
        title="FILE",
        description="put the runs of an archive (export archive) beside those of the folder",
    )


def runs(argv: Sequence[str]) -> int:
    """List the runs that fit ``KEY=VALUE`` words, and with --delete move them away; exit code 0.

    With import=FILE put the runs of an archive beside them.
    """
    given, where = _with_conditions(argv, "runs", RunsOptions)
    options = checked(RunsOptions, given)
    if options.import_ is not None:
        if where or given.keys() - {"import_", "results"}:
            raise ConfigError(wrong("runs", " ".join(argv), "no word but results=FOLDER beside import=FILE"))
        print(printable(str(api.import_runs(options.import_, results=options.results))))
        return 0
    if options.delete and not where:
        raise ConfigError("runs: --delete needs a condition: state=failed, say, or method=fedavg.")
    if options.purge and not options.delete:
        if where:
            raise ConfigError("runs: --purge takes no condition, unless --delete stands beside it.")
        print(f"{ResultsFolder(options.results).purge():,} folders removed")
        return 0
    found = api.runs(options.results, **where)
    if found or options.format == "csv":
        _print_runs(found, options)
    _warn(found)
    if options.delete:
        _delete(found, options)
    elif options.format == "table":
        print(f"{len(found)} runs" if found else f"0 runs in {options.results}")
    if options.purge:
        print(f"{ResultsFolder(options.results).purge():,} folders removed")
    return 0


def _with_conditions(
    argv: Sequence[str], command: str, kind: type[BaseModel]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of a command, and the conditions on runs among its words."""
    ours = words_of(kind)
    rest = [word for word in argv if word.partition("=")[0] not in ours and not word.startswith("-")]
    where: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals or key in where:
            problem = "is given twice" if equals else "has no value"
            raise ConfigError(f"{command}: {key} {problem}; expected KEY=VALUE, or KEY=VALUE,PATTERN*,...")
        where[key] = value
    return parse([word for word in argv if word not in rest], command, kind), where


def _warn(found: api.Runs) -> None:
    for problem in found.problems:
        print(f"warning: left out: {problem}", file=sys.stderr)


def _print_runs(found: api.Runs, options: RunsOptions) -> None:
    """All columns that were asked for as CSV, or a table with a line for each run, cut at the width of the terminal."""
    from benchmark.reports.runs import run_frame

    csv, settings = options.format == "csv", list[str]()
    if options.columns is not None:
        keys = dict.fromkeys(key for run in found for key in run.settings)
        frame = run_frame(found, list(keys))
        frame = frame[matching(list(frame), options.columns, "columns", "the runs' columns")]
    elif csv:
        frame = found.frame()
    else:
        frame = run_frame(found, settings := telling(found))
        ended = [name for name in ("state", "round", *METRICS, "seconds") if name in frame]
        frame = frame[[*settings, *ended]]
    if csv:
        print(frame.to_csv(index=False), end="")
        return
    console = TextConsole()
    while True:  # until there is room for the run's name, or a part of it
        text = frame.to_string(index=False, na_rep="", float_format="{:.4g}".format, max_colwidth=LONGEST)
        if options.columns or len(settings) < 2 or text.index("\n") <= console.width - LONGEST:
            break
        frame = frame.drop(columns=settings.pop())
    names = (f"{run.key} (run by {run.files.by})" if run.files.by else run.key for run in found)
    lines = zip(text.splitlines(), ["run", *names], strict=True)
    text = "\n".join("  ".join(line) for line in lines)
    console.print(Text(text), no_wrap=True, overflow="ellipsis")


def _delete(found: api.Runs, options: RunsOptions) -> None:
    moved = 0
    for run in found:
        if run.files.by:
            print(f"left: {run.key}: imported. Remove {run.folder} if it shall not count", file=sys.stderr)
            continue
        if run.files.is_held:
            print(f"left: {run.key}: a process works on it", file=sys.stderr)
            continue
        where = f"moved: {run.key} -> {run.files.move_away()}" if run.files.is_finished else ""
        run.files.remove_attempts()
        print(where or f"removed: {run.key}")
        moved += bool(where)
    if moved and not options.purge:
        purge = RunQuery(results=options.results).command("runs --purge")
        print(f"{moved} runs moved, which frees no disk space; to free it: {purge}")


# show, list, export ----------------------------------------------------------------------------------------------


def show(argv: Sequence[str]) -> int:
    """Print the layers of settings of a cell, and what they come to; exit code 0."""
    given = parse(argv, "show", ShowOptions)
    cell = api.show(**{"row": "", "column": "", **given})
    print(f"# row {cell.row}, column {cell.column}: runs {', '.join(run.key for run in cell.runs)}")
    for name, layer in cell.layers.items():
        text = yaml.safe_dump(dict(layer), sort_keys=False) if layer else "{}\n"
        print(f"\n# {name}\n{text}", end="")
    print("\n# configuration (later layers win; the rest are defaults, and files of conf that a layer names)")
    for key, value in flat(cell.runs[0].model_dump(mode="json", include=set(IDENTITY))):
        print(f"{key}: {as_text(value)}")
    return 0


def available(argv: Sequence[str]) -> int:
    """Print what there is of the named kinds, or of all; exit code 0."""
    if {"-h", "--help"} & set(argv):
        print(f"usage: python -m benchmark list [{'|'.join(KINDS)}]")
        return 0
    for word in argv:
        if word not in KINDS:
            raise ConfigError(wrong("list", word, f"one of: {', '.join(KINDS)}", known=KINDS))
    for kind in argv or KINDS:
        for title, entries in _titled(kind).items():
            view = TextTable("name", "what it is", title=title)
            for entry in entries:
                view.add_row(*entry)
            TextConsole().print(view)
    return 0


def _titled(kind: str) -> dict[str, list[tuple[str, str]]]:
    """What there is of a kind, as title -> (name, text)."""
    if kind != "tables":
        return {kind: _entries(kind)}
    titles = {
        True: "tables of the papers",
        False: "other tables: other forms, leaderboards, studies, your own",
    }
    parts: dict[str, list[tuple[str, str]]] = {}
    for spec in find_specs():  # numbered ones first
        parts.setdefault(titles[spec.table is not None], []).append((spec.name, spec.title))
    return parts


def _entries(kind: str) -> list[tuple[str, str]]:
    if kind == "rules":
        from methods.core import method

        for text in broken_files("methods").values():
            print(f"warning: {text}", file=sys.stderr)
        return [
            (f"{slot}: {name}", _text(partial(method.describe, slot, name)))
            for slot in method.registered
            for name in method.names(slot)
        ]
    if kind == "figures":
        return [(figure.name, figure.title) for figure in find_figures()]
    if kind == "analyses":
        return [(analysis.name, analysis.summary) for analysis in ANALYSES]
    group = kind.rstrip("s")
    return [(name, _text(partial(described, group, name))) for name in group_names(group)]


def described(group: str, name: str) -> str:
    """The comment at the top of a configuration file, as one line; `ConfigError` if the file is broken."""
    load_group(group, name)
    lines = []
    for line in conf_files(group)[name].read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @"):
            lines.append(line.lstrip("# "))
    return " ".join(lines)


def _text(describe: Callable[[], str]) -> str:
    """A description, or what is wrong with what it is about."""
    try:
        return describe()
    except UserError as error:
        return str(error)


def export(argv: Sequence[str]) -> int:
    """Write the body of a run or an archive, or send runs to W&B; exit code 0, or 1 if W&B cannot be used."""
    if argv[:1] == ["wandb"]:
        sent, failed = api.export_wandb(**parse(argv[1:], "export wandb", WandbOptions))
        print(f"{sent} runs sent")
        return int(failed)
    if argv[:1] == ["archive"]:
        options, where = _with_conditions(argv[1:], "export archive", ArchiveOptions)
        path, found = api.export_archive(**{"by": "", **options}, **where)
        _warn(found)
        print(f"{path}\n{len(found)} runs, which runs import={path.name} reads")
        return 0
    names = [word for word in argv if "=" not in word and not word.startswith("-")]
    given = parse([word for word in argv if word not in names], "export RUN", ExportOptions)
    if len(names) != 1:
        raise ConfigError(
            "export: name one run: a part of its folder's name, and /seedK where it has several seeds."
        )
    path = api.export(names[0], **{"name": "", **given})
    print(f"{path}\nruns start from it with model.start={path.absolute() if 'out' in given else path.name}")
    return 0
