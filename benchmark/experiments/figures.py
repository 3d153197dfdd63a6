"""A figure as data: which kind of drawing, with which options, of which runs."""

from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from benchmark.config.files import FileModel, read_yaml
from benchmark.config.merge import merge
from benchmark.errors import ConfigError, usable, validate, wrong
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tables import extend, spec_called
from benchmark.paths import CONF, conf_file, conf_files

FIGURE_FOLDER = CONF / "figure"
"""The figures of this checkout."""


class FigureSpec(FileModel):
    """One figure, which draws finished runs, or what an analysis computes."""

    name: str
    paper: str = Field(description="short name of the paper")
    figure: PositiveInt = Field(description="number in the paper")
    title: str = Field(description="heading of the figure")
    caption: str = Field("", description="what is shown; the preset is added to it")
    kind: str = Field(description="name of a drawing (`MODULES` in `benchmark/papers/figures.py`)")
    options: dict[str, Any] = Field({}, description="what the drawing takes, in all presets")
    presets: dict[str, dict[str, Any] | None] = Field(
        min_length=1,
        description="presets that the figure has, each with options on top of `options`, or `{}`",
    )
    table: str | dict[str, Any] | None = Field(
        None,
        title="NAME, mapping or null",
        description="where the runs come from: the name of a table file or the content of one, without `paper` and "
        "`title`; null for a drawing that needs no runs",
    )
    rows: tuple[str, ...] = Field((), description="keys of the table's rows to show; if left out: all")
    columns: tuple[str, ...] = Field((), description="keys of the table's columns to show; if left out: all")
    size: Literal["one", "two"] = Field(
        "two", description="width: one column of a two-column page (84 mm) or both (176 mm)"
    )

    def settings(self, preset: str) -> dict[str, Any]:
        """Options in ``preset``; `ConfigError` if the figure has no such preset."""
        if preset not in self.presets:
            expected = f"one of {', '.join(self.presets)} (conf/figure/)"
            raise ConfigError(f"figure {self.name}: {wrong('preset', preset, expected, known=self.presets)}")
        return merge(self.options, self.presets[preset] or {})

    @cached_property
    def whole(self) -> TableSpec | None:
        """The table whose runs are drawn, with all its rows and columns."""
        if self.table is None:
            return None
        if isinstance(self.table, str):
            return spec_called(self.table, f"figure {self.name}: table")
        named = {"name": self.name, "paper": self.paper, "title": self.title}
        try:
            whole = extend(self.table) | named
        except ConfigError as error:
            raise ConfigError(f"figure {self.name}: table.{error}") from error
        return validate(TableSpec, whole, "table.", "table", before=f"figure {self.name}: ")

    @cached_property
    def runs(self) -> TableSpec | None:
        """The table whose runs are drawn, cut to the rows and columns of the figure."""
        spec = self.whole
        if spec is None:
            return None
        columns = self.columns or [column.key for column in spec.run_columns]
        return spec.cut(self.rows or [row.key for row in spec.rows], columns)


def load_figure(path: Path) -> FigureSpec:
    """Read one figure file; `ConfigError`, naming file and key, for one that does not fit."""
    values = read_yaml(path, "figure") | {"name": path.stem}
    return validate(FigureSpec, values, whole="figure", before=f"figure file {path}: ")


def find_figures(paper: str | None = None, figure: int | None = None) -> list[FigureSpec]:
    """All figures, or those of one paper, or with one number, by name; `ConfigError` if none fits.

    A broken file is left out with a warning, unless its name says that it is asked for.
    """
    asked = f"{paper or '*'}_{f'figure{figure}' if figure else '*'}" if paper or figure else ""
    files = conf_files("figure")

    def load(name: str) -> FigureSpec:
        return load_figure(conf_file("figure", name) or files[name])

    specs = usable(files, load, lambda name: fnmatchcase(name, asked))
    matches = [spec for spec in specs if paper in (None, spec.paper) and figure in (None, spec.figure)]
    if not matches:
        there = ", ".join(spec.name for spec in specs) or "none"
        raise ConfigError(
            f"no figure {figure or ''} of {paper or 'any paper'} in conf/figure. There is: {there}."
        )
    return matches
