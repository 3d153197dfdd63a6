"""A sweep as a table: a row for each combination of the swept settings, with its seeds in one cell."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmark.config.merge import Settings
from benchmark.config.schema import RunConfig
from benchmark.experiments.plan import Cells, PlannedCell
from benchmark.experiments.spec import Column, Row, TableSpec

COLUMN = "result"
METRIC = "accuracy"


@dataclass(frozen=True)
class SweptRun:
    """A run of a sweep.

    ``values``: what it has of the swept settings, dotted key -> value as a text. ``plain``: its composed configuration,
    whose values know what set them.
    """

    values: Mapping[str, str]
    config: RunConfig
    plain: Settings

    @property
    def row(self) -> str:
        """The swept values without the seed: ``method=fedprox train.lr=0.1``."""
        return " ".join(f"{key}={value}" for key, value in self.values.items() if key != "seed") or "all"

    @property
    def name(self) -> str:
        """The swept values, for messages."""
        return " ".join(f"{key}={value}" for key, value in self.values.items()) or self.config.key


@dataclass(frozen=True)
class Sweep:
    """The runs of ``run -m``."""

    runs: Sequence[SweptRun]

    @property
    def keys(self) -> list[str]:
        """The swept settings without the seed."""
        return [key for key in self.runs[0].values if key != "seed"]

    @property
    def name(self) -> str:
        """Name of its files: the swept settings, and a digest of what is swept. More seeds do not change it."""
        rows = {run.row: run.config.hash for run in self.runs}
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:8]
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
        cells = {
            (row, COLUMN): PlannedCell(row, COLUMN, "ok", [run.config for run in runs], plain=runs[0].plain)
            for row, runs in rows.items()
        }
        return spec, cells
