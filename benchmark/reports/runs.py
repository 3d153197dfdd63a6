"""Runs as a table of pandas, one row for each."""

from collections.abc import Sequence

import pandas as pd

from benchmark.runs.listing import Run, as_text, differing


def run_frame(runs: Sequence[Run], keys: Sequence[str] | None = None) -> pd.DataFrame:
    """One row for each run: the settings ``keys``, by default those that differ, then what became of it.

    ``state``; ``round``, the last one; ``test.accuracy`` and the like, of the last evaluation, as recorded (fractions);
    ``seconds`` of training; ``folder``.
    """
    keys = differing(runs) if keys is None else keys
    rows = []
    for run in runs:
        settings, result = run.settings, run.result
        row = {key: settings.get(key) for key in keys}
        row = {key: as_text(value) if isinstance(value, list | dict) else value for key, value in row.items()}
        row |= {"state": str(run.state), "round": result.round if result else 0}
        final = result.final if result else {}
        row |= {f"{split}.{metric}": value for split, of in final.items() for metric, value in of.items()}
        rows.append(row | {"seconds": result.seconds if result else 0.0, "folder": str(run.folder)})
    frame = pd.DataFrame(rows)
    last = [column for column in ("seconds", "folder") if column in frame]
    return frame[[*(column for column in frame if column not in last), *last]]
