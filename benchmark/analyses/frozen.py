"""Versions of the leaderboard: folders named after a date, with all numbers, written once.

``leaderboard/DATE/`` in a results folder holds ``results.csv`` (a line for each run), ``ranks.csv`` (a line for each
track and method), ``tuned.yaml`` (all trials, and what was chosen) and ``commands.md``. ``leaderboard/README.md`` lists
the versions.
"""

from datetime import date
from pathlib import Path

import pandas as pd
import yaml

from benchmark.errors import ConfigError, wrong
from benchmark.experiments.tuning import TunedTable
from benchmark.paths import ROOT
from benchmark.reports.render.csv import to_csv
from benchmark.runs.files import write_with_folder

COMMITTED = ROOT / "results" / "leaderboard"
"""Versions that come with the project."""

HEAD = (
    "# Versions of the leaderboard\n\nWritten by `python -m benchmark analyse leaderboard freeze=DATE`.\n\n"
)


def newest(results: Path, preset: str) -> tuple[pd.DataFrame, TunedTable] | None:
    """Runs and tuned values of the newest version of a preset, here or in the project; None without one."""
    paths = [path for folder in (results / "leaderboard", COMMITTED) for path in folder.glob("*/results.csv")]
    for path in sorted(paths, key=lambda path: path.parent.name, reverse=True):
        runs = pd.read_csv(path, keep_default_na=False, na_values={"value": [""], "difference": [""]})
        if set(runs["preset"]) == {preset}:
            return runs, TunedTable(**yaml.safe_load((path.parent / "tuned.yaml").read_text()))
    return None


def require_new(results: Path, day: date) -> Path:
    """The folder of a version; `ConfigError` if it exists."""
    folder = results / "leaderboard" / str(day)
    if folder.exists():
        raise ConfigError(
            wrong("freeze", str(day), f"a date without a version; {folder} exists and is never changed")
        )
    return folder


def write(folder: Path, runs: pd.DataFrame, ranks: pd.DataFrame, tuned: TunedTable, preset: str) -> None:
    """Write a version, and the index of all versions. ``runs`` of no older version get this one's date."""
    runs = runs.assign(version=runs["version"].where(runs["version"] != "", folder.name))
    own = runs[runs["version"] == folder.name]
    made = [f"{what}: {'; '.join(sorted(set(own[what]) - {''}))}." for what in ("commit", "processor")]
    older = sorted(set(runs["version"]) - {folder.name})
    made += [f"Cells of older versions: {', '.join(older)}."] if older else []
    commands = [f"make leaderboard PRESET={preset}"]
    commands.append(f"python -m benchmark analyse leaderboard preset={preset} freeze={folder.name}")
    text = "\n".join([f"# Leaderboard of {folder.name}", "", *made, "", "```", *commands, "```", ""])
    files = {
        "ranks.csv": to_csv(ranks, index=False),
        "tuned.yaml": yaml.safe_dump(
            tuned.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120
        ),
        "commands.md": text,
        "results.csv": to_csv(runs, index=False),
    }
    for name, content in files.items():
        write_with_folder(folder / name, content.encode())
    lines = ["| version | preset | methods | data sets | runs | commit |", "|---|---|---|---|---|---|"]
    for path in sorted(folder.parent.glob("*/results.csv"), reverse=True):
        table = pd.read_csv(path, keep_default_na=False)
        counts = [table[what].nunique() for what in ("row", "data")]
        words = [
            f"[{path.parent.name}]({path.parent.name}/commands.md)",
            table["preset"][0],
            *counts,
            len(table),
        ]
        lines.append(f"| {' | '.join(map(str, words))} | {', '.join(sorted(set(table['commit'])))} |")
    write_with_folder(folder.parent / "README.md", (HEAD + "\n".join(lines) + "\n").encode())
