"""The page from the results of tables: what each cell shows, agreement with the published order."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from statistics import fmean
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmark.experiments.metrics import Show
from benchmark.experiments.parts import Column, Row
from benchmark.reports.details import cell_name, pack
from benchmark.reports.layout import conditions
from benchmark.reports.notes import full_label
from benchmark.reports.results import ENDED, CellResult, TableResults, measured_at
from benchmark.reports.tables import Table
from benchmark.runs.status import RunState

LIBRARIES = ("d3.min.js", "plot.umd.min.js")
"""Of the folder ``vendored``, in the order in which they need each other."""

VIEWS: tuple[Show, ...] = ("measured", "published", "difference")


class View(NamedTuple):
    """What a cell shows. ``tint`` is the size of the difference, 0 to 100, beside the largest one of the table."""

    cell: CellResult
    name: str
    tint: int

    @property
    def sorted_by(self) -> dict[str, float | None]:
        """The number by which each view of the table sorts."""
        cell = self.cell
        mean = cell.summary.mean if cell.summary else None
        difference = cell.difference.mean if cell.difference else None
        return dict(zip(VIEWS, (mean, cell.published_value, difference), strict=True))

    @property
    def seeds(self) -> str:
        """The values of all seeds: ``0:56.21 1:57.03``."""
        return " ".join(f"{seed}:{value:.5g}" for seed, value in self.cell.values.items())

    @property
    def lacking(self) -> str:
        """What is missing from the cell, in words; empty if nothing is."""
        troubles = ", ".join(f"{len(seeds)} {name}" for name, seeds in self.cell.troubles.items())
        return troubles if self.cell.state == "ok" else self.cell.state


@dataclass(frozen=True)
class Section:
    """One table on the page.

    ``command`` carries out what it lacks; ``short`` names it in the navigation, where tables of one name are one entry;
    ``entries`` are those of the fidelity ledger; ``views``: the table to copy of each view.
    """

    results: TableResults
    table: Table
    command: str
    short: str
    entries: Sequence[Any] = ()
    views: Mapping[str, Table] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[Row, list[View]]]:
        """(row, its cells)."""
        spec, cells = self.results.spec, self.results.cells
        sizes = {key: abs(cell.difference.mean) if cell.difference else 0.0 for key, cell in cells.items()}
        largest = max(sizes.values(), default=0.0) or 1.0
        views = {}
        for (row, column), cell in cells.items():
            name = cell_name(spec, row, column) if cell.runs else ""
            views[row, column] = View(cell, name, round(100 * sizes[row, column] / largest))
        return [(row, [views[row.key, column.key] for column in spec.columns]) for row in spec.rows]

    @property
    def view_labels(self) -> list[tuple[str, str]]:
        """(view, its label)."""
        return [(view, view.capitalize()) for view in self.views]

    def hint(self, column: Column) -> str:
        """What the numbers of a column are: metric, unit, round, direction, and how they are aggregated."""
        spec = self.results.spec.of_column(column.key)
        what = conditions(replace(self.results, spec=spec))
        direction = "higher" if spec.metric_format.higher_is_better else "lower"
        over = "mean over seeds" + (f" and {len(column.average_of)} columns" if column.average_of else "")
        return f"{full_label(column)}: {what}; {direction} is better; {over}."

    def status(self, row: Row) -> str:
        """Whether and under which conditions a row was measured."""
        cells = [self.results.cell(row, column) for column in self.results.spec.columns]
        if any(run.outcome in ENDED for cell in cells for run in cell.runs):
            return measured_at(self.results.preset, bool(self.results.spec.published))
        return "published only" if any(cell.published for cell in cells) else "missing"

    @property
    def missing(self) -> str:
        """How many runs are missing, and what became of them; empty if none is."""
        counts = {outcome: number for outcome, number in self.counts.items() if outcome not in ENDED}
        return ", ".join(f"{number} {outcome}" for outcome, number in counts.items())

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of planned runs by outcome; averages have none of their own."""
        cells = self.results.cells.values()
        return Counter(run.outcome for cell in cells if not cell.column.average_of for run in cell.runs)

    @property
    def agreement(self) -> tuple[float, int] | None:
        """Mean over columns of Kendall's tau with the published order, and the number of columns that have one."""
        found = (self.results.agreement(column) for column in self.results.spec.run_columns)
        taus = [tau for tau, _ in found if tau is not None]
        return (fmean(taus), len(taus)) if taus else None


class Board(NamedTuple):
    """The comparison of the leaderboard's methods: what the page shows, and the tables to copy by section and view."""

    content: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Table]]


def render(
    preset: str,
    counts: Counter[RunState],
    sections: Sequence[Section],
    absent: Sequence[tuple[str, str, str]],
    texts: Sequence[Table],
    details: Mapping[str, Any],
    root: str,
    newest: str = "",
    board: Board | None = None,
) -> str:
    """The whole file. Its policy allows the browser no request, and no script but those that are embedded.

    ``counts``: planned runs by state. ``sections``: the tables that have runs. ``absent``: (title, name, command) of
    those without. ``texts``: tables of analyses. ``details``: packed details of cells and partitions, for the scripts.
    ``root``: path from the page to the results folder. ``newest``: day of the newest run; empty if there is none.
    ``board``: the leaderboard's comparison, if the page has one.
    """
    environment = Environment(
        loader=PackageLoader("benchmark.reports.render", "html"),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters["full_label"] = full_label
    folder = resources.files(__package__)
    scripts = [(folder / "vendored" / name).read_text() for name in LIBRARIES]
    scripts += [(folder / name).read_text() for name in ("charts.js", "board.js", "report.js")]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    return environment.get_template("page.html.jinja").render(
        preset=preset, counts=counts, sections=sections, absent=absent, texts=texts, newest=newest,
        data={**details, "root": root, "board": board and pack(board.content)},
        board=board and board.content,
        style=(folder / "style.css").read_text(),
        scripts=scripts,
        policy=" ".join(f"'sha256-{digest}'" for digest in digests),
    )  # fmt: skip
