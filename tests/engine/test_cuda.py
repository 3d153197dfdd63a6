"""Runs on a GPU, where there is one: the CPU's numbers up to rounding, the same bits again, no wait in a step."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from every_file import RESNET, both_variants, small_network
from federations import assert_close, assert_resumes, class_run, classes, mlp, run, same
from tiny_runs import bits, carry_out, folder_of, tiny
from torch import nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.graphs import StepRecorder
from benchmark.engine.training import LocalTrainer
from benchmark.models.flat import FlatModel
from benchmark.models.networks import Net, model_names
from methods.core.method import build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

BASE: dict[str, Any] = {
    "dataset": {"options": {"channels": 3}},
    "model": "tiny_cnn",
    "train": {"clients_per_round": 2, "lr": 0.01, "epochs": 3, "batch_size": 5},
}

SGD = {"momentum": 0.5, "clip": 1.0, "weight_decay": 1e-3}

DROPOUT = ("fedsdc", "fedsdc_m2", "fedsdc_plus")
"""Methods whose heads have dropout, which a GPU draws from a stream of its own."""


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local step that waits for the GPU raises."""
    make_step = LocalTrainer.step_function

    def step_function(*args: Any) -> Callable[..., Any]:
        step = make_step(*args)

        def watched(*batch: torch.Tensor) -> Any:
            torch.cuda.set_sync_debug_mode("error")
            try:
                return step(*batch)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return watched

    monkeypatch.setattr(LocalTrainer, "step_function", step_function)
    yield


def on(device: str, settings: dict[str, Any], net_seed: int = 0, **options: Any) -> FederatedRun:
    """Three rounds in float64 on ``device``."""
    problem = classes()
    problem = replace(problem, images=problem.images.to(device), labels=problem.labels.to(device))
    method = build({k: v for k, v in settings.items() if k not in ("label", "tables", "selection")})
    net = lambda: mlp().to(device)  # noqa: E731
    return class_run(method, problem=problem, net=net, net_seed=net_seed, **SGD, **options)


@both_variants("method")
def test_methods(no_waits: None, name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """The CPU's numbers; the same bits with CUDA graphs, and after a stop."""
    found = run(on("cuda", settings))[-1]
    if name not in DROPOUT:
        assert_close(run(on("cpu", settings))[-1], found, 1e-9)
    recorded = on("cuda", settings)
    recorded.clients.trainer.recorder = StepRecorder(torch.device("cuda"))
    assert same(run(recorded)[-1], found)
    assert_resumes(lambda seed: on("cuda", settings, seed, rounds=4), tmp_path)


def the_same_bits(tmp_path: Path, *layers: dict[str, Any]) -> None:
    """A run on the GPU; repeated; interrupted and continued; with its steps recorded."""
    names = ("whole", "again", "resumed", "recorded")
    whole, again, resumed, recorded = (
        tiny(tmp_path / name, BASE, *layers, device="cuda", cuda_graphs=name == "recorded") for name in names
    )
    for config in (whole, again, recorded):
        assert carry_out(config).state == "done", folder_of(config).last_failure()
    rounds: list[int] = []
    first = carry_out(resumed, lambda done, *_: rounds.append(done), lambda: rounds[-1:] == [2])
    assert first.state == "missing"
    assert carry_out(resumed).state == "done"
    assert bits(whole) == bits(again)
    assert bits(whole) == bits(resumed)
    assert bits(whole) == bits(recorded)


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", model_names())
def test_networks(no_waits: None, name: str, amp: bool, tmp_path: Path) -> None:
    the_same_bits(tmp_path, small_network(name), {"precision": {"amp": amp}})


@pytest.mark.parametrize("name", ["fedmr", "fedsam", "moon", "scaffold"])
def test_whole_runs(no_waits: None, name: str, tmp_path: Path) -> None:
    the_same_bits(
        tmp_path, RESNET, {"method": name, "precision": {"amp": True}, "train": {"augment": "crop_flip"}}
    )


@pytest.mark.parametrize("place", ["host", "device"])
def test_the_place_of_clients_states(place: str, tmp_path: Path) -> None:
    config = tiny(tmp_path, BASE, {"method": "feddc"}, device="cuda", client_state=place)
    other = tiny(tmp_path / "other", BASE, {"method": "feddc"}, device="cuda")
    assert carry_out(config).state == carry_out(other).state == "done"
    assert bits(config) == bits(other)


@pytest.mark.parametrize("odd", [4, 5, 6])
def test_batch_norm_behind_tensors_of_any_size(odd: int) -> None:
    """Parameters and statistics are views into one vector; cuDNN's BatchNorm takes them at multiples of 16 bytes."""
    first = [nn.Conv2d(3, odd, 3), nn.BatchNorm2d(odd)]
    body = nn.Sequential(
        *first, nn.Conv2d(odd, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    net = Net(body, nn.Linear(8, 3), 8)
    x, y = torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 2, 0])
    found = []
    for device in ("cpu", "cuda"):
        model = FlatModel(copy.deepcopy(net), device=torch.device(device), channels_last=True)
        model.forward(x.to(device, memory_format=torch.channels_last), y.to(device))[2].backward()
        model.collect_gradients()
        found.append(torch.cat([model.g, model.buffers]).cpu())
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-3)
