"""From a configuration to a finished run: what is trained on, what is recorded, what is refused."""

import errno
import math
import os
import re
from collections import Counter
from dataclasses import replace
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
from benchmark.errors import ConfigError, UserError
from benchmark.runs.build import build_problem, build_run, choose_device
from benchmark.runs.data import load_data, prepare_data
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


@pytest.mark.parametrize(
    ("given", "side", "expected"), [(512, 8, 512), (512, 384, 37), (20, 384, 20), (512, 224, 111)]
)
def test_batches_of_evaluation_have_16_million_numbers_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int, side: int, expected: int
) -> None:
    """2^24 / (3 x 384 x 384) = 37.9, 2^24 / (3 x 224 x 224) = 111.4."""
    config = configuration(tmp_path, {"evaluation": {"batch_size": given}})
    data = load_data(config)
    large = replace(data.train, images=np.broadcast_to(np.uint8(0), (len(data.train), 3, side, side)))
    dataset = replace(data.dataset, mean=(0.5,) * 3, std=(0.5,) * 3)
    data = replace(data, dataset=dataset, train=large, test=large)
    problem = build_problem(config, data, choose_device("cpu"))
    assert problem.evaluation_sets["test"].batch_size == expected


def test_partitions_belong_to_the_seed_or_to_the_data(tmp_path: Path) -> None:
    def clients(seed: int, pinned: int | None) -> list[list[int]]:
        data = load_data(configuration(tmp_path, {"partition": {"seed": pinned}}, seed=seed))
        return [client.tolist() for client in data.clients]

    assert clients(0, None) != clients(1, None)
    assert clients(0, 5) == clients(1, 5) == clients(5, None)


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


def test_records_over_clients(tmp_path: Path) -> None:
    """All four numbers and the percentiles; participants are named by their numbers in the partition."""
    layer = {"evaluation": {"measures": ["clients"], "unseen": 0.34, "validation": 0.25}}
    config = configuration(tmp_path, layer, {"train": {"clients_per_round": 3}})
    assert carry_out(config).state == "done"
    data, records = load_data(config), records_of(config)
    taken = {int(r.group.removeprefix("client=")) for r in records if r.split == "participation"}
    assert taken <= set(data.ids) and len(taken) >= 3
    final = result_of(config).final
    for split, name in (("validation", "client"), ("unseen", "unseen")):
        mean, worst, low, spread = (
            final[split][f"{name}_{key}"] for key in ("mean", "worst", "p10", "spread")
        )
        curve = [r.value for r in records if (r.round, r.split, r.metric) == (3, split, f"{name}_accuracy")]
        assert curve == sorted(curve) and (worst, low, len(curve)) == (curve[0], curve[1], 11)
        assert worst <= mean <= curve[-1] and 0 <= spread <= 0.5
    # All clients have as many samples, so their mean is that of the pooled validation set.
    assert final["validation"]["client_mean"] == pytest.approx(final["validation"]["accuracy"])
    assert result_of(config).made["unseen"] == list(data.unseen)


@pytest.mark.parametrize(
    ("evaluation", "train", "message"),
    [
        ({"measures": ["clients"]}, {}, r"evaluation.validation: got 0.0; expected a number > 0 and < 1"),
        ({"unseen": 0.1}, {}, r"evaluation.unseen: got 0.1; expected 0, or at least 0.167"),
        (
            {"unseen": 0.2},
            {"clients_per_round": 6},
            r"1 to 5 \(the partition has 6 clients, 1 never take part\)",
        ),
    ],
)
def test_refusals_about_clients(
    tmp_path: Path, evaluation: dict[str, Any], train: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config = configuration(tmp_path, {"evaluation": evaluation, "train": train})
        build_run(config, load_data(config))


def test_data_are_prepared_once_and_all_missing_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = configuration(tmp_path, seed=0), configuration(tmp_path, seed=1)
    asked: list[str] = []

    def missing(what: Any, *_: Any) -> None:
        asked.append(what if isinstance(what, str) else "weights")
        raise ConfigError(f"{asked[-1]} not there")

    monkeypatch.setattr("benchmark.runs.data.datasets.load", missing)
    monkeypatch.setattr("benchmark.runs.data.fetch_weights", missing)
    other = configuration(tmp_path, {"dataset": "cifar10", "model": {"name": "resnet50", "pretrained": True}})
    with pytest.raises(ConfigError, match=r"^fake not there\n\ncifar10 not there\n\nweights not there$"):
        prepare_data([one, two, other, other])
    assert asked == ["fake", "cifar10", "weights"]


def test_what_is_cut_in_training_is_cut_wherever_images_are_looked_at(tmp_path: Path) -> None:
    """Images of 256 pixels with WaterBirds' augmentation: 224, the middle without chance where nothing is trained."""
    layer = {
        "dataset": {"options": {"size": 256, "channels": 3, "train_size": 24, "test_size": 8}},
        "model": "tiny_cnn",
        "train": {"augment": "waterbirds", "clients_per_round": 1},
        "evaluation": {"validation": 0.25},
    }
    config = configuration(tmp_path, layer)
    data = load_data(config)
    run = build_run(config, data)
    problem = run.problem
    assert problem.images.shape[1:] == (3, 256, 256)
    middle = torch.from_numpy(np.array(data.train.images[:2, :, 16:240, 16:240]))
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (data.dataset.mean, data.dataset.std))
    for transform in (problem.transform, *(held.transform for held in problem.evaluation_sets.values())):
        torch.testing.assert_close(
            transform(problem.images[:2]), (middle / 255 - mean) / std, rtol=1e-4, atol=1e-4
        )
    x, _ = next(run.clients.data(0).batches())
    assert x.shape[1:] == (3, 224, 224)
    # The network is built for what it sees, and trains on what is cut already.
    linear = next(m for m in run.model.net.modules() if isinstance(m, torch.nn.Linear))
    assert linear.in_features == 16 * 56 * 56
    run.run_round(run.initial_state())


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


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there is no inode left for it."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr("logging.FileHandler._open", Mock(side_effect=full))
    assert carry_out(configuration(tmp_path)).state == "done"


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


def test_threads_are_what_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("benchmark.runs.execute.threadpool_limits", seen.append)
    config = configuration(tmp_path, {"train": {"rounds": 1}}, threads=2)
    carry_out(config)
    assert seen == [2]
    assert result_of(config).origin["threads"] == 2


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_is_as_the_configuration_says(tmp_path: Path, tf32: bool) -> None:
    """Torch's own default is another one for convolutions than for products."""
    assert carry_out(tiny(tmp_path, {"precision": {"tf32": tf32}})).state == "done"
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is tf32
