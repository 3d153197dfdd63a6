"""What holds for every method of conf/method: resume bit for bit, neutral values, and the edge rules X1 to X11."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    Turns,
    assert_resumes,
    bn_dropout,
    class_run,
    classes,
    problem_of,
    run,
    same,
    with_rules,
)

from benchmark.config.compose import group_names, load_group
from benchmark.engine.state import Diverged, FederationState
from methods.core.method import Method, build
from methods.core.rules import MethodError

every_method = pytest.mark.parametrize("name", group_names("method"))


def configured(name: str, **slots: Any) -> Method:
    config = load_group("method", name)
    if "isfl" in (config.get("client") or {}):
        config["client"]["isfl"] |= {"N_p": 20, "proxy": "local"}  # a shared set would spread a bad image
    return with_rules(config=config, **slots)


def finite(state: FederationState) -> bool:
    return bool(torch.isfinite(state.w).all())


@every_method
def test_resume_is_bit_for_bit(name: str, tmp_path: Path) -> None:
    options = {"rounds": 4, "clients_per_round": 2, "momentum": 0.9, "net": bn_dropout, "lr": 0.02}
    assert_resumes(lambda seed: class_run(configured(name), net_seed=seed, **options), tmp_path)


MOMENTUM = {"name": "momentum", "beta": 0.0, "lr": 1.0}
NEUTRAL = {
    "fedprox": {"client": {"fedprox": {"mu": 0.0}}, "server": {"optimizer": MOMENTUM}},
    "fedprox, unsquared": {"client": {"fedprox": {"mu": 0.0, "prox_norm": "unsquared_per_tensor"}}},
    "fedavgm, nesterov": {"server": {"optimizer": MOMENTUM | {"momentum_form": "nesterov"}}},
    "fednova, equal steps": {"server": {"direction": {"name": "nova"}}},
    "feddisco": {"server": {"weights": {"name": "disco", "a": 0.0, "b": 0.0}}},
    "moon": {"client": {"moon": {"mu": 0.0, "T": 0.5}}},
    "fedproc": {"client": {"fedproc": {"T_p": 1}}},
    "feddecorr": {"client": {"feddecorr": {"beta": 0.0}}},
    "fedntd": {"client": {"fedntd": {"beta": 0.0, "tau": 1.0}}},
    "fedrs": {"client": {"fedrs": {"alpha": 1.0}}},
    "fedlc": {"client": {"fedlc": {"tau": 0.0}}},
    "fedvls": {"client": {"fedvls": {"lam": 0.0, "suppression": 0.0, "calibrated": False}}},
    "fedmr": {"client": {"fedmr": {"mu1": 0.0, "mu2": 0.0}}},
    "fedld_margin": {"client": {"fedld_margin": {"lam": 0.0}}},
    "fedbn without BatchNorm": {"client": {"fedbn": {}}, "prediction": {"name": "personal"}},
    "last_models": {"client": {"last_models": {"over": "all"}}},
    "fedsam": {"client": {"fedsam": {"rho": 0.0}}},
    "fedcm": {"client": {"fedcm": {"alpha": 1.0}}},
    "fedacg": {
        "client": {"fedprox": {"mu": 0.0}},
        "server": {"optimizer": {"name": "lookahead", "lam": 0.0}},
    },
    "fedexp": {"server": {"direction": {"name": "extrapolate", "eps": 1e9}}},
    "fedlesam": {"client": {"fedlesam": {"rho": 0.0}}},
    "fedgloss, at the server": {"server": {"optimizer": {"name": "fedgloss", "rho": 0.0}}},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_are_fedavg_bit_for_bit(name: str) -> None:
    options = {"momentum": 0.9, "weight_decay": 1e-3, "clients_per_round": 3, "rounds": 3}
    if "equal steps" in name:
        options["problem"] = classes((8, 8, 8, 8))
    expected = run(class_run({}, **options))[-1]
    assert torch.equal(run(class_run(NEUTRAL[name], **options))[-1].w, expected.w)


WITHOUT_SERVER = ("local",)
"""Methods whose global model never moves."""


@every_method
def test_x1_x2_x6_x7_small_clients_with_few_classes(name: str) -> None:
    """Clients below one batch, one of a single sample, one of a single class, BatchNorm in the model."""
    rng = np.random.default_rng(0)
    sizes, labels = (1, 3, 9, 6), ([2], [0, 0, 0], [0, 1] * 4 + [1], [0, 1, 2] * 2)
    problem = problem_of([rng.normal(size=(n, 6)) for n in sizes], [np.array(y) for y in labels], 3)
    states = run(class_run(configured(name), problem=problem, net=bn_dropout, lr=0.02, rounds=2))
    assert finite(states[-1]) and torch.equal(states[-1].w, states[0].w) == (name in WITHOUT_SERVER)
    assert not same(states[-1].clients, states[0].clients) or name not in WITHOUT_SERVER


@every_method
def test_x3_updates_of_zero(name: str) -> None:
    """Rate 0: nobody moves, and no norm of 0 is divided by. (FedPAC's head has a rate of its own, and stays behind.)"""
    states = run(class_run(configured(name), lr=0.0, rounds=2))
    assert torch.equal(states[-1].w, states[0].w)


@every_method
def test_x4_x8_x9_rounds_without_some_or_all_clients(name: str) -> None:
    """Without clients no state moves, absent clients keep their states, and no vector of the server holds buffers."""
    turns = ((), (0, 1, 2, 3), (1, 2), ())
    states = run(class_run(configured(name, selection=Turns(turns=turns)), net=bn_dropout, lr=0.02, rounds=4))
    for before, after, chosen in zip(states, states[1:], turns, strict=False):
        stays = not chosen or name in WITHOUT_SERVER
        assert finite(after) and torch.equal(before.w, after.w) == stays
        assert chosen or same(replace(after, round=before.round), before)
    for k in (0, 3):
        assert same(states[3].clients.get(k), states[2].clients.get(k))
    for slot in (states[-1].direction, states[-1].optimizer, states[-1].post):
        for value in slot.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                assert value.shape == states[-1].w.shape


@every_method
def test_x5_a_non_finite_update_is_named(name: str) -> None:
    problem = classes()
    problem.images[14:26] = float(
        "nan"
    )  # clients of 9, 5, 12 and 7 samples: the third one's, of which some draw a part
    with pytest.raises(Diverged, match=r"round 0: .* client 2 is not finite"):
        run(class_run(configured(name), problem=problem, rounds=1))


@every_method
@pytest.mark.parametrize(("sizes", "kappa"), [((9,), 1), ((9, 5, 12), 1)])
def test_x11_one_client_or_one_participant(name: str, sizes: tuple[int, ...], kappa: int) -> None:
    states = run(class_run(configured(name), problem=classes(sizes), clients_per_round=kappa, rounds=2))
    assert finite(states[-1])


UNIFORM = {"weights": {"name": "uniform"}}
DRIFT = UNIFORM | {"post": {"name": "drift"}}
DYN, DC = {"feddyn": {"alpha": 0.1}}, {"feddc": {"alpha": 0.1}}
REP = {"fedrep": {"E_h": None, "E_b": 1}}
SDC = {"fedsdc": {"rho": [0.4, 1.0], "dropout": 0.0, "diversity": True, "shuffle": True}}
ETF, GELA = {"d": 3, "beta": 1.0, "gamma": 1.0, "absent": "one"}, {"E_W": 1.0}
PAC = {"lam": 1.0, "eta_head": 0.1, "E_head": 1}
ADAM = {"name": "adam", "beta1": 0.9, "beta2": 0.99, "lr": 0.01, "tau": 0.001}
VOTE, PERSONAL = {"name": "vote", "gamma": 1.0}, {"name": "personal"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"client": DYN, "server": DRIFT | {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}},
         r"drift needs 'add' in method\.server\.optimizer; got momentum"),
        ({"client": {"scaffold": {}} | REP, "prediction": PERSONAL},
         r"scaffold derives a gradient of the whole model, but fedrep trains it in parts"),
        ({"client": {"scaffold": {}} | SDC, "prediction": VOTE},
         r"scaffold keeps whole models, but fedsdc hands out heads of different widths"),
        ({"client": {"isfl": {"sigma": 0.02, "N_p": 1}, "fedbn": {}}}, r"fedbn needs 'personal'"),
        ({"client": SDC}, r"fedsdc needs 'vote' in method\.prediction; got global"),
        ({"client": {"fedpac": PAC} | REP, "prediction": {"name": "fedpac"}}, r"fedpac and fedrep .*what the head is"),
        ({"client": {"moon": {"mu": -1.0, "T": 0.5}}}, r"client\.moon\.mu: got -1\.0"),
        ({"client": {"fedgela": GELA, "fedetf": ETF}}, r"fedgela and fedetf both decide what the classifier is"),
        ({"client": {"fedlesam": {"rho": 0.1}, "fedsam": {"rho": 0.1}}}, r"fedlesam and fedsam .*second gradient"),
        ({"server": {"optimizer": ADAM | {"beta1": 1.0}}}, r"optimizer\.beta1: got 1\.0"),
        ({"server": {"direction": {"name": "harmonize", "reading": "cold"}}}, r"direction\.reading: got 'cold'"),
        ({"client": {"fedsdc": SDC["fedsdc"] | {"rho": [1.0, 0.4]}}}, r"fedsdc\.rho: .*0 < low < high <= 1"),
    ],
)  # fmt: skip
def test_refused_by_name(config: dict[str, Any], said: str) -> None:
    with pytest.raises(MethodError, match=said):
        build(config)
