"""Every mistake of a user ends in one message, exit code 2, no traceback, and nothing lost.

Messages are matched by key, value and suggestion, not by their wording.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import FAKE_RUN, footprint, numbers
from tiny_runs import tiny

from benchmark.runs.execute import execute
from benchmark.runs.store import ResultsFolder

SHOW = ("partition", "show", *(word.removeprefix("+") for word in FAKE_RUN[1:-2]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished run."""
    results = tmp_path_factory.mktemp("finished") / "results"
    assert execute(tiny(results))[0] == "done"
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


# Names, keys and values ---------------------------------------------------------------------------------------------

# Words of the command line; what the message names, separated by spaces; the suggestion.
NAMES = [
    ("run method=fedprx", "method: 'fedprx' fedavg, (conf/method/)", "fedprox"),
    ("run selection.name=roundrobin", "'roundrobin'", "round_robin"),
    ("run +train.lrr=1", "train.lrr:", "lr"),
    ("run partition=iid +partition.clints=1", "clints clients", ""),
    ("run method=fedprox method.client.fedprox.nu=1", "method.client.fedprox.nu:", "method.client.fedprox.mu"),
    ("run +method.client.fedprx={}", "'fedprx'", "fedprox"),
    ("run dataset=ham10000 dataset.options.siz=64", "'ham10000' siz: strict, size,", "size"),
    ("run dataset=spawrious dataset.options.breeds=3", "'spawrious' breeds: 3", ""),
    ("run dataset.option.size=64", "dataset.option.size:", "dataset.options"),
    ("table name=fedsdc_table1 dataset.options.nois=1", "fedsdc_table1, fedavgm, iid: 'standin' nois:", "noise"),
    ("plan name=fedsdc_table1 preset=paper columns=niid1 dataset.options.helt_out=1", "niid1: 'ham10000'", "held_out"),
    ("tune name=fedmr_table1 method=fedprox out=a dataset.options.nois=1", "fedmr_table1, nois:", "noise"),
    ("tune name=fedmr_table1 method=fedprox dataset.options.noise=1", "dataset.options: out=FOLDER, tuned=FOLDER", ""),
    ("figure name=leaderboard dataset.options.nois=1", "leaderboard, nois:", "noise"),
    ("analyse leaderboard dataset.options.nois=1", "leaderboard, nois:", "noise"),
    ("fidelity effects dataset.options.noise=1", "dataset.options.noise", ""),
    # A word that is right, and added, is not the one to blame.
    ("run +partition.note=1 train.lrr=1", "train.lrr:", "train.lr"),
    ("rum train.lr=1", "command: 'rum'", "run"),
    ("list method", "list: 'method'", "methods"),
    ("data prepair fake", "data: 'prepair'", "prepare"),
    ("data prepare", "dataset: acevedo, bodzas, cifar10", ""),
    ("data prepare fake", "data prepare: 'fake' dataset=FILE", ""),
    ("data check dataset=fake out=a.jpg", "out: 'a.jpg' .png", ""),
    ("partition", "partition: show", ""),
    ("partition show partition=dirichelt", "'dirichelt'", "dirichlet"),
    ("partition show partition.alpa=1", "alpa alpha", ""),
    ("partition show iid", "'iid' key=value", ""),
    ("table paper=fedsd", "'fedsd'", "fedsdc"),
    ("table table=9", "9 fedmr_table1", ""),
    ("table name=fedmr_tabel1", "name: 'fedmr_tabel1'", "fedmr_table1"),
    ("table name=fedmr_table1 rows=fedagv", "rows: 'fedagv'", "fedavg"),
    ("table paper=fedmr columns=fmnist/p5c3", "columns: 'fmnist/p5c3'", "fmnist/p5c2"),
    ("table paper=feddiverse table=2 device=tpu", "device: 'tpu' cuda:NUMBER", ""),
    ("bench sped", "bench: 'sped'", "speed"),
    ("bench device=gpu", "device: 'gpu' cuda", ""),
    ("bench size=mini", "size: 'mini' device=cpu", ""),
    ("bench speed device=cpu", "bench: 'speed' device=cpu", ""),
    ("table show=diference", "show: 'diference'", "difference"),
    ("table name=fedld_ablation_small preset=small show=difference", "show: 'difference' fedld_ablation_small", ""),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named", "suggested"), NAMES, ids=[words for words, _, _ in NAMES])
def test_names_and_keys(refused: Any, words: str, named: str, suggested: str) -> None:
    refused(words.split(), *named.split(" "), f"Did you mean '{suggested}'" if suggested else "")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("train.augment=flip", "augment flip"),
        ("train.clients_per_round=5", "train.clients_per_round: 5 4"),
        ("partition.clients=97", "97 96"),
        ("partition.seed=x", "partition.seed: 'x'"),
        ("dataset.train_per_class=25", "dataset.train_per_class: 25 24"),
        ("method=fedavgm method.server.optimizer.beta=2", "method.server.optimizer.beta: 2"),
        ("method=fedavgm method.server.optimizer.name=add", "optimizer.beta:"),
        ("seed=0,1", "seed: -m"),
    ],
)  # fmt: skip
def test_values(refused: Any, words: str, named: str) -> None:
    refused([*FAKE_RUN, *words.split()], *named.split())


