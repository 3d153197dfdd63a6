"""Every mistake of a user ends in one message, exit code 2, no traceback, and nothing lost."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny_runs import FAKE, tiny

from benchmark.runs.data import _dataset
from benchmark.runs.execute import execute
from benchmark.runs.store import Results

FAKE_RUN = (
    "run",
    "dataset=fake",
    *(f"+dataset.options.{key}={value}" for key, value in FAKE["options"].items()),
    "partition=iid",
    "partition.clients=4",
    "train.rounds=1",
    "train.batch_size=8",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished run."""
    results = tmp_path_factory.mktemp("finished") / "results"
    assert execute(tiny(results))[0] == "done"
    return results


@pytest.fixture
def refused(refusal: Any, footprint: Any, finished: Path) -> Iterator[Any]:
    """``refused(words, pattern)``: the command is refused with this message; a finished run stays as it is."""
    shutil.copytree(finished, "results")
    before = footprint(Path("results"))
    yield refusal
    after = footprint(Path("results"))
    assert {name: after.get(name) for name in before} == before


# Names and keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run method=fedprx", r"method: got 'fedprx'; .*fedavg,.*conf/method.*'fedprox'"),
        ("run dataset=minst", r"dataset: came 'minst'\. Did you mean 'mnist'\?"),
        ("run partition=dirichelt", r"partition: came 'dirichelt'\. Did you mean 'dirichlet'\?"),
        ("run model=tinycnn", r"model: came 'tinycnn'\. Did you mean 'tiny_cnn'\?"),
        ("run preset=quik", r"preset: came 'quik'\. Did you mean 'quick'\?"),
        ("run selection=roundrobin", r"selection: came 'roundrobin'\. Did you mean 'round_robin'\?"),
        ("run selection.name=roundrobin", r"no selection rule is called 'roundrobin'\. Did you mean 'round_robin'\?"),
        ("run -m method=fedavg,fedprx", r"method: came 'fedprx'\. Did you mean 'fedprox'\?"),
        ("run train.lrr=1", r"train\.lrr: unknown key\. Did you mean 'train\.lr'\?"),
        ("run trian.lr=1", r"trian\.lr: unknown key\. Did you mean 'train\.lr'\?"),
        ("run lr=1", r"lr: unknown key\. Did you mean 'train\.lr'\?|lr: unknown key\. .*Allowed"),
        ("run +train.lrr=1", r"train\.lrr: unknown key\. Did you mean 'lr'\?"),
        ("run partition=iid partition.alpha=1", r"partition\.alpha: unknown key\..* partition\.clients"),
        ("run partition=iid +partition.clints=1", r"partition\.clints is not a parameter .*nearest is 'clients'"),
        (
            "run method=fedprox method.client.fedprox.nu=1",
            r"fedprox\.nu: unknown key\. Did you mean 'method\.client\.fedprox\.mu'",
        ),
        ("run method=fedprox +method.client.fedprox.nu=1", r"nu: unknown parameter of fedprox\. Did you mean 'mu'\?"),
        ("run +method.client.fedprx={}", r"no client rule is called 'fedprx'\. Did you mean 'fedprox'\?"),
        ("run +dataset.options.nois=1", r"options of data set 'digits'"),
        # A word that is right, and added, is not the one to blame.
        ("run +partition.note=1 train.lrr=1", r"train\.lrr: unknown key\. Did you mean 'train\.lr'\?"),
        ("rum train.lr=1", r"no command 'rum'\. Did you mean 'run'\?"),
        ("run train.lr", r"train\.lr"),
        ("list method", r"list: came 'method'\. Did you mean 'methods'\?"),
        ("data prepair fake", r"data: came 'prepair'\. Did you mean 'prepare'\?"),
        ("data prepare minst", r"dataset: came 'minst'\. Did you mean 'mnist'\?"),
        ("data prepare", r"data prepare: name a data set\. Known: acevedo, bodzas, cifar10"),
        ("data list rot=1", r"data list: unknown key 'rot'"),
        ("data list out=a.png", r"data list: unknown key 'out'"),
        ("data check fake digits out=a.png", r"out: came 'a\.png' for 2 data sets; it is one file"),
        ("data check fake out=a.jpg", r"out: came 'a\.jpg'\. Allowed: a file that ends in \.png"),
        ("partition", r"partition: came ''\. Allowed: show"),
        ("partition show partition=dirichelt", r"Did you mean 'dirichlet'\?"),
        ("partition show preset=quik", r"Did you mean 'quick'\?"),
        ("partition show kind=pie", r"kind: came 'pie'\. Allowed: bubble, bars"),
        ("partition show partition.alpa=1", r"partition\.alpa is not a parameter .*nearest is 'alpha'"),
        ("partition show patition=iid", r"patition: unknown key\. Did you mean 'partition'\?"),
        ("partition show iid", r"came 'iid'; expected key=value"),
        ("table preset=quik", r"preset: came 'quik'\. Did you mean 'quick'\?"),
        ("table paper=fedsd", r"no table of a paper called 'fedsd'.*Did you mean 'fedsdc'\?"),
        ("table table=9", r"no table 9.*There is: .*fedmr_table1"),
        ("table name=fedmr_tabel1", r"name: got 'fedmr_tabel1'.* Did you mean 'fedmr_table1'\?"),
        ("table name=fedmr_table1 rows=fedagv", r"rows: 'fedagv' matches none.*Did you mean 'fedavg'\?"),
        ("table paper=fedmr columns=fmnist/p5c3", r"columns: 'fmnist/p5c3' matches none.*Did you mean 'fmnist/p5c2'\?"),
        ("table sedes=1", r"table: unknown key 'sedes'\. Did you mean 'seeds'\?"),
        ("table launcher=locl", r"launcher: came 'locl'\. Did you mean 'local'\?"),
        ("table device=tpu", r"runtime\.device: came 'tpu'"),
        ("table seeds", r"table: came 'seeds'; expected key=value"),
        ("table seeds=1 seeds=2", r"seeds is given twice"),
        ("status launcher=local", r"status: unknown key 'launcher'"),
    ],
)  # fmt: skip
def test_names_and_keys(refused: Any, words: str, said: str) -> None:
    refused(words.split(), said)


