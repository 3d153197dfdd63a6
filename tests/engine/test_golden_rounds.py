"""Whole rounds against numbers that public reference code produced (tests/golden/baselines)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from federations import federation, mlp, near, run
from golden_cases import stored, stored_problem
from torch import nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import FederationState
from benchmark.models.networks import Net
from methods.fedavgm import ServerMomentum

SCHEDULES = {"full": {"epochs": 3, "batch_size": 1000}, "mini": {"epochs": 2, "batch_size": 8}}


CASES = pytest.mark.parametrize(("split", "schedule"), [(a, s) for a in ("uneq", "eq") for s in SCHEDULES])


def states_of(
    file: str, split: str, method: dict, budget: dict, net: Net | None = None, **spec: float
) -> tuple[list[FederationState], dict, FederatedRun]:
    """(states after rounds 1..3, the stored arrays, the run)."""
    g = stored(f"baselines/{file}")
    model = federation(
        stored_problem(g, split), method, net or mlp(), lr=float(g["lr"]), w0=g["w0"], **budget, **spec
    )
    return run(model)[1:], g, model


def close(found: list[torch.Tensor], expected: np.ndarray, atol: float = 1e-9) -> None:
    near(np.stack([t.numpy() for t in found]), expected, atol)


def momentum(**parameters: Any) -> dict:
    return {"optimizer": {"name": "momentum", **parameters}}


PROX = {"client": {"fedprox": {"mu": 0.5}}}
NOVA = {"direction": {"name": "nova"}}


@CASES
@pytest.mark.parametrize(
    ("file", "form", "method", "local_momentum"),
    [
        ("fedavg", "", {}, 0.0),
        ("fedprox", "", PROX, 0.0),
        ("moon", "", {"client": {"moon": {"mu": 1.0, "T": 0.5}}}, 0.0),
        *(
            ("fedavgm", f"_{form}{number}", {"server": momentum(beta=beta, lr=lr, momentum_form=form)}, 0.0)
            for form in ("classic", "nesterov")
            for number, beta, lr in (("", 0.9, 1.0), ("2", 0.7, 0.5))
        ),
        ("fednova", "_plain", {"server": NOVA}, 0.0),
        ("fednova", "_mom", {"server": NOVA}, 0.9),
        ("fednova", "_mu", {"server": NOVA} | PROX, 0.0),
        # FedAvgM on FedNova's mean. The authors' buffer starts at the first mean, as ours does.
        ("fednova", "_gmf", {"server": NOVA | momentum(beta=0.5, lr=1.0)}, 0.0),
    ],
)
def test_global_models(
    file: str, form: str, method: dict, local_momentum: float, split: str, schedule: str
) -> None:
    states, g, _ = states_of(file, split, method, SCHEDULES[schedule], momentum=local_momentum)
    close([s.w for s in states], g[f"{split}_{schedule}{form}_w"])


@pytest.mark.parametrize(
    ("setting", "beta", "lr"),
    [("beta0p5_lr1p0", 0.5, 1.0), ("beta0p0_lr1p0", 0.0, 1.0), ("beta0p9_lr0p3", 0.9, 0.3)],
)
def test_fedavgm_of_fedsdc_and_flower(setting: str, beta: float, lr: float) -> None:
    """FedSDC Eq. 4-5 and Flower's FedAvgM: the same rule, so the same numbers, on three layers and three rounds."""
    g = stored("fedsdc_fedavgm")
    rule = ServerMomentum(beta=beta, lr=lr)

    def flat(name: str, *at: int) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([g[f"{name}_l{k}"][at].ravel() for k in range(3)]))

    w = flat("phi0")
    state = rule.setup(SimpleNamespace(w=w))
    for t in range(3):
        p = g["n_samples"][t] / g["n_samples"][t].sum()
        # The paper's Delta is old minus new, ours new minus old.
        dbar = -sum(float(p[i]) * flat("Delta", t, i) for i in range(4))
        w, state = rule.step(w, dbar, state)
        near(w, flat(f"{setting}_phi_code", t + 1), 1e-12)
        near(w, flat(f"{setting}_phi_paper", t + 1), 1e-12)


UNIFORM = {"weights": {"name": "uniform"}}


@CASES
@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad"])
@pytest.mark.parametrize(
    ("suffix", "switches"),
    [
        ("np_v0tau2", {}),
        ("flower", {"variant": "reference"}),
        ("flbench", {"v0": "zero"}),
        ("flbench", {"variant": "reference", "bias_correction": False}),
    ],
)
def test_adaptive_server_optimizers(
    split: str, schedule: str, name: str, suffix: str, switches: dict
) -> None:
    """Flower's FedAdam alone has a bias correction; FL-bench's FedAdagrad alone has beta1 = 0.9."""
    g = stored(f"baselines/fed{name}")
    parameters = {"lr": float(g["eta"]), "tau": float(g["tau"])} | switches
    if name == "adagrad":
        parameters["beta1"] = 0.9 if suffix == "flbench" else 0.0
    else:
        parameters |= {"beta1": float(g["beta1"]), "beta2": float(g["beta2"])}
    if name != "adam":
        parameters.pop("bias_correction", None)
    method = {"server": {"optimizer": {"name": name, **parameters}}}
    states, g, _ = states_of(f"fed{name}", split, method, SCHEDULES[schedule])
    close([s.w for s in states], g[f"{split}_{schedule}_{suffix}_w"])
    close([s.optimizer["v"] for s in states], g[f"{split}_{schedule}_{suffix}_v"])
    if f"{split}_{schedule}_{suffix}_m" in g:
        close([s.optimizer["m"] for s in states], g[f"{split}_{schedule}_{suffix}_m"])


