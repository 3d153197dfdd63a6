"""FedNTD, FedRS, FedLC, FedVLS and balanced sampling: by hand, FedNTD and FedVLS against their authors' code."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import Recorder, class_run, federation, mlp, near, problem_of, run, with_rules
from torch import Tensor

from methods.balanced_sampling import BalancedSampling
from methods.core.contexts import Batch
from methods.core.rules import ClientRule
from methods.fedlc import FedLC
from methods.fedntd import FedNTD
from methods.fedrs import FedRS
from methods.fedvls import FedVLS

LN2, LN3 = math.log(2), math.log(3)


def value_and_gradient(
    rule: ClientRule, logits: Tensor, y: Tensor, counts: Any = (1, 1, 1), w_logits: Tensor | None = None
) -> tuple[float, Tensor, float]:
    """Extra loss, its gradient with respect to the logits, and the weight of cross-entropy, for one batch."""
    f = logits.double().requires_grad_()
    data = SimpleNamespace(batches=lambda: iter([(w_logits, y)]))
    model = SimpleNamespace(logits=lambda x: x.double())
    ctx = SimpleNamespace(
        w=f.detach(), buffers=None, label_counts=np.array(counts), augmented=False, data=data,
        frozen=lambda w, buffers: model,
    )  # fmt: skip
    ctx.local = rule.begin(ctx)
    term = rule.loss(ctx, Batch(None, y, f, f, F.cross_entropy(f, y), torch.arange(len(y))))
    return float(term.extra.detach()), torch.autograd.grad(term.extra, f)[0], term.ce_weight


# FedNTD ----------------------------------------------------------------------------------------------------------


def test_fedntd_by_hand() -> None:
    """y = 0: q = (1/4, 3/4), q_glob = (1/2, 1/2): log(2)/2 + log(2/3)/2, with gradient q - q_glob."""
    rule, y = FedNTD(beta=2.0, tau=1.0), torch.tensor([0])
    value, gradient, ce_weight = value_and_gradient(
        rule, torch.tensor([[7.0, 0.0, LN3]]), y, w_logits=torch.tensor([[-5.0, 1.0, 1.0]])
    )
    assert value == pytest.approx(2 * 0.5 * math.log(4 / 3)) and ce_weight == 1.0
    near(gradient, [[0.0, -0.5, 0.5]], 1e-7)


@pytest.mark.parametrize(("tau", "theirs"), [(1.0, 0.7344796083373873), (3.0, 0.8025668531993466)])
def test_fedntd_s_reference_is_the_authors_code(tau: float, theirs: float) -> None:
    """Their NTD_Loss (Lee-Gihun/FedNTD@be00ee5) on two samples; at tau = 1 the paper's form is the same."""
    f, f_glob = torch.tensor([[1.0, 0, 2], [0, 1, 3]]), torch.tensor([[0.0, 2, 1], [1, 0, 2]])
    for variant, scale in (("reference", 1.0), ("paper", tau**-2)):
        rule = FedNTD(beta=1.0, tau=tau, variant=variant)
        value, gradient, _ = value_and_gradient(rule, f, torch.tensor([0, 2]), w_logits=f_glob)
        assert value == pytest.approx(theirs * scale, rel=1e-12)
        if tau == 3:
            near(gradient / scale, [[0, -0.3650, 0.3650], [-0.2477, 0.2477, 0]], 5e-5)


def test_fedntd_is_fedavg_for_one_step_and_sees_augmented_images_again() -> None:
    """At w the local and the global model agree. With augmentation (here: none) the global one sees each batch."""
    ntd = {"client": {"fedntd": {"beta": 1.0, "tau": 1.0}}}
    one_step = {"epochs": 1, "batch_size": 100, "rounds": 2}
    near(run(class_run(ntd, **one_step))[-1].w, run(class_run({}, **one_step))[-1].w)
    once, again, plain = (
        class_run(method, augment=a) for method, a in ((ntd, None), (ntd, lambda x: x), ({}, None))
    )
    near(run(once)[-1].w, run(again)[-1].w)
    assert not torch.allclose(run(once)[-1].w, run(plain)[-1].w)


# FedRS and FedLC -------------------------------------------------------------------------------------------------


def test_fedrs_by_hand() -> None:
    """alpha = 1/2, class 1 is missing: logits (log 2, log 9, 0) count as (log 2, log 3, 0), so p = (2, 3, 1)/6."""
    value, gradient, ce_weight = value_and_gradient(
        FedRS(alpha=0.5), torch.tensor([[LN2, 2 * LN3, 0.0]]), torch.tensor([0]), (4, 0, 1)
    )
    assert value == pytest.approx(LN3) and ce_weight == 0.0
    near(gradient, [[-2 / 3, 0.5 / 2, 1 / 6]], 1e-7)


def test_fedrs_reference_restricts_rare_classes() -> None:
    """alpha_c = 1/2 + n_c/8 = (1, 1/2, 5/8): logits (log 2, log 9, 1.6 log 2) give p = (2, 3, 2)/7."""
    logits = torch.tensor([[LN2, 2 * LN3, 1.6 * LN2]])
    rule = FedRS(alpha=0.5, variant="reference")
    assert value_and_gradient(rule, logits, torch.tensor([0]), (4, 0, 1))[0] == pytest.approx(math.log(3.5))


