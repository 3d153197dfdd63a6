"""FedETF and FedGELA: classifiers that never train. By hand for two classes, where V = [[1, -1], [-1, 1]]/sqrt 2.

For z = (3, 4), mu = (.6, .8) and V'mu = (-.2, .2)/sqrt 2. With a scale of 2 the logits differ by .8/sqrt 2 = .565685.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import class_run, classes, near, run
from torch import Tensor, nn

from benchmark.config.compose import load_group
from benchmark.engine.views import server_view
from methods.core.contexts import Batch
from methods.core.method import build
from methods.core.rules import ClientRule
from methods.fedetf import FedETF, ProjectedETF
from methods.fedgela import FedGELA, FixedETF
from methods.shared.etf import SimplexETF

ETF, GELA = {"d": 4, "beta": 2.0, "gamma": 1.0, "absent": "one"}, {"E_W": 4.0}
Z = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
F = torch.tensor([[-0.2, 0.2]], dtype=torch.float64) * math.sqrt(2)
GAP = 0.8 / math.sqrt(2)


@pytest.mark.parametrize(("d", "C"), [(2, 2), (5, 3), (64, 10)])
def test_columns_of_length_1_with_equal_angles(d: int, C: int) -> None:
    for rng in (None, np.random.default_rng(0)):
        V = SimplexETF(d, C, rng)(torch.eye(d, dtype=torch.float64))
        near(V.T @ V, np.eye(C) * C / (C - 1) - 1 / (C - 1))
    near(SimplexETF(2, 2)(Z / 5), F / 2)


def test_logits() -> None:
    near(ProjectedETF(nn.Identity(), SimplexETF(2, 2), 2.0).double()(Z).detach(), F)
    near(FixedETF(SimplexETF(2, 2), 4.0).double()(Z), F)
    # A feature of length 0 has no direction.
    near(FixedETF(SimplexETF(2, 2), 4.0).double()(0 * Z), 0 * F)


@pytest.mark.parametrize(("C", "d"), [(10, 64), (100, 100)])
def test_projection_of_fedetf(C: int, d: int) -> None:
    """The authors' CNN: 64 features, a random V with cosines -1/(C - 1), temperature 10, torch's first values of P."""

    def made(seed: int) -> tuple[ProjectedETF, nn.Linear, Tensor]:
        (rule,) = build(load_group("method", "fedetf")).client
        model: Any = rule.classifier(400, C, lambda key: np.random.default_rng([seed, *key.encode()]))
        return model, model.P, model.V._V

    model, P, V = made(0)
    assert V.shape == (d, C) and P.weight.shape == (d, 400) and model.beta.item() == 10
    near(V.T @ V, np.eye(C) * C / (C - 1) - 1 / (C - 1))
    assert float(V.abs().min()) > 0, "not the columns of an identity"
    for values in (P.weight.detach(), P.bias.detach()):  # uniform in +-1/20: SD 0.05/sqrt 3
        assert float(values.abs().max()) <= 0.05 and float(values.std()) == pytest.approx(0.0289, rel=0.2)
    for seed, same in ((0, True), (1, False)):
        _, other, U = made(seed)
        assert torch.equal(P.weight, other.weight) == torch.equal(V, U) == same


def loss(rule: ClientRule, counts: list[int], f: Tensor) -> float:
    """The loss of a sample of class 1 with logits f at a client with these numbers of samples."""
    ctx: Any = SimpleNamespace(label_counts=np.array(counts), w=Z, num_classes=2)
    ctx.local = rule.begin(ctx)
    y = torch.tensor([1])
    extra, weight = rule.loss(ctx, Batch(Z, y, Z, f, f.sum(), y))
    assert weight == 0 and isinstance(extra, Tensor)
    return float(extra)


@pytest.mark.parametrize(
    ("changes", "counts", "odds"),
    [
        ({}, [3, 1], 3),
        ({"gamma": 2.0}, [3, 1], 9),
        ({}, [2, 2], 1),
        ({}, [0, 4], 1 / 4),
        ({"absent": "out"}, [0, 4], 0),
    ],
)
def test_balanced_feature_loss(changes: dict[str, Any], counts: list[int], odds: float) -> None:
    """log(1 + (n_0/n_1)^gamma exp(f_0 - f_1))."""
    expected = math.log1p(odds * math.exp(-GAP))
    assert loss(FedETF(**ETF | changes), counts, F) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("counts", "gap"), [([2, 2], 2.0), ([3, 1], 0.0), ([0, 4], 6.0), ([1, 7], 5.0)])
def test_adapted_classifier(counts: list[int], gap: float) -> None:
    """Phi = (1, 1), (1.5, .5), (0, 2), (.25, 1.75) times f = (1, 3)."""
    found = loss(FedGELA(**GELA), counts, torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    assert found == pytest.approx(math.log1p(math.exp(-gap)), abs=1e-12)


@pytest.mark.parametrize(("name", "own"), [("fedetf", 8 * 4 + 4 + 1), ("fedgela", 0)])
def test_whole_rounds(name: str, own: int) -> None:
    """The projection and beta are part of w and train; V is not, and stays. What is evaluated answers by V."""
    model = class_run({"client": {name: ETF if name == "fedetf" else GELA}}, momentum=0.9, weight_decay=0.01)
    assert int(model.layout.mask("head").sum()) == own and len(model.model.buffers) == 0
    V = model.model.net.classifier.V._V
    before = V.clone()
    first, *_, last = run(model)
    assert torch.equal(V, before) and V.dtype == torch.float64
    head = slice(model.model.body_size, None)
    assert own == 0 or bool((first.w[head] != last.w[head]).all())
    (answer,) = model.method.prediction.predictors(server_view(model.clients, last))
    x = classes().images
    model.model.w.data.copy_(last.w)
    near(answer(x), model.model.net(x).detach())
    z = model.model.net.features(x).detach()
    if name == "fedgela":
        near(answer(x), 2 * nn.functional.normalize(z, dim=1) @ V)
