"""FedMR's two losses beside stored numbers, loops straight from the text, and arithmetic by hand."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import near, run, same
from fedmr_cases import clients, looped_inter, looped_intra, start
from golden_cases import stored
from torch import Tensor

from methods.core.contexts import Batch
from methods.fedmr import FedMR, inter_class, intra_class

CASES = range(7)


def value_and_gradient(f: Callable[[Tensor], Tensor], z: np.ndarray | Tensor) -> tuple[float, np.ndarray]:
    leaf = torch.as_tensor(z).clone().requires_grad_()
    loss = f(leaf)
    return float(loss.detach()), torch.autograd.grad(loss, leaf)[0].numpy()


def extra(rule: FedMR, z: Tensor, y: Tensor, **received: Any) -> Tensor | float:
    """What the rule adds to the objective for one batch; ``counts``, ``rng`` are the client's."""
    counts, rng = received.pop("counts", None), received.pop("rng", None)
    ctx = SimpleNamespace(received=received, label_counts=counts, local={"lite": rng})
    loss = rule.loss(ctx, Batch(None, y, z, None, None, None))
    assert loss.ce_weight == 1.0
    return loss.extra


G = stored("fedmr_losses")


def close(found: tuple[float, np.ndarray], name: str, tol: float = 1e-8) -> None:
    loss, gradient = (G[name.format(part)] for part in ("loss", "grad"))
    assert found[0] == pytest.approx(float(loss), rel=tol, abs=1e-12)
    scale = max(float(np.abs(gradient).max()), 1e-4)
    near(found[1], gradient, tol * scale)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("variant", "name"), [("paper", "paper"), ("reference", "code")])
def test_stored_intra(case: int, variant: Any, name: str) -> None:
    """The paper's form, and that of the authors' code, whose eps is the default."""
    z, y = G[f"c{case}_z"], torch.from_numpy(G[f"c{case}_y"])
    eps = {} if name == "code" else {"eps": float(G[f"c{case}_eps_paper"])}
    rule = FedMR(mu1=1, mu2=0, variant=variant, **eps)
    close(value_and_gradient(lambda z: extra(rule, z, y), z), f"c{case}_intra_{{}}_{name}")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("inter_cj", "name"), [("all", "allprotos"), ("batch", "batchCk")])
def test_stored_inter(case: int, inter_cj: Any, name: str) -> None:
    z, y = G[f"c{case}_z"], torch.from_numpy(G[f"c{case}_y"])
    g = torch.from_numpy(G[f"c{case}_protos"])
    rule, known = FedMR(mu1=0, mu2=1, inter_cj=inter_cj), torch.ones(len(g), dtype=torch.bool)
    found = value_and_gradient(lambda z: extra(rule, z, y, g=g, known=known), z)
    close(found, f"c{case}_inter_{{}}_{name}_paper")


@pytest.mark.parametrize("case", CASES)
def test_weights_of_the_two_losses(case: int) -> None:
    """Eq. 5 in float32, which the losses keep under autocast, whatever comes in."""
    z, y = torch.from_numpy(G[f"c{case}_z"]).float(), torch.from_numpy(G[f"c{case}_y"])
    g = torch.from_numpy(G[f"c{case}_protos"]).float()
    known = torch.ones(len(g), dtype=torch.bool)
    rule = FedMR(mu1=0.25, mu2=3.0, eps=float(G[f"c{case}_eps_paper"]))
    parts = [G[f"c{case}_{name}_paper"] for name in ("intra_loss", "inter_loss_allprotos")]
    expected = 0.25 * float(parts[0]) + 3.0 * float(parts[1])
    with torch.autocast("cpu", torch.bfloat16):
        found = extra(rule, z, y, g=g, known=known)
        rounded = extra(rule, z.bfloat16(), y, g=g, known=known)
    assert found.dtype == rounded.dtype == torch.float32
    assert float(found) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("inter_cj", ["all", "batch", "client"])
