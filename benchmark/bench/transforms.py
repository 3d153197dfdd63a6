"""What augmentation costs: ours beside torchvision's and kornia's, on the batches of the papers.

``python -m benchmark bench transforms``. Each way begins with stored uint8 images on the device and ends with a
normalised float batch there. torchvision's and kornia's steps are those of the authors' codes, one after the other;
ours read the image once.
"""

from __future__ import annotations

import importlib
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as TextTable
from torch import Tensor
from torchvision.transforms import v2

from benchmark.launch.resources import usable_cores
from benchmark.runs.build import choose_device
from benchmark.transforms.augmentation import AUGMENTATIONS, BIRD_SIZE, RETINA_SIZE, SKIN_SIZE, Normalise

SECONDS, REPEATS = 2.0, 3
"""So long a case is measured at least, and so often."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Way = Callable[[Tensor], Tensor]
Steps = list[Any]


@dataclass(frozen=True)
class Case:
    """A batch as a paper's preset has it: so many images, stored at ``size`` x ``size``, and what happens to them.

    ``torchvision`` makes the steps of the authors' code; ``kornia`` the same, out of ``kornia.augmentation``.
    """

    batch: int
    size: int
    torchvision: Callable[[], Steps]
    kornia: Callable[[Any], Steps]


def _crop_turn_flip(scale: tuple[float, float]) -> Callable[[], Steps]:
    return lambda: [
        v2.RandomResizedCrop(RETINA_SIZE, scale),
        v2.RandomRotation(10),
        v2.RandomHorizontalFlip(),
    ]


def _kornia_crop_turn_flip(scale: tuple[float, float]) -> Callable[[Any], Steps]:
    def steps(k: Any) -> Steps:
        crop = k.RandomResizedCrop((RETINA_SIZE, RETINA_SIZE), scale)
        return [crop, k.RandomRotation(10.0, p=1.0), k.RandomHorizontalFlip()]

    return steps


def _blood() -> Steps:
    return [
        v2.RandomResizedCrop(224, (0.8, 1.0)),
        v2.RandomHorizontalFlip(),
        v2.RandomRotation(180),
        v2.ColorJitter(0.2, 0.2, 0.2, 0.2),
        v2.RandomGrayscale(0.5),
    ]


def _kornia_blood(k: Any) -> Steps:
    return [
        k.RandomResizedCrop((224, 224), (0.8, 1.0)),
        k.RandomHorizontalFlip(),
        k.RandomRotation(180.0, p=1.0),
        k.ColorJitter(0.2, 0.2, 0.2, 0.2, p=1.0),
        k.RandomGrayscale(p=0.5),
    ]


def _ham10000() -> Steps:
    flips: Steps = [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]
    return [*flips, v2.RandomRotation(20), v2.ColorJitter(0.1, 0.1, 0.0, 0.1)]


def _kornia_ham10000(k: Any) -> Steps:
    flips: Steps = [k.RandomHorizontalFlip(), k.RandomVerticalFlip()]
    return [*flips, k.RandomRotation(20.0, "nearest", p=1.0), k.ColorJitter(0.1, 0.1, 0.0, 0.1, p=1.0)]


HOLE = (16 / SKIN_SIZE) ** 2
"""Share of the image that a hole of 16 pixels takes. There are 1 to 8 of them, here 4."""


def _isic2019() -> Steps:
    holes = [v2.RandomErasing(1.0, (HOLE, HOLE), (1.0, 1.0)) for _ in range(4)]
    maybe: Steps = [
        v2.RandomAffine(0, scale=(0.93, 1.07)),
        v2.RandomRotation(50),
        v2.ColorJitter(0.15, 0.1),
        v2.RandomChoice([v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)]),
        v2.RandomAffine(0, shear=(-0.1, 0.1, -0.1, 0.1)),
    ]
    return [*(v2.RandomApply([step]) for step in maybe), v2.RandomCrop(SKIN_SIZE), v2.RandomApply(holes)]


def _kornia_isic2019(k: Any) -> Steps:
    return [
        k.RandomAffine(0.0, scale=(0.93, 1.07), p=0.5),
        k.RandomRotation(50.0, p=0.5),
        k.ColorJitter(0.15, 0.1, p=0.5),
        k.RandomHorizontalFlip(p=1 / 3),
        k.RandomVerticalFlip(p=1 / 3),
        k.RandomAffine(0.0, shear=(-0.1, 0.1, -0.1, 0.1), p=0.5),
        k.RandomCrop((SKIN_SIZE, SKIN_SIZE)),
        *(k.RandomErasing((HOLE, HOLE), (1.0, 1.0), p=0.5) for _ in range(4)),
    ]


def _waterbirds() -> Steps:
    return [v2.CenterCrop(BIRD_SIZE), v2.RandomCrop(BIRD_SIZE, 24), v2.RandomHorizontalFlip()]


def _kornia_waterbirds(k: Any) -> Steps:
    side = (BIRD_SIZE, BIRD_SIZE)
    return [k.CenterCrop(side), k.RandomCrop(side, 24), k.RandomHorizontalFlip()]


def _cifar10() -> Steps:
    return [v2.RandomCrop(32, 4, padding_mode="reflect"), v2.RandomHorizontalFlip()]


def _cifar100() -> Steps:
    return [v2.RandomCrop(32, 4), v2.RandomHorizontalFlip(), v2.RandomRotation(15)]


def _kornia_cifar10(k: Any) -> Steps:
    return [k.RandomCrop((32, 32), 4, padding_mode="reflect"), k.RandomHorizontalFlip()]


def _kornia_cifar100(k: Any) -> Steps:
    return [k.RandomCrop((32, 32), 4), k.RandomHorizontalFlip(), k.RandomRotation(15.0, "nearest", p=1.0)]


CASES = {
    "retina": Case(50, 256, _crop_turn_flip((0.6, 1.0)), _kornia_crop_turn_flip((0.6, 1.0))),
    "covid_fl": Case(50, 384, _crop_turn_flip((0.8, 1.2)), _kornia_crop_turn_flip((0.8, 1.2))),
    "blood": Case(32, 224, _blood, _kornia_blood),
    "ham10000": Case(64, 56, _ham10000, _kornia_ham10000),
    "isic2019": Case(128, 224, _isic2019, _kornia_isic2019),
    "waterbirds": Case(28, 256, _waterbirds, _kornia_waterbirds),
    "reflect_crop_flip": Case(128, 32, _cifar10, _kornia_cifar10),
    "cifar100": Case(128, 32, _cifar100, _kornia_cifar100),
}

COLUMNS = {
    "ours": "ours",
    "each": "torchvision v2,\nan image at a time",
    "batch": "torchvision v2, one draw\nfor all: not the same",
    "kornia": "kornia",
}


def kornia_augmentation() -> Any | None:
    """The module, where it is installed."""
    try:
        return importlib.import_module("kornia.augmentation")
    except ImportError:
        return None


def ways(name: str, device: torch.device, kornia: Any | None) -> dict[str, Way]:
    """Functions from uint8 images [B, 3, H, W] to normalised floats, by column; kornia's only where it is given."""
    case, found = CASES[name], AUGMENTATIONS[name]
    assert found is not None
    train = found.train
    normalise = Normalise.of(MEAN, STD, torch.float32, device, channels_last=False)
    chain = v2.Compose([*case.torchvision(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    known: dict[str, Way] = {
        "ours": lambda images: normalise(train(images)),
        "each": lambda images: torch.stack([chain(image) for image in images]),
        "batch": chain,
    }
    if kornia is not None:
        scaled = kornia.Normalize(torch.tensor(MEAN), torch.tensor(STD))
        steps = torch.nn.Sequential(*case.kornia(kornia), scaled).to(device)
        known["kornia"] = lambda images: steps(images.float() / 255)
    return known


def seconds(functions: Mapping[str, Way], images: Tensor) -> dict[str, float]:
    """Median seconds of each function, taken in turn, so that other work on the machine meets all of them."""
    gpu = images.device.type == "cuda"
    times: dict[str, list[float]] = {key: [] for key in functions}
    ends = time.perf_counter() + SECONDS
    while time.perf_counter() < ends or len(times["ours"]) <= REPEATS:
        for key, function in functions.items():
            began = time.perf_counter()
            function(images)
            if gpu:
                torch.cuda.synchronize()
            times[key].append(time.perf_counter() - began)
    return {key: statistics.median(values[1:]) for key, values in times.items()}  # the first one warms up


def _random_images(case: Case, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, 3, case.size, case.size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)


def _table(device: torch.device, threads: Sequence[int], kornia: Any | None) -> TextTable:
    view = TextTable(title="milliseconds per batch, from stored uint8 images to a normalised batch")
    for title in ("augmentation", "images"):
        view.add_column(title)
    for title in ("threads", *COLUMNS.values()):
        view.add_column(title, justify="right")
    for number in threads:
        torch.set_num_threads(number)
        for name, case in CASES.items():
            images = _random_images(case, device)
            found = seconds(ways(name, device, kornia), images)
            numbers = [f"{1000 * found[key]:.1f}" if key in found else "" for key in COLUMNS]
            size = f"{case.batch} of {case.size} x {case.size}"
            view.add_row(name, size, "" if device.type == "cuda" else str(number), *numbers)
        view.add_section()
    return view


def main(device: str = "auto") -> None:
    """Print the table for one thread and for all, on a GPU once."""
    chosen, kornia = choose_device(device), kornia_augmentation()
    gpu = chosen.type == "cuda"
    cores = usable_cores()
    what = torch.cuda.get_device_name(chosen) if gpu else f"{cores} cores"
    others = "kornia is not installed" if kornia is None else f"kornia {version('kornia')}"
    print(f"torch {torch.__version__}, torchvision {version('torchvision')}, {others}; {what}", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's, of the scale beyond 1 that FedLD's code has
        view = _table(chosen, [1] if gpu else sorted({1, cores}), kornia)
    Console(width=140).print(view)
