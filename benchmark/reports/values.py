"""The cells of a table from the CSV in which it was written: the values of its runs by seed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmark.errors import ConfigError
from benchmark.experiments.spec import TableSpec
from benchmark.reports.results import OUTCOMES, Cell, CellRun
from benchmark.runs.status import RunState


def read_cells(spec: TableSpec, preset: str, path: Path) -> dict[tuple[str, str], Cell]:
    """The cells that both the CSV and the table have. Averages are left out, they are computed from their parts.

    `ConfigError` if the file cannot be read, or is not of this table and preset.
    """
    try:
        lines = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
        found = {(line["table"], line["preset"]) for line in lines}
        cells = {
            (line["row"], line["column"]): _cell(line, spec.metric_format.scale)
            for line in lines
            if line["column"] in {column.key for column in spec.run_columns}
        }
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"values: {path} cannot be read as a written table: {error}.") from error
    if found != {(spec.name, preset)}:
        names = ", ".join(f"{table} at preset {of}" for table, of in sorted(found)) or "no line"
        raise ConfigError(f"values: got {names} in {path}; expected {spec.name} at preset {preset}.")
    return cells


def _cell(line: Mapping[str, str], scale: float) -> Cell:
    """One line, as `layout` writes it. A file without ``processor`` pairs runs by seed alone."""
    entries = dict(text.split("=", 1) for text in line["seeds"].split(";") if text)
    if not entries and line["status"] not in OUTCOMES:
        return Cell(line["status"])
    folders = {path.rpartition("/seed")[2]: path for path in line["runs"].split(";")}
    processor, differs = line.get("processor", ""), line.get("differs", "")
    by_seed = dict(text.split("=", 1) for text in processor.split("; ")) if "; " in processor else {}
    runs = []
    for seed, text in entries.items():
        run = CellRun(int(seed), text, run=folders.get(seed))
        if text not in OUTCOMES:
            name = by_seed[seed] if by_seed else processor
            run = replace(
                run, outcome=RunState.DONE, value=float(text) / scale, differs=differs, processor=name
            )
        runs.append(run)
    return Cell("ok", tuple(runs))
