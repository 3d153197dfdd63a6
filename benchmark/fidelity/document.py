"""docs/fidelity.md: the ledger, what its switches change as measured, and the papers' printed inconsistencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmark.config.compose import group_names
from benchmark.experiments.metrics import METRICS
from benchmark.fidelity import effects
from benchmark.fidelity.checks import agreeing, arithmetic
from benchmark.fidelity.ledger import PAPERS, CellName, Chapter, Entry, Value, table
from benchmark.fidelity.printed import inconsistencies
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

This page is generated from [methods/fidelity](../methods/fidelity), [results/published](../results/published) and
[results/fidelity](../results/fidelity) (measured numbers of each seed, and the commit they were measured with):

```
python -m benchmark fidelity                       # write this page
python -m benchmark fidelity check                 # exit code 1 if it is out of date
python -m benchmark fidelity effects preset=quick  # run both sides of the switches that are measured, store the numbers
```
"""

Measured = Mapping[str, Mapping[tuple[str, ...], Mapping[str, str]]]


def render(chapters: Sequence[Chapter], folder: Path = effects.EFFECTS_FOLDER) -> str:
    """The whole page; the same for the same data."""
    measured = {preset: effects.read(preset, folder) for preset in PRESETS if preset in group_names("preset")}
    parts = [INTRO, *_summary(chapters, measured)]
    for chapter in chapters:
        parts += _chapter(chapter, measured)
    parts += _printed()
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(map(pipe_row, [head, ["---"] * len(head), *rows]))


def _text(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _text(text).replace("|", r"\|")


def _plain(value: Value) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _values(values: Sequence[Value]) -> str:
    return ", ".join(f"`{_plain(value)}`" for value in values)


# At a glance -----------------------------------------------------------------------------------------------------


def _summary(chapters: Sequence[Chapter], measured: Measured) -> Iterator[str]:
    yield "## At a glance"
    for chapter in chapters:
        rows = [
            [f"[{entry.id}](#{entry.id})", _cell(entry.title), _switches(entry), _short(entry, measured)]
            for entry in chapter.entries
        ]
        yield f"**{chapter.title}**"
        yield _table(["entry", "about", "switch, default first", "effect"], rows)


def _switches(entry: Entry) -> str:
    return "<br>".join(f"`{key}`: {_values(values)}" for key, values in entry.switch.items()) or "none"


def _short(entry: Entry, measured: Measured) -> str:
    if entry.effect is None:
        return ""
    lines = {preset: _line(entry, preset, measured) for preset in PRESETS}
    found = [f"{preset} {_difference(line)}" for preset, line in lines.items() if line is not None]
    return "<br>".join(found) or "not measured"


def _line(entry: Entry, preset: str, measured: Measured) -> Mapping[str, str] | None:
    key = effects.key_of(entry, preset)
    return None if key is None else measured.get(preset, {}).get(key)


def _difference(line: Mapping[str, str]) -> str:
    if not line["difference"]:
        return line["diverged"] and f"diverged ({line['diverged']})"
    unit = METRICS[line["metric"]].unit
    diverged = f", diverged: {line['diverged']}" if line["diverged"] else ""
    return f"{float(line['difference']):+.2f}{' points' if unit == '%' else unit}{diverged}"


# Entries ---------------------------------------------------------------------------------------------------------


def _chapter(chapter: Chapter, measured: Measured) -> Iterator[str]:
    yield f"## {chapter.title}"
    sources = ", ".join(
        f"[{source.repository}](https://github.com/{source.repository}) at {source.commit}"
        for source in chapter.sources
    )
    yield f"Public code that was read: {sources}."
    for entry in chapter.entries:
        yield f'<a id="{entry.id}"></a>\n\n### {_text(entry.title)}'
        yield "\n".join(_items(entry))
        if entry.effect is not None:
            yield _effect(entry, measured)


def _items(entry: Entry) -> Iterator[str]:
    yield f"- *Paper.* {_text(entry.paper)}"
    yield f"- *Code.* {_text(entry.code)}"
    if entry.text:
        yield f"- *The text against itself.* {_text(entry.text)}"
    yield f"- *Here.* {_text(entry.default)}"
    for key, (default, *others) in entry.switch.items():
        yield f"- *Switch.* `{key}`: {_values([default])} (default), {_values(others)}"
    if entry.no_switch:
        yield f"- *{'Not switched' if entry.switch else 'No switch'}.* {_text(entry.no_switch)}"


def _effect(entry: Entry, measured: Measured) -> str:
    assert entry.effect is not None
    overrides = ", ".join(f"`{key}={_plain(value)}`" for key, value in entry.effect.overrides.items())
    cells = {preset: entry.effect.cells[preset] for preset in PRESETS if preset in entry.effect.cells}
    lines = []
    for preset, cell in cells.items():
        line = _line(entry, preset, measured)
        sides = ["", "", "not measured"]
        if line is not None:
            sides = [_side(line, "default"), _side(line, "switched"), _each(line)]
        lines.append([preset, _label(cell), *sides])
    metrics = {table(cell.table).metric_format.label for cell in cells.values()}
    rows = _table(["preset", "cell", "default", "switched", "difference (seed by seed)"], lines)
    first, *others = cells
    command = f"`python -m benchmark fidelity effects ids={entry.id} preset={first}`"
    command += "".join(f", or `preset={preset}`" for preset in others)
    return f"Effect of {overrides} ({', '.join(sorted(metrics))}):\n\n{rows}\n\nMeasured by {command}."


def _label(cell: CellName) -> str:
    """``fedld_table1: FedLD, Retina Split-3``."""
    spec = table(cell.table)
    return escape_cell(f"{cell.table}: {spec.row(cell.row).label}, {full_label(spec.column(cell.column))}")


def _side(line: Mapping[str, str], side: str) -> str:
    if not line[f"{side}_mean"]:
        return "no number"
    text = f"{float(line[f'{side}_mean']):.2f}"
    if line[f"{side}_sd"]:
        text += f" ± {float(line[f'{side}_sd']):.2f}"
    return f"{text} (n={line[f'{side}_n']})"


def _each(line: Mapping[str, str]) -> str:
    text = _difference(line)
    if line["differences"]:
        each = ", ".join(f"{float(value):+.2f}" for value in line["differences"].split())
        text += f" ({each})"
    return text


# Printed inconsistencies -----------------------------------------------------------------------------------------


def _printed() -> Iterator[str]:
    yield "## Printed inconsistencies"
    yield (
        "Places where a paper's text and tables do not agree, from "
        "[results/published/README.md](../results/published/README.md), with the arithmetic done again from the "
        "printed cells (`results/published/*.csv`). The published numbers in our tables are not corrected."
    )
    for paper, found in inconsistencies().items():
        yield f"### {PAPERS[paper]}, printed"
        rows = [
            [name, _cell(text), "<br>".join(_cell(piece.text) for piece in arithmetic(name))]
            for name, text in found.items()
        ]
        yield _table(["id", "inconsistency", "arithmetic on the printed numbers"], rows)
        right = agreeing(paper)
        if right:
            yield f"Without a mismatch: {'; '.join(right)}."
