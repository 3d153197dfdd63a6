"""The stored version of the leaderboard: all its numbers, and the date on which they were put together.

``leaderboard/`` in a results folder holds ``results.csv`` (a line for each run), ``ranks.csv`` (a line for each track
and method), ``curves.csv`` (their means over seeds, round by round), ``tuned.yaml`` (all trials, and what was chosen)
and ``commands.md``. An older version is in the history of the repository.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml

from benchmark.experiments.tuning import TunedTable
from benchmark.paths import ROOT
from benchmark.runs.files import write_with_folder

COMMITTED = ROOT / "results" / "leaderboard"
"""The version that comes with the project."""

TRACKS = {"default": "leaderboard", "tuned": "leaderboard_tuned"}
"""Track -> table. The default track takes the values of conf/method and FedAvg's rate."""

ANCHORS = ("local", "central")
"""Rows that are no federation, and have no rank."""

NUMBERS = ("value", "difference", "cpu_seconds")
"""Columns of ``results.csv`` that may be empty."""


@dataclass(frozen=True)
class Version:
    """The content of the files, and the date."""

    name: str
    runs: pd.DataFrame
    ranks: pd.DataFrame
    curves: pd.DataFrame
    tuned: TunedTable


def newest(results: Path, preset: str) -> Version | None:
    """The version of a preset that is stored here or in the project, the later one of two; None without one."""
    versions = [_read(folder) for folder in (results / "leaderboard", COMMITTED)]
    of_preset = [version for version in versions if version and set(version.runs["preset"]) == {preset}]
    return max(of_preset, key=lambda version: version.name, default=None)


def _read(folder: Path) -> Version | None:
    path = folder / "results.csv"
    if not path.is_file():
        return None
    runs = pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in NUMBERS})
    if "base" not in runs:  # of an earlier protocol, whose numbers do not compare with these
        return None
    ranks, curves = (pd.read_csv(folder / f"{name}.csv") for name in ("ranks", "curves"))
    tuned = TunedTable(**yaml.safe_load((folder / "tuned.yaml").read_text(encoding="utf-8")))
    return Version(max(runs["version"]), runs, ranks, curves, tuned)


def write(folder: Path, version: Version, preset: str) -> None:
    """Write a version in place of an older one. Its runs of no older version get its date."""
    runs = version.runs.assign(
        version=version.runs["version"].where(version.runs["version"] != "", version.name)
    )
    own = runs[runs["version"] == version.name]
    made = [f"{what}: {'; '.join(sorted(set(own[what]) - {''}))}." for what in ("commit", "processor")]
    older = sorted(set(runs["version"]) - {version.name})
    made += [f"Cells of older versions: {', '.join(older)}."] if older else []
    freeze = f"python -m benchmark table name=leaderboard_tuned preset={preset} freeze={version.name}"
    commands = ["```", f"make leaderboard PRESET={preset}", freeze, "```", ""]
    files = {
        "ranks.csv": version.ranks.round(6).to_csv(index=False),
        "curves.csv": version.curves.round(6).to_csv(index=False),
        "tuned.yaml": yaml.safe_dump(
            version.tuned.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120
        ),
        "commands.md": "\n".join([f"# Leaderboard of {version.name}", "", *made, "", *commands]),
        "results.csv": runs.to_csv(index=False),
    }
    for name, content in files.items():
        write_with_folder(folder / name, content.encode())
