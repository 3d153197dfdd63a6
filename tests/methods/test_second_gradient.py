"""Steps that differ from SGD's: gradients elsewhere (FedSAM, FedLESAM, FedGloSS), momentum from the server (FedCM).

The quadratic client is 10/2 (v + 1)^2 from v = 3 at rate 0.05. Whole rounds of all methods are in test_toy.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import (
    Quadratic,
    Recorder,
    Turns,
    bn_dropout,
    class_run,
    federation,
    one_parameter,
    ones,
    run,
    same,
    with_rules,
)
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from methods.core.contexts import ClientContext
from methods.core.rules import ClientRule, Selection
from methods.core.vectors import Layout
from methods.fedlesam import FedLESAM
from methods.fedsam import FedSAM


def quadratic(
    config: dict[str, Any],
    *rules: ClientRule,
    selection: Selection | None = None,
    b: tuple[float, float] = (-1.0, -1.0),
    **options: Any,
) -> FederatedRun:
    slots = {} if selection is None else {"selection": selection}
    method = with_rules(Quadratic(a=(10.0, 10.0), b=b), *rules, config=config, **slots)
    w0 = torch.tensor([3.0], dtype=torch.float64).numpy()
    return federation(ones(1, 1), method, one_parameter(), w0=w0, **options)


class Still(ClientRule):
    """Takes every gradient twice at the same point, and notes the first."""

    gradients: Any

    def ascend(self, ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor:
        self.gradients.append(g.clone())
        return torch.zeros_like(g)


def test_the_second_gradient_sees_what_the_first_saw() -> None:
    """With e = 0, BatchNorm and dropout, the run is FedAvg's bit for bit, at 33 further samples a round and epoch."""
    options: dict[str, Any] = {"net": bn_dropout, "momentum": 0.9, "weight_decay": 1e-3}
    seen = Recorder()
    twice = class_run(with_rules(Still(gradients=[]), seen), **options)
    state, report = twice.run_round(twice.initial_state())
    expected = run(class_run({}, **options), rounds=1)[-1]
    assert torch.equal(state.w, expected.w) and torch.equal(state.buffers, expected.buffers)
    for first, second in zip(seen.batches[::2], seen.batches[1::2], strict=True):
        assert same(first, second)
    samples = sum(len(y) for _, _, _, y, _ in seen.batches) // 2
    # Two epochs without batches of one sample (9 and 5 in fours).
    assert samples == 2 * (9 + 5 + 12 + 7) - 2 * 2
    assert report.cost == Cost(trained=samples)


def test_the_second_gradient_repeats_the_draws_of_losses() -> None:
    """FedMR Lite draws samples in its loss: with e = 0 and prototypes, from round 1 on, nothing else may change."""
    lite = {"client": {"fedmr": {"mu1": 0.0, "mu2": 1.0, "lite": 2}}}
    once, twice = (
        run(class_run(with_rules(*rules, config=lite), rounds=2)) for rules in ((), (Still(gradients=[]),))
    )
    assert torch.equal(once[2].w, twice[2].w)


def test_corrections_are_added_once_at_the_point_itself() -> None:
    """g = 40: the gradient at 3.5 is 45, v = .75; g = 17.5: at 1.25 it is 22.5; FedProx with mu = 1 adds .75 - 3."""
    states = run(quadratic({"client": {"fedsam": {"rho": 0.5}, "fedprox": {"mu": 1.0}}}, epochs=2, rounds=1))
    assert float(states[-1].w) == pytest.approx(0.75 - 0.05 * 20.25, abs=1e-12)


def test_sam_perturbs_along_the_unit_gradient() -> None:
    g = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(FedSAM(rho=0.5).ascend(None, g, g), torch.tensor([0.3, 0.4]))
    assert not FedSAM(rho=0.5).ascend(None, g, 0 * g).any()


def test_fedcm_sends_the_direction_down_and_nothing_up() -> None:
    """alpha = .5. Round 0: v = 3 - .05 (.5 * 40) = 2, Delta = 20; round 1: v = 2 - .05 (.5 * 30 + .5 * 20) = .75."""
    model = quadratic({"client": {"fedcm": {"alpha": 0.5}}}, epochs=1)
    state, _ = model.run_round(model.initial_state())
    assert float(state.rules["fedcm"]["delta"]) == pytest.approx(20.0)
    state, report = model.run_round(state)
    assert float(state.w) == pytest.approx(0.75)
    assert report.cost == Cost(scalars_down=2)


