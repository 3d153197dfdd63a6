"""Augmented batches are a matter of seed, round and client: not of workers, threads or who trains before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launch_work import Log
from pixel_work import pixels
from tiny_runs import bits, tiny

from benchmark.config.schema import RunConfig
from benchmark.launch.local import launch
from benchmark.launch.tasks import RUN_WORK, Task
from benchmark.transforms.augmentation import AUGMENTATIONS

pytestmark = pytest.mark.xdist_group("launch")  # one worker, as all tests share the runs of one fixture
NAMES = sorted(set(AUGMENTATIONS) - {"none"})
TRAINED = ("blood", "cifar100", "crop_flip", "ham10000", "reflect_crop_flip")
"""Those that are quick to train on: small images in, small images out."""

PARTS = ([5], [4, 1], [0, 3, 2])
"""Clients of one process, in the order in which they train there."""


def augmented(results: Path, name: str, seed: int = 0) -> RunConfig:
    """Six clients with two images each, small where that is allowed."""
    size = 232 if name in ("waterbirds", "isic2019") else 24
    layer = {
        "dataset": {"options": {"size": size, "channels": 3, "train_size": 12, "test_size": 4}},
        "model": "tiny_cnn",
        "train": {"augment": name, "rounds": 2, "batch_size": 2},
    }
    return tiny(results, layer, seed=seed)


def payload(config: RunConfig, clients: list[int]) -> dict[str, Any]:
    return {"run": config.model_dump(mode="json"), "clients": clients}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What clients see in two worker processes of two threads, three times some of them, by augmentation."""
    results = tmp_path_factory.mktemp("elsewhere")
    tasks = [
        Task(f"{name} {part}", 2, payload(augmented(results, name), part)) for part in PARTS for name in NAMES
    ]
    outcomes = launch(tasks, "pixel_work:pixels", kind="local", workers=2, threads=2, listener=Log())
    found: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    for outcome in outcomes:
        assert outcome.state == "done", outcome.message
        found[outcome.key.split()[0]] |= json.loads(outcome.message)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_same_pixels_in_every_process_in_any_order_on_any_threads(
    tmp_path: Path, elsewhere: dict[str, dict[str, str]], name: str
) -> None:
    _, text = pixels(payload(augmented(tmp_path, name), list(range(6))), None, None)
    here = json.loads(text)
    assert sorted(here) == [f"{round} {client}" for round in range(2) for client in range(6)]
    assert here == elsewhere[name]
    assert len(set(here.values())) == 12
    other = json.loads(pixels(payload(augmented(tmp_path, name, seed=1), [0]), None, None)[1])
    assert other["0 0"] != here["0 0"]


def test_the_same_runs_with_any_number_of_workers(tmp_path: Path) -> None:
    """Bytes of the records, digest of the model, final metrics."""
    ways: dict[str, dict[str, Any]] = {
        "inline": {"kind": "inline"},
        "two workers": {"kind": "local", "workers": 2},
    }
    found = {}
    for way, settings in ways.items():
        runs = [augmented(tmp_path / way, name) for name in TRAINED]
        if way == "two workers":
            runs.reverse()
        tasks = [Task(run.key, run.train.rounds, run.model_dump(mode="json")) for run in runs]
        outcomes = launch(tasks, RUN_WORK, listener=Log(), **settings)
        assert [outcome.state for outcome in outcomes] == ["done"] * len(TRAINED)
        found[way] = {run.train.augment: bits(run) for run in runs}
    assert len({digest for _, digest, _ in found["inline"].values()}) == len(TRAINED)
    assert found["two workers"] == found["inline"]
