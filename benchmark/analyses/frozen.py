"""Versions of the leaderboard: folders named after a date, with all numbers, written once.

``leaderboard/DATE/`` in a results folder holds ``results.csv`` (a line for each run), ``ranks.csv`` (a line for each
track and method), ``curves.csv`` (their means over seeds, round by round), ``tuned.yaml`` (all trials, and what was
chosen) and ``commands.md``. ``leaderboard/README.md`` lists the versions.
"""

from dataclasses import dataclass
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

TRACKS = {"default": "leaderboard", "tuned": "leaderboard_tuned"}
"""Track -> table. The default track takes the values of conf/method and FedAvg's rate."""

NUMBERS = ("value", "difference", "cpu_seconds")
"""Columns of ``results.csv`` that may be empty."""

HEAD = (
    "# Versions of the leaderboard\n\nWritten by `python -m benchmark analyse leaderboard freeze=DATE`.\n\n"
)


@dataclass(frozen=True)
class Version:
    """The content of the files, and the date."""

    name: str
    runs: pd.DataFrame
    ranks: pd.DataFrame
    curves: pd.DataFrame
    tuned: TunedTable


def newest(results: Path, preset: str) -> Version | None:
    """The newest version of a preset, here or in the project; None without one."""
    paths = [path for folder in (results / "leaderboard", COMMITTED) for path in folder.glob("*/results.csv")]
    for path in sorted(paths, key=lambda path: path.parent.name, reverse=True):
        runs = pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in NUMBERS})
        if set(runs["preset"]) == {preset}:
            ranks, curves = (pd.read_csv(path.with_name(f"{name}.csv")) for name in ("ranks", "curves"))
            tuned = TunedTable(**yaml.safe_load(path.with_name("tuned.yaml").read_text(encoding="utf-8")))
            return Version(path.parent.name, runs, ranks, curves, tuned)
    return None


def require_new(results: Path, name: str) -> Path:
    """The folder of a version; `ConfigError` if it exists."""
    folder = results / "leaderboard" / name
    if folder.exists():
        raise ConfigError(
            wrong("freeze", name, f"a date without a version; {folder} exists and is never changed")
        )
    return folder


def write(folder: Path, version: Version, preset: str) -> None:
    """Write a version, and the index of all versions. Its runs of no older version get its date."""
    runs = version.runs.assign(
        version=version.runs["version"].where(version.runs["version"] != "", folder.name)
    )
    own = runs[runs["version"] == folder.name]
    made = [f"{what}: {'; '.join(sorted(set(own[what]) - {''}))}." for what in ("commit", "processor")]
    older = sorted(set(runs["version"]) - {folder.name})
    made += [f"Cells of older versions: {', '.join(older)}."] if older else []
    commands = [f"make leaderboard PRESET={preset}"]
    commands.append(f"python -m benchmark analyse leaderboard preset={preset} freeze={folder.name}")
    text = "\n".join([f"# Leaderboard of {folder.name}", "", *made, "", "```", *commands, "```", ""])
    files = {
        "ranks.csv": to_csv(version.ranks.round(6), index=False),
        "curves.csv": to_csv(version.curves.round(6), index=False),
        "tuned.yaml": yaml.safe_dump(
            version.tuned.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120
        ),
        "commands.md": text,
        "results.csv": to_csv(runs.round(6), index=False),
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
