"""docs/fidelity.md: the ledger, what its switches change as measured, and the papers' printed inconsistencies."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmark.experiments.metrics import METRICS
from benchmark.fidelity import effects
from benchmark.fidelity.ledger import Chapter, Effect, LedgerEntry, Value, load, table
from benchmark.paths import PUBLISHED
from benchmark.reports.notes import cell_label
from benchmark.reports.render.markdown import escape_cell
from benchmark.reports.statistics import Summary

PRESETS = ("quick", "small", "paper")

Measured = Mapping[str, Mapping[tuple[str, ...], Mapping[str, str]]]
"""Preset -> what a line is about -> the line."""


def pages() -> dict[str, str]:
    """The text of the page by the name of its file."""
    return {"fidelity.md": render(load())}


def render(chapters: Sequence[Chapter], folder: Path = effects.EFFECTS_FOLDER) -> str:
    """The whole page; the same for the same data."""
    environment = Environment(
        loader=PackageLoader("benchmark.fidelity", "."),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"cell": _cell, "code": _values, "yaml": _plain}
    measured = {preset: effects.read(preset, folder) for preset in PRESETS}
    return environment.get_template("page.md.jinja").render(
        chapters=chapters,
        effect_in_short=partial(_in_short, measured),
        effect_row=partial(_effect_row, measured),
        metrics=_metrics,
        inconsistencies=inconsistencies(),
    )


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _plain(value: Value) -> str:
    """The value as YAML writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _values(values: Sequence[Value]) -> str:
    return ", ".join(f"`{_plain(value)}`" for value in values)


def _in_short(measured: Measured, entry: LedgerEntry) -> str:
    """The measured effects of an entry by preset, for the list of all entries."""
    if entry.effect is None:
        return ""
    lines = {preset: _line(measured, entry, preset) for preset in PRESETS}
    texts = [f"{preset} {_difference(line)}" for preset, line in lines.items() if line]
    return "<br>".join(texts) or "not measured"


def _line(measured: Measured, entry: LedgerEntry, preset: str) -> Mapping[str, str]:
    """The measured line of an entry; empty if there is none."""
    key = effects.key_of(entry, preset)
    return measured[preset].get(key, {}) if key else {}


def _difference(line: Mapping[str, str]) -> str:
    if not line["difference"]:
        return line["diverged"] and f"diverged ({line['diverged']})"
    unit = METRICS[line["metric"]].unit
    diverged = f", diverged: {line['diverged']}" if line["diverged"] else ""
    return f"{float(line['difference']):+.2f}{' points' if unit == '%' else unit}{diverged}"


def _metrics(effect: Effect) -> str:
    labels = {table(cell.table).metric_format.label for cell in effect.cells.values()}
    return ", ".join(sorted(labels))


def _effect_row(measured: Measured, entry: LedgerEntry, preset: str) -> list[str]:
    """Preset, cell, both sides and the difference, seed by seed too."""
    assert entry.effect is not None
    cell, line = entry.effect.cells[preset], _line(measured, entry, preset)
    label = escape_cell(f"{cell.table}: {cell_label(table(cell.table), cell.row, cell.column)}")
    if not line:
        return [preset, label, "", "", "not measured"]
    by_seed = ", ".join(f"{float(value):+.2f}" for value in line["differences"].split())
    difference = _difference(line) + (f" ({by_seed})" if by_seed else "")
    return [preset, label, _side(line, "default"), _side(line, "switched"), difference]


def _side(line: Mapping[str, str], side: str) -> str:
    mean, sd, n = (line[f"{side}_{name}"] for name in ("mean", "sd", "n"))
    if not mean:
        return "no number"
    return f"{Summary(float(mean), float(sd) if sd else None, int(n))} (n={n})"


class PaperInconsistencies(NamedTuple):
    """What is listed about a paper: (id, text, lines of arithmetic) of each item, and how many numbers agree."""

    paper: str
    listed: list[tuple[str, str, list[str]]]
    agreeing: str


def inconsistencies() -> list[PaperInconsistencies]:
    """The list in ``results/published/README.md``."""
    text = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    _, _, listed = text.partition("\n## Inconsistencies\n")
    sections = []
    for part in listed.partition("\n## ")[0].split("\n### ")[1:]:
        listed_items = re.findall(r"^- \*\*([A-Z]+-\d+)\*\* (.+)\n((?:  - .+\n)*)", part + "\n", re.MULTILINE)
        items = [(name, about, re.findall(r"  - (.+)", lines)) for name, about, lines in listed_items]
        agreeing = re.search(r"^- Without a mismatch: (.+)", part, re.MULTILINE)
        sections.append(PaperInconsistencies(part.partition("\n")[0], items, agreeing[1] if agreeing else ""))
    return sections
