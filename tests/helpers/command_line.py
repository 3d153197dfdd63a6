"""The command line in the process of the tests."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_runs import FAKE

from benchmark import paths
from benchmark.__main__ import main
from benchmark.cli.grammar import settings_of
from benchmark.config.compose import configured, resolve
from benchmark.config.schema import RunConfig
from benchmark.runs.status import RunState


class Answer(NamedTuple):
    """What a command gave back."""

    code: int | str | None
    out: str
    err: str


Cli = Callable[..., Answer]

FAKE_RUN = (
    "run",
    "dataset=fake",
    *(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items()),
    "partition=iid",
    "partition.clients=4",
    "train.rounds=2",
    "train.batch_size=8",
)
"""A run that takes a second."""


def own_conf(place: Path, monkeypatch: pytest.MonkeyPatch, *groups: str) -> Path:
    """``place``/conf, which is read instead of conf/: empty in these ``groups``, the same files in the others."""
    folder = place / "conf"
    for path in paths.CONF.iterdir():
        if path.name in groups:
            (folder / path.name).mkdir(parents=True)
        elif path.is_dir():
            folder.mkdir(exist_ok=True)
            (folder / path.name).symlink_to(path)
    monkeypatch.setattr(paths, "CONF_FOLDERS", [folder])
    # Methods name tables in which they want a row, and these are not there.
    monkeypatch.setattr("benchmark.experiments.tables._with_guests", list)
    return folder


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """``cli("run", "method=fedprox")`` as ``python -m benchmark run method=fedprox`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["benchmark"])
        capsys.readouterr()
        try:
            code: int | str | None = main(words)
        except SystemExit as end:
            code = end.code
        return Answer(code, *capsys.readouterr())

    return call


def configuration(words: Sequence[str]) -> RunConfig:
    """The configuration of ``python -m benchmark run WORDS``."""
    return resolve(configured(settings_of(words)))


def footprint(folder: Path) -> dict[str, tuple[int, int, int]]:
    """(inode, size, time of last change) of every file below ``folder``."""
    stats = {
        str(path.relative_to(folder)): path.stat() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def numbers(out: str, table: str = "toy_table1") -> dict[str, int]:
    """What ``status`` says of a table, without what is 0: {done: 4, missing: 2}."""
    states = [str(state) for state in RunState]
    (line,) = (line for line in out.splitlines() if f" {table} " in line)
    cells = [cell.strip() for cell in line.split("│")[2:-1]]
    return {state: int(cell) for state, cell in zip(states, cells, strict=False) if int(cell)}
