"""All comparisons of a table: each own row minus every other row, as published and as measured, with a verdict."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmark.reports.layout import PAIRED, PUBLISHED, conditions, differences, limits, rounded
from benchmark.reports.notes import full_label
from benchmark.reports.results import CellResult, TableResults
from benchmark.reports.statistics import Difference, Interval, holm, shown_interval
from benchmark.reports.tables import ColumnBlock, Table, TableLine

DIRECTIONS = {
    (1, 1): "holds",
    (-1, 1): "does not hold",
    (-1, -1): "worse, as published",
    (1, -1): "better, but published as worse",
    (1, 0): "better",
    (-1, 0): "worse",
}
"""Directions of the measured and of the published difference, 1 better and -1 worse, in words."""


class Comparison(NamedTuple):
    """``cell`` has the row that it is compared with as its base; ``corrected``: measured interval after Holm."""

    cell: CellResult
    corrected: Interval | None
    verdict: str


def verdict(
    measured: Difference | None,
    published: Difference | None,
    corrected: Interval | None,
    higher_is_better: bool = True,
) -> str:
    """What a measured difference says about the published one: about its direction, then about its size.

    ``corrected``: the measured interval after Holm's correction.
    """
    if measured is None:
        return "not measured"
    sign = 1 if higher_is_better else -1
    side, claimed = sign * _side(measured.interval), sign * int(np.sign(published.mean)) if published else 0
    if published and published.interval and claimed < 0 and not _side(published.interval):
        claimed = 0  # printed as worse, but not resolved
    unresolved = "not resolved" if measured.interval else "one pair of runs, no interval"
    words = [DIRECTIONS.get((side, claimed), unresolved)]
    if side and not _side(corrected):
        words.append("not resolved after Holm's correction")
    if published is None:
        words.append("no published number")
    elif published.interval is None:
        words.append("published without spread")
    elif _side(published.minus(measured).interval):
        words.append(f"not {published.mean:+.2f}")
    return "; ".join(words)


def _side(interval: Interval | None) -> int:
    """1 above zero, -1 below, 0 if zero is inside."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


def compare(results: TableResults) -> list[Comparison]:
    """Each own row minus each row that is not own or stands above it, by column, where a difference is known."""
    rows, better = results.spec.rows, results.spec.metric_format.higher_is_better
    cells = [
        replace(results.cell(own, column), base=results.cell(other, column))
        for column in results.spec.columns
        for place, own in enumerate(rows)
        for number, other in enumerate(rows)
        if own.own and (not other.own or number < place)
    ]
    cells = [cell for cell in cells if cell.difference or cell.published_difference]
    corrected = holm([cell.difference for cell in cells])
    return [
        Comparison(cell, interval, verdict(cell.difference, cell.published_difference, interval, better))
        for cell, interval in zip(cells, corrected, strict=True)
    ]


def as_table(results: TableResults) -> Table:
    """The table that renderers print: one block for each column, one line for each comparison."""
    spec, compared = results.spec, compare(results)
    heads = ["Published", *["Reproduced by others"] * bool(spec.reproductions)]
    heads += ["Here", "After Holm", "Pairs", f"Verdict at preset {results.preset}"]
    blocks = []
    for column in spec.columns:
        of_column = [one for one in compared if one.cell.column.key == column.key]
        if of_column:
            label = full_label(column)
            lines = tuple(_line(one, bool(spec.reproductions)) for one in of_column)
            # A heading where there are several blocks.
            group = label if len(of_column) < len(compared) else None
            blocks.append(ColumnBlock(label, tuple(heads), lines, (group,) * len(heads)))
    caption = (
        f"{conditions(results)}. Here: {PAIRED} After Holm: corrected for the "
        f"{sum(c.corrected is not None for c in compared)} intervals of this table. {PUBLISHED} There, agreement "
        "of the sizes cannot be tested. Verdict: about the direction of the published difference, by the interval "
        "without correction, then about its size: \"not +1.00\" where the published minus the measured difference has "
        "a 95 % interval without zero. ‡: runs of a pair were made by other code or in another way."
    )  # fmt: skip
    data = pd.DataFrame([_record(results, comparison) for comparison in compared])
    return Table(spec.name, f"{spec.title} (all comparisons)", data, tuple(blocks), caption=caption)


def _line(comparison: Comparison, with_others: bool) -> TableLine:
    cell, corrected, words = comparison
    found = [cell.published_difference, *[cell.reproduced_difference] * with_others, cell.difference]
    texts = ["–" if difference is None else str(difference) for difference in found]
    texts[-1] += "‡" * bool(cell.differs or (cell.base and cell.base.differs))
    pairs = str(cell.difference.n if cell.difference else 0)
    label = f"{cell.row.label} minus {cell.base.row.label if cell.base else ''}"
    return TableLine(label, (*texts, shown_interval(corrected), pairs, words))


def _record(results: TableResults, comparison: Comparison) -> dict[str, object]:
    spec, cell = results.spec, comparison.cell
    low, high = comparison.corrected or (None, None)
    return {
        "table": spec.name,
        "preset": results.preset,
        "column": cell.column.key,
        "metric": cell.column.metric or spec.metric,
        "unit": spec.metric_format.unit,
        "row": cell.row.key,
        **differences(cell),
        **limits("reproduced_difference", cell.reproduced_difference),
        "p": rounded(cell.difference.p if cell.difference else None),
        "holm_low": rounded(low),
        "holm_high": rounded(high),
        "verdict": comparison.verdict,
    }