@pytest.mark.parametrize("key", ["seeds", "table", "workers", "threads"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_counts(refused: Any, key: str, value: str) -> None:
    refused(
        ["table", "name=feddiverse_cmnist_gsc", f"{key}={value}"],
        rf"{key}: came '{value}'; .*whole number of at least 1",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.lr=abc", r"train\.lr: came 'abc'"),
        ("train.lr=-1", r"train\.lr: came -1"),
        ("train.lr=nan", r"train\.lr"),
        ("train.lr=inf", r"train\.lr"),
        ("train.rounds=0", r"train\.rounds: came 0"),
        ("train.steps=4", r"epochs=1 and steps=4"),
        ("train.schedule.name=cosin", r"Did you mean 'cosine'\?"),
        ("train.augment=flip", r"train\.augment|augment.*flip"),
        ("train.clients_per_round=0", r"train\.clients_per_round: came 0"),
        ("train.clients_per_round=5", r"train\.clients_per_round: came 5, the partition has 4 clients\..* 1 to 4"),
        ("runtime.device=tpu", r"runtime\.device: came 'tpu'"),
        ("runtime.threads=0", r"runtime\.threads: came 0"),
        ("seed=-1", r"seed: came -1"),
        ("partition.clients=0", r"partition\.clients must be greater than 0"),
        ("partition.clients=97", r"97 clients for 96 samples"),
        ("partition.seed=x", r"partition\.seed: came 'x'"),
        ("dataset.train_per_class=25", r"dataset\.train_per_class: came 25; class 0 has only 24"),
        ("dataset.options.classes=1", r"'classes'.*got 1"),
        ("method=fedprox method.client.fedprox.mu=-1", r"method\.client\.fedprox\.mu: came -1"),
        ("method=fedavgm method.server.optimizer.beta=2", r"method\.server\.optimizer\.beta: came 2"),
        ("method=fedavgm method.server.optimizer={name:add}", r"optimizer\.beta: unknown parameter of add"),
        ("seed=0,1", r"seed.*(-m|multirun)"),
        ("selection=uniform,round_robin", r"selection.*(-m|multirun)"),
    ],
)  # fmt: skip
def test_values(refused: Any, words: str, said: str) -> None:
    refused([*FAKE_RUN, *words.split()], said)


# Partitions that cannot be -----------------------------------------------------------------------------------------

PARTITIONS = [
    (
        "partition=pcdd partition.clients=2 partition.classes_per_client=1",
        r"2 clients x 1 classes = 2 places for 4 classes: 2 would be on no client.*partition\.clients.*at least 4",
    ),
    (
        "partition=pcdd partition.classes_per_client=5",
        r"5 classes per client, but the data have 4\. Set partition\.classes_per_client to at most 4",
    ),
    ("partition=dirichlet partition.alpha=0", r"partition\.alpha must be greater than 0 \(got 0\)"),
    ("partition=dirichlet partition.alpha=-0.5", r"partition\.alpha must be greater than 0 \(got -0\.5\)"),
    ("partition=dirichlet partition.min_size=50", r"partition dirichlet: .*(partition\.)?min_size"),
    ("partition=interaction", r"partition interaction: needs an attribute.*this data set has none"),
    ("partition=natural", r"partition natural: needs the source.*this data set has none"),
    # Table 6 of FedDiverse, cmnist_gsc: in all clients together 1760 samples of class 0 with attribute 0;
    # 96 fake samples are 24 in each of the 4 cells.
    (
        "{o}dataset.options.classes=2 {o}dataset.options.attributes=2 partition=interaction",
        r"class 0 \(class0\) with attribute 0 \(attribute0\): 1760 samples asked, 24 available, and 3 more cells",
    ),
    (
        "{o}dataset.options.attributes=2 partition=interaction",
        r"for 2 classes x 2 attributes, the data have 4 x 2",
    ),
    (
        "{o}dataset.options.attributes=2 partition=interaction partition.distribution=cmnist_gcs",
        r"unknown distribution 'cmnist_gcs'.*Did you mean 'cmnist_gsc'",
    ),
]


@pytest.mark.parametrize(("words", "said"), PARTITIONS)
def test_partitions_that_cannot_be(refused: Any, words: str, said: str) -> None:
    data = FAKE_RUN[1:5]
    more = words.format(o="").split()
    run = [
        "run",
        *(word for word in data if f"dataset.options.{word.split('.')[-1].split('=')[0]}=" not in words),
    ]
    changed = [word.replace("dataset.options", "+dataset.options") for word in more]
    refused([*run, *changed], said)
    show = [word.removeprefix("+") for word in data]
    refused(["partition", "show", *show, *more], said)


# Raw data ----------------------------------------------------------------------------------------------------------

FASHION_FIRST = {"train": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), "t10k": (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)}


