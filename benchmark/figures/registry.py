"""Finds drawings by kind: every module of this package registers its own by decorator."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import benchmark.figures
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, nearest
from benchmark.experiments.plan import Cells
from benchmark.experiments.spec import TableSpec
from benchmark.figures.spec import FigureSpec
from benchmark.runs.store import Results


@dataclass(frozen=True)
class Request:
    """What a drawing may use.

    ``options`` are those of the preset; ``table`` and ``cells`` the runs, all ended when the drawing is asked for (a
    cell's ``runs`` are empty where a part of it does not exist yet); ``extra`` settings for runs of the drawing's own
    (paths, runtime); ``seeds`` how many seeds were asked for, None for the figure's own number.
    """

    spec: FigureSpec
    preset: str
    options: Mapping[str, Any]
    table: TableSpec | None
    cells: Cells
    results: Results
    extra: Mapping[str, Any]
    seeds: int | None

    def option(self, name: str, default: Any = None) -> Any:
        """One option; `ConfigError` if it is missing and has no default."""
        if name not in self.options and default is None:
            raise ConfigError(f"figure {self.spec.name}: options.{name} is missing (conf/figure/).")
        return self.options.get(name, default)


@dataclass(frozen=True)
class Drawing:
    """A finished drawing: the figure, the numbers in it in long form, and remarks for its caption."""

    figure: Figure
    data: pd.DataFrame
    remarks: tuple[str, ...] = field(default_factory=tuple)


Kind = Callable[[Request], Drawing]
_kinds: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    """Register a drawing under ``name``."""

    def decorate(function: Kind) -> Kind:
        if name in _kinds:
            raise RuntimeError(f"two kinds of figures are called {name!r}")
        _kinds[name] = function
        return function

    return decorate


def find(name: str) -> Kind:
    """The drawing called ``name``; `ConfigError` if there is none."""
    for module in pkgutil.iter_modules(benchmark.figures.__path__, "benchmark.figures."):
        importlib.import_module(module.name)
    if name not in _kinds:
        raise ConfigError(
            f"kind: no kind of figure is called {name!r}.{nearest(name, _kinds)} Known: {', '.join(sorted(_kinds))}."
        )
    return _kinds[name]


def done_runs(request: Request, row: str, column: str) -> list[RunConfig]:
    """The finished runs of one cell, by seed."""
    cell = request.cells[row, column]
    found = []
    for run in cell.runs:
        status = request.results.run(run.key).status()
        if status is not None and status.state == "done":
            found.append(run)
    return found
