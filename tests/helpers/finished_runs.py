"""Folders of runs that ended with made-up values, and what reports and figures make of them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmark.config.schema import RunConfig
from benchmark.digests import engine
from benchmark.engine.records import Record
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TableSpec
from benchmark.figures.registry import Drawing, Request, find
from benchmark.reports.layout import as_table
from benchmark.reports.render import markdown
from benchmark.reports.results import TableResults
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder, RunFolder, final_values, record_lines
from benchmark.runs.writer import write_status

FAKE: dict[str, Any] = {
    "dataset": {"name": "fake", "options": {"classes": 4, "train_size": 90, "test_size": 20}},
    "partition": {"name": "iid", "clients": 6},
    "train": {"rounds": 3, "batch_size": 8},
}
"""Settings of a run on small made-up images."""


def toy_table(methods: Iterable[str], **changes: Any) -> TableSpec:
    """A table in preset quick of these methods, and one column of digits."""
    values = dict.fromkeys(("name", "paper", "title"), "toy") | {"presets": ["quick"], "metric": "accuracy"}
    values |= {"rows": [{"key": name, "label": name, "method": name} for name in methods]}
    values |= {"columns": [{"key": "a", "label": "A", "dataset": "digits"}]}
    return TableSpec.model_validate(values | changes)


def put_status(folder: RunFolder, status: Status) -> None:
    """Write a status as the process does that has the first lease of the run."""
    hash, seed = folder.path.parent.name.rpartition("-")[2], int(folder.path.name.removeprefix("seed"))
    status = replace(status, hash=hash, seed=seed)
    write_status(folder.result_path if status.ended else folder.path / "status.1.json", status)


def finish(
    results: ResultsFolder,
    run: RunConfig,
    records: Iterable[Record] = (),
    *,
    state: str = "done",
    final: Mapping[str, dict[str, float]] | None = None,
    meta: dict[str, Any] | None = None,
    seconds: float = 0.0,
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Write the folder of a run that has ended. ``origin``: what its status says about what made it."""
    folder = results.run(run.key)
    folder.path.mkdir(parents=True)
    records = list(records)
    rounds = max((record.round for record in records), default=run.train.rounds)
    recorded = final_values(records, rounds)
    for split, values in (final or {}).items():
        new = {name: value for name, value in values.items() if name not in recorded.get(split, {})}
        records += [Record(rounds, split, "all", *item) for item in new.items()]
    plain = {"hash": run.hash, **run.model_dump(mode="json")}
    (folder.path / "config.yaml").write_text(yaml.safe_dump(plain))
    (folder.path / "meta.json").write_text(json.dumps(meta or {}))
    content = record_lines(records)
    folder.records_path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    sizes = {"records_bytes": len(content), "records_sha256": digest}
    known: dict[str, Any] = {"seconds": seconds, "final": final_values(records, rounds), "engine": engine()}
    status = Status(RunState(state), rounds, rounds, **{**known, **sizes, **(origin or {})})
    put_status(folder, status)


def request(spec: FigureSpec, folder: Path, preset: str = "quick", seeds: int = 2, **options: Any) -> Request:
    """What a drawing gets that reads the runs in ``folder``."""
    index = RunIndex(ResultsFolder(folder).open())
    cells = {} if spec.runs is None else plan(spec.runs, preset, range(seeds))
    return Request(spec, preset, spec.settings(preset) | options, cells, index, {}, None)


def drawn(spec: FigureSpec, folder: Path, *words: Any, **changes: Any) -> Drawing:
    """The drawing of the runs in ``folder``."""
    return find(spec.kind)(request(spec, folder, *words, **changes))


def as_markdown(results: TableResults) -> str:
    return markdown.render(as_table(results))
