"""``run``: one run in this process, and sweeps through the launchers of the tables."""

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from command_line import FAKE_RUN, configuration, footprint

from benchmark.cli.grammar import axes_of
from benchmark.cli.make import RoundLines
from benchmark.engine.records import Record
from benchmark.experiments.sweeps import Sweep
from benchmark.launch.progress import Following


def bits(results: str) -> dict[str, tuple[bytes, str]]:
    """Records and digest of the model of every finished run."""
    found = {}
    for path in Path(results).glob("runs/*/seed*/result.json"):
        result = json.loads(path.read_text())
        assert result["state"] == "done"
        name = str(path.parent.relative_to(results))
        found[name] = ((path.parent / "records.jsonl").read_bytes(), result["model_sha256"])
    return found


# The words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=0,1,2", (0, 1, 2)),
        ("seed=range(0,3)", (0, 1, 2)),
        ("seed=choice(2,0)", (2, 0)),
        ("method=glob(fedavgm*)", ("fedavgm", "fedavgm+fedprox")),
    ],
)
def test_swept_values(word: str, values: tuple[Any, ...]) -> None:
    """Every combination in the order of the words, the last of which changes fastest."""
    found = [run.config for run in Sweep.of(axes_of([word, "train.lr=0.1,0.2"])).runs]
    key = word.partition("=")[0]
    seen = [(run.seed if key == "seed" else run.method["name"], run.train.lr) for run in found]
    assert seen == list(itertools.product(values, (0.1, 0.2)))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("dataset.options.strict=true", {}),
        ("dataset.options.strict=false", {"strict": False}),
        ("+dataset.options.size=64", {"size": 64}),
    ],
)
def test_options_of_the_data_set(words: str, options: dict[str, Any]) -> None:
    """Acevedo-20 has ``strict`` and other options, and conf/dataset/acevedo.yaml sets none. A default is no change."""
    base = ["dataset=acevedo", "partition=iid"]
    plain, run = configuration(base), configuration([*base, *words.split()])
    assert run.dataset.options == options
    assert (run.hash == plain.hash) == (not options)


def test_help_and_configuration(cli: Any) -> None:
    code, out, _ = cli("run", "--help")
    assert code == 0
    for group in ("dataset", "partition", "model", "method", "selection", "preset"):
        assert f"\n{group}: " in out
    for name in (
        "fedavgm+fedprox",
        "round_robin",
        "pcdd",
        "fashionmnist",
        "train.lr=0.05  # learning",
        "checkpoint_every",
    ):
        assert name in out
    code, out, _ = cli("run", "train.lr=0.3", "--cfg", "job")
    assert (code, Path("results").exists()) == (0, False)
    train = yaml.safe_load(out)["train"]
    assert (train["lr"], train["rounds"], train["clip"]) == (0.3, 12, None)


# One run ----------------------------------------------------------------------------------------------------------


def test_run(cli: Any) -> None:
    words = (*FAKE_RUN, "method=fedavgm", "seed=4")
    code, out, err = cli(*words)
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    folder = Path(first.removeprefix("done: "))
    result = json.loads((folder / "result.json").read_text())
    assert (folder.name, result["state"]) == ("seed4", "done")
    assert f"accuracy {result['final']['test']['accuracy']:.4f}" in second
    assert cli(*words) == (0, out, "")
    code, out, _ = cli(*FAKE_RUN, "train.lr=1e30")
    assert code == 1
    assert out.startswith("diverged: results/runs/") and "not finite" in out


# Sweeps -----------------------------------------------------------------------------------------------------------


def test_all_ways_give_the_same_bits(cli: Any) -> None:
    run = (*FAKE_RUN, "train.augment=crop_flip")
    sweep = (*run, "-m", "method=fedavg,fedavgm", "seed=0,1")
    code, out, err = cli(*sweep, "launcher=local", "workers=2", "results=local")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "4 runs: 4 done"
    assert cli(*sweep, "method=fedavgm", "launcher=inline", "results=inline").code == 0
    assert cli(*run, "method=fedavg", "results=one").code == 0
    local, inline, one = (bits(name) for name in ("local", "inline", "one"))
    assert (len(local), len(inline), len(one)) == (4, 2, 1)
    assert local == local | inline | one

    before = footprint(Path("local/runs"))
    assert cli(*sweep, "launcher=inline", "results=local").code == 0
    assert footprint(Path("local/runs")) == before, "finished runs are left alone"