def write_idx(root: Path, first: dict[str, tuple[int, ...]], folder: str = "MNIST/raw") -> dict[str, Path]:
    """Ten tiny images per split in the layout of MNIST, with these labels."""
    paths = {}
    place = root / folder
    place.mkdir(parents=True)
    for part, labels in first.items():
        images = np.arange(len(labels) * 28 * 28, dtype=np.uint8)
        paths[f"{part}-images"] = place / f"{part}-images-idx3-ubyte"
        paths[f"{part}-labels"] = place / f"{part}-labels-idx1-ubyte"
        paths[f"{part}-images"].write_bytes(struct.pack(">4I", 2051, len(labels), 28, 28) + images.tobytes())
        paths[f"{part}-labels"].write_bytes(struct.pack(">2I", 2049, len(labels)) + bytes(labels))
    return paths


MNIST_FIRST = {"train": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "t10k": (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)}


def mnist_words(command: str, root: Path) -> list[str]:
    cache = root.parent / "cache"
    if command == "run":
        return ["run", "dataset=mnist", f"paths.data={root}", f"paths.cache={cache}"]
    return ["data", "prepare", "mnist", f"data={root}", f"cache={cache}"]


@pytest.mark.parametrize("command", ["run", "data"])
def test_no_file_and_no_network(refused: Any, tmp_path: Path, command: str) -> None:
    message = refused(mnist_words(command, tmp_path / "raw"), r"MNIST: 4 of 4 raw files are missing")
    assert str(tmp_path / "raw" / "MNIST" / "raw") in message  # where it looked, and where to put them
    assert "train-images-idx3-ubyte" in message
    assert "http" in message
    assert "FEDTABLES_DATA" in message
    assert not (tmp_path / "raw").exists()


