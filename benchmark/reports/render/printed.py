"""What the cells of a printed table say, before any markup."""

from typing import NamedTuple

from benchmark.experiments.metrics import Show
from benchmark.reports.results import CellResult

SMALL_PRINT = " Small print: published."


class Printed(NamedTuple):
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

    @property
    def plain(self) -> str:
        """``73.20 ± 0.80†``, or the text."""
        return self.text or " ± ".join(filter(None, [self.number, self.spread])) + self.signs


def large_print(cell: CellResult | str, show: Show) -> Printed:
    """The large print of a cell."""
    if isinstance(cell, str):
        return Printed(text=cell)
    if show == "published":
        return small_print(cell)
    if cell.state != "ok":
        return Printed(text="–")
    troubles = tuple((outcome, len(seeds)) for outcome, seeds in cell.troubles.items())
    if cell.summary is None:
        return Printed(text=", ".join(f"{count} {outcome}" for outcome, count in troubles) or "missing")
    signs = "‡" * bool(cell.differs)
    seeds = None if cell.complete else (cell.summary.n, len(cell.runs))
    if show == "difference":
        if cell.difference is None:
            return Printed()
        return Printed(f"{cell.difference:+.2f}", signs=signs, seeds=seeds, troubles=troubles)
    spread = "" if cell.summary.std is None else f"{cell.summary.std:.2f}"
    rank = "best" if cell.mark.best else "second" if cell.mark.second else ""
    signs = "†" * cell.mark.not_worse + signs
    return Printed(f"{cell.summary.mean:.2f}", spread, "", rank, signs, seeds, troubles)


def small_print(cell: CellResult | str) -> Printed:
    """What the paper prints: the small print of a cell."""
    number = None if isinstance(cell, str) else cell.published
    if number is None:
        return Printed()
    return Printed(number.mean, number.std) if number.mean else Printed(text=number.text)
