"""Whole runs, augmented batches included, have the same bits in this process and in workers, in any order."""

from pathlib import Path
from typing import Any

from launch_work import Log
from tiny_runs import bits, tiny

from benchmark.launch.local import launch
from benchmark.launch.tasks import RUN_WORK, Task

TRAINED = ("blood", "cifar100", "crop_flip", "ham10000", "reflect_crop_flip")
"""Augmentations that are quick to train on: small images in, small images out."""


def test_the_same_runs_in_workers(tmp_path: Path) -> None:
    """Bytes of the records, digest of the model, final metrics."""
    found = {}
    ways: dict[str, dict[str, Any]] = {
        "inline": {"kind": "inline"},
        "workers": {"kind": "local", "workers": 2},
    }
    for way, settings in ways.items():
        layers = [
            {
                "dataset": {"options": {"size": 24, "channels": 3, "train_size": 12, "test_size": 4}},
                "model": "tiny_cnn",
                "train": {"augment": name, "rounds": 2, "batch_size": 2},
            }
            for name in TRAINED
        ]
        runs = [tiny(tmp_path / way, layer) for layer in layers]
        if way == "workers":
            runs.reverse()
        tasks = [Task(run.key, run.train.rounds, run.model_dump(mode="json")) for run in runs]
        outcomes = launch(tasks, RUN_WORK, listener=Log(), **settings)
        assert [outcome.state for outcome in outcomes] == ["done"] * len(TRAINED)
        found[way] = {run.train.augment: bits(run) for run in runs}
    assert len({digest for _, digest, _ in found["inline"].values()}) == len(TRAINED)
    assert found["workers"] == found["inline"]