def test_lesam_climbs_back_along_the_way_of_the_global_model() -> None:
    """w - w_old = (3, 4), (0, 12) as two tensors: length 13 as a whole, 5 + 12 = 17 by tensors; rho = 1."""
    layout = Layout.of([("a", (2,), "body"), ("b", (2,), "head")])
    w, way = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([3.0, 4.0, 0.0, 12.0])
    for variant, length in (("paper", 13), ("reference", 17)):
        rule = FedLESAM(rho=1.0, variant=variant)
        kept = {"w_old": w - way} if variant == "paper" else {}
        sent = {"way": way} if variant == "reference" else {}
        ctx = SimpleNamespace(w=w, state=kept, received=sent, layout=layout)
        torch.testing.assert_close(rule.begin(ctx)["e"], -way / length)
        first = SimpleNamespace(w=w, state={}, received={}, layout=layout)
        assert not rule.begin(first)["e"].any()


@pytest.mark.parametrize(
    ("variant", "expected"), [("paper", (3.0, 1.0, 2.0, 0.25)), ("reference", (3.0, 1.0, 1.75, 0.625))]
)
def test_lesam_since_the_client_s_own_round_or_the_last(variant: str, expected: tuple[float, ...]) -> None:
    """Parabolas 5 (v + 1)^2 and 5 (v - 3)^2, rate .05, rho = .5; client 0, then 1, then 0 again.

    Round 0: w = 3 - .5 4 = 1. Round 1: it is client 1's first, w = 1 + .5 2; of the code e = .5, w = 1 + .5 1.5. Round
    2: w_old = 3 and e = .5, w = 2 - .5 3.5; the code's w_old is 1, so e = -.5 and w = 1.75 - .5 2.25.
    """
    turns, config = (
        Turns(turns=((0,), (1,), (0,))),
        {"client": {"fedlesam": {"rho": 0.5, "variant": variant}}},
    )
    states = run(quadratic(config, selection=turns, b=(-1.0, 3.0), rounds=3))
    assert [float(state.w) for state in states] == pytest.approx(expected, abs=1e-12)


GLOSS = {
    "client": {"fedgloss": {"beta": 8.0}},
    "server": {
        "weights": {"name": "uniform"},
        "optimizer": {"name": "fedgloss", "rho": 0.0},
        "post": {"name": "fedgloss"},
    },
}


def test_fedgloss_without_climbing_is_feddyn_bit_for_bit() -> None:
    dyn = {"client": {"feddyn": {"alpha": 0.125}}}
    server = {"server": {"weights": {"name": "uniform"}, "post": {"name": "drift"}}}
    options: dict[str, Any] = {"momentum": 0.9, "clients_per_round": 3, "rounds": 4}
    ours, theirs = (run(class_run(config, **options))[-1] for config in (GLOSS, dyn | server))
    assert torch.equal(ours.w, theirs.w)


def test_fedgloss_climbs_the_last_pseudo_gradient_and_descends_from_w() -> None:
    """K = 2, client 0 alone. Round 0 from 3: D = -.05 40 = -2, so w = 3 - 2 - 2/2 = 0 (code: the same, m = 1).

    Delta = 2: round 1 starts at .5. sigma_0 = 2/8: g = 15 - .25, D = -.7375; the sum of all is -2.7375, halved.
    """
    server = GLOSS["server"] | {"optimizer": {"name": "fedgloss", "rho": 0.5}}
    states = run(quadratic(GLOSS | {"server": server}, selection=Turns(turns=((0,),)), rounds=2))
    assert [float(state.w) for state in states] == pytest.approx([3, 0, -0.7375 - 1.36875], abs=1e-12)


def test_the_authors_fedgloss_takes_the_mean_of_a_round() -> None:
    """m = K = 2 equal clients with D = -2: sigma takes 2 of 2 updates, w = 3 - 4; the code 1 of 2, w = 3 - 3."""
    for variant, expected in (("paper", -1.0), ("reference", 0.0)):
        server = GLOSS["server"] | {"post": {"name": "fedgloss", "variant": variant}}
        states = run(quadratic(GLOSS | {"server": server}, rounds=1))
        assert float(states[1].w) == pytest.approx(expected, abs=1e-12)
