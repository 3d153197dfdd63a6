"""FedSDC and FedSDC+: the authors' votes and widths (golden), rounds beside NumPy, ranking of heads by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from federations import Turns, federation, mlp, near, problem_of, run, same, with_rules
from golden_cases import BODY, fedsdc, gradient, layers, round_view, stored
from torch import nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.state import FederationState
from methods.core.contexts import ClientContext, State, Trained
from methods.core.method import build
from methods.core.rules import ClientRule, MethodError
from methods.fedsdc import make_head


def test_a_head_is_two_layers_whose_first_values_are_torchs_own() -> None:
    """Uniform in +-1/sqrt(inputs), by hand for 2048 -> 1434 -> 7: sd 1/sqrt(3 x 2048) and 1/sqrt(3 x 1434)."""
    head = make_head(2048, 7, 1434, 0.2, np.random.default_rng(3), "default")
    assert [type(layer) for layer in head] == [nn.Linear, nn.Dropout, nn.Linear] and head[1].p == 0.2
    for layer, inputs, sd in ((head[0], 2048, 0.0128), (head[2], 1434, 0.0152)):
        for values in (layer.weight.detach(), layer.bias.detach()):
            assert 0.5 * inputs**-0.5 < float(values.abs().max()) <= inputs**-0.5
        assert float(layer.weight.detach().std()) == pytest.approx(sd, rel=0.015)


def dealt(rule: ClientRule, server: State, clients: Sequence[int], round: int) -> list[int]:
    """The slot that each client is sent in a round."""
    view = round_view(len(clients), round=round, clients=tuple(clients))
    return [int(rule.send(server, k, view)["head"].key.removeprefix("fedsdc/")) for k in clients]


def server_of(slots: int, seed: int = 7) -> State:
    heads = {f"fedsdc/{s}": torch.full((2,), float(s)) for s in range(slots)}
    return {"heads": heads, "seed": seed, "feature_dim": 1, "num_classes": 1}


def test_shuffle_deals_every_slot_to_every_client_alike() -> None:
    """200 rounds, 5 clients: a permutation each time, and each of the 25 pairs 40 times, give or take 5.7."""
    rule = build(fedsdc(H=5)).client[0]
    rounds = [dealt(rule, server_of(5), range(5), t) for t in range(200)]
    assert all(sorted(slots) == list(range(5)) for slots in rounds)
    pairs = np.zeros((5, 5))
    for slots in rounds:
        pairs[np.arange(5), slots] += 1
    assert np.abs(pairs - 40).max() < 4 * 5.7
    assert len({tuple(slots) for slots in rounds}) > 80  # of 120 permutations
    assert dealt(rule, server_of(5), range(5), 3) == rounds[3]
    assert [dealt(rule, server_of(5, seed=8), range(5), t) for t in range(9)] != rounds[:9]


class Watch(ClientRule):
    """Writes down which head each client trains and what it starts from."""

    seen: Any

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        shapes = [e.shape for e in ctx.layout.entries if e.group == "head"]
        assert trained.head is not None
        self.seen.append((ctx.round, ctx.client, shapes, ctx.w.clone(), trained.head.clone()))
        return {}, {}


G = stored("baselines/fedavg")
XS, YS, W0 = [G[f"uneq_X{k}"] for k in range(4)], [G[f"uneq_y{k}"] for k in range(4)], G["w0"]
ALL = ((0, 1, 2, 3),)


def watched(config: Mapping[str, Any], turns: Any = ALL * 3, **options: Any) -> tuple[FederatedRun, list]:
    """Rounds of the stored problem, one epoch of batches of 5 at rate .2; what ``Watch`` saw."""
    seen: list = []
    method = with_rules(Watch(seen=seen), config=config, selection=Turns(turns=turns))
    options = {"lr": 0.2, "batch_size": 5, "rounds": len(turns), "w0": W0} | options
    return federation(problem_of(XS, YS, 3), method, mlp(), **options), seen


def held_slot(state: FederationState, start: np.ndarray) -> str:
    """The slot whose head stands behind the body of ``start``."""
    heads = state.rules["fedsdc"]["heads"].items()
    (found,) = [key for key, head in heads if np.array_equal(head.double().numpy(), start[BODY:])]
    return found


@pytest.mark.parametrize("name", ["fedsdc", "fedsdc_m1", "fedsdc_m2", "fedsdc_m3"])
@pytest.mark.parametrize("turns", [ALL * 3, ((1, 3), (0, 1, 2), (), (2,))], ids=["everybody", "some"])
def test_rounds_beside_numpy(name: str, turns: Sequence[Sequence[int]]) -> None:
    """Eqs. 4-8: v <- .5 v + sum n_k/n_S (phi - phi_k), phi <- phi - v, heads back to their slots as they are.

    Which slot a client holds is read off the values that it starts from, not asked of the rule.
    """
    model, seen = watched(fedsdc(name, dropout=0.0), turns)
    states = run(model)
    heads = {key: v.double().numpy() for key, v in states[0].rules["fedsdc"]["heads"].items()}
    widths = {key: None if len(v) == 27 else (len(v) - 3) // 12 for key, v in heads.items()}
    for s, width in enumerate(widths.values()):
        if name in ("fedsdc", "fedsdc_m2"):  # rho in part s of four parts of [.4, 1], h = 8
            assert width is not None
            assert int(8 * (0.4 + 0.15 * s)) <= width <= int(8 * (0.55 + 0.15 * s))
        else:
            assert width is None
    phi, v = W0[:BODY], np.zeros(BODY)
    for t, ids in enumerate(turns):
        total, delta, held = sum(len(YS[k]) for k in ids), np.zeros(BODY), {}
        for k in ids:
            shapes, start = next((s, w.numpy()) for r, c, s, w, _ in seen if (r, c) == (t, k))
            near(start[:BODY], phi)
            slot = held_slot(states[t], start)
            assert shapes == [a.shape for pair in layers(heads[slot], widths[slot]) for a in pair]
            w = np.concatenate([phi, heads[slot]])
            for i in range(0, len(YS[k]), 5):
                w = w - 0.2 * gradient(w, XS[k][i : i + 5], YS[k][i : i + 5], widths[slot])
            delta += len(YS[k]) / total * (phi - w[:BODY])
            held[k] = (slot, w[BODY:])
        slots = [slot for slot, _ in held.values()]
        assert len(set(slots)) == len(slots)
        if name in ("fedsdc_m1", "fedsdc_m2"):
            assert slots == [f"fedsdc/{k}" for k in ids]
        heads |= dict(held.values())
        if ids:
            v = 0.5 * v + delta
            phi = phi - v
        state = states[t + 1]
        near(state.w[:BODY], phi)
        near(state.optimizer["v"][:BODY], -v)
        for key, head in state.rules["fedsdc"]["heads"].items():
            near(head, heads[key])
        # The model's own classifier rests, and the vector rules see nothing at its place.
        np.testing.assert_array_equal(state.w[BODY:], W0[BODY:])
        assert not state.optimizer["v"][BODY:].any()


def test_dropout_is_on_in_training_only() -> None:
    """With the dropout of the YAML the same round ends elsewhere than without; evaluation does not draw."""
    ends = [run(watched(fedsdc(dropout=dropout), ALL)[0])[-1] for dropout in (0.0, 0.2, 0.2)]
    assert not torch.equal(ends[0].w, ends[1].w)
    assert same(ends[1], ends[2])


def test_clients_draw_their_first_head_themselves() -> None:
    """Code: in round 0 a client starts from a head that it draws, with torch's values; later from its slot's.

    The code's Xavier values are those of its rows without shuffle. The switch alone does the same as the variant.
    """
    starts = {}
    for key, switches in (
        ("paper", {}), ("reference", {"variant": "reference"}), ("switch", {"first_heads": "client"}),
        ("back", {"variant": "reference", "first_heads": "server", "down": "one"}),
    ):  # fmt: skip
        model, seen = watched(fedsdc(dropout=0.0, **switches))
        states = run(model)
        starts[key] = {(r, c): w[BODY:] for r, c, _, w, _ in seen}
        for (r, k), w in starts[key].items():
            of_server = any(torch.equal(h.double(), w) for h in states[r].rules["fedsdc"]["heads"].values())
            assert of_server == (r > 0 or key in ("paper", "back")), (key, r, k)
    for place, w in starts["reference"].items():
        assert torch.equal(w, starts["switch"][place])
        assert torch.equal(starts["paper"][place], starts["back"][place])
        if place[0] == 0:
            width = (len(w) - 3) // 12
            for (weight, bias), inputs in zip(layers(w.numpy(), width), (8, width), strict=True):
                assert bias.all() and max(np.abs(weight).max(), np.abs(bias).max()) <= inputs**-0.5


def test_numbers_of_heads_and_clients() -> None:
    """One head per client, or H. Heads must suffice for the clients of every round, without shuffle for all."""
    for H, count in ((None, 4), (4, 4), (6, 6)):
        assert len(watched(fedsdc(H=H), ALL)[0].initial_state().rules["fedsdc"]["heads"]) == count
    with pytest.raises(MethodError, match=r"fedsdc\.H: got 3; .*without shuffle"):
        watched(fedsdc(H=3, shuffle=False), ALL)
    with pytest.raises(MethodError, match=r"fedsdc\.H: got 3; .*at least 4"):
        run(watched(fedsdc(H=3), ALL)[0])
