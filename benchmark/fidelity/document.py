"""docs/fidelity.md: the ledger, what its switches change as measured, and the papers' printed inconsistencies."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmark.experiments.metrics import METRICS
from benchmark.fidelity import effects
from benchmark.fidelity.ledger import Chapter, Effect, LedgerEntry, Value, table
from benchmark.paths import PUBLISHED
from benchmark.reports.notes import full_label
from benchmark.reports.render.markdown import escape_cell, pipe_row

PRESETS = ("quick", "small", "paper")

INTRO = """\
# Fidelity: where paper, code and text disagree

Each of the four papers states some things that its public code does differently, and sometimes prints two numbers that
cannot both be right. The same holds for the papers and the public code of their baselines. This page lists these
places: what each side says, what is done here, and the switch that selects the other side.

How to read it:

- The default follows the paper's text. If the paper does not say, it follows the authors' code; if the code does not
  say either, it follows the method's original paper. `variant: reference` of a method sets all its switches to what the
  authors' code does.
- A switch is a setting of the command line and of `conf/`. Its default comes first. A setting that is `null` in `conf/`
  has the value that `variant` selects. What the code does by accident (a rate of zero, a crash) is not copied, and the
  entry says so.
- Ids such as LD-2 or MR-6 are printed inconsistencies. They are listed, with their arithmetic, at the end of this page.
- An effect is the metric with the switch minus the metric without it, over the same seeds, clients and budget, followed
  by the differences seed by seed. With three seeds, differences of both signs mean that no effect was seen. Preset
  quick trains a tiny network on stand-in data for seconds: its effects show that a switch changes something, not what
  the paper would have found.

This page is generated from `methods/fidelity`, `results/published` and `results/fidelity` (measured numbers of each
seed, and the commit they were measured with):

```
python -m benchmark fidelity                       # write this page
python -m benchmark fidelity check                 # exit code 1 if it is out of date
python -m benchmark fidelity effects preset=quick  # run both sides of the switches that are measured, store the numbers
```
"""

Measured = Mapping[str, Mapping[tuple[str, ...], Mapping[str, str]]]
"""Preset -> what a line is about -> the line."""


def render(chapters: Sequence[Chapter], folder: Path = effects.EFFECTS_FOLDER) -> str:
    """The whole page; the same for the same data."""
    measured = {preset: effects.read(preset, folder) for preset in PRESETS}
    parts = [INTRO, "## At a glance"]
    for chapter in chapters:
        rows = [
            [f"[{entry.id}](#{entry.id})", _cell(entry.title), _switches(entry), _short(entry, measured)]
            for entry in chapter.entries
        ]
        parts += [f"**{chapter.title}**", _table(["entry", "about", "switch, default first", "effect"], rows)]
    for chapter in chapters:
        parts += _chapter(chapter, measured)
    parts += _printed()
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(pipe_row, [head, ["---"] * len(head), *rows]))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _plain(value: Value) -> str:
    """The value as YAML writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _values(values: Sequence[Value]) -> str:
    return ", ".join(f"`{_plain(value)}`" for value in values)


# Entries ---------------------------------------------------------------------------------------------------------


def _switches(entry: LedgerEntry) -> str:
    return "<br>".join(f"`{key}`: {_values(values)}" for key, values in entry.switch.items()) or "none"


def _short(entry: LedgerEntry, measured: Measured) -> str:
    if entry.effect is None:
        return ""
    lines = {preset: _line(entry, preset, measured) for preset in PRESETS}
    return (
        "<br>".join(f"{preset} {_difference(line)}" for preset, line in lines.items() if line)
        or "not measured"
    )


def _line(entry: LedgerEntry, preset: str, measured: Measured) -> Mapping[str, str]:
    """The measured line of an entry; empty if there is none."""
    key = effects.key_of(entry, preset)
    return measured[preset].get(key, {}) if key else {}


