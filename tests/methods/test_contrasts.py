"""The contrasts of MOON and FedProc against tests/golden/baselines/{moon,fedproc}.npz and by hand."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import class_run, federation, mlp, near, problem_of, run
from golden_cases import stored
from torch import Tensor

from methods.core.contexts import Batch
from methods.core.method import build
from methods.fedproc import FedProc, prototype_contrast
from methods.moon import contrast
from methods.shared import fast


def tensors(name: str) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(np.asarray(value)) for key, value in stored(f"baselines/{name}").items()}


@pytest.mark.parametrize("contrast", [contrast, fast.contrast], ids=["printed", "fast"])
@pytest.mark.parametrize("mu", [1, 5])
def test_moon_loss_and_gradient(contrast: Callable[..., Tensor], mu: int) -> None:
    g = tensors("moon")
    z = g["z"].clone().requires_grad_()
    loss = mu * contrast(z, g["z_glob"], g["z_prev"], float(g["temperature"]))
    loss.backward()
    torch.testing.assert_close(loss.detach(), g[f"loss_mu{mu}"], rtol=0, atol=1e-12)
    torch.testing.assert_close(z.grad, g[f"grad_mu{mu}"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("contrast", [contrast, fast.contrast], ids=["printed", "fast"])
def test_moon_by_hand(contrast: Callable[..., Tensor]) -> None:
    """Cosines 1 and -1, T = .5: -log(e^2/(e^2 + e^-2)) = log(1 + e^-4). A zero vector has cosine 0: log 2."""
    z = torch.tensor([[2.0, 0.0]]).double()
    assert float(contrast(z, z, -z, 0.5)) == pytest.approx(math.log1p(math.exp(-4)))
    assert float(contrast(0 * z, z, -z, 0.5)) == pytest.approx(math.log(2))


def test_moon_looks_at_augmented_images_again() -> None:
    """With augmentation (here one that changes nothing) the other models see each batch; without, all samples once."""
    moon, augment = {"client": {"moon": {"mu": 1.0, "T": 0.5}}}, {"augment": lambda x: x}
    again, once, plain = (
        class_run(method, **options) for method, options in ((moon, augment), (moon, {}), ({}, {}))
    )
    near(run(again)[-1].w, run(once)[-1].w)
    assert not torch.allclose(run(once)[-1].w, run(plain)[-1].w)
    # In round 1, 33 samples pass two other models: in each of two epochs, or before training.
    costs = [model.run_round(run(model, rounds=1)[-1])[1].cost.forward for model in (again, once)]
    assert costs[1] == 2 * 33 < costs[0] <= 4 * 33


def test_fedproc_loss_and_gradient() -> None:
    g = tensors("fedproc")
    known = torch.ones(3, dtype=torch.bool)
    z = g["z_raw"].clone().requires_grad_()
    loss = prototype_contrast(z, g["y"], g["prototypes"], known)
    loss.backward()
    torch.testing.assert_close(loss.detach(), g["loss_con"], rtol=0, atol=1e-12)
    torch.testing.assert_close(z.grad, g["grad_con_wrt_raw_through_normalise"], rtol=0, atol=1e-12)


def test_fedproc_follows_the_schedule_of_its_authors() -> None:
    """Their total loss at rounds 0, 1, ...: T_p = 100, and cross-entropy alone in round 0."""
    g = tensors("fedproc")
    rule = FedProc(variant="reference")
    known = torch.ones(3, dtype=torch.bool)
    logits = g["logits"]
    for t, expected in zip(g["rounds"].tolist(), g["author_total_loss"], strict=True):
        received = {} if t == 0 else {"g": g["prototypes"], "known": known}
        ctx = SimpleNamespace(round=t, rounds=7, received=received)
        ce = F.cross_entropy(logits, g["y"])
        batch = Batch(g["z_unit"], g["y"], g["z_unit"], logits, ce, torch.arange(7))
        term = rule.loss(ctx, batch)
        total = term.ce_weight * ce + term.extra
        torch.testing.assert_close(torch.as_tensor(total), expected, rtol=0, atol=1e-12)


def test_classes_without_a_prototype_are_left_out() -> None:
    """Class 1 is unknown: its sample is not counted, and class 0's competes with class 2 alone."""
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    g = torch.tensor([[2.0, 0.0], [0.0, 9.0], [0.0, 3.0]])
    loss = prototype_contrast(z, torch.tensor([0, 1]), g, torch.tensor([True, False, True]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)))  # cosines 1 and 0
    loss.backward()
    assert torch.isfinite(z.grad).all() and not z.grad[1].any()
    none = prototype_contrast(z, torch.tensor([1, 1]), g, torch.tensor([True, False, True]))
    assert none.item() == 0.0


def test_fedproc_prototypes_are_weighted_by_count() -> None:
    """tests/golden: mean of the features over all clients' samples of a class, taken after local training."""
    g = tensors("fedproc")
    clients = [g["proto_client"] == k for k in range(int(g["proto_client"].max()) + 1)]
    xs = [g["proto_features"][c].numpy() for c in clients]
    ys = [g["proto_labels"][c].numpy() for c in clients]
    net = mlp(5, 5, 3)
    net.body = torch.nn.Flatten()  # features are the inputs
    method = build({"client": {"fedproc": {}}})
    model = federation(problem_of(xs, ys, 3), method, net, rounds=1, epochs=1)
    state = run(model)[-1]
    torch.testing.assert_close(state.rules["fedproc"]["g"], g["proto_weighted"], rtol=0, atol=1e-12)
