"""Options of commands: what the words of the command line set, and which words are refused."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from benchmark.cli.options import parse
from benchmark.commands.options import LaunchOptions, checked, group_settings
from benchmark.errors import ConfigError
from benchmark.experiments.selection import RunQuery


class Some(LaunchOptions, RunQuery):
    """Options of a test."""

    share: float = Field(0.1, description="what is held out")
    kind: Literal["bubble", "bars"] = "bubble"
    out: Path | None = Field(None, title="FILE.png")
    watch: bool = False
    hidden: str | None = Field(None, exclude=True)


def test_values_have_the_types_of_the_fields() -> None:
    words = "preset=small seeds=3 share=0.5 kind=bars out=b.png launcher=inline launcher.grace=7 --watch"
    given = checked(Some, parse(words.split(), "some", Some))
    assert (given.preset, given.seeds, given.share, given.kind, given.out) == (
        "small",
        3,
        0.5,
        "bars",
        Path("b.png"),
    )
    assert (given.launcher, given.launcher_settings, given.watch) == ("inline", {"grace": 7}, True)
    assert parse(["seeds="], "some", Some) == {}, "a variable of make that is not set"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hidden=a", r"some: got 'hidden=a'"),
        ("kind=pie", r"kind: got 'pie'; expected 'bubble' or 'bars'"),
        ("share=x", r"share: got 'x'; expected a valid number"),
    ],
)
def test_words_that_are_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(Some, parse(words.split(), "some", Some))


def test_help(capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--help"], "some", Some)
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert lines[lines.index("  share=number") + 1] == "      what is held out; default: 0.1"
    for line in ("  preset=quick|small|paper", "  kind=bubble|bars", "  out=FILE.png", "  --watch"):
        assert line in lines


def test_settings_on_top_of_a_file() -> None:
    settings = group_settings("launcher", "slurm_cpu", {"partition": "a", "time": 7})
    assert (settings["name"], settings["partition"], settings["time"]) == ("slurm", "a", 7)
    assert settings["workers"] == 16, "conf/launcher/slurm_cpu.yaml"
