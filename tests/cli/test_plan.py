"""What tables ask for before they are made: arithmetic by hand, and what is missing."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.commands.launching import plans_of
from benchmark.experiments.estimate import RunBlock, blocks
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.models.networks import count_flops
from benchmark.paths import ROOT
from partitions import make


def one_block(preset: str, **values: Any) -> RunBlock:
    plans = plans_of(TableQuery(seeds=2, preset=preset, **values))
    (block,) = blocks("t", list(unique_runs([cells for _, cells in plans]).values()))
    return block


def test_samples_rounds_and_evaluations(cli: Any) -> None:
    """FedMR, Table 1: 10 clients hold all 60,000 images, 10 epochs, 100 rounds; 10,000 test images, every 5 rounds."""
    block = one_block("paper", paper="fedmr", table=1, rows="fedavg", columns="fmnist/p10c5")
    assert (block.runs, block.run.train.rounds, block.samples_per_round) == (2, 100, 600_000)
    assert block.evaluated == 21 * 10_000
    # 2 x (100 x 600,000 + 210,000 / 3) / 100,000 seconds are 1,201.4.
    assert block.hours(1e-5) == pytest.approx(1201.4 / 3600)


def test_what_a_draw_gives_out(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """FedSDC, NIID-2: 15 clients draw 5.5 classes of 40 images, 3,300 of 48,917; all others are evaluated.

    A tenth of theirs is held out and evaluated too. All take part in each of 1,500 rounds, with 5 epochs of 2,970
    images; evaluated are 48,917 - 3,300 + 330.
    """
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    block = one_block("paper", paper="fedsdc", table=1, rows="fedsdc", columns="niid2")
    assert (block.run.train.rounds, block.samples_per_round) == (1500, 5 * 2970)
    assert block.evaluated == (1 + 1500) * (45_617 + 330)


FEW_CELLS = {"classes_per_client": [2, 3], "samples_per_class": [8, 12], "scale": 0.5}
BY_HAND = [{"count": 3, "matrix": [[4, 1], [0, 2]]}]
TWO_CLASSES = {"clients": 5, "classes_per_client": 2}


@pytest.mark.parametrize(
    ("name", "parameters", "facts", "clients", "samples"),
    [
        ("iid", {"clients": 7}, (100, 10, 0), 7, 100),
        ("natural", {}, (100, 10, 6), 6, 100),
        ("natural", {"clients_per_source": 3}, (100, 10, 6), 18, 100),
        ("pcdd", TWO_CLASSES, (100, 10, 0), 5, 100),
        # The authors' pass is doubled, but for clients that have all classes.
        ("pcdd", TWO_CLASSES | {"variant": "reference"}, (100, 10, 0), 5, 200),
        ("pcdd", {"clients": 5, "classes_per_client": 10, "variant": "reference"}, (100, 10, 0), 5, 100),
        # 30 clients: FedDiverse gives out all of the 4,795 training images of WaterBirds.
        ("interaction", {"distribution": "waterbirds_dist"}, (4795, 2, 0), 30, 4795),
        # 24 clients of 200; at a tenth they hold 9 + 1 + 1 + 9 or 9 + 9 + 1 + 1.
        ("interaction", {"distribution": "spawrious_gsc"}, (22808, 2, 0), 24, 4800),
        ("interaction", {"distribution": "spawrious_gsc", "scale": 0.1}, (22808, 2, 0), 24, 480),
        ("pooled_interaction", {"distribution": "spawrious_gsc"}, (22808, 2, 0), 1, 4800),
        ("interaction", {"distribution": None, "clients": BY_HAND}, (99, 2, 0), 3, 21),
        ("white_blood_cells", {}, (7118, 13, 3), 15, 3300),
        # 10 clients of 2 or 3 classes of 4 to 6 images: 10 x 2.5 x 5; of two classes that there are, 10 x 2 x 5.
        ("white_blood_cells", FEW_CELLS, (500, 13, 2), 10, 125),
        ("white_blood_cells", FEW_CELLS, (500, 2, 2), 10, 100),
        ("white_blood_cells", {}, (1000, 13, 3), 15, 1000),
    ],
)  # fmt: skip
def test_what_partitions_give_out(
    name: str, parameters: dict[str, Any], facts: tuple[int, int, int], clients: int, samples: int
) -> None:
    assert make(name, parameters).expected(*facts) == (clients, samples)


def test_plan(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDTABLES_CACHE", str(tmp_path / "cache"))
    words = "plan paper=fedmr table=1 preset=paper seeds=2 rows=fedavg columns=svhn/p10c5".split()

    def cells(*more: str) -> list[str]:
        (line,) = (line for line in cli(*words, *more).out.splitlines() if "│ svhn" in line)
        return [cell.strip() for cell in line.split("│")[1:-1]]

    code, out, err = cli(*words, "launcher=slurm")
    assert (code, err) == (0, "") and "fedmr_table1: 2 runs, 0 ended" in out
    # An H200 trained ResNet-18 on 23,992 images a second, a core of an EPYC on 27; 73,257 images in 10 epochs and 100
    # rounds, and 21 evaluations of 26,032 images at a third: 2 x 73,439,224 images. Each run has a GPU of its own.
    assert cells("launcher=slurm") == [
        "fedmr_table1",
        "svhn",
        "resnet18_32",
        "2",
        "1,511.10",
        "1.70",
        "measured",
        "289 kB",
    ]
    assert "with this launcher, on 2 GPUs at a time: 0.85 hours" in out
    assert "each task asks for 1 GPU (launcher.gpus_per_job), 1 core" in out
    assert "on 1 GPU at a time: 1.70 hours" in cli(*words, "launcher=slurm", "launcher.max_parallel=1").out
    # 3 x 5 runs of 755.55 hours in a year of 8,766.
    years = cli(*words[:4], "seeds=3", "rows=fedavg", "columns=svhn/*", "launcher.workers=1").out
    assert "with this launcher, on 1 core at a time: 1.3 years\n" in years
    assert "svhn (305 MB when prepared): not there; downloads by itself" in out
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "cache").exists(), "looking leaves nothing"
    assert cells("device=cpu")[4] == "1,511.10"

    Path("results").mkdir()
    Path("results/rates.json").write_text("[1]")
    assert cells("device=cpu")[4] == "1,511.10", "a damaged file is as none"


def test_another_network_is_estimated_by_its_flops(cli: Any) -> None:
    """A WRN-28-10 has 10,486,657,536 FLOPs an image of CIFAR-100, and a ResNet-18 1,110,845,440."""
    words = "plan paper=fedmr table=1 preset=paper seeds=1 rows=fedavg columns=cifar100/p10c30".split()
    (line,) = (line for line in cli(*words).out.splitlines() if "│ cifar100" in line)
    hours, kind = (line.split("│")[place].strip() for place in (6, 7))
    rounds = one_block("paper", paper="fedmr", table=1, rows="fedavg", columns="cifar100/p10c30")
    expected = rounds.hours(10_486_657_536 / 1_110_845_440 / 23_992) / rounds.runs
    assert float(hours.replace(",", "")) == pytest.approx(expected, abs=0.5) and kind == "estimated"


def test_flops_of_the_file_are_those_of_the_networks() -> None:
    for line in csv.DictReader((ROOT / "benchmark/experiments/flops.csv").read_text().splitlines()):
        name, *words = line["model"].split()
        parameters = {key: yaml.safe_load(value) for key, value in (word.split("=") for word in words)}
        shape = (int(line["channels"]), int(line["size"]), int(line["size"]))
        found = count_flops(name, parameters, 10, shape)
        # Its lines are of data sets with 2 to 100 classes, so the heads differ: 256 units, 100 classes at most.
        assert found == pytest.approx(float(line["flops"]), rel=0.01, abs=2 * 256 * 100), line["model"]


def test_runs_are_remembered(cli: Any) -> None:
    """The next plan has the seconds of finished runs of the same kind."""
    words = "name=leaderboard rows=fedavg columns=fmnist/p10c2 launcher=inline".split()
    assert cli("table", *words, "seeds=1").code == 0
    (rate,) = json.loads(Path("results/rates.json").read_bytes()).values()
    assert rate[0] > 0 and rate[1:3] == ["cpu", "tiny_mlp"]
    assert "measured" in cli("plan", *words, "seeds=2").out


def test_a_single_run_is_remembered(cli: Any) -> None:
    for _ in range(2):
        assert cli("run", "dataset=digits", "model=tiny_mlp", "train.rounds=1").code == 0
    (rate,) = json.loads(Path("results/rates.json").read_bytes()).values()
    assert rate[0] > 0 and rate[1:3] == ["cpu", "tiny_mlp"]
    # Of runs of different lengths the longest counts.
    for rounds, is_new in ((3, True), (2, False)):
        before = Path("results/rates.json").read_bytes()
        assert cli("run", "dataset=digits", "model=tiny_mlp", f"train.rounds={rounds}").code == 0
        assert (Path("results/rates.json").read_bytes() != before) == is_new


def test_plan_of_data_and_weights_by_hand(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What does not download by itself is told in full."""
    monkeypatch.setenv("FEDTABLES_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("FEDTABLES_WEIGHTS", str(tmp_path / "weights"))
    words = ("plan", "paper=fedld", "table=1", "preset=paper", "rows=fedavg")
    code, out, _ = cli(*words)
    assert code == 0 and "retina (1.8 GB when prepared): Retina: " in out
    for part in (": got no labels.csv", "(4 of 4); there is nothing; expected ", " Get it from "):
        assert part in out
    assert f"weights {tmp_path}/weights/resnet50-0676ba61.pth: not there; downloads by itself (103 MB" in out
