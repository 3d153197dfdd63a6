"""The penalty by hand, and lam = 0 is FedAvg bit for bit."""

import pytest
import torch

from methods.core.contexts import Batch
from methods.core.method import build


def test_the_penalty_is_that_of_the_paper() -> None:
    (rule,) = build({"name": "logit_squeezing", "client": {"logit_squeezing": {"lam": 0.01}}}).client
    logits, nothing = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.empty(0)
    loss = rule.loss(None, Batch(nothing, nothing, nothing, logits, nothing, nothing))
    assert float(loss.extra) == pytest.approx(0.01 * (25 + 1) / 2)
