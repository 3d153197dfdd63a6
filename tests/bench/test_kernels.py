"""Kernels of a local step: what counts, that no step waits for the device, and the table in docs/performance.md."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark.bench.kernels import bare_step, local_step, watch
from benchmark.config.compose import group_names
from benchmark.paths import ROOT
from methods.core.contexts import Batch
from methods.fedmr import FedMR

ROWS = re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "docs/performance.md").read_text(), re.MULTILINE)
PAGE = {name: int(number) for number, cells in ROWS for name in cells.split(", ")}
LOCKED = re.search(r"^torch==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
WITH_LOCK = LOCKED is not None and torch.__version__.split("+")[0] == LOCKED[1]
"""Another version of torch may launch other kernels."""

X, MASK, WHOLE = torch.arange(4.0), torch.tensor([True, False, True, True]), torch.tensor([1, 0, 2, 1])


@pytest.mark.parametrize("name", [*group_names("method"), "moon with augmentation"])
def test_local_step(name: str, tmp_path: Path) -> None:
    method, _, augmented = name.partition(" with ")
    number, waits = local_step(method, str(tmp_path), **({"augment": "crop_flip"} if augmented else {}))
    assert waits == set()
    assert not WITH_LOCK or PAGE[name] == number, "write the page: python -m benchmark bench kernels"


@pytest.mark.skipif(not WITH_LOCK, reason="another version of torch")
def test_page() -> None:
    assert PAGE.keys() == {*group_names("method"), "a bare PyTorch loop", "moon with augmentation"}
    assert PAGE["a bare PyTorch loop"] == bare_step() > PAGE["fedavg"]
    assert max(PAGE[name] for name in ("fedmr", "moon", "moon with augmentation")) <= 90


@pytest.mark.parametrize("inter_cj", ["batch", "client"])
def test_classes_of_fedmr_do_not_wait(inter_cj: Any) -> None:
    rule = FedMR(mu1=1, mu2=1, inter_cj=inter_cj)
    received = {"g": torch.eye(3, 4), "known": MASK[:3]}
    ctx = SimpleNamespace(received=received, label_counts=np.array([1, 0, 2]))
    ctx.local = rule.begin(ctx)
    batch = Batch(X, WHOLE, torch.ones(4, 4), X, X, WHOLE)
    assert watch(lambda: rule.loss(ctx, batch))[1] == set()


@pytest.mark.parametrize(
    ("work", "number"),
    [
        (lambda: X[1:].view(1, 3).T.expand(3, 2).detach(), 0),
        (lambda: torch.empty_like(X), 0),
        (lambda: X.clone().add_(1)[1:], 2),
        (lambda: torch._foreach_add([X, X, X], 1), 1),
        (lambda: X.clone().requires_grad_().exp().sum().backward(), 5),  # clone, exp, sum, ones, times exp
    ],
)
def test_what_is_a_kernel(work: Callable[[], Any], number: int) -> None:
    kernels, waits = watch(work)
    assert (kernels.total(), waits) == (number, set())


@pytest.mark.parametrize(
    "work",
    [
        lambda: X[0].item(),
        lambda: bool(X[0]),
        lambda: float(X[0]),
        lambda: X.tolist(),
        lambda: X.cpu(),
        lambda: X.numpy(),
        lambda: np.asarray(X),
        lambda: torch.tensor([1.0]),
        lambda: torch.from_numpy(np.ones(2)).to(X.device),
        lambda: X[MASK],
        lambda: X.clone().index_put_((MASK,), X[0]),
        lambda: X.nonzero(),
        lambda: torch.where(MASK),
        lambda: X.masked_select(MASK),
        lambda: X.unique(),
        lambda: torch.bincount(WHOLE),
        lambda: torch.equal(X, X),
        lambda: torch.is_nonzero(X[0]),
        lambda: X.repeat_interleave(WHOLE),
    ],
)
def test_what_waits(work: Callable[[], Any]) -> None:
    assert len(watch(work)[1]) > 0


@pytest.mark.parametrize(
    "work",
    [
        lambda: X[WHOLE],
        lambda: X.masked_fill(MASK, 0.0),
        lambda: X.repeat_interleave(WHOLE, output_size=4),
        lambda: torch.from_numpy(np.ones(2)).to(X.device, non_blocking=True),
        lambda: X.to(torch.float64),
        lambda: X.to(X),
    ],
)
def test_what_does_not_wait(work: Callable[[], Tensor]) -> None:
    assert watch(work)[1] == set()
