"""What the cells of a printed table say, before any markup."""

from typing import NamedTuple

from benchmark.experiments.metrics import Show
from benchmark.reports.published import Published
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
        """``73.20 ± 0.80``, or the text."""
        return self.text or " ± ".join(filter(None, [self.number, self.spread]))


def printed(cell: CellResult | str, show: Show) -> tuple[Printed, Printed]:
    """The large and the small print of a cell; the small print is the published number where both are shown."""
    if isinstance(cell, str):
        return Printed(text=cell), Printed()
    published = _published(cell.published)
    if show == "published":
        return published, Printed()
    return _measured(cell, show), published if show == "both" else Printed()


def _published(number: Published | None) -> Printed:
    if number is None:
        return Printed()
    return Printed(number.mean, number.std) if number.mean else Printed(text=number.text)


def _measured(cell: CellResult, show: Show) -> Printed:
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
