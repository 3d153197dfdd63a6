"""What ``bench transforms`` measures is what the papers' presets train on, and every way ends in the same shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmark.bench import transforms as bench_transforms
from benchmark.bench.transforms import CASES, kornia_augmentation, seconds, ways
from benchmark.experiments.estimate import facts_of
from benchmark.experiments.plan import plan, unique_runs
from benchmark.experiments.tables import find_specs

CPU = torch.device("cpu")


def test_the_cases_are_those_of_the_papers() -> None:
    """Augmentation, batch and, where it is known without the data, stored size of all runs of all tables."""
    wanted = set()
    for spec in (spec for spec in find_specs() if "paper" in spec.presets):
        for run in unique_runs([plan(spec, "paper", [0])]).values():
            if run.train.augment != "none":
                wanted.add((run.train.augment, run.train.batch_size))
                facts = facts_of(run)
                assert facts is None or facts.size == CASES[run.train.augment].size
    assert wanted == {(name, case.batch) for name, case in CASES.items()}


@pytest.mark.filterwarnings("ignore:Scale and ratio should be")
@pytest.mark.parametrize("name", CASES)
def test_every_way_ends_in_the_same_shape(name: str) -> None:
    size = CASES[name].size
    images = torch.full((2, 3, size, size), 255, dtype=torch.uint8)
    known = ways(name, CPU, kornia_augmentation())
    assert {"ours", "each", "batch"} <= known.keys()
    shapes = set()
    for way in known.values():
        torch.manual_seed(0)
        out = way(images)
        assert out.dtype == torch.float32
        # White is (1 - .406)/.225 = 2.64 in the last channel; a little less light leaves no more than 1.04.
        assert 0.9 < float(out[:, 2].max()) < 2.641
        shapes.add(out.shape)
    assert len(shapes) == 1


def test_the_first_time_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_transforms, "SECONDS", 0.0)
    spans = ((0.0, 9.0), (9.0, 10.0), (10.0, 13.0), (13.0, 15.0))
    clock = iter([0.0, *(read for began, ended in spans for read in (began, began, ended)), 15.0])
    monkeypatch.setattr(bench_transforms.time, "perf_counter", lambda: next(clock))
    assert seconds({"ours": lambda x: x}, torch.zeros(1)) == {"ours": 2.0}  # of 9, 1, 3 and 2 seconds


def test_the_command(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_transforms, "SECONDS", 0.0)
    monkeypatch.setattr(bench_transforms, "CASES", {"cifar100": replace(CASES["cifar100"], batch=4)})
    monkeypatch.setattr(bench_transforms, "kornia_augmentation", lambda: None)
    monkeypatch.setattr(bench_transforms, "usable_cores", lambda: 2)
    code, out, _ = cli("bench", "transforms", "device=cpu")
    assert code == 0
    assert "kornia is not installed; 2 cores" in out
    assert out.count(" cifar100 ") == 2 and "not the same" in out and "4 of 32 x 32" in out
