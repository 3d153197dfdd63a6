"""``python -m benchmark table`` and ``status``: plan, run what is missing, write the tables."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable

from benchmark.commands.arguments import positive, read
from benchmark.errors import ConfigError, nearest
from benchmark.reports.collect import collect, run_state
from benchmark.reports.tables import write
from benchmark.runs.config import RunConfig, group_names, load_group
from benchmark.runs.plan import Cells, check, plan, prepare_data, unique_runs
from benchmark.runs.spec import TableSpec, find_specs
from benchmark.runs.store import Results

WHAT = {
    "paper": "fedld|fedsdc|feddiverse|fedmr",
    "table": "NUMBER",
    "name": "FILE of conf/table",
    "preset": "quick|small|paper",
    "rows": "KEY,PATTERN*,...",
    "columns": "KEY,PATTERN*,...",
    "seeds": "NUMBER",
    "results": "FOLDER",
}
HOW = {
    "launcher": "local|inline",
    "workers": "NUMBER",
    "threads": "NUMBER",
    "device": "auto|cpu|cuda",
    "out": "FOLDER",
    "data": "FOLDER",
}


def _chosen(values: Mapping[str, str]) -> list[TableSpec]:
    """The tables asked for, cut to the rows and columns asked for."""
    number = positive(values, "table")
    if "name" in values:
        every = {spec.name: spec for spec in find_specs()}
        if values["name"] not in every:
            raise ConfigError(
                f"name: came {values['name']!r}.{nearest(values['name'], every)} Allowed: {', '.join(every)}."
            )
        specs = [every[values["name"]]]
    else:
        specs = find_specs(values.get("paper"), number)
    return [_cut(spec, values) for spec in specs]


def _matching(keys: Sequence[str], patterns: str | None, what: str, table: str) -> list[str]:
    if patterns is None:
        return list(keys)
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatchcase(key, pattern) for key in keys):
            raise ConfigError(
                f"{what}: {pattern!r} fits none of table {table}.{nearest(pattern, keys)} It has: {', '.join(keys)}."
            )
    return [key for key in keys if any(fnmatchcase(key, pattern) for pattern in wanted)]


def _cut(spec: TableSpec, values: Mapping[str, str]) -> TableSpec:
    if "rows" not in values and "columns" not in values:
        return spec
    rows = _matching([row.key for row in spec.rows], values.get("rows"), "rows", spec.name)
    columns = _matching([column.key for column in spec.columns], values.get("columns"), "columns", spec.name)
    return spec.cut(rows, columns)


def _known(group: str, name: str) -> str:
    known = group_names(group)
    if name not in known:
        raise ConfigError(f"{group}: came {name!r}.{nearest(name, known)} Allowed: {', '.join(known)}.")
    return name


def _preset(values: Mapping[str, str]) -> str:
    return _known("preset", values.get("preset", "quick"))


def _plans(values: Mapping[str, str], specs: Sequence[TableSpec], preset: str) -> list[Cells]:
    count = positive(values, "seeds")
    seeds = None if count is None else range(count)
    threads = positive(values, "threads") or 1
    paths: dict[str, Any] = {"results": values.get("results", "results"), "data": values.get("data")}
    extra = {"paths": paths, "runtime": {"threads": threads, "device": values.get("device", "auto")}}
    return [plan(spec, preset, seeds, extra) for spec in specs]


def table(words: Sequence[str]) -> int:
    """Plan, launch, write; exit code 0, 1 (a run failed) or 130 (stopped)."""
    values = read(words, {**WHAT, **HOW}, "table")
    preset = _preset(values)
    specs = _chosen(values)
    plans = _plans(values, specs, preset)
    results = Results(Path(values.get("results", "results"))).open()
    runs = unique_runs(plans)
    with results.launcher_lock():
        missing = [run for run in runs.values() if not _ended(results, run)]
        code = 0
        if missing:
            for spec, cells in zip(specs, plans, strict=True):
                check(spec, cells)
            code = _launch(values, missing, len(runs) - len(missing))
    folder = Path(values.get("out") or results.root / "tables" / preset)
    for spec, cells in zip(specs, plans, strict=True):
        built = collect(spec, preset, cells, results)
        paths = write(built, folder)
        print(f"{spec.name}: {_summary(results, cells)}; {paths[0].with_suffix('')}.{{csv,tex,md}}")
    return code


def _ended(results: Results, run: RunConfig) -> bool:
    folder = results.run(run.key)
    status = folder.status()
    return status is not None and status.ended and folder.complete(status)


def _launch(values: Mapping[str, str], runs: Sequence[RunConfig], ended: int) -> int:
    from benchmark.runs.launch import LaunchError, Task, launch
    from benchmark.runs.progress import listener
    from benchmark.runs.run import load_dataset

    prepare_data(runs, lambda run: load_dataset(run.dataset, run.paths))
    settings = load_group("launcher", _known("launcher", values.get("launcher", "local")))
    settings |= {
        key: number for key in ("workers", "threads") if (number := positive(values, key)) is not None
    }
    device = values.get("device", "auto")
    if device != "auto" and settings["name"] == "local":
        settings["devices"] = [device]
    tasks = [Task(run.key, run.train.rounds, _payload(run)) for run in runs]
    try:
        outcomes = launch(
            tasks,
            "benchmark.runs.run:work",
            kind=settings["name"],
            workers=settings.get("workers"),
            threads=settings.get("threads") or 1,
            devices=settings.get("devices"),
            grace=settings.get("grace", 30.0),
            listener=listener(already_done=ended),
        )
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    bad = [outcome for outcome in outcomes if outcome.status in ("failed", "crashed", "busy")]
    for outcome in bad[:20]:
        print(f"{outcome.status}: {outcome.key}: {outcome.message}", file=sys.stderr)
    if any(outcome.status == "interrupted" for outcome in outcomes) or len(outcomes) < len(tasks):
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    return 1 if bad else 0


def _payload(run: RunConfig) -> dict[str, Any]:
    """The run as plain values; a worker sees only its own GPU, so which one is the launcher's business."""
    plain = run.model_dump(mode="json")
    if plain["runtime"]["device"].startswith("cuda:"):
        plain["runtime"]["device"] = "cuda"
    return plain


