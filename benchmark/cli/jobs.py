"""Looking after runs: ``python -m benchmark status``, ``logs``, ``retry`` and ``cancel``."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.cli.launching import SHOWN, Plans, in_words, plans_of, run_missing, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.config.compose import resolve
from benchmark.errors import ConfigError, nearest, printable
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import ResultsOptions, TableQuery
from benchmark.launch.slurm.overview import SHOWN_STATES, RunOverview
from benchmark.launch.slurm.queue import SlurmQueue
from benchmark.launch.slurm.submission_log import SubmissionLog, task_log
from benchmark.reports.render.console import TextConsole
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder, RunFolder

GivenResults = TypeVar("GivenResults", bound=ResultsOptions)

SECONDS = 5.0
"""Between two looks of ``status --watch``."""


# status -----------------------------------------------------------------------------------------------------------


class StatusOptions(TableQuery):
    """Options of ``status``."""

    watch: bool = Field(False, description="repeat until no run is running or waiting")


def status(words: Sequence[str]) -> int:
    """Print the states of the selected tables' runs or, if none is selected, of all runs; exit code 0."""
    options = parse(words, "status", StatusOptions)
    results = ResultsFolder(options.results, options.stale).existing()
    plans = plans_of(options)
    others = _other_runs(options, results, plans)
    overview = RunOverview(RunIndex(results))
    title = f"preset {options.preset}, {results.root}/runs"
    console = TextConsole()
    if options.watch:
        _watch(console, lambda: _view(title, plans, others, overview))
    else:
        console.print(_view(title, plans, others, overview)[0])
    return 0


def _other_runs(query: TableQuery, results: ResultsFolder, plans: Plans) -> list[str]:
    """Keys of the runs of no planned table: sweeps, single runs, other presets. Empty if tables are selected."""
    if query.selects:
        return []
    there = dict.fromkeys([*results.run_keys(), *SubmissionLog(results).places()])
    return list(there.keys() - unique_runs([cells for _, cells in plans]).keys())


def _view(
    title: str, plans: Plans, others: Collection[str], overview: RunOverview
) -> tuple[RenderableType, str, bool]:
    """(the view, its counts as one line, whether anything runs or waits)."""
    keys = [*unique_runs([cells for _, cells in plans]), *others]
    overview.refresh(keys)
    states = {key: overview.state(key) for key in keys}
    view = TextTable(title=title)
    view.add_column("table")
    for state in SHOWN_STATES:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for spec, cells in plans:
        counts = Counter(states[run.key] for cell in cells.values() for run in cell.runs)
        gaps = Counter(cell.state for cell in cells.values() if cell.state != "ok")
        words = ", ".join(f"{number} {state}" for state, number in sorted(gaps.items()))
        view.add_row(spec.name, *(str(counts[state]) for state in SHOWN_STATES), words)
    if others:
        counts = Counter(states[key] for key in others)
        view.add_row("other runs", *(str(counts[state]) for state in SHOWN_STATES), "")
    total = Counter(states.values())
    line = f"{len(states)} runs: {in_words(total) or 'none'}{overview.queue()}"
    below = [Text(line)]
    failed = [key for key in keys if states[key] is RunState.FAILED]
    for key in failed[:SHOWN]:
        status = overview.index.status(key)
        why = "" if status is None else status.message.strip().partition("\n")[0]
        below.append(Text(printable(f"failed: {key}: {why}"), style="red"))
    if len(failed) > SHOWN:
        below.append(Text(f"and {len(failed) - SHOWN} more", style="red"))
    if failed:
        below.append(Text("python -m benchmark logs RUN shows why, retry --failed tries them again"))
    if total[RunState.STALE]:
        below.append(Text("stale: code or data have changed; run again by table, or used with stale=keep"))
    if total[RunState.DAMAGED]:
        below.append(
            Text("damaged: python -m benchmark verify says what is wrong and how to repair it", style="red")
        )
    return Group(view, *below), line, bool(total[RunState.RUNNING] or total[RunState.WAITING])


def _watch(console: TextConsole, look: Callable[[], tuple[RenderableType, str, bool]]) -> None:
    """Show what ``look`` sees until nothing runs or waits; on a terminal in place, elsewhere a line per change."""
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop", transient=True)
    told = ""
    with live if console.is_terminal else nullcontext():
        while True:
            view, line, busy = look()
            if console.is_terminal:
                live.update(view, refresh=True)
            elif line != told:
                print(told := line, flush=True)
            if not busy:
                break
            time.sleep(SECONDS)
    console.print(view)


# retry ------------------------------------------------------------------------------------------------------------


class RetryOptions(TableQuery, LaunchOptions):
    """Options of ``retry``."""

    failed: bool = Field(False, description="carry out the failed runs again; the command needs this flag")


def retry(words: Sequence[str]) -> int:
    """Carry out the failed runs of the selected tables, or of all runs; exit code as of ``table``."""
    options = parse(words, "retry", RetryOptions)
    if not options.failed:
        raise ConfigError(
            "retry: say --failed. Missing and interrupted runs are carried out by `table`; diverged ones would "
            "diverge again."
        )
    plans = plans_of(options, options)
    results = ResultsFolder(options.results, options.stale).open()
    overview = RunOverview(RunIndex(results))
    runs = unique_runs([cells for _, cells in plans])
    keys = [*runs, *_other_runs(options, results, plans)]
    overview.refresh(keys)
    failed = {}
    for key in (key for key in keys if overview.state(key) is RunState.FAILED):
        if key not in runs:  # no table plans it: its folder has the configuration
            plain = results.run(key).read_config().model_dump(mode="json")
            runs[key] = resolve(plain | run_settings(results, options))
        failed[key] = runs[key]
    if not failed:
        print(f"none of {len(keys)} runs has failed")
        return 0
    with run_missing(options, overview.index, plans, failed) as code:
        after = Counter(overview.state(key) for key in failed)
        print(f"{len(failed)} runs tried again: {in_words(after)}")
    return code


