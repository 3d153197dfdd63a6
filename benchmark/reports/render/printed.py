"""What the cells of a printed table say, before any markup."""

from typing import NamedTuple

from benchmark.experiments.metrics import Show
from benchmark.reports.published import Published
from benchmark.reports.results import CellResult
from benchmark.reports.statistics import Difference, shown_interval
from benchmark.reports.tables import Table


def small_print(table: Table) -> str:
    """The sentence that says what the small print is; empty without any."""
    return f" Small print: {', below it '.join(table.small)}." if table.small else ""


class Printed(NamedTuple):
    """``number`` and ``spread`` or ``interval`` with their marks, or ``text`` in their place.

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
    interval: str = ""

    @property
    def plain(self) -> str:
        """``73.20 ± 0.80``, ``+1.20 [+0.40, +2.00]``, or the text."""
        number = " ± ".join(filter(None, [self.number, self.spread]))
        return self.text or " ".join(filter(None, [number, self.interval]))


def printed(cell: CellResult | str, show: Show) -> tuple[Printed, Printed, Printed]:
    """The large and the small print of a cell; the latter is what is published, and what others measured."""
    if isinstance(cell, str):
        return Printed(text=cell), Printed(), Printed()
    published, reproduced = _published(cell.published), _published(cell.reproduced)
    if show == "published":
        return published, Printed(), Printed()
    if show == "difference" and cell.base is not None:
        return (
            _compared(cell),
            _difference(cell.published_difference),
            _difference(cell.reproduced_difference),
        )
    measured = _measured(cell)
    if show == "difference":  # the base row; the marks compare means, not differences
        measured = measured._replace(rank="", signs="‡" * bool(cell.differs))
    return (measured, Printed(), Printed()) if show == "measured" else (measured, published, reproduced)


def _published(number: Published | None) -> Printed:
    if number is None:
        return Printed()
    return Printed(number.mean, number.std) if number.mean else Printed(text=number.text)


def _difference(found: Difference | None) -> Printed:
    if found is None:
        return Printed()
    return Printed(f"{found.mean:+.2f}", interval=shown_interval(found.interval))


def _compared(cell: CellResult) -> Printed:
    """The difference to the base row; how many pairs it is of if that is not all seeds."""
    found = cell.difference
    if found is None:
        return _measured(cell) if cell.summary is None else Printed(text="no pair")
    lacking = len(cell.runs) - found.n
    seeds, troubles = ((found.n, len(cell.runs)), (("without a pair", lacking),)) if lacking else (None, ())
    return _difference(found)._replace(signs="‡" * bool(cell.differs), seeds=seeds, troubles=troubles)


def _measured(cell: CellResult) -> Printed:
    if cell.state != "ok":
        return Printed(text="–")
    troubles = tuple((outcome, len(seeds)) for outcome, seeds in cell.troubles.items())
    if cell.summary is None:
        return Printed(text=", ".join(f"{count} {outcome}" for outcome, count in troubles) or "missing")
    signs = "‡" * bool(cell.differs)
    seeds = None if cell.complete else (cell.summary.n, len(cell.runs))
    spread = "" if cell.summary.std is None else f"{cell.summary.std:.2f}"
    rank = "best" if cell.mark.best else "second" if cell.mark.second else ""
    signs = "†" * cell.mark.not_worse + signs
    return Printed(f"{cell.summary.mean:.2f}", spread, "", rank, signs, seeds, troubles)
