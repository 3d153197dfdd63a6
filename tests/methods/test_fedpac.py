"""FedPAC: statistics, mixes of heads and prototypes against tests/golden/fedpac_*.npz; rounds by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import federation, near, problem_of, run
from golden_cases import stored
from torch import nn

from benchmark.models.networks import Net
from methods.core.method import build
from methods.fedpac import head_weights, on_simplex, quadratic_form, statistics

FEDPAC = {"lam": 1.0, "eta_head": 0.1, "E_head": 1}
METHOD = {"client": {"fedpac": FEDPAC}, "prediction": {"name": "fedpac"}}


def measured(g: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    V, H = [], []
    for k in range(int(g["n_clients"])):
        z, y = torch.from_numpy(g[f"feat{k}"]).double(), torch.from_numpy(g[f"label{k}"])
        one_hot = F.one_hot(y, int(g["n_classes"])).double()
        v, h = statistics(one_hot.T @ z, one_hot.sum(0), one_hot.T @ z.square().sum(1))
        V.append(float(v))
        H.append(h.numpy())
    return np.array(V), np.stack(H)


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_golden(case: str) -> None:
    g = stored(f"fedpac_{case}")
    V, H = measured(g)
    for name, found in (("V", V), ("H", H)):
        near(found, g[f"{name}_code"], 1e-5)
        near(found, g[f"{name}_paper"], 1e-9)
    m = len(V)
    for k in range(m):
        P = quadratic_form(V, H, k)
        near(P, g["P_paper"][k], 1e-9)
        alpha = on_simplex(P)
        near(alpha, g["head_weights_paper"][k], 1e-4)
        assert alpha @ P @ alpha <= g["objective_paper"][k] * (1 + 1e-6)
    mixed = head_weights(V, H)
    dropped = g["head_weights_code"] / g["head_weights_code"].sum(1, keepdims=True)
    near(mixed, dropped, 1e-4)
    for part in ("weight", "bias"):
        found = np.tensordot(mixed, g[f"head_{part}_in"].astype(float), 1)
        near(found, g[f"head_{part}_out_code"], 1e-4)


def test_mixes_by_hand() -> None:
    """Diagonal P = (1, 1e4): alpha is proportional to its inverse, (.9999, .0001), and .0001 < .001 goes.

    V = 0 (one sample each) and equal H: every mix is as good; P = 0. V = (0, 1) and H apart by 1: P = [[0, 0], [0, 2]]
    for client 0, and only its own head has no error.
    """
    V = np.array([1.0, 1e4])
    np.testing.assert_allclose(on_simplex(np.diag(V)), [1e4 / 10001, 1 / 10001], rtol=1e-6)
    assert head_weights(V, np.zeros((2, 1, 1))).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    near(head_weights(np.zeros(3), np.ones((3, 2, 2))), np.full((3, 3), 1 / 3))
    near(head_weights(np.array([0.0, 1.0]), np.array([[[0.0]], [[1.0]]]))[0], [1.0, 0.0], 1e-9)


def net() -> Net:
    """z = theta x [1], logits = phi z [2] + b: w = (theta, phi_0, phi_1, b_0, b_1)."""
    body, head = nn.Linear(1, 1, bias=False), nn.Linear(1, 2)
    return Net(body, head, 1).double()


def problem() -> object:
    return problem_of(
        [np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])], [np.array([0, 1]), np.array([0, 0])], 2
    )


def test_one_round_by_hand() -> None:
    """Head phase, body phase without alignment, then mixed heads and prototypes."""
    w0 = np.array([0.5, 0.2, -0.1, 0.0, 0.1])
    model = federation(problem(), METHOD, net(), w0=w0, lr=0.05, epochs=2, batch_size=10)
    start, end = run(model, rounds=1)
    assert start.rules["fedpac"]["first"].tolist() == w0[1:].tolist()
    bodies, heads, V, H, sums = [], [], [], [], []
    for x, y in (([1.0, 2.0], [0, 1]), ([1.0, 3.0], [0, 0])):
        x, y = torch.tensor(x).double(), torch.tensor(y)
        one_hot = F.one_hot(y, 2).double()
        theta, head = torch.tensor(0.5).double(), torch.from_numpy(w0[1:])
        z = theta * x
        pi, n = one_hot.mean(0), len(y)
        mu = (one_hot * z[:, None]).sum(0) / one_hot.sum(0).clamp_min(1)
        square = (one_hot * z[:, None] ** 2).sum(0) / one_hot.sum(0).clamp_min(1)
        V.append(float((pi * square - pi**2 * mu**2).sum() / n))
        H.append((pi * mu).numpy()[:, None])
        for part, rate, epochs in (("head", 0.1, 1), ("body", 0.05, 2)):
            for _ in range(epochs):
                theta, head = theta.detach().requires_grad_(), head.detach().requires_grad_()
                logits = (theta * x)[:, None] * head[:2] + head[2:]
                F.cross_entropy(logits, y).backward()
                if part == "head":
                    head = head - rate * head.grad
                else:
                    theta = theta - rate * theta.grad
        bodies.append(float(theta.detach()))
        heads.append(head.detach().numpy())
        sums.append((one_hot * (theta.detach() * x)[:, None]).sum(0).numpy())
    assert float(end.w[0]) == pytest.approx(np.mean(bodies), abs=1e-12)
    assert end.w[1:].tolist() == w0[1:].tolist(), "the head of the global model is never trained"
    alpha = head_weights(np.array(V), np.stack(H))
    state = end.rules["fedpac"]
    for k in range(2):
        near(state["heads"][str(k)], alpha[k] @ np.stack(heads))
    # Class 0: one sample of client 0, both of client 1; class 1: one of client 0.
    near(state["g"][:, 0], np.sum(sums, axis=0) / [3, 1])
    assert state["known"].tolist() == [True, True]


@pytest.mark.parametrize(("align", "gradient"), [("mean", 2.0 / 3), ("sum", 1.0)])
def test_alignment_pulls_to_the_prototype(align: str, gradient: float) -> None:
    """R for one sample z = (1, 0, 0) and g = 0: |z|^2/3, with gradient 2 z/3, or |z|^2/2, with gradient z."""
    rule = build({**METHOD, "client": {"fedpac": {**FEDPAC, "align": align}}}).client[0]
    z = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
    ctx = SimpleNamespace(local={"target": torch.zeros(2, 3)})
    batch = SimpleNamespace(z=z, y=torch.tensor([1]))
    rule.loss(ctx, batch).extra.backward()
    np.testing.assert_allclose(z.grad, [[gradient, 0.0, 0.0]], rtol=1e-6)
