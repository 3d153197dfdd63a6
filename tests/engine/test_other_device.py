"""Runs on a device that is not the CPU (`shadow_device`): no mixing of devices, the CPU's bits, few waits."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from every_file import RESNET, both_variants, images, small_network
from shadow_device import register
from shadow_runs import Comparison, Mistake, compare, draws_after_seeding, reaction

from benchmark.engine.randomness import seed_torch
from benchmark.models.networks import model_names
from benchmark.transforms.augmentation import AUGMENTATIONS

WAITS_PER_VISIT = 2
"""Most waits for each client's visit."""

MORE_WAITS: Mapping[str, int] = {"isfl": 1}
"""Waits on top of `WAITS_PER_VISIT`. numpy draws ISFL's samples, from q_k and the labels; whether w has moved decides
what the client uploads."""

Compare = Callable[..., Comparison]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Any]]:
    """Calls functions in a process in which the device is registered."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), register) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()


def check(found: Comparison, more_waits: int = 0, differs: tuple[str, ...] = ()) -> None:
    """The run has the CPU's bits, except in what ``differs``, and does not wait more than it may."""
    assert set(found.differences) <= set(differs)
    assert len(found.visits) >= 6 and len(found.steps) >= 12, "the run was not watched"
    assert not [wait for step in found.steps for wait in step]
    assert [len(read) for read in found.reads] == [1, 1, 1]
    longest = max(found.visits, key=len)
    assert len(longest) <= WAITS_PER_VISIT + more_waits, longest


# Rules -----------------------------------------------------------------------------------------------------------


@both_variants("method")
def test_methods(elsewhere: Compare, name: str, settings: dict[str, Any]) -> None:
    check(elsewhere(compare, {"method": settings}), MORE_WAITS.get(name, 0))


SHORT = {"feddiverse": {"tau_b": 3, "tau_a": 2}, "hcsfed": {"r": 0.1}}
"""FedDiverse takes 780 steps otherwise."""


@both_variants("selection")
def test_selections(elsewhere: Compare, name: str, settings: dict[str, Any]) -> None:
    check(elsewhere(compare, {"selection": settings | SHORT.get(name, {})}))


# Networks, precision, augmentation -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_networks(elsewhere: Compare, name: str) -> None:
    layers = small_network(name) | {"train": {"lr": 0.01}}
    # Where operations pass through Python, autograd adds no gradients of two branches in place: EfficientNet's last
    # bits are others then.
    check(elsewhere(compare, layers, None, name == "efficientnet_b0"))


@pytest.mark.parametrize(
    "name", ["fedavg", "fedmr", "fedntd", "fedpac", "fedproc", "fedsam", "moon", "BatchNorm"]
)
def test_mixed_precision(elsewhere: Compare, name: str) -> None:
    """Methods with a loss, a second gradient or frozen models of their own; a network with BatchNorm."""
    layers = RESNET if name == "BatchNorm" else {"method": name}
    check(elsewhere(compare, layers | {"precision": {"amp": True}}), MORE_WAITS.get(name, 0))


JITTER = ("w", "records")
"""The order of its steps is drawn from the CPU's stream, which is the device's stream too on a CPU only."""

OTHER_RESIZE = ("records",)
"""torchvision resizes uint8 images (here: for evaluation) in uint8 on a CPU, in float32 elsewhere."""

SIZES = {"isic2019": 200, "waterbirds": 224, "retina": 32, "covid_fl": 32}
DIFFERS = {"blood": JITTER, "ham10000": JITTER, "retina": OTHER_RESIZE, "covid_fl": OTHER_RESIZE}


@pytest.mark.parametrize("name", [name for name, augmentation in AUGMENTATIONS.items() if augmentation])
def test_augmentations(elsewhere: Compare, name: str) -> None:
    large = name in SIZES
    layers = images(SIZES.get(name, 8)) | {"model": {"name": "tiny_cnn", "stride": 16 if large else 1}}
    check(elsewhere(compare, layers | {"train": {"augment": name}}), 0, DIFFERS.get(name, ()))


@pytest.mark.parametrize(
    ("name", "place", "device"),
    [
        ("feddc", "host", "cpu"),
        ("feddc", "device", "shadow"),
        ("feddc", None, "shadow"),
        ("fedrep", "host", "cpu"),
        ("BatchNorm", "host", "cpu"),
    ],
)
def test_the_place_of_clients_states(elsewhere: Compare, name: str, place: str | None, device: str) -> None:
    """States of rules, personal groups, statistics: everywhere the CPU's bits, and no wait for a copy."""
    layers = RESNET | {"train": {"buffers": "local"}} if name == "BatchNorm" else {"method": name}
    found = elsewhere(compare, layers, None, False, place)
    check(found)
    assert found.kept == [{device}] * 3 and not any(found.visits)


