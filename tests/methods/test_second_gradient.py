"""Steps that differ from SGD's: a second gradient (FedSAM), momentum from the server (FedCM), a start ahead (FedACG).

The quadratic client is 10/2 (v + 1)^2 from v = 3 at rate 0.05. Whole rounds of all methods are in test_toy.py.
"""

from typing import Any

import pytest
import torch
from federations import (
    Quadratic,
    Recorder,
    bn_dropout,
    class_run,
    federation,
    one_parameter,
    ones,
    run,
    same,
    two_parameters,
    with_rules,
)
from torch import Tensor

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from methods.core.contexts import ClientContext, Phase
from methods.core.rules import ClientRule
from methods.fedsam import FedSAM


def quadratic(config: dict[str, Any], *rules: ClientRule, **options: Any) -> FederatedRun:
    method = with_rules(Quadratic(a=(10.0, 10.0), b=(-1.0, -1.0)), *rules, config=config)
    w0 = torch.tensor([3.0], dtype=torch.float64).numpy()
    return federation(ones(1, 1), method, one_parameter(), w0=w0, **options)


class Still(ClientRule):
    """Takes every gradient twice at the same point, and notes the first."""

    gradients: Any

    def ascend(self, ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor:
        self.gradients.append(g.clone())
        return torch.zeros_like(g)


class HeadOnly(ClientRule):
    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        return (Phase(groups=("head",)),)


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


def test_only_the_groups_that_train_are_climbed() -> None:
    still = Still(gradients=[])
    run(federation(ones(2), with_rules(still, HeadOnly()), two_parameters(), rounds=1))
    assert still.gradients and all(float(g[0]) == 0.0 for g in still.gradients)


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
