"""From a configuration to a finished run: what is trained on, what is recorded, what is refused."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tiny_runs import carry_out, folder_of, index_of, result_of, tiny

from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Record
from benchmark.errors import UserError
from benchmark.runs.build import build_problem, choose_device
from benchmark.runs.data import load_data
from benchmark.runs.result_files import read_records
from benchmark.system import NO_MEMORY
from methods.core.samples import TwoArrays


def configuration(tmp_path: Path, *layers: dict[str, Any], seed: int = 0, **runtime: Any) -> RunConfig:
    return tiny(tmp_path / "results", *layers, seed=seed, **runtime)


def records_of(config: RunConfig) -> list[Record]:
    return read_records(folder_of(config).path, result_of(config))


# Data --------------------------------------------------------------------------------------------------------------


def test_subsample_is_balanced_and_the_same_for_all_seeds(tmp_path: Path) -> None:
    layer = {"dataset": {"train_per_class": 6, "test_per_class": 3}}
    one, two = (load_data(configuration(tmp_path, layer, seed=seed)) for seed in (0, 1))
    whole = load_data(configuration(tmp_path)).train
    assert Counter(one.train.labels.tolist()) == dict.fromkeys(range(4), 6)
    assert Counter(one.test.labels.tolist()) == dict.fromkeys(range(4), 3)
    np.testing.assert_array_equal(one.train.images, two.train.images)
    np.testing.assert_array_equal(one.test.images, two.test.images)
    # In the stored order, each sample once.
    places = [
        next(i for i, image in enumerate(whole.images) if (image == chosen).all())
        for chosen in one.train.images
    ]
    assert places == sorted(set(places))


def test_what_no_client_drew_is_test_data(tmp_path: Path) -> None:
    """400 training and 50 test images; each of 2 x 2 clients draws 2 of 5 classes and 3-4 images of each.

    No process copies the mapped files: not for training, not what is held out of it, not what joins the test set.
    """
    rule = {"name": "white_blood_cells", "clients_per_source": 2, "classes_per_client": [2, 2]}
    options = {"classes": 5, "sources": 2, "train_size": 400, "test_size": 50}
    layer = {
        "dataset": {"name": "fake", "options": options, "rest": "test"},
        "partition": {**rule, "samples_per_class": [3, 4]},
        "train": {"clients_per_round": None},
        "evaluation": {"validation": 0.2},
    }
    config = configuration(tmp_path, layer)
    data = load_data(config)
    assert data.validation is not None
    drawn = np.concatenate([*data.clients, data.validation])
    assert 4 * 2 * 3 <= len(drawn) <= 4 * 2 * 4
    np.testing.assert_array_equal(np.sort(np.concatenate([drawn, data.rest])), np.arange(400))
    problem = build_problem(config, data, choose_device("cpu"))
    test, held = (problem.evaluation_sets[name] for name in ("test", "validation"))
    every = slice(None)
    for mine, own, train in (
        (test.stored(every), data.test.images, data.train.images[data.rest]),
        (test.y, data.test.labels, data.train.labels[data.rest]),
        (held.stored(every), data.test.images[:0], data.train.images[data.validation]),
        (held.y, data.test.labels[:0], data.train.labels[data.validation]),
    ):
        np.testing.assert_array_equal(mine.numpy(), np.concatenate([own, train]))
    assert isinstance(data.train.images, np.memmap) and isinstance(data.test.images, np.memmap)
    assert isinstance(test.images, TwoArrays)
    for used in (problem.images, held.images, test.images.others):
        assert used.data_ptr() == data.train.images.ctypes.data and used.shape == data.train.images.shape
    assert test.images.first.data_ptr() == data.test.images.ctypes.data
    unused = load_data(configuration(tmp_path, layer, {"dataset": {"rest": "unused"}}))
    assert not len(unused.rest) and all(map(np.array_equal, unused.clients, data.clients))
    few = load_data(configuration(tmp_path, layer, {"dataset": {"test_per_class": 70}}))
    labels = [*few.test.labels, *few.train.labels[few.rest]]
    assert Counter(labels) == dict.fromkeys(range(5), 70) and set(few.rest) <= set(data.rest)


def test_validation_is_held_out_of_every_client(tmp_path: Path) -> None:
    whole = load_data(configuration(tmp_path))
    assert sorted(np.concatenate(whole.clients).tolist()) == list(range(96))
    assert whole.validation is None
    data = load_data(configuration(tmp_path, {"evaluation": {"validation": 0.25}}))
    assert data.validation is not None
    assert len(data.validation) == 6 * 4  # a quarter of 16 each
    for kept, all_of_it in zip(data.clients, whole.clients, strict=True):
        assert len(kept) == 12
        assert set(kept) < set(all_of_it)
        assert not set(kept) & set(data.validation)
    assert len(load_data(configuration(tmp_path, {"evaluation": {"validation": 0.99}})).clients[0]) == 1


def test_unseen_clients_never_take_part(tmp_path: Path) -> None:
    """A third of six clients; which ones depends on the seed of the split. Nothing of theirs is held out."""
    layer = {"evaluation": {"unseen": 0.34, "validation": 0.25}}
    whole = load_data(configuration(tmp_path))
    data = load_data(configuration(tmp_path, layer))
    assert len(data.unseen) == 2 and sorted([*data.ids, *data.unseen]) == list(range(6))
    for k, samples in data.unseen.items():
        np.testing.assert_array_equal(samples, whole.clients[k])
    for k, kept, held in zip(data.ids, data.clients, data.held_out, strict=True):
        np.testing.assert_array_equal(np.sort([*kept, *held]), whole.clients[k])
    measured = {"evaluation": {"measures": ["clients"]}}
    problem = build_problem(configuration(tmp_path, layer, measured), data, choose_device("cpu"))
    parts = {"validation": data.held_out, "unseen": list(data.unseen.values())}
    for split, expected in parts.items():
        samples, sizes = problem.client_sets[split]
        assert samples.rows is not None and sizes == [len(part) for part in expected]
        np.testing.assert_array_equal(samples.rows.numpy(), np.concatenate(expected))
        np.testing.assert_array_equal(samples.y.numpy(), data.train.labels[np.concatenate(expected)])
    drawn = {tuple(load_data(configuration(tmp_path, layer, seed=seed)).unseen) for seed in range(6)}
    assert len(drawn) > 1
    pinned = {"partition": {"seed": 3}}
    one, two = (load_data(configuration(tmp_path, layer, pinned, seed=seed)) for seed in (0, 1))
    assert list(one.unseen) == list(two.unseen)


# Running -----------------------------------------------------------------------------------------------------------


def test_records_in_long_form(tmp_path: Path) -> None:
    config = configuration(
        tmp_path,
        {"dataset": {"options": {"attributes": 2}}},
        {"train": {"rounds": 5}, "evaluation": {"every": 2, "validation": 0.25}},
    )
    seen: list[tuple[int, int]] = []
    assert carry_out(config, lambda *progress: seen.append(progress[:2])) == ("done", "")
    assert seen == [(number, 5) for number in range(6)]
    assert sorted(path.name for path in folder_of(config).path.iterdir()) == [
        *("config.yaml", "log.txt", "records.jsonl", "result.json"),
    ]
    records = records_of(config)
    rounds = {(r.split, r.round) for r in records}
    # Before training, every second round and the last; the loss of training in every round.
    assert sorted(r for split, r in rounds if split == "test") == [0, 2, 4, 5]
    assert sorted(r for split, r in rounds if split == "validation") == [0, 2, 4, 5]
    assert sorted(r for split, r in rounds if split == "train") == [1, 2, 3, 4, 5]
    assert len(records) == len({(r.round, r.split, r.group, r.metric) for r in records}), "a value came twice"
    assert all(math.isfinite(r.value) for r in records)
    last = {r.metric: r.value for r in records if (r.round, r.split, r.group) == (5, "test", "all")}
    final = result_of(config).final
    assert final["test"] == last
    assert set(final) == {"test", "validation"}
    assert {"accuracy", "micro_f1", "balanced_accuracy", "worst_group_accuracy", "loss"} <= set(last)
    by_group = {r.group: r.value for r in records if (r.round, r.split, r.metric) == (5, "test", "accuracy")}
    # 40 test images fill the 4 classes and the 8 groups evenly: the whole is the mean of its parts.
    groups = [value for group, value in by_group.items() if "," in group]
    assert (len(groups), min(groups)) == (8, last["worst_group_accuracy"])
    for kind, count in (("class", 4), ("attribute", 2)):
        parts = [value for group, value in by_group.items() if group.startswith(kind) and "," not in group]
        assert len(parts) == count
        assert np.mean(parts) == pytest.approx(last["accuracy"])


def test_it_learns(tmp_path: Path) -> None:
    config = configuration(tmp_path, {"train": {"rounds": 15, "epochs": 2}})
    carry_out(config)
    records = records_of(config)
    values = {r.round: r.value for r in records if r[1:4] == ("test", "all", "accuracy")}
    assert values[15] > 0.9, "four fixed patterns in noise are easy"
    assert values[0] < 0.7


# Trouble -----------------------------------------------------------------------------------------------------------


def test_too_little_memory_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(tmp_path)
    said = "DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes."
    monkeypatch.setattr(FederatedRun, "run_round", Mock(side_effect=RuntimeError(said)))
    with pytest.raises(UserError) as caught:
        carry_out(config)
    assert str(caught.value) == NO_MEMORY
    assert index_of(config).state(config.key) == "failed"
    assert (folder_of(config).last_failure() or ("",))[0] == NO_MEMORY


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({"train": {"clients_per_round": 7}}, r"train\.clients_per_round: got 7; expected 1 to 6"),
        ({"partition": {"clients": 200}}, "200 clients for 96 samples"),
        ({"dataset": {"train_per_class": 25}}, r"dataset\.train_per_class: got 25; .*class 0 has only 24"),
        ({"dataset": {"test_per_class": 25}}, r"dataset\.test_per_class: got 25; .*class 0 has only 10"),
        ({"train": {"augment": "ham10000"}}, r"train\.augment: got 'ham10000'; .*1 channel"),
    ],
)
def test_a_users_mistake_is_raised_and_noted(tmp_path: Path, layer: dict[str, Any], said: str) -> None:
    config = configuration(tmp_path, layer)
    with pytest.raises(UserError, match=said):
        carry_out(config)
    message, _ = folder_of(config).last_failure() or ("", None)
    assert re.search(said, message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"runtime\.device: got 'cuda:1'; expected auto or cpu"):
        carry_out(configuration(tmp_path, device="cuda:1"))
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_is_as_the_configuration_says(tmp_path: Path, tf32: bool) -> None:
    """Torch's own default is another one for convolutions than for products."""
    assert carry_out(tiny(tmp_path, {"precision": {"tf32": tf32}})).state == "done"
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is tf32
