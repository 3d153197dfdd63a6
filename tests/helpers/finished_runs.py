"""Folders of runs that ended with made-up values, and what reports and figures make of them."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.engine.records import Record
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.plan import plan
from benchmark.experiments.spec import TableSpec
from benchmark.papers.figures import Drawing, Request, find
from benchmark.reports.layout import as_table
from benchmark.reports.render import markdown
from benchmark.reports.results import TableResults
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex
from benchmark.runs.result_files import final_values, record_lines, write_result
from benchmark.runs.status import Result, RunState

FAKE: dict[str, Any] = {
    "dataset": {"name": "fake", "options": {"classes": 4, "train_size": 90, "test_size": 20}},
    "partition": {"name": "iid", "clients": 6},
    "train": {"rounds": 3, "batch_size": 8},
}
"""Settings of a run on small made-up images."""

ORIGIN: dict[str, Any] = {
    "code": {}, "data": "d", "partition": "p", "torch": "2.0", "threads": 1, "dispatch": "AVX2", "device": "cpu",
}  # fmt: skip
MADE: dict[str, Any] = {
    "code": "", "commit": "c0ffee", "dirty": False, "repositories": {}, "host": "here", "processor": "Abacus",
    "prepared": "", "unseen": [], "note": "", "label": "", "python": "3", "numpy": "2",
    "clients": {"class_names": ["0", "1"], "attribute_names": [], "counts": [[2, 1], [0, 3]]},
}  # fmt: skip


def toy_table(methods: Iterable[str], **changes: Any) -> TableSpec:
    """A table in preset quick of these methods, and one column of digits."""
    values = dict.fromkeys(("name", "paper", "title"), "toy") | {"presets": ["quick"], "metric": "accuracy"}
    values |= {"rows": [{"key": name, "label": name, "method": name} for name in methods]}
    values |= {"columns": [{"key": "a", "label": "A", "dataset": "digits"}]}
    return TableSpec.model_validate(values | changes)


def finish(
    results: ResultsFolder,
    run: RunConfig,
    records: Iterable[Record] = (),
    *,
    state: str = "done",
    final: Mapping[str, dict[str, float]] | None = None,
    made: Mapping[str, Any] | None = None,
    origin: Mapping[str, Any] | None = None,
    model: str = "",
    **more: Any,
) -> Path:
    """Write the folder of a run that has ended; where it is. The others: what is not as usual, ``model`` its digest."""
    folder = results.run(run.key).path
    folder.mkdir(parents=True)
    records = list(records)
    rounds = max((record.round for record in records), default=run.train.rounds)
    recorded = final_values(records, rounds)
    for split, values in (final or {}).items():
        new = {name: value for name, value in values.items() if name not in recorded.get(split, {})}
        records += [Record(rounds, split, "all", *item) for item in new.items()]
    plain = {"hash": run.hash, **run.model_dump(mode="json")}
    (folder / "config.yaml").write_text(yaml.safe_dump(plain))
    content = record_lines(records)
    (folder / "records.jsonl").write_bytes(content)
    result = Result(
        state=RunState(state),
        round=rounds,
        hash=run.hash,
        seed=run.seed,
        final=final_values(records, rounds),
        records_bytes=len(content),
        records_sha256=hashlib.sha256(content).hexdigest(),
        model_sha256=model,
        origin={**ORIGIN, "engine": code.engine_digest(), **(origin or {})},
        made={**MADE, **(made or {})},
        **{"message": "", "seconds": 0.0} | more,
    )
    write_result(folder, result)
    return folder


def fail(results: ResultsFolder, run: RunConfig, message: str = "why") -> None:
    """Write the attempt of a run that ended with an error."""
    results.run(run.key).begin(run, "launch").end(f"failed: {message}")


def request(spec: FigureSpec, folder: Path, preset: str = "quick", seeds: int = 2, **options: Any) -> Request:
    """What a drawing gets that reads the runs in ``folder``."""
    index = RunIndex(ResultsFolder(folder).open())
    cells = {} if spec.runs is None else plan(spec.runs, preset, spec.runs.seed_range(preset, seeds))
    return Request(spec, preset, spec.settings(preset) | options, cells, index, {}, None)


def drawn(spec: FigureSpec, folder: Path, *words: Any, **changes: Any) -> Drawing:
    """The drawing of the runs in ``folder``."""
    return find(spec.kind)(request(spec, folder, *words, **changes))


def as_markdown(results: TableResults) -> str:
    return markdown.render(as_table(results))
