"""What the cells of a printed table say, before any markup."""

from typing import NamedTuple

from benchmark.experiments.metrics import Show
from benchmark.reports.results import CellResult

SMALL_PRINT = " Small print: published."


class Entry(NamedTuple):
    """``number`` and ``spread`` with their marks, or ``text`` in their place.

    ``rank`` is ``best``, ``second`` or empty; ``signs`` are daggers; ``seeds`` is (done, planned) where runs are
    missing, and ``troubles`` says what became of the others.
    """

    number: str = ""
    spread: str = ""
    text: str = ""
    rank: str = ""
    signs: str = ""
    seeds: tuple[int, int] | None = None
    troubles: tuple[tuple[str, int], ...] = ()


def entry(cell: CellResult | str, show: Show) -> Entry:
    """The large print of a cell."""
    if isinstance(cell, str):
        return Entry(text=cell)
    if show == "published":
        return published(cell)
    if cell.state != "ok":
        return Entry(text="–")
    troubles = tuple((outcome, len(seeds)) for outcome, seeds in cell.troubles.items())
    if cell.summary is None:
        return Entry(text=", ".join(f"{count} {outcome}" for outcome, count in troubles) or "missing")
    signs = "‡" * bool(cell.differs)
    seeds = None if cell.complete else (cell.summary.n, len(cell.runs))
    if show == "difference":
        value = cell.published.value if cell.published else None
        number = "" if value is None else f"{cell.summary.mean - value:+.2f}"
        return Entry(number, signs=signs, seeds=seeds, troubles=troubles) if number else Entry()
    spread = "" if cell.summary.std is None else f"{cell.summary.std:.2f}"
    rank = "best" if cell.mark.best else "second" if cell.mark.second else ""
    signs = "†" * cell.mark.not_worse + signs
    return Entry(f"{cell.summary.mean:.2f}", spread, "", rank, signs, seeds, troubles)


def published(cell: CellResult | str) -> Entry:
    """What the paper prints: the small print of a cell."""
    number = None if isinstance(cell, str) else cell.published
    if number is None:
        return Entry()
    return Entry(number.mean, number.std) if number.mean else Entry(text=number.text)
