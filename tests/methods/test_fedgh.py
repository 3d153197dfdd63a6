"""FedGH: harmonised updates in three readings and FedLD's own version, against tests/golden/fedgh_*.npz."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import federation, one_parameter, ones

from methods.core.build import build
from methods.core.contexts import RoundView
from methods.core.vectors import Layout, gram
from methods.fedgh import Harmonize, harmonised

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = ("m2", "m3", "m4", "m5", "m10")


def view(m: int) -> RoundView:
    zeros = np.zeros(m)
    return RoundView(0, 0.1, m, tuple(range(m)), zeros, zeros, zeros, zeros, np.zeros((m, 1)))


def golden(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / f"fedgh_{name}.npz"))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("reading", ["frozen", "current", "pcgrad"])
def test_readings_of_the_paper(file: str, reading: str) -> None:
    g = golden(file)
    rule = Harmonize(reading=reading)
    for t in range(3):
        G = torch.from_numpy(g["G"][t])
        each = harmonised(gram(G), reading) @ G
        np.testing.assert_allclose(each, g[f"harmonized_paper_{reading}"][t], rtol=0, atol=1e-9)
        for weights, suffix in (
            (g["n_samples"] / g["n_samples"].sum(), "wn"),
            (np.full(len(G), 1 / len(G)), "uni"),
        ):
            dbar, state = rule.direction(G, torch.from_numpy(weights), view(len(G)), {})
            np.testing.assert_allclose(dbar, g[f"agg_paper_{reading}_{suffix}"][t], rtol=0, atol=1e-9)
            assert state == {}


@pytest.mark.parametrize("file", [*FILES, "round_m4", "round_m5"])
def test_the_version_of_fedld(file: str) -> None:
    """Three rounds with history. The layer of one entry divides by a cancelled number (tolerance 1e-7, README 1c)."""
    g = golden(file)
    m, sizes = int(g["m"]), g["layer_sizes"].tolist()
    layout = Layout.of((f"layer{i}", (n,), "body") for i, n in enumerate(sizes))
    state = {
        "history": torch.zeros(layout.size, dtype=torch.float64),
        "rounds": 0,
        "bounds": torch.tensor(layout.bounds),
    }
    rule = Harmonize(variant="reference")
    for t in range(3):
        G = torch.from_numpy(g["G"][t]).double()
        p = torch.from_numpy(g["n_samples"] / g["n_samples"].sum())
        dbar, state = rule.direction(G, p, view(m), state)
        for start, stop in zip(layout.bounds, layout.bounds[1:], strict=False):
            atol = 1e-7 if stop - start == 1 else 1e-9
            np.testing.assert_allclose(dbar[start:stop], g["agg_code"][t][start:stop], rtol=0, atol=atol)
        if "history_code" in g:
            np.testing.assert_allclose(state["history"], g["history_code"][t], rtol=0, atol=1e-7)


def test_by_hand() -> None:
    """(1, 0) and (-1, 1): product -1. g_1 = (1, 0) + (1/2)(-1, 1) = (.5, .5), g_2 = (-1, 1) + (1, 0) = (0, 1)."""
    G = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])
    dbar, _ = Harmonize().direction(G, torch.tensor([0.25, 0.75]).double(), view(2), {})
    np.testing.assert_allclose(dbar, [0.125, 0.875], rtol=0, atol=1e-7)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_updates_that_agree_are_averaged_and_zeros_never_conflict(variant: str) -> None:
    G = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]).double()
    p = torch.full((3,), 1 / 3, dtype=torch.float64)
    state = {"history": torch.ones(2).double(), "rounds": 1, "bounds": torch.tensor([0, 2])}
    dbar, _ = Harmonize(variant=variant).direction(G, p, view(3), state)
    np.testing.assert_allclose(dbar, [1 / 3, 2 / 3], rtol=0, atol=1e-12)


def test_one_client_is_the_plain_update() -> None:
    method = build({"server": {"direction": {"name": "harmonize", "variant": "reference"}}})
    state = {"history": torch.ones(2), "rounds": 1, "bounds": torch.tensor([0, 2])}
    update = torch.tensor([[3.0, -4.0]])
    for rule, start in ((method.direction, state), (Harmonize(), {})):
        dbar, _ = rule.direction(update, torch.ones(1).double(), view(1), start)
        assert torch.equal(dbar, update[0])


def test_the_history_covers_the_model() -> None:
    model = federation(
        ones(1, 1), {"server": {"direction": {"name": "harmonize", "variant": "reference"}}}, one_parameter()
    )
    state = model.initial_state()
    assert state.direction["bounds"].tolist() == [0, 1]
    assert replace(state, round=1).direction["history"].tolist() == [0.0]