def test_no_trained_weights_and_no_network(refused: Any, tmp_path: Path) -> None:
    words = [*FAKE_RUN, "+dataset.options.channels=3", "model=resnet50", "model.pretrained=true"]
    message = refused(
        [*words, f"paths.weights={tmp_path / 'weights'}"],
        r"model\.pretrained: resnet50-0676ba61\.pth is not there and cannot be downloaded",
    )
    assert f"looked at: {tmp_path / 'weights' / 'resnet50-0676ba61.pth'}" in message
    assert "https://download.pytorch.org/models/resnet50-0676ba61.pth" in message


@pytest.mark.parametrize("command", ["run", "data"])
def test_an_empty_file(refused: Any, tmp_path: Path, command: str) -> None:
    paths = write_idx(tmp_path / "raw", MNIST_FIRST)
    paths["train-labels"].write_bytes(b"")
    message = refused(mnist_words(command, tmp_path / "raw"), "train-labels-idx1-ubyte is empty")
    assert str(paths["train-labels"]) in message


@pytest.mark.parametrize("how", ["cut", "header only", "cut gzip"])
def test_a_truncated_file(refused: Any, tmp_path: Path, how: str) -> None:
    paths = write_idx(tmp_path / "raw", MNIST_FIRST)
    path = paths["train-images"]
    content = path.read_bytes()
    if how == "cut gzip":
        path.unlink()
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(content)[:-30])
    else:
        path.write_bytes(content[:-100] if how == "cut" else content[:9])
    said = {
        "cut": r"has 7,756 bytes unpacked, its header promises 7,856",  # 16 + 10 x 28 x 28, and 100 less
        "header only": r"has 9 bytes unpacked, its header alone needs 16",
        "cut gzip": r"cannot be unpacked",
    }
    message = refused(mnist_words("run", tmp_path / "raw"), said[how])
    assert str(path) in message
    assert "delete the bad file" in message


def test_fashionmnist_in_mnists_place(refused: Any, tmp_path: Path) -> None:
    paths = write_idx(tmp_path / "raw", FASHION_FIRST)
    message = refused(mnist_words("run", tmp_path / "raw"), "these are files of FashionMNIST")
    assert str(paths["train-labels"].parent) in message
    assert "move these to FashionMNIST/raw" in message


def test_a_cut_down_copy(refused: Any, tmp_path: Path) -> None:
    write_idx(tmp_path / "raw", MNIST_FIRST)
    refused(mnist_words("run", tmp_path / "raw"), r"the content has md5 .* is published.*strict: false")