@pytest.mark.parametrize("known", [(0, 1, 2, 3, 4, 5), (0, 2, 4), (1,), (), (5, 0)])
def test_inter_is_the_loop(inter_cj: Any, known: tuple[int, ...]) -> None:
    """Six classes; the batch holds 0, 1, 2, the client 0 to 3; P is what has a prototype and ``inter_cj`` admits."""
    rng = np.random.default_rng(7)
    z, y = rng.normal(size=(12, 4)), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    g = torch.from_numpy(rng.normal(size=(6, 4)))
    mask = torch.tensor([c in known for c in range(6)])
    admitted = {"all": set(range(6)), "batch": {0, 1, 2}, "client": {0, 1, 2, 3}}[inter_cj] & set(known)
    rule, counts = FedMR(mu1=0, mu2=1, inter_cj=inter_cj), np.array([5, 9, 4, 1, 0, 0])
    found = value_and_gradient(lambda z: extra(rule, z, y, g=g, known=mask, counts=counts), z)
    expected = value_and_gradient(lambda z: looped_inter(z, y, g, admitted), z)
    assert found[0] == pytest.approx(expected[0], rel=1e-12, abs=1e-15)
    near(found[1], expected[1])
    assert (expected[0] > 0) == (len(admitted) > 1 and bool(admitted & {0, 1, 2}))


def test_inter_by_hand() -> None:
    """g_0 = 0, g_1 = (3, 4): the sample (3, 4) of class 0 is 5 too far, its gradient (.6, .8) - 0, where it stands on
    g_1; over 2 * 1 pairs and one sample: loss 2.5. A sample on its own prototype adds nothing."""
    g, both = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).double(), torch.tensor([True, True])
    for sample, loss, gradient in (((3.0, 4.0), 2.5, (0.3, 0.4)), ((0.0, 0.0), 0.0, (0.0, 0.0))):
        z = torch.tensor([sample]).double()
        found = value_and_gradient(lambda z: inter_class(z, torch.tensor([0]), g, both), z)
        assert found[0] == loss
        near(found[1], [gradient])


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_features_without_variance(variant: Any, eps: float) -> None:
    """Dead features and equal samples: nothing but zeros, no NaN; a class of one sample has no part in the gradient."""
    z, y = torch.ones(7, 3), torch.tensor([0, 0, 0, 1, 1, 1, 2])
    loss, gradient = value_and_gradient(lambda z: intra_class(z, y, eps, variant), z)
    assert loss == 0 and not gradient.any()
    z[:6, 0] = torch.tensor([1.0, 2.0, 4.0, 0.0, 1.0, 5.0])
    z[6] = torch.tensor([9.0, -2.0, 4.0])
    loss, gradient = value_and_gradient(lambda z: intra_class(z, y, eps, variant), z)
    assert np.isfinite(gradient).all() and not gradient[6].any()
    # One live feature: M_c has the one entry 3/2, and no entry off its diagonal.
    assert loss == pytest.approx(2.25 if variant == "paper" else 0, rel=1e-5, abs=1e-5)


def test_lite_takes_some_samples_of_each_batch() -> None:
    """5 samples, 2 of them: the inter-class loss is that of one of the 10 pairs, another from batch to batch; the
    intra-class loss is that of all."""
    draw = np.random.default_rng(3)
    z, y = torch.from_numpy(draw.normal(size=(5, 3))), torch.tensor([0, 0, 1, 1, 1])
    g, known = torch.from_numpy(draw.normal(size=(3, 3))), torch.ones(3, dtype=torch.bool)
    pairs = {
        round(float(looped_inter(z[list(p)], y[list(p)], g, {0, 1, 2})), 12)
        for p in itertools.combinations(range(5), 2)
    }
    intra = float(looped_intra(z, y, 1e-8))
    rng = np.random.default_rng(0)
    rule = FedMR(mu1=1.0, mu2=1.0, lite=2)
    found = [round(float(extra(rule, z, y, g=g, known=known, rng=rng)) - intra, 12) for _ in range(40)]
    assert set(found) <= pairs
    assert len(set(found)) > 5


@pytest.mark.parametrize("lite", [5, 50])
def test_lite_of_a_small_batch_is_all_of_it(lite: int) -> None:
    parameters = {"mu1": 0.01, "mu2": 0.5}
    full, light, two, again = (
        run(start(clients(), parameters | {"lite": n}, batch_size=5)) for n in (None, lite, 2, 2)
    )
    assert same(full[-1], light[-1])
    assert torch.equal(two[1].w, full[1].w)  # no prototypes in round 0
    assert not torch.equal(two[2].w, full[2].w) and same(two[-1], again[-1])
