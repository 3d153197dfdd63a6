"""What the report shows when a cell is opened: its seeds, curves, groups, clients, cost, configuration and origin."""

import base64
import json
import math
import shlex
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmark.config.merge import flat
from benchmark.config.schema import IDENTITY, RunConfig
from benchmark.engine.records import Record
from benchmark.errors import StorageError
from benchmark.experiments.metrics import format_of
from benchmark.experiments.plan import Cells
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import COMMITTED, TunedFolder
from benchmark.reports.collect import commit_of
from benchmark.reports.results import CellResult, CellRun, TableResults
from benchmark.runs.index import RunIndex

POINTS = 100
"""Most points of a curve."""

STEPS = 50
"""Most steps of the time axis of a participation plot."""

FRESH = Path("repeated")
"""The results folder in the command that repeats a cell."""

ORIGIN = "dirty python torch numpy device processor threads host data partition unseen".split()
"""What is shown of where a run comes from."""


def pack(content: Any) -> str:
    """Compressed JSON as text, which the page reads with its browser's DecompressionStream."""
    plain = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(plain, 6, wbits=-15)).decode()


def cell_name(spec: TableSpec, row: str, column: str) -> str:
    """The cell in an address: ``fedmr_table1/fedavg/fmnist%2Fiid``."""
    return "/".join(quote(part, safe="") for part in (spec.name, row, column))


def elsewhere(spec: TableSpec, query: TableQuery) -> TableQuery:
    """The query that repeats a table's runs in an empty results folder, with the tuned values that they have taken."""
    file = TunedFolder.of(query.tuned, query.results).find(query.preset, spec.name)
    changes: dict[str, Any] = {"results": FRESH}
    if query.tuned is None and file is not None and not file.resolve().is_relative_to(COMMITTED):
        changes["tuned"] = str(file.parents[1])
    return query.model_copy(update=changes)


@dataclass
class Details:
    """Collects the packed details of cells, and the clients of the partitions that they use, by their names."""

    index: RunIndex
    query: TableQuery
    cells: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, str] = field(default_factory=dict)

    def add(self, results: TableResults, cells: Cells, command: str = "") -> None:
        """Add all cells of a table that have runs. ``command`` repeats all cells of a sweep."""
        spec = results.spec
        for (row, column), result in results.cells.items():
            if not result.runs:
                continue
            content: dict[str, Any] = {"ended": result.has_ended, "average_of": []}
            if result.column.average_of:
                content["average_of"] = [cell_name(spec, row, part) for part in result.column.average_of]
                content["runs"] = [_outcome(spec, run) for run in result.runs]
            else:
                planned, baseline = cells[row, column], spec.base_of(result.row)
                of_column = spec.of_column(column)
                content["runs"] = [
                    self._run(of_column, *pair) for pair in zip(planned.runs, result.runs, strict=True)
                ]
                if others := cells[baseline.key, column].runs:
                    content["baseline"] = baseline.label
                    content["config"] = differences(planned.runs[0], others[0])
                content["tuned"] = planned.chosen.source if planned.chosen else ""
            repeats = self.command(spec, result, _environment(content["runs"]))
            content["command"] = command if spec.paper == "sweep" else repeats
            self.cells[cell_name(spec, row, column)] = pack(content)

    def command(self, spec: TableSpec, result: CellResult, words: Sequence[str]) -> str:
        """The command that repeats an ended cell in an empty results folder, or carries out what it lacks."""
        rows = ",".join(dict.fromkeys([result.row.key, spec.reference_row or result.row.key]))
        columns = ",".join([*result.column.average_of, result.column.key])
        options = [f"name={spec.name}", f"rows={rows}", f"columns={columns}", f"preset={self.query.preset}"]
        query = self.query.model_copy(update={"seeds": len(result.runs)})
        if result.has_ended:
            query = elsewhere(spec, query)
        return query.command(" ".join(["table", *map(shlex.quote, [*options, *words])]))

    def _run(self, spec: TableSpec, run: RunConfig, result: CellRun) -> dict[str, Any]:
        """One seed: its value, what it recorded, and where it was made."""
        content, files = _outcome(spec, result), self.index.folder(run.key)
        try:
            found = files.result()
            records = self.index.records(run.key) if found else []
        except StorageError:
            return content
        if found is None:
            failed = files.last_failure()
            return content | {"message": failed[0].strip().partition("\n")[0] if failed else ""}
        about = found.made | found.origin
        if (name := f"{about['data']}/{about['partition']}") not in self.partitions:
            self.partitions[name] = pack(about["clients"])
        content |= {"rounds": found.round, "seconds": round(found.seconds, 1), "other": result.differs}
        content["origin"] = {"commit": commit_of(about)} | {name: about[name] for name in ORIGIN}
        return content | measured(spec, records)


