"""Options of commands: what the words of the command line set, and which words are refused."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from benchmark.cli.launching import run_settings
from benchmark.cli.options import LauncherOptions, LaunchOptions, group_settings, parse
from benchmark.errors import ConfigError
from benchmark.experiments.selection import RunQuery
from benchmark.runs.folder import ResultsFolder


class Some(LauncherOptions, RunQuery):
    """Options of a test."""

    share: float = Field(0.1, description="what is held out")
    kind: Literal["bubble", "bars"] = "bubble"
    out: Path | None = Field(None, title="FILE.png")
    watch: bool = False
    hidden: str | None = Field(None, exclude=True)


def test_values_have_the_types_of_the_fields() -> None:
    words = (
        "preset=small seeds=3 share=0.5 results=a kind=bars out=b.png launcher=slurm launcher.time=7 --watch"
    )
    launcher = {"launcher": "slurm", "launcher_settings": {"time": 7}}
    expected = Some(
        preset="small", seeds=3, share=0.5, results="a", kind="bars", out="b.png", watch=True, **launcher
    )
    assert parse(words.split(), "some", Some) == expected
    assert parse(["seeds="], "some", Some) == Some(), "a variable of make that is not set"


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
        parse(words.split(), "some", Some)


@pytest.mark.parametrize(("words", "graphs"), [([], False), (["cuda_graphs=true"], True)])
def test_runtime_of_runs(tmp_path: Path, words: list[str], graphs: bool) -> None:
    options = parse([*words, "threads=2", "device=cuda"], "some", LaunchOptions)
    runtime = run_settings(ResultsFolder(tmp_path), options)["runtime"]
    assert runtime == {"threads": 2, "device": "cuda", "stale": "rerun", "cuda_graphs": graphs}


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
