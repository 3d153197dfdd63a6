"""The command line in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmark.__main__ import main


class Answer(NamedTuple):
    """What a command gave back."""

    code: int | str | None
    out: str
    err: str


Cli = Callable[..., Answer]


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
