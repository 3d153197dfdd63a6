"""The numbers that the papers print, and those of others who repeated them, read from ``results/published``."""

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pandas as pd

from benchmark.errors import ConfigError
from benchmark.experiments.spec import TableSpec
from benchmark.paths import published_file
from benchmark.reports.statistics import Difference, Summary, welch


@dataclass(frozen=True)
class Published:
    """One printed cell. ``mean`` and ``std`` are as printed, trailing zeros kept; empty where nothing is printed.

    ``seeds``: the value of each seed with ``;`` between them; empty where they are not given.
    """

    mean: str = ""
    std: str = ""
    n: str = ""
    note: str = ""
    seeds: str = ""

    @property
    def value(self) -> float | None:
        return float(self.mean) if self.mean else None

    @property
    def summary(self) -> Summary | None:
        """The printed mean, and its SD where the paper prints one with the number of runs."""
        if not self.mean:
            return None
        n = int(self.n or 0)
        return Summary(float(self.mean), float(self.std) if self.std and n > 1 else None, n)

    @property
    def values(self) -> dict[int, float]:
        """The values by the place of their seed."""
        return dict(enumerate(map(float, filter(None, self.seeds.split(";")))))

    @property
    def text(self) -> str:
        """``67.29`` or ``86.27 ± 1.12``; ``N/A`` where the paper prints no number."""
        if not self.mean:
            return "N/A"
        return f"{self.mean} ± {self.std}" if self.std else self.mean


def printed_difference(first: Published | None, second: Published | None) -> Difference | None:
    """The first printed mean minus the second, with Welch's interval if both have an SD; None without both."""
    if not (first and second and first.summary and second.summary):
        return None
    found = welch(first.summary, second.summary)
    return replace(found, mean=round(found.mean, 6))  # 94.01 - 92.00 is 2.01


@lru_cache(maxsize=64)
def read_published(path: Path) -> pd.DataFrame:
    """One CSV with every entry a string, so that nothing is rounded. `ConfigError` if it cannot be read."""
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"published: numbers {path} cannot be read: {error}.") from error


def published_cells(
    spec: TableSpec, folder: Path | None = None, reproduced: bool = False
) -> dict[tuple[str, str], Published]:
    """The printed cells of a table by (row, column), or those that others measured.

    `ConfigError` if a cell fits more than one line of the CSV.
    """
    files = spec.reproductions if reproduced else spec.published
    frames = [read_published(folder / name if folder else published_file(name)) for name in files]
    metric = spec.published_metric or spec.metric
    lines = [line for frame in frames for line in frame[frame["metric"] == metric].to_dict("records")]
    cells = {}
    for row, column in itertools.product(spec.rows, spec.columns):
        key = {"setting": column.key, **row.published_key}
        matching = [line for line in lines if key.items() <= line.items()]
        if len(matching) > 1:
            where = f"{len(matching)} lines of {', '.join(files)}"
            raise ConfigError(f"table {spec.name}, rows.{row.key}.published: {key} fits {where}.")
        for line in matching if not spec.is_changed(row, column) else ():
            cells[row.key, column.key] = Published(
                line["mean"], line["std"], line["n_seeds"], line["note"], line.get("seeds", "")
            )
    return cells