# cancel -----------------------------------------------------------------------------------------------------------


class CancelOptions(TableQuery):
    """Options of ``cancel``."""

    all: bool = Field(False, description="everything that was submitted from the results folder, sweeps too")


def cancel(words: Sequence[str]) -> int:
    """Cancel the cluster's tasks that carry out runs of the selected tables, or all tasks; exit code 0."""
    options = parse(words, "cancel", CancelOptions)
    if not options.all and options.paper is None and options.table is None and options.name is None:
        raise ConfigError("cancel: say which: paper=..., table=... or name=..., or --all for everything.")
    selected = None if options.all else unique_runs([cells for _, cells in plans_of(options)])
    results = ResultsFolder(options.results, options.stale).existing()
    log = SubmissionLog(results)
    keys = set(log.places())
    if not keys:
        print("nothing was submitted to a cluster from this results folder")
        return 0
    if selected is not None:
        keys &= selected.keys()
    queued = SlurmQueue.tasks()
    if queued is None:
        there = "SLURM does not answer" if shutil.which("squeue") else "there is no `squeue` on this machine"
        raise ConfigError(f"cancel: {there}. Give the command on a login node, when it does.")
    # Noted first: a launcher that follows these runs would take them for lost and submit them again.
    with results.submission_lease():
        tasks, others = log.cancel(queued, keys)
    SlurmQueue.cancel(tasks)
    shared = f"; with them {others} runs that share a task with these" if others else ""
    print(
        f"{len(tasks)} tasks cancelled{shared}. Runs at work save their state; the same command goes on with them."
    )
    return 0


# logs -------------------------------------------------------------------------------------------------------------


def _number_or_all(text: str) -> str:
    if text != "all" and not (text.isdecimal() and int(text)):
        raise ValueError(f"got {text!r}; expected a whole number of at least 1, or all")
    return text


class LogsOptions(ResultsOptions):
    """Options of ``logs``."""

    lines: Annotated[str, AfterValidator(_number_or_all)] = Field(
        "40", title="NUMBER|all", description="how many lines of the log are printed, counted from its end"
    )
    follow: bool = Field(False, description="go on until the run has ended")


def logs(words: Sequence[str]) -> int:
    """Print the log of one run, and the part of its job's log that is about it; exit code 0."""
    results, key, options = parse_with_run(words, "logs", LogsOptions)
    lines = None if options.lines == "all" else int(options.lines)
    folder = results.run(key)
    log, state = folder.path / "log.txt", folder.status()
    begun = f"{state.state} {state.message}" if state else "not begun"
    print(printable(f"== {folder.path}: {begun}".rstrip()))
    if not log.exists():
        print(f"{log} is not there")
    shown = _print_end(log, lines) if log.exists() else 0
    place = SubmissionLog(results).places().get(key)
    out = task_log(results.root / "launcher" / "jobs", place) if place is not None else None
    if out is not None:
        print(f"\n== {out} (lines on this run)")
        about = [line for line in out.read_text(errors="replace").splitlines() if key in line]
        print(printable("\n".join(about)))
        error = out.with_suffix(".err")
        if error.exists() and error.stat().st_size:
            print(f"\n== {error}")
            _print_end(error, lines)
    if options.follow:
        _follow(folder, shown)
    return 0


def parse_with_run(
    words: Sequence[str], command: str, kind: type[GivenResults]
) -> tuple[ResultsFolder, str, GivenResults]:
    """(the results folder, the key of the run that a word names by a part of its folder's name, the options)."""
    names = [word for word in words if "=" not in word and not word.startswith("-")]
    options = parse([word for word in words if word not in names], f"{command} RUN", kind)
    if len(names) != 1:
        raise ConfigError(
            f"{command}: name one run: a part of its folder's name, and /seedK where it has several seeds."
        )
    results = ResultsFolder(options.results).existing()
    return results, _run_called(results, names[0], command), options


def _run_called(results: ResultsFolder, text: str, command: str) -> str:
    name, _, seed = text.strip("/").removeprefix(f"{results.root}/").removeprefix("runs/").partition("/")
    runs = results.root / "runs"
    keys = sorted("/".join(path.parts[-2:]) for path in runs.glob(f"*/{seed or 'seed*'}"))
    there = sorted({key.partition("/")[0] for key in keys})
    matches = [key for key in keys if key.startswith(f"{name}/")] or [
        key for key in keys if name in key.partition("/")[0]
    ]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(f"{command}: no run in {runs} is called {text!r}.{nearest(name, there)}")
    listed = "\n  ".join(matches[:SHOWN]) + ("\n  ..." if len(matches) > SHOWN else "")
    raise ConfigError(f"{command}: {text!r} fits {len(matches)} runs; name one:\n  {listed}")


def _print_end(path: Path, lines: int | None) -> int:
    """Print the last lines of a file; its size in bytes."""
    content = path.read_bytes()
    kept = content.decode(errors="replace").splitlines()
    print(printable("\n".join(kept if lines is None else kept[-lines:])))
    return len(content)


def _follow(folder: RunFolder, shown: int) -> None:
    """Print what the log gets after its first ``shown`` bytes, until the run has ended."""
    path = folder.path / "log.txt"
    while True:
        status = folder.status()
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(shown)
                new = stream.read()
            shown += len(new)
            print(printable(new.decode(errors="replace")), end="", flush=True)
        if status is not None and status.state != "running":
            return
        time.sleep(1.0)
