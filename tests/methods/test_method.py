"""Methods built from configuration: defaults, composition, and one clear message for every mistake."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest
from federations import with_rules

from methods.core import registry
from methods.core.build import Method, build
from methods.core.registry import MethodError
from methods.core.rules import ClientRule, Post
from methods.fedavg import Add, GlobalPrediction, MeanDirection, NoPost, SizeWeights
from methods.fedavgm import ServerMomentum
from methods.fedprox import FedProx
from methods.selection.round_robin import RoundRobin
from methods.selection.uniform import Uniform


def test_an_empty_configuration_is_fedavg() -> None:
    method = build({})
    assert method.client == ()
    slots = (
        method.weights,
        method.direction,
        method.optimizer,
        method.post,
        method.prediction,
        method.selection,
    )
    assert slots == (SizeWeights(), MeanDirection(), Add(), NoPost(), GlobalPrediction(), Uniform())
    assert method.personal == frozenset()
    assert not method.keeps_updates(0)


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
    assert (
        build(config, selection={"name": "uniform"}).selection == Uniform()
    )  # the run's own choice comes first


def test_fields_of_rules_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        FedProx(mu=0.1).mu = 0.2  # type: ignore[misc]


def optimizer(**parameters: object) -> dict:
    return {"server": {"optimizer": {"name": "momentum"} | parameters}}


def fedprox(**parameters: object) -> dict:
    return {"client": {"fedprox": parameters}}


MISTAKES: list[tuple[dict, str]] = [
    ({"cleint": {}}, r"method\.cleint: unknown key\. Did you mean 'client'\? Allowed: .*server"),
    (
        {"client": {"fedprx": {"mu": 1}}},
        r"method\.client\.fedprx: no client rule is called 'fedprx'\. Did you mean 'fedprox'\? Known: ",
    ),
    (
        fedprox(nu=1, mu=1),
        r"client\.fedprox\.nu: unknown parameter of fedprox\. Did you mean 'mu'\? Allowed: mu, prox_norm",
    ),
    (fedprox(), r"method\.client\.fedprox\.mu: fedprox needs this parameter"),
    ({"client": {"fedprox": None}}, r"method\.client\.fedprox\.mu: fedprox needs this parameter"),
    (fedprox(mu=-1), r"method\.client\.fedprox\.mu: came -1; .*greater than or equal to 0"),
    (fedprox(mu="much"), r"method\.client\.fedprox\.mu: came 'much'; .*number"),
    (fedprox(mu=1, prox_norm="cubed"), r"prox_norm: came 'cubed'; .*'squared' or 'unsquared_per_tensor'"),
    ({"client": ["fedprox"]}, r"method\.client: came \['fedprox'\]; expected a mapping"),
    (
        {"server": {"optimiser": {"name": "add"}}},
        r"method\.server\.optimiser: unknown slot\. Did you mean 'optimizer'\?",
    ),
    (optimizer(name="momentun"), r"no optimizer rule is called 'momentun'\. Did you mean 'momentum'\?"),
    (
        {"server": {"optimizer": "momentum"}},
        r"method\.server\.optimizer: came 'momentum'; expected a mapping with a name",
    ),
    (optimizer(beta=1.0, lr=1), r"method\.server\.optimizer\.beta: came 1\.0; .*less than 1"),
    (optimizer(beta=0.5, lr=0), r"method\.server\.optimizer\.lr: came 0; .*greater than 0"),
    (
        {"server": {"weights": {"name": "size", "power": 2}}},
        r"method\.server\.weights\.power: unknown parameter of size\..* it has no parameters",
    ),
    (
        {"selection": {"name": "robin"}},
        r"selection: no selection rule is called 'robin'\..*Known: .*round_robin, uniform",
    ),
    ({"prediction": {"name": "globl"}}, r"no prediction rule is called 'globl'\. Did you mean 'global'\?"),
]


@pytest.mark.parametrize(("config", "message"), MISTAKES)
def test_mistakes(config: dict, message: str) -> None:
    with pytest.raises(MethodError, match=message) as error:
        build(config)
    assert "\n" not in str(error.value)


def test_all_mistakes_of_a_rule_are_in_one_message() -> None:
    with pytest.raises(MethodError, match=r"optimizer\.beta: .*; method\.server\.optimizer\.lr: "):
        build({"server": {"optimizer": {"name": "momentum", "beta": 2}}})


def test_a_large_server_rate_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """[DIV] beta .95 with eta_s = 1 is an effective rate of 1/(1 - .95) = 20; .1 with the same beta is 2."""
    with caplog.at_level(logging.WARNING):
        build({"name": "m", "server": {"optimizer": {"name": "momentum", "beta": 0.95, "lr": 0.1}}})
        assert caplog.records == []
        build({"name": "m", "server": {"optimizer": {"name": "momentum", "beta": 0.95, "lr": 1.0}}})
    assert "method m" in caplog.text
    assert "20" in caplog.text


class Owner(ClientRule):
    key: ClassVar[str] = "owner"
    owns_head: ClassVar[bool] = True
    personal: ClassVar[tuple[str, ...]] = ("head",)


class OtherOwner(ClientRule):
    key: ClassVar[str] = "other_owner"
    owns_head: ClassVar[bool] = True
    personal: ClassVar[tuple[str, ...]] = ("norm",)


def test_two_owners_of_the_head_are_refused_by_name() -> None:
    with pytest.raises(MethodError, match="owner and other_owner both decide what the head is"):
        with_rules(Owner(), OtherOwner()).check()
    with_rules(Owner(), FedProx(mu=0.1)).check()


def test_personal_groups_of_all_rules() -> None:
    assert with_rules(Owner(), OtherOwner()).personal == {"head", "norm"}


def test_a_rule_can_refuse_its_neighbours() -> None:
    class Alone(Post):
        key: ClassVar[str] = "alone"

        def check(self, method: Method) -> None:
            if method.optimizer.key != "add":
                raise MethodError(f"method {method.name!r}: alone cannot follow {method.optimizer.key}")

    with_rules(post=Alone()).check()
    optimizer = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}
    with pytest.raises(MethodError, match="alone cannot follow momentum"):
        with_rules(config={"name": "x"} | optimizer, post=Alone()).check()


def test_registry() -> None:
    assert {"add", "momentum"} <= set(registry.names("optimizer"))
    assert {"uniform", "round_robin"} <= set(registry.names("selection"))
    assert "fedprox" in registry.names("client")
    assert registry.describe("optimizer", "momentum") == "Heavy-ball momentum at the server."
    assert registry.names("weights") == sorted(registry.names("weights"))


def test_two_rules_under_one_name_fail() -> None:
    with pytest.raises(RuntimeError, match="two client rules are called 'fedprox'"):

        @registry.register("client", "fedprox")
        class Again(ClientRule):
            pass