@CASES
@pytest.mark.parametrize(
    ("suffix", "server"),
    [
        ("", UNIFORM),
        ("_etag2", UNIFORM | momentum(beta=0.0, lr=0.5)),
        ("_sizeavg", {"weights": {"name": "size"}}),
    ],
)
def test_scaffold(split: str, schedule: str, suffix: str, server: dict) -> None:
    method = {"client": {"scaffold": {}}, "server": server}
    states, g, _ = states_of("scaffold", split, method, SCHEDULES[schedule])
    close([s.w for s in states], g[f"{split}_{schedule}{suffix}_w"])
    last = "_last" if suffix == "_sizeavg" else ""
    c, ci = g[f"{split}_{schedule}{suffix}_c{last}"], g[f"{split}_{schedule}{suffix}_ci{last}"]
    close([s.rules["scaffold"]["c"] for s in states][-1:], c[-1:] if c.ndim > 1 else c[None])
    found = [states[-1].clients[k]["rules"]["scaffold"]["c"] for k in range(4)]
    close(found, ci if last else ci[-1])


@pytest.mark.parametrize("split", ["uneq", "eq"])
def test_scaffold_with_a_fixed_number_of_steps(split: str) -> None:
    """Three batches of 8, visited anew when they are used up."""
    method = {"client": {"scaffold": {}}, "server": UNIFORM}
    states, g, _ = states_of("scaffold", split, method, {"epochs": None, "steps": 3, "batch_size": 8})
    close([s.w for s in states], g[f"{split}_k3_w"])
    close([s.rules["scaffold"]["c"] for s in states], g[f"{split}_k3_c"])


DYN = {"server": UNIFORM | {"post": {"name": "drift"}}}


@CASES
@pytest.mark.parametrize(
    ("form", "switches"),
    [("const", {}), ("adaptive", {"variant": "reference"}), ("adaptive", {"adaptive": True})],
)
def test_feddyn(split: str, schedule: str, form: str, switches: dict) -> None:
    """Stored: h = -alpha times our l, and lambda_k = -g_k/alpha_k. ``_avg`` is the mean of the last models."""
    parameters = {"alpha": 0.1} | switches
    client = {"feddyn": parameters, "last_models": {"over": "all"}}
    states, g, _ = states_of("feddyn", split, DYN | {"client": client}, SCHEDULES[schedule])
    close([s.w for s in states], g[f"{split}_{schedule}_{form}_w"])
    close([s.rules["last_models"]["mean"] for s in states], g[f"{split}_{schedule}_{form}_avg"])
    if form == "const":
        close([-0.1 * s.post["l"] for s in states], g[f"{split}_{schedule}_{form}_h"])
    for k in range(4):
        n = len(g[f"{split}_y{k}"])
        alpha = 0.1 if form == "const" else 0.1 * 15 / n  # 60 samples, so n_bar = 15
        found = [-s.clients[k]["rules"]["feddyn"]["g"] / alpha for s in states]
        close(found, g[f"{split}_{schedule}_{form}_lambda"][:, k])


@CASES
@pytest.mark.parametrize(
    ("form", "switches"),
    [("np_ownK", {}), ("const", {"steps": "mean"}), ("adaptive", {"variant": "reference"})],
)
def test_feddc(split: str, schedule: str, form: str, switches: dict) -> None:
    """Clients of n_bar = 15 samples take 3 steps (full) and 2 x 2 (mini)."""
    client = {"feddc": {"alpha": 0.1} | switches, "last_models": {"over": "participants"}}
    states, g, _ = states_of("feddc", split, DYN | {"client": client}, SCHEDULES[schedule])
    close([s.w for s in states], g[f"{split}_{schedule}_{form}_w"])
    if form == "np_ownK":
        return
    close([s.rules["last_models"]["mean"] for s in states], g[f"{split}_{schedule}_{form}_avg"])
    close([s.rules["feddc"]["c"] for s in states], g[f"{split}_{schedule}_{form}_S"])
    for k in range(4):
        own = [s.clients[k]["rules"]["feddc"] for s in states]
        close([state["h"] for state in own], g[f"{split}_{schedule}_{form}_h"][:, k])
        close([state["c"] for state in own], g[f"{split}_{schedule}_{form}_s"][:, k])


@CASES
@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_fedbn(split: str, schedule: str, weights: str) -> None:
    """Stored order W1, b1, BN weight, BN bias, W2, b2; the shared ones are all but the BN entries 56 to 71."""
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
    method = {
        "client": {"fedbn": {}},
        "server": {"weights": {"name": weights}},
        "prediction": {"name": "personal"},
    }
    net = Net(body, nn.Linear(8, 3), 8).double()
    states, g, model = states_of("fedbn", split, method, SCHEDULES[schedule], net)
    shared = np.r_[0:56, 72:99]
    close([s.w[shared] for s in states], g[f"{split}_{schedule}_{weights}_shared"])
    buffers = model.model.buffer_layout
    for k in range(4):
        own = [s.clients[k] for s in states]
        close([o["personal"][:8] for o in own], g[f"{split}_{schedule}_{weights}_bn_weight"][:, k])
        close([o["personal"][8:] for o in own], g[f"{split}_{schedule}_{weights}_bn_bias"][:, k])
        for entry, short in zip(buffers.entries, ("mean", "var", "batches"), strict=True):
            found = [entry.view(o["buffers"]) for o in own]
            close(found, g[f"{split}_{schedule}_{weights}_bn_{short}"][:, k])
