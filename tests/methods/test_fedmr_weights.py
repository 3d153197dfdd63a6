"""FedMR: a weight of the authors' form of the intra-class loss in Eq. 3's form."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, mlp, near, problem_of, run, seeded, with_rules
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from methods.fedmr import conversion
from methods.shared import fast


def start(parameters: dict[str, Any]) -> FederatedRun:
    """Four clients with 2, 1, 2 and 2 classes, batches of 4, 8 features; without the inter-class loss."""
    rng = np.random.default_rng(0)
    labels = [[0, 1] * 6, [1] * 9, [0, 1, 0, 0] * 4, [2, 0, 2, 2, 0, 2, 2]]
    problem = problem_of([rng.normal(size=(len(y), 6)) for y in labels], [np.array(y) for y in labels], 3)
    method = with_rules(config={"client": {"fedmr": parameters | {"mu2": 0}}})
    return federation(problem, method, seeded(mlp, 5), lr=0.1, momentum=0.9, epochs=1, batch_size=4)


def balanced(N: int, h: int, classes: int) -> tuple[Tensor, Tensor]:
    """Features [N classes, h], correlated, of a batch with N samples of each class."""
    rng = np.random.default_rng(N)
    z = rng.normal(size=(N * classes, h)) @ rng.normal(size=(h, h)) + rng.normal(size=h)
    return torch.from_numpy(z), torch.arange(classes).repeat(N)


@pytest.mark.parametrize(("N", "h", "classes"), [(16, 128, 2), (64, 12, 2), (3, 5, 4), (13, 40, 10)])
def test_the_gradients_of_both_forms_are_parallel_in_a_balanced_batch(N: int, h: int, classes: int) -> None:
    z, y = balanced(N, h, classes)

    def gradient(form: Any) -> np.ndarray:
        leaf = z.clone().requires_grad_()
        return torch.autograd.grad(fast.intra_class(leaf, y, 0.0, form), leaf)[0].numpy()

    code = gradient("reference")
    near(conversion(N, h) * gradient("paper"), code, 1e-9 * np.abs(code).max())


def test_conversion_by_hand() -> None:
    """15^4 / (16^3 x 128 x 127) for small P10C2; ResNet-18 P10C2 and WRN P10C10 at batch 128; no less than N = 2."""
    assert conversion(16, 128) == pytest.approx(50625 / (4096 * 16256))
    assert [round(1 / conversion(N, h)) for N, h in ((64, 512), (12.8, 640))] == [4354, 44237]
    assert conversion(0.5, 3) == conversion(2, 3) == 1 / (8 * 6)


@pytest.mark.parametrize(
    ("parameters", "weight"),
    [
        ({}, 0.01 * conversion(4 / 1.75, 8)),  # batches of 4; the four clients have 2, 1, 2, 2 classes
        ({"mu1_code": 2.0}, 2.0 * conversion(4 / 1.75, 8)),
        ({"mu1_code": 2.0, "mu1_ratio": 0.125}, 0.25),
        ({"mu1": 0.5, "mu1_code": 2.0}, 0.5),
        ({"variant": "reference", "mu1_code": 2.0}, 2.0),
        ({"mu1_code": 0.0}, 0.0),
    ],
)
def test_a_weight_of_the_authors_code_is_converted_once(parameters: dict[str, Any], weight: float) -> None:
    model = start(parameters)
    assert model.model.net.feature_dim == 8
    state = model.initial_state().rules["fedmr"]
    converted = "mu1" not in parameters and parameters.get("variant") is None and weight > 0
    assert state == ({"mu1": pytest.approx(weight)} if converted else {})
    form = {"variant": parameters.get("variant", "paper")}
    first, second = (run(each)[-1] for each in (model, start(form | {"mu1": weight})))
    near(first.w.numpy(), second.w.numpy(), 1e-6)