def test_fedlc_by_hand() -> None:
    """n = (16, 1, 0), tau = log 4: margins (log 2, log 4, infinity); logits (log 2, log 12, 5) give p = (1, 3, 0)/4."""
    rule, y = FedLC(tau=2 * LN2), torch.tensor([0])
    value, gradient, ce_weight = value_and_gradient(
        rule, torch.tensor([[LN2, math.log(12), 5.0]]), y, (16, 1, 0)
    )
    assert value == pytest.approx(2 * LN2) and ce_weight == 0.0
    near(gradient, [[-0.75, 0.75, 0.0]], 1e-7)
    value, gradient, _ = value_and_gradient(rule, torch.tensor([[1.0, 2.0, 3.0]]), y, (7, 0, 0))
    assert value == 0.0 and not gradient.any(), "one class"


@pytest.mark.parametrize(("floor", "p"), [(0.0, (1, 3, 0)), (1e-8, (1, 3, 16))])
def test_fedlc_with_a_small_tau_is_fedavg_if_missing_classes_have_a_floor(floor: float, p: Any) -> None:
    """exp of the logits is (1, 3, 16). tau = 1e-9 has margins of at most 1e-7; an infinite one remains."""
    rule = FedLC(tau=1e-9, floor=floor)
    value, gradient, _ = value_and_gradient(
        rule, torch.tensor([[0.0, LN3, 4 * LN2]]), torch.tensor([0]), (5, 2, 0)
    )
    assert value == pytest.approx(math.log(sum(p)), abs=1e-6)
    near(gradient + torch.tensor([[1.0, 0, 0]]), [[share / sum(p) for share in p]], 1e-6)


# FedVLS ----------------------------------------------------------------------------------------------------------


def test_fedvls_by_hand() -> None:
    """p = (1/2, 1/2, 0, 0), y = 0, 1. L_cal: p_y = 1/4, 1/3. L_logit: (log(2/2) + log(3/2))/2.

    L_dis: q = (3/4, 1/4) against (1/2, 1/2), and equal ones: log(4/3)/4.
    """
    f, f_glob = torch.tensor([[0, LN3, LN3, 0], [LN2, 0, 5, 1]]), torch.tensor([[9.0, 0, 2, 2], [0, 9, 4, 0]])
    value, gradient, ce_weight = value_and_gradient(
        FedVLS(lam=2.0), f, torch.tensor([0, 1]), (3, 3, 0, 0), w_logits=f_glob
    )
    assert value == pytest.approx((math.log(12) + math.log(4 / 3) + math.log(1.5)) / 2) and ce_weight == 0.0
    near(gradient, [[-3 / 8, 7 / 8, 1 / 4, -1 / 4], [5 / 6, -1 / 3, 0, 0]], 1e-6)


def test_fedvls_with_one_class_alone_distils() -> None:
    """q = (1/2, 1/2) against (3/4, 1/4). A client with all classes distils nothing."""
    f, y = torch.tensor([[7.0, 1, 1]]), torch.tensor([0])
    value, gradient, _ = value_and_gradient(
        FedVLS(lam=1.0), f, y, (4, 0, 0), w_logits=torch.tensor([[0, LN3, 0]])
    )
    assert value == pytest.approx(0.75 * math.log(1.5) - 0.25 * LN2)
    near(gradient, [[0, -0.25, 0.25]], 1e-7)
    rule = FedVLS(lam=1.0, suppression=0.0)
    value, _, _ = value_and_gradient(rule, f, y, (4, 4, 4), w_logits=-f)
    assert value == pytest.approx(math.log(1 + 2 * math.exp(-6)))


def test_fedvls_s_reference_is_the_authors_code() -> None:
    """Their three losses (krumpguo/FedVLS@7d8163f), summed with lambda = 0.1, on three samples."""
    f = torch.tensor([[1.0, 0, 2, -1], [0, 1, 3, 0.5], [0.5, -0.5, 0, 2]])
    f_glob = torch.tensor([[0.0, 2, 1, 0], [1, 0, 2, 0.5], [2, 1, -1, 0]])
    value, gradient, _ = value_and_gradient(
        FedVLS(lam=0.1, variant="reference"), f, torch.tensor([0, 1, 0]), (6, 2, 0, 0), w_logits=f_glob
    )
    assert value == pytest.approx(0.3377425809735955, rel=1e-9)
    theirs = [[-0.0364, 0.0369, 0.0074, -0.0074], [0.1754, -0.1749, 0.0036, -0.0036]]
    near(gradient, [*theirs, [-0.0364, 0.0367, -0.0050, 0.0050]], 5e-5)


# Balanced sampling -----------------------------------------------------------------------------------------------


def test_balanced_sampling() -> None:
    """A client of 90 and 10 samples draws half and half; one of a single class goes through its samples."""
    recorder, x = Recorder(), np.ones((100, 6))
    problem = problem_of([x, x], [np.array([0] * 90 + [2] * 10), np.ones(100, dtype=np.int64)], 3)
    method = with_rules(BalancedSampling(), recorder)
    run(federation(problem, method, mlp(), rounds=1, epochs=40, batch_size=100))
    drawn, whole = (
        np.concatenate([y for _, k, _, y, _ in recorder.batches if k == client]) for client in (0, 1)
    )
    assert len(drawn) == 4000 and set(drawn) == {0, 2}
    assert abs((drawn == 2).mean() - 0.5) < 4 * 0.5 / math.sqrt(4000)
    assert (whole == 1).all() and len(whole) == 4000