def _outcome(spec: TableSpec, result: CellRun) -> dict[str, Any]:
    value = None if result.value is None else _short(result.value * spec.metric_format.scale)
    place = {"run": result.run, "by": result.by}
    return {"seed": result.seed, "outcome": result.outcome, "value": value} | place


def measured(spec: TableSpec, records: Sequence[Record]) -> dict[str, Any]:
    """Curves by metric, last accuracies of groups and over clients, clients by round, and sums of costs."""
    names = ("accuracy", "worst_group_accuracy", "client_mean", "client_worst", "unseen_mean", spec.metric)
    wanted = {(format_of(name).split, name) for name in names}
    curves: dict[str, list[tuple[int, float]]] = {}
    groups: dict[str, float] = {}
    over_clients: dict[str, dict[str, float]] = {}
    costs: Counter[str] = Counter()
    taken = []
    for record in records:
        clients, _, what = record.metric.partition("_")
        if record.split in ("validation", "unseen") and clients in ("client", "unseen"):
            place = what if record.group == "all" else record.group
            over_clients.setdefault(clients, {})[place] = round(100 * record.value, 2)
        if record.group == "all" and (record.split, record.metric) in wanted:
            value = _short(record.value * format_of(record.metric).scale)
            if value is not None:
                curves.setdefault(record.metric, []).append((record.round, value))
        elif record.split == "test" and record.metric == "accuracy":
            groups[record.group] = round(100 * record.value, 2)
        elif record.split == "participation":
            taken.append((record.round, int(record.group.removeprefix("client="))))
        elif record.split == "cost":
            costs[record.metric] += int(record.value)
    # Every n-th point from the last one on.
    thinned = {name: curve[:: -math.ceil(len(curve) / POINTS)][::-1] for name, curve in curves.items()}
    return {
        "curves": thinned,
        "groups": groups,
        "over_clients": over_clients,
        "clients": _by_step(taken),
        "costs": costs,
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _by_step(taken: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """How often each client took part, in steps of ``width`` rounds: [first round of the step, client, times]."""
    width = math.ceil(max((number for number, _ in taken), default=0) / STEPS) or 1
    counts = Counter(((number - 1) // width * width + 1, client) for number, client in taken)
    return {"width": width, "cells": [[*place, times] for place, times in sorted(counts.items())]}


def differences(run: RunConfig, other: RunConfig) -> list[tuple[str, Any, Any]]:
    """(setting, its value, the other's) of the settings in which two configurations differ; None where one lacks it."""
    first, second = (
        {
            key: value
            for key, value in flat(config.model_dump(mode="json", include=set(IDENTITY)))
            if value != {}
        }
        for config in (run, other)
    )
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    return [(key, first.get(key), second.get(key)) for key in keys if key != "method.label"]


def _environment(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The words that set the kind of device and the number of threads of the runs, where all had the same."""
    origins = [run["origin"] for run in runs if "origin" in run]
    devices = {str(origin.get("device", "")).partition(" ")[0] for origin in origins}
    threads = {origin.get("threads", 1) for origin in origins}
    words = [f"device={name}" for name in devices if name in ("cpu", "cuda")] if len(devices) == 1 else []
    return words + [f"threads={number}" for number in threads if number != 1 and len(threads) == 1]