def test_measures(elsewhere: Compare) -> None:
    """Where operations pass through Python, torch computes singular values together with their vectors."""
    check(elsewhere(compare, {"evaluation": {"measures": ["eigenvalue_spread"]}}, None, True))


# The check itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("there + host", "MixedDevices"),
        ("host.add_(there)", "MixedDevices"),
        ("host[there.long()]", "MixedDevices"),
        ("there.numpy()", "TypeError"),
        ("torch.stack([there[0], host[0]])", "MixedDevices"),
        ("torch.rand(2, device='shadow', generator=torch.Generator())", "MixedDevices"),
        ("there + host[0]", []),
        ("there.to(torch.float64)", []),
        ("there.copy_(host.pin_memory(), non_blocking=True)", []),
        ("there.copy_(host, non_blocking=True)", ["copy to the device"]),
        ("there.copy_(host.pin_memory())", ["copy to the device"]),
        ("there.copy_(there.to('cpu', non_blocking=True), non_blocking=True)", []),
        ("there.copy_(host)", ["copy to the device"]),
        ("torch.tensor([1.0], device='shadow')", ["copy to the device"]),
        ("there.cpu()", ["copy to the host"]),
        ("there.tolist()", ["copy to the host"]),
        ("there[host.long()]", ["an index on the host"]),
        ("there[there > 0]", ["a mask as an index"]),
        ("there.nonzero()", ["nonzero"]),
        ("there[0].item()", ["_local_scalar_dense"]),
        ("bool(there.any())", ["_local_scalar_dense"]),
    ],
)
def test_the_device_is_as_strict_as_cuda(
    elsewhere: Callable[..., Any], expression: str, expected: str | list[str]
) -> None:
    assert elsewhere(reaction, expression) == expected


STEP = "benchmark.engine.training:LocalTrainer.step_function"
SEED = "benchmark.engine.randomness:seed_torch"
BUFFERS = "benchmark.models.flat:FlatModel._bind_buffers"


@pytest.mark.parametrize(
    ("function", "right", "wrong", "layers", "expected"),
    [
        (STEP, "to_device(mask, w.device)", "mask",
         {"method": "fedrep"}, "MixedDevices"),
        ("methods.fedpac:FedPAC.receive", ".to(heads)", ".to(heads.dtype)", {"method": "fedpac"}, "MixedDevices"),
        ("methods.shared.fast:inter_class", ", device=y.device", "", {"method": "fedmr"}, "MixedDevices"),
        ("benchmark.engine.evaluation:predict", "predicted.cpu()", "predicted", {}, "TypeError"),
        (SEED, 'device.type != "cpu"', "False", {"train": {"augment": "crop_flip"}}, "w"),
        ("methods.core.vectors:combine", "c.to(updates.device)", "c", {"method": "fedgh"}, "MixedDevices"),
        ("methods.core.vectors:gram", "total.cpu()", "total", {"method": "fedld_principal"}, "MixedDevices"),
        (BUFFERS, "torch.bool, device=self._w.device", "torch.bool", RESNET, "MixedDevices"),
        ("methods.shared.prototypes:Prototypes.setup", "w.dtype, device=w.device", "w.dtype", {"method": "fedproc"},
         "MixedDevices"),
        ("benchmark.engine.federation:FederatedRun.restored", "tensor.to(self.clients.device)", "tensor",
         {"method": "scaffold"}, "MixedDevices"),
    ],
)  # fmt: skip
def test_mistakes_are_caught(
    elsewhere: Compare, function: str, right: str, wrong: str, layers: dict[str, Any], expected: str
) -> None:
    """Each goes unseen on the CPU, where the same mistaken code runs to its end."""
    differences = elsewhere(compare, layers, Mistake(function, right, wrong)).differences
    assert differences[0].split(":")[0] == expected


def test_seeding_touches_no_other_device(elsewhere: Callable[..., Any]) -> None:
    expected = float(torch.rand((), generator=torch.Generator().manual_seed(7)))
    assert elsewhere(draws_after_seeding, 7) == [expected, expected]


def test_the_second_gpu_is_seeded_where_it_is_the_run_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU seeds the generator of the one that is current."""
    current, seeded = [0], []

    @contextlib.contextmanager
    def device(wanted: torch.device) -> Iterator[None]:
        current.append(wanted.index)
        yield
        current.pop()

    module = SimpleNamespace(device=device, manual_seed=lambda seed: seeded.append((current[-1], seed)))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    seed_torch(7, torch.device("cuda:1"))
    assert seeded == [(1, 7)] and current == [0]


def test_a_wait_in_a_step_is_caught(elsewhere: Compare) -> None:
    found = elsewhere(compare, {}, Mistake(STEP, "return ce, again", "return ce, ce.item() < 0"))
    assert found.differences == []
    assert {wait.operation for step in found.steps for wait in step} == {"_local_scalar_dense"}
