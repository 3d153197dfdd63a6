"""``python -m benchmark runs``: found by any setting, as a table or CSV, and moved away."""

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import FAKE_RUN


@pytest.fixture
def four(cli: Any) -> list[str]:
    """Two methods with two seeds, one run of which has failed."""
    assert cli("run", "-m", *FAKE_RUN[1:], "method=fedavg,fedprox", "seed=0,1", "launcher=inline").code == 0
    return sorted("/".join(path.parts[-2:]) for path in Path("results/runs").glob("*/seed*"))


def listed(cli: Any, *words: str) -> pd.DataFrame:
    code, out, err = cli("runs", *words, "format=csv")
    assert (code, err) == (0, "")
    return pd.read_csv(io.StringIO(out)) if out.strip() else pd.DataFrame()


def test_runs_are_found_by_any_setting(cli: Any, four: list[str]) -> None:
    whole = listed(cli)
    assert sorted(path.removeprefix("results/runs/") for path in whole["folder"]) == four
    assert set(whole["method"]) == {"fedavg", "fedprox"} and set(whole["state"]) == {"done"}
    for words, number in (
        (["method=fedavg"], 2),
        (["method=fed*", "seed=1"], 2),
        (["seed=0,1", "method=fedprox"], 2),
        (["method.client.fedprox.mu=*"], 2),
        (["state=failed"], 0),
    ):
        assert len(listed(cli, *words)) == number, words
    assert cli("runs", "results=nothere").out == "0 runs in nothere\n"
    code, out, _ = cli("runs", "method=fedprox", "seed=1")
    assert code == 0 and out.endswith("1 runs\n") and "done" in out


def test_a_line_for_each_run_cut_at_the_width(
    cli: Any, four: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two settings that differ and are no lists; columns= chooses others, which need not differ."""
    monkeypatch.setattr("benchmark.reports.render.console.WIDTH", 120)
    head, *lines, last = cli("runs").out.splitlines()
    assert head.split()[:3] == ["method", "seed", "state"] and last == "4 runs"
    assert (
        len(lines) == 4 and {len(line) for line in lines} == {120} and all(line[-1] == "…" for line in lines)
    )
    chosen = cli("runs", "columns=train.rounds,seed").out.splitlines()
    assert chosen[0].split() == ["train.rounds", "seed", "run"]
    assert list(listed(cli, "columns=train.rounds")["train.rounds"]) == [2, 2, 2, 2]


def test_what_is_deleted_is_moved_and_named(cli: Any, four: list[str]) -> None:
    gone = [key for key in four if "fedprox" in key]
    code, out, _ = cli("runs", "method=fedprox", "--delete")
    assert code == 0
    for key in gone:
        run = Path("results/runs", key)
        place = run.with_name(f".{run.name}.old-1")
        assert f"moved: {key} -> {place}" in out and (place / "result.json").is_file()
        assert not run.exists()
    assert "2 runs moved, which frees no disk space; to free it: python -m benchmark runs --purge\n" in out
    assert len(listed(cli)) == 2
    damaged = next(Path("results/runs").glob("*/seed*/result.json"))
    damaged.write_text("{")
    launch = Path("results/launches/ended")
    launch.mkdir(parents=True)
    (launch / "plan.json").write_text(
        json.dumps({"code": "x", "keys": gone, "runs": ["of an earlier version"]})
    )
    code, out, _ = cli("runs", "--purge")
    assert code == 0 and "3 folders removed" in out and not list(Path("results/runs").glob("*/.seed*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["metod=fedavg"], "unknown key 'metod'; .*Did you mean 'method'"),
        (["--delete"], "--delete needs a condition"),
        (["method"], "method has no value; expected KEY=VALUE"),
        (["seed=0", "seed=1"], "seed is given twice"),
        (["columns=metod"], "columns: 'metod' matches none of .*Did you mean 'method'"),
        (["format=xml"], "format: got 'xml'"),
    ],
)
def test_mistakes(refusal: Any, four: list[str], words: list[str], said: str) -> None:
    refusal(["runs", *words], said)
    assert len(list(Path("results/runs").glob("*/seed*"))) == len(four)


def test_a_damaged_configuration_is_named_and_left_out(cli: Any, four: list[str]) -> None:
    Path("results/runs", four[0], "config.yaml").write_text("train: 1\n")
    code, out, err = cli("runs")
    assert code == 0 and out.endswith("3 runs\n")
    assert err.count("warning: left out: ") == 1 and four[0] in err
