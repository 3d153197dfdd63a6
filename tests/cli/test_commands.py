"""Every command on its way from words to files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tiny_runs import FAKE

from benchmark.config.compose import group_names
from benchmark.experiments.tables import find_specs

RUN = (
    "run",
    "dataset=fake",
    *(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items()),
    "partition=iid",
    "partition.clients=4",
    "train.rounds=2",
    "train.batch_size=8",
)


def statuses(results: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(results.glob("runs/*/*/status.json"))]


# What there is -----------------------------------------------------------------------------------------------------


def test_list(cli: Any) -> None:
    code, out, err = cli("list", "selections")
    assert (code, err) == (0, "")
    assert " round_robin " in out and "fedavg" not in out
    code, out, err = cli("list")
    assert (code, err) == (0, "")
    names = {
        name
        for group in ("method", "dataset", "partition", "selection", "model")
        for name in group_names(group)
    }
    names |= {spec.name for spec in find_specs()}
    names |= {"client: fedprox", "optimizer: momentum", "selection: round_robin", "weights: uniform"}
    assert {name for name in names if f" {name} " not in out} == set()
    for title in ("methods", "datasets", "partitions", "selections", "tables", "models", "rules"):
        assert f"{title}\n" in out.replace(" ", "")


def test_usage(cli: Any) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("run", "table", "status", "list", "data", "partition", "bench"):
        assert f"\n  {command} " in out
    assert cli() == (2, out, "")


# Data --------------------------------------------------------------------------------------------------------------


def test_data(cli: Any, tmp_path: Path) -> None:
    cache = f"cache={tmp_path / 'cache'}"
    code, out, _ = cli("data", "list", cache)
    assert code == 0
    assert _prepared(out) == {"fake": "no", "digits": "no"}

    code, out, _ = cli("data", "check", "fake", cache)
    assert code == 1
    assert "not prepared" in out

    code, out, _ = cli("data", "prepare", "fake", "digits", cache)
    assert code == 0
    # scikit-learn's bundled digits are 1,797 images of 8 x 8; the fake set says 64 and 32 of itself.
    assert "fake: 64 training and 32 test images of 1 x 8 x 8, 2 classes" in out
    numbers = next(line for line in out.splitlines() if line.startswith("digits: "))
    assert sum(_two(numbers)) == 1797
    assert "10 classes" in numbers

    code, out, _ = cli("data", "check", "fake", "digits", cache)
    assert code == 0
    assert out.count("verified") == 2
    sheets = [Path(line.split(": ")[1]) for line in out.splitlines() if line.startswith("contact sheet: ")]
    assert [sheet.as_posix() for sheet in sheets] == ["results/data/fake.png", "results/data/digits.png"]
    assert all(sheet.read_bytes().startswith(b"\x89PNG") for sheet in sheets)
    code, out, _ = cli("data", "check", "digits", cache, f"out={tmp_path / 'sheets/mine.png'}")
    assert code == 0 and (tmp_path / "sheets/mine.png").read_bytes() == sheets[1].read_bytes()
    code, out, _ = cli("data", "list", cache)
    assert _prepared(out) == {"fake": "yes", "digits": "yes"}


def _prepared(out: str) -> dict[str, str]:
    cells = [line.replace("│", " ").split() for line in out.splitlines()]
    return {words[0]: words[1] for words in cells if words and words[0] in ("fake", "digits")}


def _two(line: str) -> list[int]:
    numbers = [int(word.replace(",", "")) for word in line.split() if word.replace(",", "").isdigit()]
    return numbers[:2]


def test_data_that_are_damaged(cli: Any, tmp_path: Path) -> None:
    cache = f"cache={tmp_path / 'cache'}"
    assert cli("data", "prepare", "fake", cache).code == 0
    array = next((tmp_path / "cache").glob("fake-*/train_images.npy"))
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    code, out, _ = cli("data", "check", "fake", cache)
    assert code == 1
    assert "damaged" in out
    assert cli("data", "prepare", "fake", cache).code == 0
    assert cli("data", "check", "fake", cache).code == 0


# Partitions --------------------------------------------------------------------------------------------------------


def test_partition_show(cli: Any, tmp_path: Path) -> None:
    words = "dataset=digits partition=pcdd partition.clients=5 partition.classes_per_client=2"
    code, out, err = cli("partition", "show", *words.split())
    assert (code, err) == (0, "")
    assert "partition pcdd-" in out
    assert "clients  5" in out
    assert all(name in out for name in ("GCI", "GAI", "GSC", "CCI", "CAI", "CSC"))
    picture = Path(out.splitlines()[-1])
    assert picture.parent == Path("results/figures")
    assert picture.read_bytes().startswith(b"\x89PNG")
    stored = [path.name for path in Path("results/partitions").iterdir()]
    assert [picture.stem] == stored


def test_partition_show_as_bars_somewhere_else(cli: Any, tmp_path: Path) -> None:
    code, out, _ = cli(
        "partition", "show", "dataset=fake", "partition=iid", "partition.clients=4", "seed=3", "kind=bars",
        f"out={tmp_path / 'deep' / 'picture.png'}",
    )  # fmt: skip
    assert code == 0
    assert "seed 3" in out
    assert (tmp_path / "deep" / "picture.png").stat().st_size > 1000


def test_partition_of_a_run_is_the_one_shown(cli: Any) -> None:
    words = [word.removeprefix("+") for word in RUN[1:]]
    assert cli("partition", "show", *words).code == 0
    before = sorted(Path("results/partitions").iterdir())
    assert cli(*RUN).code == 0
    assert sorted(Path("results/partitions").iterdir()) == before


# Tables ------------------------------------------------------------------------------------------------------------


def test_table_from_nothing_to_files(
    cli: Any, toy: Any, footprint: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cli("status", "seeds=1")
    assert before.code == 0
    assert numbers(before.out) == {"missing": 4}

    code, out, err = cli("table", "name=toy_table1", "seeds=1", "launcher=inline")
    assert (code, err) == (0, "")
    written = "results/tables/quick/toy_table1.{csv,tex,md}"
    assert f"toy_table1: 4 done, 2 cells method not available yet; {written}" in out
    assert [status["state"] for status in statuses(Path("results"))] == ["done"] * 4
    folder = Path("results/tables/quick")
    assert {path.name for path in folder.iterdir()} == {
        f"toy_table1.{suffix}" for suffix in ("csv", "md", "tex")
    }

    frame = pd.read_csv(folder / "toy_table1.csv", keep_default_na=False).set_index(["row", "column"])
    for row in ("fedavg", "fedavgm"):
        values = []
        for column in ("iid", "dir"):
            cell = frame.loc[(row, column)]
            final = json.loads((Path("results") / cell["runs"] / "status.json").read_text())["final"]["test"]
            assert float(cell["mean"]) == pytest.approx(100 * final["accuracy"], abs=1e-6)
            assert (cell["status"], cell["n"], cell["n_planned"]) == ("done", 1, 1)
            values.append(final["accuracy"])
        assert float(frame.loc[(row, "avg")]["mean"]) == pytest.approx(100 * sum(values) / 2, abs=1e-6)
    # A row that does not exist yet is shown, everywhere.
    assert set(frame.loc["fednix"]["status"]) == {"method not available yet"}
    for suffix in ("md", "tex"):
        text = (folder / f"toy_table1.{suffix}").read_text()
        assert "FedNix" in text
        assert "not available yet" in text

    after = cli("status", "seeds=1")
    assert numbers(after.out) == {"done": 4}
    assert "2 method not available yet" in after.out

    # Once more: nothing is launched, nothing is touched, the same files.
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    touched = footprint(Path("results/runs"))
    monkeypatch.setattr("benchmark.launch.local.launch", None)
    assert cli("table", "name=toy_table1", "seeds=1", "launcher=inline").code == 0
    assert footprint(Path("results/runs")) == touched
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def test_launchers_and_workers_give_the_same_bits(cli: Any, toy: Any) -> None:
    inline = cli("table", "name=toy_table1", "seeds=2", "launcher=inline", "results=one")
    local = cli("table", "name=toy_table1", "seeds=2", "launcher=local", "workers=2", "results=two")
    assert (inline.code, local.code) == (0, 0), local.err
    for suffix in ("csv", "md", "tex"):
        one, two = (Path(f"{root}/tables/quick/toy_table1.{suffix}").read_bytes() for root in ("one", "two"))
        assert one == two
    for one in sorted(Path("one/runs").glob("*/*/records.jsonl")):
        two = Path("two") / one.relative_to("one")
        assert one.read_bytes() == two.read_bytes()
    digests = [[status["model_sha256"] for status in statuses(Path(root))] for root in ("one", "two")]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 8


def test_more_seeds_run_only_what_is_missing(cli: Any, toy: Any, footprint: Any) -> None:
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    before = {name: mark for name, mark in footprint(Path("results/runs")).items() if "seed0" in name}
    code, out, _ = cli("table", "seeds=2", "launcher=inline")
    assert code == 0
    after = footprint(Path("results/runs"))
    assert {name: after[name] for name in before} == before
    assert len(statuses(Path("results"))) == 8
    assert "8 done" in out


def test_damaged_records_are_made_again(cli: Any, toy: Any) -> None:
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    csv = Path("results/tables/quick/toy_table1.csv")
    expected, records = csv.read_bytes(), sorted(Path("results/runs").glob("*/*/records.jsonl"))
    whole = records[0].read_bytes()
    records[0].write_bytes(whole[:100])
    refused = cli("status", "seeds=1")
    assert refused.code == 2
    assert str(records[0]) in refused.err
    csv.unlink()
    assert cli("table", "seeds=1", "launcher=inline").code == 0
    assert records[0].read_bytes() == whole
    assert csv.read_bytes() == expected


def test_rows_columns_and_places(cli: Any, toy: Any, tmp_path: Path) -> None:
    words = "table rows=fedavg columns=i* seeds=1 launcher=inline results=there"
    code, out, _ = cli(*words.split(), f"out={tmp_path / 'mine'}")
    assert code == 0
    assert "1 done" in out
    assert len(statuses(Path("there"))) == 1
    assert "1 of 3 rows and 1 of 3 columns" in (tmp_path / "mine" / "toy_table1.md").read_text()
    assert not Path("results").exists()


def test_status_of_the_real_tables(cli: Any) -> None:
    code, out, _ = cli("status", "table=1")
    assert code == 0
    for name in ("feddiverse_table1", "fedld_table1", "fedmr_table1", "fedsdc_table1"):
        assert name in out
    assert not Path("results").exists(), "looking creates nothing"


def test_a_launch_in_another_process(cli: Any, tmp_path: Path, root: Path) -> None:
    """A second launcher is refused while one works; the first is stopped, says so, and what it did is kept."""
    words = ["table", "name=feddiverse_cmnist_gsc", "rows=fedavg/uniform", "seeds=2", "launcher=inline"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    first = subprocess.Popen(
        [sys.executable, "-m", "benchmark", *words],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not statuses(tmp_path / "results"):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    code, _, err = cli(*words)
    assert code == 2
    assert "another process works on it" in err
    assert str(first.pid) in err
    assert cli("status", "name=feddiverse_cmnist_gsc", "rows=fedavg/uniform", "seeds=2").code == 0
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=300)
    assert first.returncode == 130, err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    found = (tmp_path / "results").glob("runs/*/*/status.json")
    stopped = [path.parent for path in found if '"interrupted"' in path.read_text()]
    assert len(stopped) == 1
    assert (stopped[0] / "checkpoint.pt").exists()
    assert (tmp_path / "results/tables/quick/feddiverse_cmnist_gsc.md").read_text().count("missing") >= 1


# Tables that an analysis makes -------------------------------------------------------------------------------------


def test_a_table_that_an_analysis_makes(cli: Any) -> None:
    code, out, err = cli("table", "paper=fedmr", "table=3")
    assert (code, err) == (0, "")
    assert "fedmr_table3: by `analyse communication`" in out
    assert "11.182" in Path("results/tables/quick/fedmr_table3.csv").read_text()
