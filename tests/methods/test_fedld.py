"""FedLD: the margin (Eq. 3) and the principal gradients (Eqs. 4-7), in the paper's form and in the authors'.

Golden files: tests/golden/fedld_*.npz (``*_code`` the authors' public code, ``*_paper`` the paper's formula evaluated
apart from this project). Elsewhere the expected value is worked out by hand, or by ``printed`` below, which follows the
paper's steps one by one in loops.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import federation, near, problem_of, run, with_rules
from golden_cases import round_view, stored, with_tensors
from torch import Tensor, nn

from benchmark.models.networks import Net
from methods.core.contexts import Batch, ClientContext, Loss, State
from methods.core.rules import ClientRule
from methods.fedld import Margin, Principal

EIGEN_FILES = ("m5", "m10", "m5_rankdef", "m10_rankdef", "zerohist")


FORMS = [
    ({}, "paper"),
    ({"variant": "reference"}, "code"),
    ({"norm": "batch"}, "alt_logits_batchnorm"),
    ({"form": "softmax"}, "alt_softmax_persample"),
    ({"variant": "reference", "norm": "sample"}, "alt_softmax_persample"),
    ({"variant": "reference", "form": "logits", "norm": "sample"}, "paper"),
]


def objective(rule: ClientRule, logits: Tensor, labels: Tensor) -> Tensor:
    """The whole objective of one batch."""
    ce = F.cross_entropy(logits, labels)
    batch = Batch(logits, labels, logits, logits, ce, torch.arange(len(labels)))
    term = rule.loss(None, batch)
    return term.ce_weight * ce + term.extra


@pytest.mark.parametrize("case", range(5))
@pytest.mark.parametrize(("switches", "suffix"), FORMS)
def test_margin_golden(case: int, switches: dict[str, Any], suffix: str) -> None:
    """Value and gradient; case 2 has one sample, case 3 large logits, case 4 lambda 0."""
    g = stored("fedld_margin_loss")
    rule = Margin(lam=float(g[f"c{case}_lam"]), **switches)
    logits = torch.from_numpy(g[f"c{case}_logits"]).requires_grad_()
    loss = objective(rule, logits, torch.from_numpy(g[f"c{case}_labels"]))
    loss.backward()
    assert loss.item() == pytest.approx(float(g[f"c{case}_loss_{suffix}"]), abs=1e-10)
    assert logits.grad is not None
    near(logits.grad, g[f"c{case}_grad_{suffix}"], 1e-10)


def test_margin_of_bfloat16_logits_is_taken_in_float32() -> None:
    """||f||^2 = 256^2 + 1 = 65537 = 2^16 + 1 is no bfloat16 number, log(1 + .) = 11.0904."""
    logits = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    batch = Batch(logits, torch.tensor([0]), logits, logits, torch.zeros(()), torch.arange(1))
    extra = Margin(lam=1.0).loss(None, batch).extra
    assert isinstance(extra, Tensor)
    assert extra.dtype == torch.float32
    assert extra.item() == pytest.approx(np.log(65538), abs=1e-5)


def principal(updates: np.ndarray, p: Any = None, sizes: list[int] | None = None, **switches: Any) -> Tensor:
    """Dbar of one round after set-up."""
    g = torch.from_numpy(updates)
    rule = Principal(**{"proportion": 0.8, **switches})
    p = torch.full((len(g),), 1 / len(g), dtype=torch.float64) if p is None else torch.as_tensor(p)
    state = rule.setup(with_tensors(sizes or [g.shape[1]], g.dtype))
    return rule.direction(g, p.double(), round_view(len(g)), state)[0]


@pytest.mark.parametrize("file", EIGEN_FILES)
@pytest.mark.parametrize("scope", ["whole", "layer"])
@pytest.mark.parametrize("normaliser", ["sumall", "sumtop", "l2all", "l2top", "one"])
@pytest.mark.parametrize(("weights", "suffix"), [("rule", "wn"), ("uniform", "uni")])
def test_aggregate_golden(file: str, scope: str, normaliser: str, weights: str, suffix: str) -> None:
    """Every reading of Eq. 7; ``whole``, ``l2top``, n_i/n is the default."""
    g = stored(f"fedld_aggregation_{file}")
    p = g["n_samples"] / g["n_samples"].sum()
    for t in range(4):
        switches = {"scope": scope, "normaliser": normaliser, "client_weights": weights}
        switches = {} if (scope, normaliser, weights) == ("whole", "l2top", "rule") else switches
        found = principal(g["G"][t], p, g["layer_sizes"].tolist(), **switches)
        expected = g[f"agg_paper_{scope}_{normaliser}_{suffix}"][t]
        near(found, expected, 1e-9)


def rounds(rule: Principal, g: dict[str, np.ndarray], dtype: type = np.float64) -> list[tuple[Tensor, State]]:
    """(Dbar, state) after each of the stored rounds, with the weights n_k/n that the reference must not use."""
    updates = torch.from_numpy(g["G"].astype(dtype))
    p = torch.from_numpy(g["n_samples"] / g["n_samples"].sum())
    state = rule.setup(with_tensors(g["layer_sizes"].tolist(), updates.dtype))
    out = []
    for t in range(len(updates)):
        dbar, state = rule.direction(updates[t], p, round_view(updates.shape[1]), state)
        out.append((dbar, state))
    return out


@pytest.mark.parametrize("file", EIGEN_FILES)
def test_code_golden(file: str) -> None:
    """Four rounds with one history: the first is the plain mean, in ``zerohist`` the last layer in the second too."""
    g = stored(f"fedld_aggregation_{file}")
    for t, (dbar, state) in enumerate(rounds(Principal(proportion=0.8, variant="reference"), g)):
        near(dbar, g["agg_code"][t], 1e-9)
        near(state["history"], g["history_code"][t], 1e-9)


class Stub(ClientRule):
    """Instead of training, adds the stored delta of (round, client): one step at rate 1."""

    deltas: Any

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        return Loss(0.0, ce_weight=0.0)

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        g.sub_(self.deltas[ctx.round, ctx.client])


@pytest.mark.parametrize("m", [4, 5])
def test_whole_rounds_golden(m: int) -> None:
    """The authors' server over three rounds, in whole rounds of the engine."""
    g = stored(f"fedld_round_m{m}")
    sizes = g["n_samples"].astype(int)
    problem = problem_of([np.zeros((n, 18)) for n in sizes], [np.zeros(n, dtype=np.int64) for n in sizes], 8)
    net = Net(nn.Linear(18, 1), nn.Linear(1, 8, bias=False), 1).double()
    rule = Principal(proportion=0.8, variant="reference")
    method = with_rules(Stub(deltas=torch.from_numpy(g["G"])), direction=rule)
    model = federation(problem, method, net, lr=1.0, batch_size=1000, w0=g["global_code"][0])
    assert [e.stop - e.start for e in model.layout.entries] == g["layer_sizes"].tolist()
    for state, expected in zip(run(model), g["global_code"], strict=True):
        near(state.w, expected, 1e-9)


