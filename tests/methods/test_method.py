"""Methods built from configuration: defaults, composition, and one clear message for every mistake."""

import logging

import pytest
from torch import Tensor

from methods.core.contexts import State
from methods.core.method import build
from methods.core.rules import Aggregator, MethodError
from methods.fedavg import Add, GlobalPrediction, MeanDirection, NoPost, SizeWeights
from methods.fedavgm import ServerMomentum
from methods.fedprox import FedProx
from methods.selection.round_robin import RoundRobin
from methods.selection.uniform import Uniform


def test_an_empty_configuration_is_fedavg() -> None:
    m = build({})
    slots = (m.weights, m.direction, m.optimizer, m.post, m.prediction, m.selection)
    assert slots == (SizeWeights(), MeanDirection(), Add(), NoPost(), GlobalPrediction(), Uniform())
    assert m.client == () and m.personal == frozenset() and not m.keeps_updates(0)


def test_parts_compose() -> None:
    config = {
        "name": "fedavgm+fedprox",
        "client": {"fedprox": {"mu": 0.1}},
        "server": {"optimizer": {"name": "momentum", "beta": 0.9, "lr": 0.3}, "weights": {"name": "uniform"}},
        "selection": {"name": "round_robin"},
    }
    method = build(config)
    assert method.name == "fedavgm+fedprox"
    assert method.client == (FedProx(mu=0.1),)
    assert method.optimizer == ServerMomentum(beta=0.9, lr=0.3)
    assert method.selection == RoundRobin()
    assert method.direction == MeanDirection()
    assert build(config, selection={"name": "uniform"}).selection == Uniform()  # the run's own comes first


def optimizer(**parameters: object) -> dict:
    return {"server": {"optimizer": {"name": "momentum"} | parameters}}


def fedprox(**parameters: object) -> dict:
    return {"client": {"fedprox": parameters}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cleint": {}}, r"method\.cleint: unknown key.*server.*'client'"),
        ({"client": {"fedprx": {"mu": 1}}}, r"method\.client\.fedprx: .*'fedprox'"),
        (fedprox(nu=1, mu=1), r"client\.fedprox\.nu: unknown.* mu, prox_norm.*'mu'"),
        (fedprox(), r"method\.client\.fedprox\.mu: missing"),
        ({"client": {"fedprox": None}}, r"method\.client\.fedprox\.mu: missing"),
        (fedprox(mu=-1), r"method\.client\.fedprox\.mu: got -1; .*greater than or equal to 0"),
        (fedprox(mu="much"), r"method\.client\.fedprox\.mu: got 'much'; .*number"),
        (fedprox(mu=1, prox_norm="cubed"), r"prox_norm: got 'cubed'; .*'squared'"),
        ({"client": ["fedprox"]}, r"method\.client: got \['fedprox'\]; .*mapping"),
        ({"server": {"optimiser": {"name": "add"}}}, r"method\.server\.optimiser: unknown.*'optimizer'"),
        (optimizer(name="momentun"), r"optimizer: got 'momentun'.*'momentum'"),
        ({"server": {"optimizer": "momentum"}}, r"method\.server\.optimizer: got 'momentum'; .*mapping"),
        ({"direction": {"name": "mean"}}, r"method\.direction: unknown key; .*stands below server"),
        (optimizer(beta=1.0, lr=1), r"method\.server\.optimizer\.beta: got 1\.0; .*less than 1"),
        (optimizer(beta=2), r"optimizer\.beta: .*method\.server\.optimizer\.lr: "),  # both in one message
        ({"server": {"weights": {"name": "size", "power": 2}}}, r"method\.server\.weights\.power: unknown"),
        ({"selection": {"name": "robin"}}, r"selection: got 'robin'; .*round_robin, uniform"),
        ({"prediction": {"name": "globl"}}, r"prediction: got 'globl'.*'global'"),
    ],
)
def test_mistakes(config: dict, message: str) -> None:
    with pytest.raises(MethodError, match=message) as error:
        build(config)
    assert "\n" not in str(error.value)


def test_a_hook_with_other_arguments_is_refused() -> None:
    takes, expected = r"\(self, updates, p\)", r"\(self, updates, p, view, state\)"
    with pytest.raises(MethodError, match=rf"Median\.direction: takes {takes}; expected {expected}"):

        class Median(Aggregator):
            def direction(self, updates: Tensor, p: Tensor) -> tuple[Tensor, State]:  # type: ignore[override]
                return updates.median(dim=0).values, {}


def test_a_large_server_rate_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """[DIV] beta .95 with eta_s = 1 is an effective rate of 1/(1 - .95) = 20; .1 with the same beta is 2."""
    with caplog.at_level(logging.WARNING):
        build({"name": "m"} | optimizer(beta=0.95, lr=0.1))
        assert caplog.records == []
        build({"name": "m"} | optimizer(beta=0.95, lr=1.0))
    assert "20" in caplog.text
