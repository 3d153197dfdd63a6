"""The decorrelation of FedDecorr by hand, against its authors' code and against FedMR's intra-class loss."""

from types import SimpleNamespace

import pytest
import torch
from federations import near
from torch import Tensor

from methods.core.contexts import Batch
from methods.feddecorr import FedDecorr, decorrelation
from methods.shared import fast


def value_and_gradient(z: Tensor, variant: str) -> tuple[float, Tensor]:
    z = z.clone().requires_grad_()
    loss = decorrelation(z, variant)
    return float(loss.detach()), torch.autograd.grad(loss, z)[0]


@pytest.mark.parametrize(
    ("second", "paper", "reference"),
    [
        # Beside (1, 2, 3): correlation r = 1/2, so (2 + 2/4)/4; code: zh' zh = 1 off the diagonal, 1^2/3.
        ([1.0, 3.0, 2.0], 0.625, 1 / 3),
        ([3.0, 2.0, 1.0], 1.0, 4 / 3),  # r = -1: 4/4, and 2^2/3
        ([1.0, -2.0, 1.0], 0.5, 0.0),  # r = 0: 2/4
        ([5.0, 5.0, 5.0], 0.25, 0.0),  # without variance: its row of K is 0
    ],
)
def test_by_hand(second: list[float], paper: float, reference: float) -> None:
    z = torch.tensor([[1.0, 2.0, 3.0], second]).T.double()
    assert value_and_gradient(z, "paper")[0] == pytest.approx(paper, rel=1e-7)
    assert value_and_gradient(z, "reference")[0] == pytest.approx(reference, rel=1e-7, abs=1e-12)


Z = torch.tensor([[0, 1, 4], [2, 2, 4], [1, 0, 1], [4, 2, 2]]).double()


def test_reference_is_the_authors_code() -> None:
    """Their FedDecorrLoss (bytedance/FedDecorr@973e4af, loss.py) gives 0.59805194 on this batch."""
    loss, gradient = value_and_gradient(Z, "reference")
    assert loss == pytest.approx(0.5980519396850733, rel=1e-12)
    near(gradient[1], [0.0580, -0.0132, 0.0225], 5e-5)


def test_it_is_fedmr_s_loss_without_classes() -> None:
    """One class: FedMR's M is zh' zh/(N - 1), and its code's form is FedDecorr's."""
    for variant, scale in (("paper", (3 / 4) ** 2 / 3**2), ("reference", 1.0)):
        z = Z.clone().requires_grad_()
        loss = scale * fast.intra_class(z, torch.zeros(4, dtype=torch.long), 1e-8, variant)
        found = value_and_gradient(Z, variant)
        assert found[0] == pytest.approx(float(loss.detach()), rel=1e-12)
        near(found[1], torch.autograd.grad(loss, z)[0], 1e-12)


def test_weight_and_precision() -> None:
    batch = Batch(None, torch.zeros(4), Z.bfloat16(), None, None, None)
    loss = FedDecorr(beta=0.1).loss(SimpleNamespace(), batch)
    assert loss.ce_weight == 1.0 and loss.extra.dtype == torch.float32
    assert float(loss.extra) == pytest.approx(0.1 * value_and_gradient(Z, "paper")[0], rel=1e-5)