def test_a_data_root_that_cannot_be_written(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the network answered: then the download has no place.
    monkeypatch.setattr("datasets.core.download._unreachable", lambda addresses: None)
    (tmp_path / "raw").write_text("a file in the folder's place, which stops root too")
    message = refused(mnist_words("run", tmp_path / "raw"), r"data root .* cannot be written")
    assert "FEDTABLES_DATA" in message


def test_a_cache_that_cannot_be_written(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the folder's place")
    write_idx(tmp_path / "raw", MNIST_FIRST)
    refused(
        ["data", "prepare", "fake", f"cache={tmp_path / 'cache'}"],
        r"cannot write the prepared arrays.*FEDTABLES_CACHE",
    )
    assert (tmp_path / "cache").is_file()


def test_damaged_prepared_arrays(refused: Any, cli: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = [*FAKE_RUN, f"paths.cache={cache}", "seed=5"]
    assert cli("data", "prepare", "fake", f"cache={cache}").code == 0
    assert cli(*words).code == 0
    for array in cache.glob("fake-*/train_labels.npy"):
        os.truncate(array, 40)
    _dataset.cache_clear()  # as in a new process
    refused([*words[:-1], "seed=6"], r"train_labels\.npy has 40 bytes, .* were written")


# Results -----------------------------------------------------------------------------------------------------------


def test_results_of_another_version(refused: Any, cli: Any, tmp_path: Path) -> None:
    Results(Path("old")).open()
    Path("old/runs/FORMAT").write_text("0\n")
    for words in (
        [*FAKE_RUN, "paths.results=old"],
        ["table", "name=feddiverse_cmnist_gsc", "results=old"],
        ["status", "results=old"],
    ):
        refused(words, r"old: got results of format '0'; expected \d+.*paths\.results")
    assert [path.name for path in Path("old/runs").iterdir()] == ["FORMAT"]


@pytest.mark.parametrize(
    "words", [["run", "paths.results=taken"], ["table", "results=taken"]], ids=["run", "table"]
)
def test_results_that_cannot_be_written(refused: Any, words: list[str]) -> None:
    Path("taken").write_text("a file in the folder's place, which stops root too")
    refused(words, r"taken.*cannot be written")
    assert Path("taken").is_file()


def test_pictures_and_tables_that_cannot_be_written(refused: Any, cli: Any, toy: Any) -> None:
    Path("taken").write_text("a file in the folder's place")
    show = [word.removeprefix("+") for word in FAKE_RUN[1:-2]]
    refused(["partition", "show", *show, "out=taken/picture.png"], r"taken.*cannot be written")
    assert cli("table", "rows=fedavg", "columns=iid", "seeds=1", "launcher=inline").code == 0
    refused(
        ["table", "rows=fedavg", "columns=iid", "seeds=1", "out=taken/tables"],
        r"taken/tables.*cannot be written",
    )


def test_two_launchers(refused: Any, toy: Any) -> None:
    with Results(Path("results")).launcher_lease():
        refused(["table", "seeds=1", "launcher=inline"], r"another process works on it.*nothing was changed")
    assert len(list(Path("results/runs").glob("*/seed0"))) == 1, "only the run that was there"


def test_a_run_that_is_at_work(refused: Any, cli: Any, toy: Any) -> None:
    assert cli(*FAKE_RUN, "seed=3").code == 0
    folder = next(
        Results(Path("results")).run(str(p.relative_to("results/runs")))
        for p in Path("results/runs").glob("*/seed3")
    )
    (folder.path / "status.json").unlink()
    with folder.lease():
        refused([*FAKE_RUN, "seed=3"], r"another process works on it")


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["launcher=slurm"], r"no `sbatch` on this machine.*launcher=local"),
        (
            ["launcher=slurm", "launcher.partion=gpu"],
            r"launcher\.partion: no such setting\. Did you mean 'partition'\?",
        ),
        (["launcher=slurm", "launcher.time=2"], r"launcher\.time: came 2 minutes"),
        (["launcher=slurm", "launcher.retries=many"], r"launcher\.retries: came 'many'"),
        (
            ["launcher.grece=3"],
            r"launcher\.grece: no such setting\. Did you mean 'grace'\?.*conf/launcher/local\.yaml",
        ),
        (["launcher=pbs"], r"launcher: got 'pbs'; .*inline, local, slurm"),
    ],
)
def test_settings_of_a_launcher(
    refused: Any, toy: Any, words: list[str], pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without SLURM
    refused(["table", "seeds=1", *words], pattern)


def test_a_damaged_status(refused: Any, cli: Any) -> None:
    assert cli(*FAKE_RUN, "seed=3").code == 0
    path = next(Path("results/runs").glob("*/seed3/status.json"))
    path.write_text(path.read_text()[:50])
    refused([*FAKE_RUN, "seed=3"], r"status\.json: damaged .*Delete the folder")


# Tables ------------------------------------------------------------------------------------------------------------


def test_preset_paper_without_the_data(refused: Any, tmp_path: Path) -> None:
    """All that lacks is named at once, before anything is trained."""
    message = refused(
        ["table", "table=1", "preset=paper", f"data={tmp_path / 'nowhere'}"], r"raw files are missing"
    )
    for name in ("MNIST", "FashionMNIST", "SVHN", "CIFAR-10"):
        assert f"{name}: " in message
    assert len(list(Path("results/runs").glob("*/seed*"))) == 1
    assert not Path("results/tables").exists()


HOT = {"key": "hot", "label": "Too hot", "method": "fedavg", "train": {"lr": 1e30}}
IMPOSSIBLE = {"key": "many", "label": "Too many", "method": "fedavg", "train": {"clients_per_round": 50}}
FINE = {"key": "fedavg", "label": "FedAvg", "method": "fedavg"}


def test_nan_in_a_run(cli: Any, toy: Any, numbers: Any) -> None:
    toy(rows=[HOT, FINE])
    code, _, err = cli("table", "seeds=2", "launcher=inline")
    assert code == 0, err
    states = [json.loads(path.read_text()) for path in Path("results/runs").glob("*/*/status.json")]
    assert sorted(status["state"] for status in states) == ["diverged"] * 4 + ["done"] * 4
    for status in states:
        if status["state"] == "diverged":
            assert re.search(r"round 0: the update of client \d is not finite", status["message"])
    frame = pd.read_csv("results/tables/quick/toy_table1.csv", keep_default_na=False).set_index(
        ["row", "column"]
    )
    assert set(frame.loc["hot"]["status"]) == {"diverged"}
    assert set(frame.loc["hot"]["mean"]) == {""}
    assert set(frame.loc["fedavg"]["status"]) == {"done"}
    for suffix in ("md", "tex"):
        assert "diverged" in Path(f"results/tables/quick/toy_table1.{suffix}").read_text()
    assert "4 diverged" in cli("table", "seeds=2", "launcher=inline").out
    assert numbers(cli("status", "seeds=2").out) == {"done": 4, "diverged": 4}


def test_a_run_that_fails_costs_only_itself(cli: Any, toy: Any) -> None:
    toy(rows=[IMPOSSIBLE, FINE])
    code, out, err = cli("table", "seeds=1", "launcher=inline")
    assert code == 1
    assert "train.clients_per_round: came 50, the partition has 4 clients" in err
    assert "Traceback" not in out + err
    frame = pd.read_csv("results/tables/quick/toy_table1.csv", keep_default_na=False).set_index(
        ["row", "column"]
    )
    assert set(frame.loc["many"]["status"]) == {"failed"}
    assert set(frame.loc["fedavg"]["status"]) == {"done"}
    # The same command tries the failed ones again, and only those.
    code, out, err = cli("table", "seeds=1", "launcher=inline")
    assert code == 1
    assert err.count("failed: ") == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"rows": [{**FINE, "train": {"momentun": 1}}]},
            r"row fedavg, column iid: .*Did you mean 'momentum'",
        ),
        ({"rows": [{**FINE, "trian": {}}]}, r"rows\.0\.trian"),
        ({"metric": "acuracy"}, r"metric: got 'acuracy'.* Did you mean 'accuracy'\?"),
        ({"seeds": 0}, r"seeds.*greater than 0"),
    ],
)
def test_a_mistake_in_a_table(refused: Any, toy: Any, changes: dict[str, Any], said: str) -> None:
    toy(**changes)
    message = refused(["table", "launcher=inline"], said)
    assert "toy_table1" in message


def test_a_table_that_is_no_yaml(refused: Any, toy: Any) -> None:
    Path("conf/toy_table1.yaml").write_text("rows: [")
    refused(["table"], r"conf/toy_table1\.yaml cannot be read")


# Really: another process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run method=fedprx", "Did you mean 'fedprox'?"),
        ("table seeds=0", "seeds: came '0'"),
    ],
)
def test_exit_code_of_the_process(tmp_path: Path, root: Path, words: str, said: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmark", *words.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
