"""What a drawing gets and returns, and drawings by kind."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, NothingToDraw, wrong
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.parts import Column, Row
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.reports import notes, pictures
from benchmark.reports.collect import collect
from benchmark.reports.results import TableResults
from benchmark.runs.files import storing, write_atomically
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState

matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is no formula

MODULES = {
    "bars": "draw_results",
    "critical_difference": "draw_results",
    "curves": "draw_results",
    "forest": "draw_results",
    "heterogeneity": "draw_clients",
    "loss_decomposition": "loss_decomposition",
    "partitions": "draw_clients",
    "resources": "resources",
    "selected_clients": "draw_clients",
    "sensitivity": "draw_clients",
    "sphere": "draw_sphere",
}
"""Kind of drawing -> module of this package, which has a function of its name."""


@dataclass(frozen=True)
class Request:
    """What a drawing may use: its options in the preset, and the cells of its table, whose runs have all ended.

    ``extra``: settings (paths, runtime) for runs of the drawing's own. ``seeds``: the number of seeds that was asked
    for; None: the figure's own.
    """

    spec: FigureSpec
    preset: str
    options: Mapping[str, Any]
    cells: Cells
    index: RunIndex
    extra: Mapping[str, Any]
    seeds: int | None

    def option(self, name: str, default: Any = None) -> Any:
        """One option; `ConfigError` if it is missing and has no default."""
        if name not in self.options and default is None:
            raise self.error(f"options.{name} is missing (conf/figure/).")
        return self.options.get(name, default)

    def error(self, text: str) -> ConfigError:
        """A `ConfigError` about this figure."""
        return ConfigError(f"figure {self.spec.name}: {text}")

    def nothing(self, text: str) -> NothingToDraw:
        """The error that leaves this figure out."""
        return NothingToDraw(f"figure {self.spec.name}: {text}")

    @property
    def runs(self) -> TableSpec:
        """The table whose runs are drawn; `ConfigError` if the figure has none."""
        if self.spec.runs is None:
            raise self.error(f"kind {self.spec.kind} needs a table with runs (conf/figure/).")
        return self.spec.runs

    @property
    def results(self) -> TableResults:
        """What the table of the figure would show."""
        return collect(self.runs, self.preset, self.cells, self.index)

    def done(self, row: Row, column: Column) -> list[RunConfig]:
        """The finished runs of one cell, by seed."""
        runs = self.cells[row.key, column.key].runs
        return [run for run in runs if self.index.state(run.key) is RunState.DONE]

    def finished(self) -> Iterator[tuple[Row, Column, RunConfig]]:
        """All finished runs, row by row."""
        for row in self.runs.rows:
            for column in self.runs.run_columns:
                yield from ((row, column, run) for run in self.done(row, column))

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
        """The numbers of finished runs; `NothingToDraw` if there are none."""
        if not rows:
            raise self.nothing("no run with such numbers is done; nothing to draw.")
        return pd.DataFrame(rows, columns=list(columns))

    def final(self, run: RunConfig, split: str) -> Mapping[str, float]:
        """Metric -> value of a finished run at its last evaluation."""
        result = self.index.result(run.key)
        return {} if result is None else result.final.get(split, {})


@dataclass(frozen=True)
class Drawing:
    """A finished drawing: the figure, the numbers in it in long form, and remarks for its caption."""

    figure: Figure
    data: pd.DataFrame
    remarks: tuple[str, ...] = ()


Kind = Callable[[Request], Drawing]


def find(kind: str) -> Kind:
    """The function that draws a kind of figure; `ConfigError` if there is none."""
    if kind not in MODULES:
        raise ConfigError(wrong("kind", kind, f"one of: {', '.join(MODULES)}", known=MODULES))
    drawing: Kind = getattr(importlib.import_module(f"benchmark.papers.{MODULES[kind]}"), kind)
    return drawing


def panels(
    rows: int, columns: int, width: float = 3.6, height: float = 2.8, heights: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels (inches each), outside pyplot: no display, no global state.

    ``heights``: of the rows, relative to each other.
    """
    with sns.axes_style("whitegrid", {"grid.color": "0.9", "axes.edgecolor": "0.4"}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
    return figure, list(axes.flat)


def write(drawing: Drawing, request: Request, folder: Path, remarks: Sequence[str]) -> Path:
    """Write the files of a figure, with ``remarks`` below its caption; their path without an ending."""
    spec, stem = request.spec, folder / request.spec.name
    lines = [
        f"# {spec.title}",
        f"![{spec.title}]({spec.name}.png)",
        " ".join(spec.caption.split()),
        *drawing.remarks,
    ]
    tuned = {key: cell.chosen for key, cell in request.cells.items() if cell.chosen is not None}
    if tuned:
        lines.append("Hyper-parameters. " + " ".join(notes.tuning_lines(request.runs, tuned)))
    lines += remarks
    if request.preset != "paper":
        lines.append(
            f"Preset {request.preset}: other data or less of them, a smaller model and budget; not the paper's numbers."
        )
    pictures.fit(drawing.figure, pictures.WIDTHS[spec.size])
    with storing(folder):
        pictures.save(drawing.figure, stem)
    data = drawing.data.to_csv(index=False).encode()
    text = "\n\n".join(line for line in lines if line) + "\n"
    write_atomically(stem.with_suffix(".csv"), data, durable=False)
    write_atomically(stem.with_suffix(".md"), text.encode(), durable=False)
    return stem
