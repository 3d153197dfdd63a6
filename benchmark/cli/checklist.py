"""``python -m benchmark checklist``: answers to reproducibility checklists, from the finished runs of tables."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from benchmark.cli.launching import plans_of
from benchmark.cli.options import parse
from benchmark.errors import ConfigError
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import TunedFolder
from benchmark.runs.files import write_with_folder
from benchmark.runs.index import RunIndex
from benchmark.runs.store import ResultsFolder


class ChecklistOptions(TableQuery):
    """Options of the command."""

    out: Path | None = Field(
        None, description="folder of the pages; if left out: checklists/PRESET in the results folder"
    )


def main(words: Sequence[str]) -> int:
    """Write a page for every selected table that has finished runs; exit code 0.

    Raises:
        ConfigError: No selected table has a finished run.
    """
    options = parse(words, "checklist", ChecklistOptions)
    plans = plans_of(options)
    index = RunIndex(ResultsFolder(options.results, options.stale).existing())
    empty: list[tuple[str, str]] = []
    folder = options.out or options.results / "checklists" / options.preset
    for spec, cells in plans:
        runs = unique_runs([cells])
        index.refresh(runs)
        if not any(index.has_ended(key) for key in runs):
            empty.append((spec.name, _command(spec, options)))
            continue
        from benchmark.reports import checklist, collect, details

        tuned = TunedFolder.of(options.tuned, options.results).read(spec, options.preset)
        results = collect.collect(spec, options.preset, cells, index)
        command, rest = _command(spec, details.elsewhere(spec, options)), _command(spec, options)
        page = checklist.Checklist(results, cells, index, tuned, command, rest).page()
        path = folder / f"{spec.name}.md"
        write_with_folder(path, page.encode(), durable=False)
        print(path)
    if len(empty) == len(plans):
        names = ", ".join(name for name, _ in empty) or "the selected tables"
        first = "".join(f" Make them with: {command}" for _, command in empty[:1])
        raise ConfigError(f"checklist: no finished run of {names} in {options.results}.{first}")
    for name, command in empty:
        print(f"{name}: no finished run; make them with: {command}", file=sys.stderr)
    return 0


def _command(spec: TableSpec, query: TableQuery) -> str:
    """The command that carries out the selected runs of a table."""
    cells = [f"{key}={value}" for key, value in (("rows", query.rows), ("columns", query.columns)) if value]
    return query.command(shlex.join(["table", f"name={spec.name}", f"preset={query.preset}", *cells]))
