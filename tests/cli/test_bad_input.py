"""Every mistake of a user ends in one message, exit code 2, no traceback, and nothing lost.

Messages are matched by key, value and suggestion, not by their wording.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import FAKE_RUN, footprint, numbers
from tiny_runs import carry_out, tiny

from benchmark.runs.folder import ResultsFolder

SHOW = ("data", "partition", *(word.removeprefix("+") for word in FAKE_RUN[1:-2]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished run."""
    results = tmp_path_factory.mktemp("finished") / "results"
    assert carry_out(tiny(results)).state == "done"
    return results


@pytest.fixture
def refused(refusal: Any, finished: Path) -> Iterator[Callable[..., str]]:
    """``refused(words, *parts)``: the command is refused, the message has all parts, a finished run stays as it is."""
    shutil.copytree(finished, "results")
    before = footprint(Path("results"))

    def call(words: Any, *parts: str) -> str:
        message: str = refusal(words, "")
        for part in parts:
            assert part in message, message
        return message

    yield call
    after = footprint(Path("results"))
    assert {name: after.get(name) for name in before} == before


# Raw data ----------------------------------------------------------------------------------------------------------


def mnist_words(command: str, root: Path) -> list[str]:
    cache = root.parent / "cache"
    if command == "run":
        return ["run", "dataset=mnist", f"paths.data={root}", f"paths.cache={cache}"]
    return ["data", "prepare", "dataset=mnist", f"data={root}", f"cache={cache}"]


@pytest.mark.parametrize("command", ["run", "data"])
def test_no_file_and_no_network(refused: Any, tmp_path: Path, command: str) -> None:
    place = str(tmp_path / "raw" / "MNIST" / "raw")  # where it looked, and where to put them
    words = mnist_words(command, tmp_path / "raw")
    refused(words, "MNIST", place, "train-images-idx3-ubyte", "http", "FEDTABLES_DATA")


def test_data_and_a_cache_that_cannot_be_written(refused: Any, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file in the folder's place, which stops root too")
    refused(mnist_words("run", taken), str(taken), "got no", "FEDTABLES_DATA")
    refused(["data", "prepare", "dataset=fake", f"cache={taken}"], "FEDTABLES_CACHE")
    assert taken.is_file()


# Results -----------------------------------------------------------------------------------------------------------


def test_results_of_another_version(refused: Any, cli: Any, tmp_path: Path) -> None:
    ResultsFolder(Path("old")).open()
    Path("old/FORMAT").write_text("0\n")
    for words in (
        [*FAKE_RUN, "results=old"],
        ["table", "name=feddiverse_table3", "results=old"],
        ["status", "name=feddiverse_table3", "results=old"],
    ):
        refused(words, "old", "format", "0", "results=FOLDER")
    assert [path.name for path in Path("old").iterdir()] == ["FORMAT"]
    Path("old/runs").mkdir()
    Path("old/FORMAT").rename("old/runs/FORMAT")  # as versions before this one had it
    refused(["status", "results=old"], "old", "format", "0")


def test_folders_that_cannot_be_written(refused: Any, cli: Any, toy: Any) -> None:
    Path("taken").write_text("a file in the folder's place, which stops root too")
    refused(["run", "results=taken"], "taken", "cannot be written")
    refused([*SHOW, "out=taken/picture.png"], "taken", "cannot be written")
    words = ["table", "rows=fedavg", "columns=iid", "seeds=1", "launcher=inline"]
    refused([*words, "results=taken"], "taken", "cannot be written")
    assert cli(*words).code == 0
    refused([*words, "out=taken/tables"], "taken/tables", "cannot be written")
    assert Path("taken").is_file()


def test_a_run_that_is_at_work_or_damaged(refused: Any, cli: Any) -> None:
    words = [*FAKE_RUN, "seed=3"]
    assert cli(*words).code == 0
    path = next(Path("results/runs").glob("*/seed3/result.json"))
    path.write_text(path.read_text()[:50])
    code, out, _ = cli(*words)
    moved = path.parent.with_name(".seed3.old-1")
    assert code == 0 and f"{path}: damaged" in out and f"is now in {moved}" in out
    folder = ResultsFolder(Path("results")).run(f"{path.parent.parent.name}/seed3")
    folder.move_away()
    with folder.claimed():
        refused(words, "another process")


# Tables ------------------------------------------------------------------------------------------------------------


def test_preset_paper_without_the_data(refused: Any, tmp_path: Path) -> None:
    """All that lacks is named at once, before anything is trained."""
    words = ["table", "table=1", "preset=paper", f"data={tmp_path / 'nowhere'}"]
    refused(words, "got no", "MNIST: ", "FashionMNIST: ", "SVHN: ", "CIFAR-10: ")
    assert len(list(Path("results/runs").glob("*/seed*"))) == 1
    assert not Path("results/tables").exists()


HOT = {"key": "hot", "label": "Too hot", "method": "fedavg", "train": {"lr": 1e30}}
IMPOSSIBLE = {"key": "many", "label": "Too many", "method": "fedavg", "train": {"clients_per_round": 50}}
FINE = {"key": "fedavg", "label": "FedAvg", "method": "fedavg"}


def toy_csv() -> pd.DataFrame:
    """The numbers of the toy table by row and column."""
    frame = pd.read_csv("results/tables/quick/toy_table1.csv", keep_default_na=False)
    return frame.set_index(["row", "column"])


def test_nan_in_a_run(cli: Any, toy: Any) -> None:
    toy(rows=[HOT, FINE])
    code, _, err = cli("table", "seeds=2", "launcher=inline")
    assert code == 0, err
    results = [json.loads(path.read_text()) for path in Path("results/runs").glob("*/seed*/result.json")]
    assert sorted(result["state"] for result in results) == ["diverged"] * 4 + ["done"] * 4
    for result in results:
        if result["state"] == "diverged":
            assert "round 0" in result["message"] and "finite" in result["message"]
    frame = toy_csv()
    assert set(frame.loc["hot"]["status"]) == {"diverged"}
    assert set(frame.loc["hot"]["mean"]) == {""}
    assert set(frame.loc["fedavg"]["status"]) == {"done"}
    assert "4 diverged" in cli("table", "seeds=2", "launcher=inline").out
    assert numbers(cli("status", "seeds=2").out) == {"done": 4, "diverged": 4}


def test_a_run_that_fails_costs_only_itself(cli: Any, toy: Any) -> None:
    toy(rows=[IMPOSSIBLE, FINE])
    for _ in range(2):  # the same command tries the failed ones again, and only those
        code, out, err = cli("table", "seeds=1", "launcher=inline")
        assert code == 1
        assert out.count("\nfailed ") == out.count("train.clients_per_round: ") == 2 and "50" in out
        assert "Traceback" not in out + err
        frame = toy_csv()
        assert set(frame.loc["many"]["status"]) == {"failed"}
        assert set(frame.loc["fedavg"]["status"]) == {"done"}


def test_a_table_that_is_no_yaml(refused: Any, toy: Any) -> None:
    for content in ("rows: [", "- a list", b"\xff"):
        Path("conf/table/toy_table1.yaml").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        refused(["table"], "conf/table/toy_table1.yaml")
