"""What the functions of `benchmark.api` return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import ConfigError
from benchmark.runs.listing import Run
from benchmark.runs.status import RunState

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.reports.results import TableResults
    from benchmark.reports.tables import Table as PrintedTable

DIFFERENCE = ["base", "difference", "difference_low", "difference_high", "difference_n"]

LINES = 60
"""Lines of a log that the error of a failed run shows."""


class RunFailed(RuntimeError):
    """A run ended with an error. The message has the last lines of its log; ``runs`` are all runs of the call."""

    def __init__(self, message: str, runs: Runs) -> None:
        super().__init__(message)
        self.runs = runs


class Runs(list[Run]):
    """Runs of one results folder.

    Attributes:
        table: Those of a sweep as a table.
        files: Where it was written.
        problems: Runs that were left out because they are damaged, one sentence each.
        failed: Whether some of a sweep have not ended.
    """

    table: PrintedTable | None = None
    files = ""
    problems: tuple[str, ...] = ()
    failed = False

    def frame(self) -> pd.DataFrame:
        """One row for each run: the settings that differ, state, last round, final metrics, seconds, folder."""
        from benchmark.reports.runs import run_frame

        return run_frame(self)


@dataclass(frozen=True)
class Table:
    """A table that was written.

    Attributes:
        printed: What its files show.
        measured: Its cells with their runs; None if an analysis made it.
    """

    printed: PrintedTable
    measured: TableResults | None = None

    @property
    def name(self) -> str:
        """Stem of its files."""
        return self.printed.name

    @property
    def results(self) -> TableResults:
        """Its cells with their runs. `UserError` if an analysis made it, which has none."""
        if self.measured is None:
            raise ConfigError(
                f"table {self.name}: an analysis makes it; expected frame(), as it has no cells."
            )
        return self.measured

    def frame(self) -> pd.DataFrame:
        """One row for each cell: row, column, mean, std, n, published, state; in the unit that the table prints.

        With ``show="difference"`` also the base row, the difference from it, its 95 % interval (difference_low,
        difference_high) and the number of pairs of runs (difference_n).

        Of a table that an analysis makes: the content of its CSV.
        """
        import pandas as pd

        if self.measured is None:
            assert self.printed.data is not None
            return self.printed.data
        frame = pd.DataFrame(
            {
                "row": cell.row.key,
                "column": cell.column.key,
                "mean": cell.summary.mean if cell.summary else None,
                "std": cell.summary.std if cell.summary else None,
                "n": len(cell.values),
                "published": cell.published_value,
                "state": cell.state,
            }
            for cell in self.measured.cells.values()
        )
        if self.printed.show != "difference":
            return frame
        differences = self.printed.data.set_index(["row", "column"])[DIFFERENCE].replace("", None)
        return frame.join(differences, on=["row", "column"])

    def wide(self, labels: bool = False) -> pd.DataFrame:
        """The means, with the table's rows and columns by their keys, as in `frame`, or by their ``labels``."""
        spec = self.results.spec
        wide = self.frame().pivot(index="row", columns="column", values="mean")
        wide = wide.loc[[row.key for row in spec.rows], [column.key for column in spec.columns]]
        rows, columns = ({part.key: part.label for part in parts} for parts in (spec.rows, spec.columns))
        return wide.rename(index=rows, columns=columns) if labels else wide


class Files(list[Path]):
    """Files that were written. ``failed``: not all of them, as a run failed or a cell has no choice."""

    failed = False


class Tables(list[Table]):
    """The tables of one call. ``failed``: a run failed, so that cells are missing."""

    failed = False

    def frame(self) -> pd.DataFrame:
        """`Table.frame` of the first table."""
        return self[0].frame()

    def wide(self, labels: bool = False) -> pd.DataFrame:
        """`Table.wide` of the first table."""
        return self[0].wide(labels)


def require_ended(runs: Runs) -> Runs:
    """The runs; `RunFailed` for the first that failed."""
    for one in runs:
        if one.state is RunState.FAILED:
            message, folder = one.files.last_failure() or ("", one.folder)
            log = folder / "log.txt"
            lines = log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []
            raise RunFailed("\n".join([f"{one.key}: {message}", f"The end of {log}:", *lines]), runs)
    return runs
