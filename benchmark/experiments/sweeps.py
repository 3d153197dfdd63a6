"""A sweep: every combination of values of settings, and as a table a row for each, with its seeds in one cell."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark import code
from benchmark.config.compose import configured, resolve
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, UserError
from benchmark.experiments.parts import Column, Row
from benchmark.experiments.plan import Cells, PlannedCell
from benchmark.experiments.spec import TableSpec
from benchmark.runs.listing import as_text

COLUMN = "result"
METRIC = "accuracy"

Axes = Mapping[str, Sequence[Any]]
"""Dotted key -> its values; a key with several is swept. Keys as of `benchmark.config.compose.configured`."""


@dataclass(frozen=True)
class SweptRun:
    """A run of a sweep. ``values``: what it has of the swept settings, dotted key -> value as a text."""

    values: Mapping[str, str]
    config: RunConfig

    @property
    def row(self) -> str:
        """The swept values without the seed: ``method=fedprox train.lr=0.1``."""
        return _words({key: value for key, value in self.values.items() if key != "seed"}) or "all"

    @property
    def name(self) -> str:
        """The swept values, for messages."""
        return _words(self.values) or self.config.key


def _words(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, and what was swept."""

    axes: Axes
    runs: Sequence[SweptRun]

    @classmethod
    def of(cls, axes: Axes) -> "Sweep":
        """All combinations, in the order of the keys; the last key changes fastest.

        `ConfigError` for an unknown key or name (with the nearest), or a value that is not allowed.
        """
        runs = []
        for point in itertools.product(*axes.values()):
            settings = dict(zip(axes, point, strict=True))
            values = {key: as_text(value) for key, value in settings.items() if len(axes[key]) > 1}
            try:
                runs.append(SweptRun(values, resolve(configured(settings))))
            except UserError as error:
                raise ConfigError(f"{_words(values)}: {error}" if values else str(error)) from error
        return cls(axes, runs)

    @property
    def keys(self) -> list[str]:
        """The swept settings without the seed."""
        return [key for key in self.runs[0].values if key != "seed"]

    @property
    def name(self) -> str:
        """Name of its files: the swept settings, and a digest of what is swept. More seeds do not change it."""
        digest = code.digest({run.row: run.config.hash for run in self.runs})[:8]
        return "-".join([*(key.rpartition(".")[2] for key in self.keys), digest])

    @property
    def numbers(self) -> dict[str, float]:
        """Row -> value of the one swept setting, if its values are numbers; otherwise empty."""
        try:
            (key,) = self.keys
            return {run.row: float(run.values[key]) for run in self.runs}
        except ValueError:
            return {}

    def table(self) -> tuple[TableSpec, Cells]:
        """The table and its runs. Its preset is that of the first run."""
        rows: dict[str, list[SweptRun]] = {}
        for run in self.runs:
            rows.setdefault(run.row, []).append(run)
        preset = self.runs[0].config.preset
        spec = TableSpec(
            name=self.name,
            paper="sweep",
            title=f"Sweep of {', '.join(self.keys) or 'seed'}",
            metric=METRIC,
            presets=(preset,),
            seeds={preset: max(map(len, rows.values()))},
            rows=tuple(
                Row(key=row, label=row, method={"name": str(runs[0].config.method.get("name", "method"))})
                for row, runs in rows.items()
            ),
            columns=(Column(key=COLUMN, label="Test accuracy"),),
        )
        settings = {key: values[0] for key, values in self.axes.items() if len(values) == 1}
        cells = {
            (row, COLUMN): PlannedCell(
                row,
                COLUMN,
                "ok",
                [run.config for run in runs],
                layers={"all runs": settings, "this row": dict(runs[0].values)},
            )
            for row, runs in rows.items()
        }
        return spec, cells