def test_each_difference_is_a_switch() -> None:
    """Setting all of them gives the other variant."""
    g = stored("fedld_aggregation_m5_rankdef")
    to_code = {"scope": "layer", "normaliser": "sumall", "client_weights": "uniform", "first_round": "mean"}
    to_paper = {"scope": "whole", "normaliser": "l2top", "client_weights": "rule", "first_round": "principal"}
    code = rounds(Principal(proportion=0.8, **to_code), g)
    paper = rounds(Principal(proportion=0.8, variant="reference", **to_paper), g)
    for t in range(4):
        near(code[t][0], g["agg_code"][t], 1e-9)
        near(paper[t][0], g["agg_paper_whole_l2top_wn"][t], 1e-9)
    assert paper[-1][1] == {}


def random_updates(m: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, d)) * np.linspace(1, 2, m)[:, None]


ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))[0]


@pytest.mark.parametrize("rotation", [np.eye(5), ROTATION])
def test_orthogonal_updates_by_hand(rotation: np.ndarray) -> None:
    """D_1 = 3 x, D_2 = 4 y: lam = (16, 9), vh = (y, x); an update has no part in the other's direction.

    L = 2: r_1 = 3 (9/||lam||) x, r_2 = 4 (16/||lam||) y with ||lam||^2 = 337. L = floor(1.6) = 1: r_1 = 0, r_2 = D_2.
    After a rotation the products are 0 only up to rounding, which must not count as a sign.
    """
    x, y = rotation[0], rotation[1]
    updates = np.stack([3 * x, 4 * y])
    both = principal(updates, proportion=1.0)
    near(both, (27 * x + 64 * y) / 2 / np.sqrt(337))
    near(principal(updates), 2 * y)


@pytest.mark.parametrize(
    ("m", "proportion", "kept"),
    [(2, 0.8, 1), (3, 0.1, 1), (4, 0.8, 3), (5, 0.8, 4), (12, 0.8, 9), (4, 1.0, 4), (100, 0.29, 29)],
)
def test_number_of_directions(m: int, proportion: float, kept: int) -> None:
    """Orthogonal updates of different lengths: as many coordinates survive as directions are kept."""
    updates = np.diag(np.linspace(2, 1, m))
    found = principal(updates, proportion=proportion)
    assert found.nonzero().flatten().tolist() == list(range(kept))


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("m", [1, 4])
def test_all_updates_zero(variant: str, m: int) -> None:
    """Also after a history that is not zero, where the authors' code divides 0 by 0."""
    g = {"G": np.zeros((3, m, 6)), "n_samples": np.ones(m), "layer_sizes": np.array([4, 1, 1])}
    g["G"][1] = random_updates(m, 6)
    found = rounds(Principal(proportion=0.8, variant=variant), g)
    assert found[0][0].tolist() == found[2][0].tolist() == [0] * 6
    assert found[1][0].norm() > 0