# Partitions that cannot be -----------------------------------------------------------------------------------------

PARTITIONS = [
    ("partition=pcdd partition.clients=2 partition.classes_per_client=1", "2 clients 4 classes partition.clients"),
    ("partition=pcdd partition.classes_per_client=5", "partition.classes_per_client 5 4"),
    ("partition=dirichlet partition.min_size=50", "min_size"),
    ("partition=natural", "natural source"),
    ("partition=interaction", "interaction attribute"),
    ("dataset.options.attributes=2 partition=interaction", "2 4"),
    ("dataset.options.attributes=2 partition=interaction partition.distribution=cmnist_gcs", "'cmnist_gsc'"),
    # Table 6 of FedDiverse, cmnist_gsc: in all clients together 1760 samples of class 0 with attribute 0;
    # 96 fake samples are 24 in each of the 4 cells.
    ("dataset.options.classes=2 dataset.options.attributes=2 partition=interaction", "(class0) (attribute0) 1760 24 3"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named"), PARTITIONS)
def test_partitions_that_cannot_be(refused: Any, words: str, named: str) -> None:
    data = [word for word in FAKE_RUN[1:5] if f"{word.partition('=')[0].removeprefix('+')}=" not in words]
    for command in (["run"], ["partition", "show"]):
        refused([*command, *(word.removeprefix("+") for word in data), *words.split()], *named.split())


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
    refused(words, "MNIST", "4 of 4", place, "train-images-idx3-ubyte", "http", "FEDTABLES_DATA")
    assert not (tmp_path / "raw").exists()


def test_data_and_a_cache_that_cannot_be_written(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the network answered: then the download has no place.
    monkeypatch.setattr(
        "datasets.core.download._contents", lambda tree, mirror, names: dict.fromkeys(names, b"")
    )
    taken = tmp_path / "taken"
    taken.write_text("a file in the folder's place, which stops root too")
    refused(mnist_words("run", taken), str(taken), "cannot be written", "FEDTABLES_DATA")
    refused(["data", "prepare", "dataset=fake", f"cache={taken}"], "FEDTABLES_CACHE")
    assert taken.is_file()


# Results -----------------------------------------------------------------------------------------------------------


def test_results_of_another_version(refused: Any, cli: Any, tmp_path: Path) -> None:
    ResultsFolder(Path("old")).open()
    Path("old/runs/FORMAT").write_text("0\n")
    for words in (
        [*FAKE_RUN, "results=old"],
        ["table", "name=feddiverse_table3", "results=old"],
        ["status", "name=feddiverse_table3", "results=old"],
    ):
        refused(words, "old", "format", "0", "paths.results")
    assert [path.name for path in Path("old/runs").iterdir()] == ["FORMAT"]


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
    path = next(Path("results/runs").glob("*/seed3/status.json"))
    whole = path.read_text()
    path.write_text(whole[:50])
    code, _, err = cli(*words)
    assert code == 0 and f"{path}: damaged" in err and "is now in results/set_aside/" in err
    path.unlink()
    with ResultsFolder(Path("results")).run(f"{path.parent.parent.name}/seed3").lease():
        refused(words, "another process")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("launcher=slurm", "`sbatch` launcher=local"),
        ("launcher=slurm launcher.partion=gpu", "launcher.partion: 'partition'?"),
        ("launcher=slurm launcher.time=[1", "launcher.time: '[1'"),
        ("launcher=slurm launcher.name=local", "launcher.name: launcher=NAME"),
        ("launcher=slurm launcher.retries=many", "launcher.retries: 'many'"),
        ("launcher.grece=3", "launcher.grece: 'grace'? conf/launcher/local.yaml"),
        ("launcher=pbs", "launcher: 'pbs' inline, local, slurm"),
    ],
)
def test_settings_of_a_launcher(
    refused: Any, toy: Any, words: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without SLURM
    refused(["table", "seeds=1", *words.split()], *named.split())


# Tables ------------------------------------------------------------------------------------------------------------


def test_preset_paper_without_the_data(refused: Any, tmp_path: Path) -> None:
    """All that lacks is named at once, before anything is trained."""
    words = ["table", "table=1", "preset=paper", f"data={tmp_path / 'nowhere'}"]
    refused(words, "missing", "MNIST: ", "FashionMNIST: ", "SVHN: ", "CIFAR-10: ")
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
    states = [json.loads(path.read_text()) for path in Path("results/runs").glob("*/*/status.json")]
    assert sorted(status["state"] for status in states) == ["diverged"] * 4 + ["done"] * 4
    for status in states:
        if status["state"] == "diverged":
            assert "round 0" in status["message"] and "finite" in status["message"]
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
        assert err.count("failed: ") == err.count("train.clients_per_round: ") == 2 and "50" in err
        assert "Traceback" not in out + err
        frame = toy_csv()
        assert set(frame.loc["many"]["status"]) == {"failed"}
        assert set(frame.loc["fedavg"]["status"]) == {"done"}


def test_a_table_that_is_no_yaml(refused: Any, toy: Any) -> None:
    for content in ("rows: [", "- a list", b"\xff"):
        Path("conf/toy_table1.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        refused(["table"], "conf/toy_table1.yaml")


# Before anything slow ----------------------------------------------------------------------------------------------

SLOW = "matplotlib pandas seaborn sklearn submitit timm torch torchvision wandb"
HYDRA = ("run", "partition show ")  # their words are Hydra's
REFUSED = """
nonsense
table paper=x, table table=99, table name=x, table preset=x, table paper=fedmr rows=x, table paper=fedmr columns=x
table seeds=0, table x=1, table x, table --x, table launcher=x, table launcher.x=1, table launcher=slurm
table launcher=slurm launcher.time=x, table device=x, table tracking=x, table tracking=wandb tracking.mode=x
table dataset.options.x=1, table tuned=x, table paper=fedmr preset=small columns=leaderboard
tune, tune method=x, tune paper=fedmr table=1 method=fedprox columns=x
figure paper=x, figure figure=99, figure name=x, figure preset=x, figure launcher.x=1
analyse, analyse x, analyse leaderboard x=1, analyse resources preset=x
fidelity x, fidelity effects ids=x, document x, track x, track tracking=off, track tracking.mode=x
plan paper=x, plan timing=x, plan device=x, plan x
status paper=x, status --x, verify paper=x, verify --x, logs, logs x, retry, retry --failed paper=x
cancel, cancel paper=x, list x
data, data x, data list x, data prepare, data prepare x, data prepare dataset=mnist x=1, data check dataset=mnist out=x
partition, partition x, partition show x, partition show partition=x, partition show partition.x=1
partition show dataset=x, partition show dataset.options.x=1
checklist x, checklist paper=x, checklist name=x, checklist preset=x
bench x, report x, report paper=x, doctor x, doctor paper=x, doctor preset=x, doctor launcher.x=1
run x, run --x, run dataset=x, run train.x=1, run train.lr=x, run model.name=x, run partition.alpha=-1
run dataset.options.x=1, run launcher=local, run -m launcher=x, run -m method=x,y
"""
CASES = [
    case.strip() for line in REFUSED.split("\n") for case in re.split(", (?=[a-z])", line) if case.strip()
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[str, list[Any]]:
    """Case -> exit code and slow modules that were imported, of a process of its own for each case."""
    code = f"""
import json, os, sys
from benchmark.__main__ import main
for case in {CASES!r}:
    if not os.fork():
        code = main(case.split())
        print(json.dumps([case, code, sorted({{*{SLOW.split()!r}, "hydra"}} & sys.modules.keys())]), flush=True)
        os._exit(0)
    os.wait()
"""
    folder = tmp_path_factory.mktemp("refused")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(root), "PATH": str(folder)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert len(lines) == len(CASES) and all(line.startswith("error: ") for line in lines), done.stderr
    return {case: found for case, *found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("case", CASES)
def test_words_are_checked_before_anything_slow_is_imported(answers: dict[str, list[Any]], case: str) -> None:
    assert answers[case] == [2, ["hydra"] if case.startswith(HYDRA) and "hydra" in answers[case][1] else []]
