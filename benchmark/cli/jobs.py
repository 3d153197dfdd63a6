"""``status``, ``cancel``, ``logs``, ``retry``: looking after runs that are on their way."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.cli.arguments import flags, preset_of, read
from benchmark.cli.launching import LAUNCH_OPTIONS, SHOWN, launcher_lock, run_missing
from benchmark.cli.planning import TABLE_OPTIONS, plans_of
from benchmark.cli.tracking import TRACKING_OPTIONS, start, tracked_runs
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.plan import Cells, check, unique_runs
from benchmark.experiments.spec import TableSpec
from benchmark.launch.overview import SHOWN_STATES, RunOverview
from benchmark.launch.slurm.queue import cancel as end_tasks
from benchmark.launch.slurm.queue import queued
from benchmark.launch.slurm.submissions import SubmissionLog, task_log
from benchmark.runs.status import RunState
from benchmark.runs.store import Results, RunFolder

SECONDS = 5.0
"""Between two looks of --watch."""

LINES = 40
"""Lines of a log that are shown, unless it is said otherwise."""


def status(words: Sequence[str]) -> int:
    """How many runs of each table are done, running, waiting, failed, diverged, missing."""
    chosen, words = flags(words, {"--watch": "look again until nothing is on its way"}, "status")
    values = read(words, TABLE_OPTIONS, "status")
    preset = preset_of(values)
    plans = plans_of(values)
    results = Results(Path(values.get("results", "results"))).existing()
    overview = RunOverview(results)
    title = f"preset {preset}, {results.root}/runs"
    console = Console(width=None if sys.stdout.isatty() else 140)
    if "--watch" not in chosen:
        console.print(_overview(title, plans, overview)[0])
        return 0
    return _watch(console, lambda: _overview(title, plans, overview))


def _overview(
    title: str, plans: Sequence[tuple[TableSpec, Cells]], overview: RunOverview
) -> tuple[RenderableType, str, bool]:
    """(the view, its counts as one line, whether anything is on its way)."""
    runs = unique_runs([cells for _, cells in plans])
    overview.refresh(runs)
    states = {key: overview.state(key) for key in runs}
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
    total = Counter(states.values())
    line = f"{len(states)} runs: " + (
        ", ".join(f"{total[state]} {state}" for state in SHOWN_STATES if total[state]) or "none"
    )
    tasks = overview.tasks()
    queue = (
        f"; SLURM: {tasks[RunState.RUNNING]} tasks running, {tasks[RunState.WAITING]} waiting{overview.reasons()}"
        if tasks
        else ""
    )
    below = [Text(f"{line}{queue}"), *_failures(overview.failures)]
    return Group(view, *below), f"{line}{queue}", bool(total[RunState.RUNNING] or total[RunState.WAITING])


def _failures(failures: Mapping[str, str]) -> Iterable[Text]:
    for key, message in list(failures.items())[:SHOWN]:
        yield Text(f"failed: {key}: {message.strip().partition(chr(10))[0]}", style="red")
    if len(failures) > SHOWN:
        yield Text(f"and {len(failures) - SHOWN} more", style="red")
    if failures:
        yield Text("python -m benchmark logs RUN shows why, retry --failed tries them again")


def _watch(console: Console, look: Callable[[], tuple[RenderableType, str, bool]]) -> int:
    """Show what ``look`` sees until nothing is on its way; on a terminal in place, elsewhere a line per change."""
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
    return 0


def retry(words: Sequence[str]) -> int:
    """Carry out the failed runs again; exit code as of ``table``."""
    chosen, words = flags(words, {"--failed": "the runs that failed"}, "retry")
    values = read(words, {**TABLE_OPTIONS, **LAUNCH_OPTIONS, **TRACKING_OPTIONS}, "retry")
    if "--failed" not in chosen:
        raise ConfigError(
            "retry: say --failed. Runs that are missing, or were interrupted, are carried out by `table`; diverged "
            "ones would diverge again."
        )
    plans = plans_of(values)
    results = Results(Path(values.get("results", "results"))).open()
    overview = RunOverview(results)
    runs = unique_runs([cells for _, cells in plans])
    overview.refresh(runs)
    failed: dict[str, RunConfig] = {
        key: run for key, run in runs.items() if overview.state(key) is RunState.FAILED
    }
    if not failed:
        print(f"none of {len(runs)} runs has failed")
        return 0

    def check_all() -> None:
        for spec, cells in plans:
            check(spec, cells)

    with start(values, results.root, plans), launcher_lock(values, results):
        code = run_missing(values, results, failed, check_all, tracked_runs(plans))
    overview = RunOverview(results)
    overview.refresh(failed)
    after = Counter(overview.state(key) for key in failed)
    print(
        f"{len(failed)} runs tried again: " + ", ".join(f"{after[s]} {s}" for s in SHOWN_STATES if after[s])
    )
    return code


def cancel(words: Sequence[str]) -> int:
    """End tasks of a cluster that carry out runs of the tables named, or all of the results folder."""
    chosen, words = flags(words, {"--all": "everything of the results folder"}, "cancel")
    values = read(words, TABLE_OPTIONS, "cancel")
    if "--all" not in chosen and not {"paper", "table", "name"} & set(values):
        raise ConfigError("cancel: say which: paper=..., table=... or name=..., or --all for everything.")
    results = Results(Path(values.get("results", "results"))).existing()
    notes = SubmissionLog(results)
    keys = {key for batch in notes.batches() for pack in batch.packs for key in pack}
    if not keys:
        print("nothing was submitted to a cluster from this results folder")
        return 0
    if "--all" not in chosen:
        keys &= set(unique_runs([cells for _, cells in plans_of(values)]))
    asked = queued()
    if asked is None:
        there = (
            "there is no `squeue` on this machine"
            if shutil.which("squeue") is None
            else "SLURM does not answer"
        )
        raise ConfigError(f"cancel: {there}. Give the command on a login node, when it does.")
    # Noted first: a launcher that follows these runs would take them for lost and submit them again.
    with results.submission_lease():
        tasks, others = notes.cancel(asked, keys)
    end_tasks(tasks)
    shared = f"; with them {others} runs that share a task with these" if others else ""
    print(
        f"{len(tasks)} tasks cancelled{shared}. Runs at work save their state; the same command goes on with them."
    )
    return 0


# Logs --------------------------------------------------------------------------------------------------------------


def logs(words: Sequence[str]) -> int:
    """What a run has said, and the job that carried it out: ``logs RUN [lines=40] [results=..] [--follow]``."""
    chosen, words = flags(words, {"--follow": "go on until the run has ended"}, "logs")
    names = [word for word in words if "=" not in word]
    own = {"lines": "NUMBER|all", "results": "FOLDER"}
    values = read([word for word in words if "=" in word], own, "logs")
    if len(names) != 1:
        raise ConfigError(
            "logs: name one run: a part of its folder's name, and /seedK where it has several seeds."
        )
    results = Results(Path(values.get("results", "results"))).existing()
    lines = _number_of_lines(values.get("lines", str(LINES)))
    key = _run_called(results, names[0])
    folder = results.run(key)
    state = folder.status()
    print(
        f"== {folder.path}: {state.state if state else 'not begun'} {state.message if state else ''}".rstrip()
    )
    shown = _print_end(folder.path / "log.txt", lines)
    place = SubmissionLog(results).places().get(key)
    if place is not None:
        _print_job(task_log(results.root / "launcher" / "jobs", place), key, lines)
    if "--follow" in chosen:
        _follow(folder, shown)
    return 0


def _number_of_lines(value: str) -> int | None:
    if value == "all":
        return None
    if not value.isdigit() or int(value) < 1:
        raise ConfigError(f"lines: came {value!r}; allowed: a whole number of at least 1, or all.")
    return int(value)


def _run_called(results: Results, text: str) -> str:
    """The key of the one run whose folder's name has ``text`` in it; `ConfigError` if there are none or several."""
    name, _, seed = text.strip("/").removeprefix(f"{results.root}/").removeprefix("runs/").partition("/")
    runs = results.root / "runs"
    there = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.exists() else []
    found = [other for other in there if other == name] or [other for other in there if name in other]
    keys = [
        f"{other}/{path.name}"
        for other in found
        for path in sorted((runs / other).glob("seed*"))
        if seed in ("", path.name)
    ]
    if len(keys) == 1:
        return keys[0]
    if not keys:
        raise ConfigError(f"logs: no run in {runs} is called {text!r}.{nearest(name, there)}")
    listed = "\n  ".join(keys[:SHOWN]) + ("\n  ..." if len(keys) > SHOWN else "")
    raise ConfigError(f"logs: {text!r} fits {len(keys)} runs; name one:\n  {listed}")


def _print_end(path: Path, lines: int | None) -> int:
    """Print the last lines of a file; its size in bytes."""
    if not path.exists():
        print(f"{path} is not there")
        return 0
    content = path.read_bytes()
    kept = content.decode(errors="replace").splitlines()
    print("\n".join(kept if lines is None else kept[-lines:]))
    return len(content)


def _print_job(out: Path | None, key: str, lines: int | None) -> None:
    """What the job's log says: its lines about the run, and the last errors."""
    if out is None:
        return
    print(f"\n== {out} (lines on this run)")
    print("\n".join(line for line in out.read_text(errors="replace").splitlines() if key in line))
    error = out.with_suffix(".err")
    if error.exists() and error.stat().st_size:
        print(f"\n== {error}")
        _print_end(error, lines)


def _follow(folder: RunFolder, shown: int) -> None:
    path = folder.path / "log.txt"
    while True:
        status = folder.status()
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(shown)
                new = stream.read()
            shown += len(new)
            print(new.decode(errors="replace"), end="", flush=True)
        if status is not None and status.state != "running":
            return
        time.sleep(1.0)