def test_a_sweep_ends_with_its_table(cli: Any) -> None:
    """A row for each combination without the seed; mean and spread by hand from what the runs have recorded."""
    words = (*FAKE_RUN, "-m", "method=fedavg,fedprox", "train.lr=0.1,0.3", "launcher=inline", "--verbose")
    code, out, err = cli(*words, "seed=0,1")
    assert (code, err) == (0, "")
    assert out.count("\ndone ") == 8 and "method=fedavg train.lr=0.3 seed=1 (" in out
    (folder,) = Path("results/sweeps").iterdir()
    table = pd.read_csv(folder / f"{folder.name}.csv").set_index("row")
    finals: dict[str, list[float]] = {}
    for path in Path("results/runs").glob("*/seed*/result.json"):
        config = yaml.safe_load((path.parent / "config.yaml").read_text())
        row = f"method={config['method']['name']} train.lr={config['train']['lr']}"
        finals.setdefault(row, []).append(100 * json.loads(path.read_text())["final"]["test"]["accuracy"])
    assert set(table.index) == set(finals) and len(finals) == 4
    for row, values in finals.items():
        assert table.loc[row, "n"] == 2
        assert table.loc[row, "mean"] == pytest.approx(sum(values) / 2, abs=1e-5)
        assert table.loc[row, "std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-5)
        assert f"{row} " in out
    assert not list(folder.glob("*.png")), "two settings were swept"
    assert cli(*words, "seed=0,1,2").code == 0
    assert [path.name for path in Path("results/sweeps").iterdir()] == [folder.name], (
        "more seeds, the same sweep"
    )
    assert cli("report").code == 0
    assert folder.name in Path("results/report/index.html").read_text()


def test_a_sweep_of_one_number_has_a_picture(cli: Any) -> None:
    code, out, _ = cli(*FAKE_RUN, "-m", "train.lr=0.1,0.2", "launcher=inline")
    (picture,) = Path("results/sweeps").glob("lr-*/lr-*.png")
    assert code == 0 and picture.name in out and picture.read_bytes().startswith(b"\x89PNG")


def test_lines_of_rounds() -> None:
    """The time left is that of the rounds of this process: it continues after round 2 and takes 4 s for a round."""
    clock = iter((0.0, 10.0, 14.0, 22.0, 26.0))
    lines = RoundLines(lambda: next(clock))
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchmark.cli.make.say", said.append)
        lines(2, 6, [])
        lines(3, 6, [Record(3, "train", "all", "loss", 2.0)])
        lines(5, 6, [Record(5, "train", "all", "loss", 1.0), Record(5, "test", "all", "accuracy", 0.5)])
        lines(6, 6, [Record(6, "test", "class=1", "accuracy", 0.9)])
    assert said == [
        "goes on after round 2 of 6",
        "round 3/6: loss 2.0000, about 12 s left",
        "round 6/6: loss 1.0000, test accuracy 0.5000",
    ], "at most one line in 10 s"


def test_a_refused_configuration_leaves_nothing_behind(refusal: Any) -> None:
    for word in ("+method.client.fedprox.nu=1", "+model.width=-1", "train.augment=cifar10"):
        refusal([*FAKE_RUN, "method=fedprox", word], "expected")
        refusal([*FAKE_RUN, "-m", "method=fedprox", "seed=0,1", "launcher=inline", word], "expected")
    assert not list(Path().glob("results/runs/*/*"))


def test_a_sweep_that_is_stopped_goes_on(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run at work saves its state, later ones are not started; the same command goes on to the same bits."""
    words = (*FAKE_RUN, "-m", "train.rounds=3", "seed=0,1", "launcher=inline")

    with monkeypatch.context() as patched:

        def look(following: Following, at_once: bool = False) -> None:
            if any(Path().glob("r/runs/*/.seed0-*")):
                signal.raise_signal(signal.SIGTERM)

        patched.setattr(Following, "look", look)
        assert cli(*words, "results=r").code == 130
    (checkpoint,) = Path().glob("r/runs/*/.seed*-*/checkpoint.pt")
    assert checkpoint.parent.name.startswith(".seed0-") and not list(Path().glob("r/runs/*/seed*"))
    assert cli(*words, "results=r").code == 0
    assert "resumed after round" in next(Path().glob("r/runs/*/seed0/log.txt")).read_text()
    assert cli(*words, "results=whole").code == 0
    assert bits("r") == bits("whole")