def _counts(results: Results, cells: Cells) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cell in cells.values():
        if cell.state != "ok":
            counts[cell.state] += 1
        for run in cell.runs:
            folder = results.run(run.key)
            counts[run_state(folder, folder.status())] += 1
    return counts


def _summary(results: Results, cells: Cells) -> str:
    counts = _counts(results, cells)
    states = [
        f"{counts[state]} {state}"
        for state in ("done", "running", "failed", "diverged", "missing")
        if counts[state]
    ]
    gaps = [f"{number} cells {state}" for state, number in sorted(counts.items()) if " " in state]
    return ", ".join([*(states or ["no runs"]), *gaps])


def status(words: Sequence[str]) -> int:
    """How many runs of each table are done, running, failed, diverged, missing."""
    values = read(words, WHAT, "status")
    preset = _preset(values)
    specs = _chosen(values)
    results = Results(Path(values.get("results", "results")))
    if (results.root / "runs").exists():
        results.open()
    view = TextTable(title=f"preset {preset}, {results.root}/runs")
    states = ("done", "running", "failed", "diverged", "missing")
    view.add_column("table")
    for state in states:
        view.add_column(state, justify="right")
    view.add_column("cells without runs")
    for spec, cells in zip(specs, _plans(values, specs, preset), strict=True):
        counts = _counts(results, cells)
        gaps = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()) if " " in state)
        view.add_row(spec.name, *(str(counts[state]) for state in states), gaps)
    Console(width=None if sys.stdout.isatty() else 140).print(view)
    return 0