def _difference(line: Mapping[str, str]) -> str:
    if not line["difference"]:
        return line["diverged"] and f"diverged ({line['diverged']})"
    unit = METRICS[line["metric"]].unit
    diverged = f", diverged: {line['diverged']}" if line["diverged"] else ""
    return f"{float(line['difference']):+.2f}{' points' if unit == '%' else unit}{diverged}"


def _chapter(chapter: Chapter, measured: Measured) -> Iterator[str]:
    yield f"## {chapter.title}"
    sources = ", ".join(
        f"[{source.repository}](https://github.com/{source.repository}) at {source.commit}"
        for source in chapter.sources
    )
    yield f"Public code that was read: {sources}."
    for entry in chapter.entries:
        yield f'<a id="{entry.id}"></a>\n\n### {entry.title}'
        yield "\n".join(_items(entry))
        if entry.effect is not None:
            yield _effect(entry, entry.effect, measured)


def _items(entry: LedgerEntry) -> Iterator[str]:
    said = {
        "Paper": entry.paper,
        "Code": entry.code,
        "The text against itself": entry.text,
        "Here": entry.default,
    }
    yield from (f"- *{what}.* {text}" for what, text in said.items() if text)
    for key, (default, *others) in entry.switch.items():
        yield f"- *Switch.* `{key}`: {_values([default])} (default), {_values(others)}"
    if entry.no_switch:
        yield f"- *{'Not switched' if entry.switch else 'No switch'}.* {entry.no_switch}"


def _effect(entry: LedgerEntry, effect: Effect, measured: Measured) -> str:
    overrides = ", ".join(f"`{key}={_plain(value)}`" for key, value in effect.overrides.items())
    presets = [preset for preset in PRESETS if preset in effect.cells]
    rows, metrics = [], set()
    for preset in presets:
        cell, line = effect.cells[preset], _line(entry, preset, measured)
        spec = table(cell.table)
        metrics.add(spec.metric_format.label)
        label = f"{cell.table}: {spec.row(cell.row).label}, {full_label(spec.column(cell.column))}"
        sides = (
            [_side(line, "default"), _side(line, "switched"), _each(line)]
            if line
            else ["", "", "not measured"]
        )
        rows.append([preset, escape_cell(label), *sides])
    shown = _table(["preset", "cell", "default", "switched", "difference (seed by seed)"], rows)
    command = f"`python -m benchmark fidelity effects ids={entry.id} preset={presets[0]}`"
    command += "".join(f", or `preset={preset}`" for preset in presets[1:])
    return f"Effect of {overrides} ({', '.join(sorted(metrics))}):\n\n{shown}\n\nMeasured by {command}."


def _side(line: Mapping[str, str], side: str) -> str:
    mean, sd = line[f"{side}_mean"], line[f"{side}_sd"]
    if not mean:
        return "no number"
    spread = f" ± {float(sd):.2f}" if sd else ""
    return f"{float(mean):.2f}{spread} (n={line[f'{side}_n']})"


def _each(line: Mapping[str, str]) -> str:
    by_seed = ", ".join(f"{float(value):+.2f}" for value in line["differences"].split())
    return _difference(line) + (f" ({by_seed})" if by_seed else "")


# Printed inconsistencies -----------------------------------------------------------------------------------------


def _printed() -> Iterator[str]:
    yield "## Printed inconsistencies"
    yield (
        "Places where a paper's text and tables do not agree, from "
        "`results/published/README.md`, with the arithmetic done again from the "
        "printed cells (`results/published/*.csv`). The published numbers in our tables are not corrected."
    )
    for section in inconsistencies():
        yield f"### {section.paper}, printed"
        rows = [
            [name, _cell(about), "<br>".join(map(_cell, arithmetic))]
            for name, about, arithmetic in section.items
        ]
        yield _table(["id", "inconsistency", "arithmetic on the printed numbers"], rows)
        if section.agreeing:
            yield f"Without a mismatch: {section.agreeing}"


class PaperInconsistencies(NamedTuple):
    """What is listed about a paper: (id, text, lines of arithmetic) of each item, and how many numbers agree."""

    paper: str
    items: list[tuple[str, str, list[str]]]
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
