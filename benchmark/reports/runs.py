"""Runs as a table of pandas: one row for each, and what they recorded."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmark.engine.records import Record
from benchmark.runs.listing import ListedRun, as_text, differing


def run_frame(runs: Sequence[ListedRun], results: Path) -> pd.DataFrame:
    """One row for each run: the settings that differ among the runs, then what became of it.

    ``state``; ``round``, the last one; ``test.accuracy`` and the like, of the last evaluation, as recorded (fractions);
    ``seconds`` of training; ``folder``.
    """
    keys = differing(runs)
    rows = []
    for run in runs:
        settings, result = run.settings, run.result
        row = {key: settings.get(key) for key in keys}
        row = {key: as_text(value) if isinstance(value, list | dict) else value for key, value in row.items()}
        row |= {"state": str(run.state), "round": result.round if result else 0}
        final = result.final if result else {}
        row |= {f"{split}.{metric}": value for split, of in final.items() for metric, value in of.items()}
        rows.append(
            row | {"seconds": result.seconds if result else 0.0, "folder": str(results / "runs" / run.key)}
        )
    frame = pd.DataFrame(rows)
    last = [column for column in ("seconds", "folder") if column in frame]
    return frame[[*(column for column in frame if column not in last), *last]]


def record_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each value that a run recorded: round, split, group, metric, value (accuracies are fractions)."""
    return pd.DataFrame(records, columns=Record._fields)
