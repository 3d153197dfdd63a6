"""FedGH: harmonised updates in three readings and FedLD's own version, against tests/golden/fedgh_*.npz."""

import itertools

import numpy as np
import pytest
import torch
from federations import near
from golden_cases import round_view, stored, with_tensors

from methods.core.vectors import gram
from methods.fedgh import Harmonize, harmonised

FILES = ("m2", "m3", "m4", "m5", "m10")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("reading", ["frozen", "current", "pcgrad"])
def test_readings_of_the_paper(file: str, reading: str) -> None:
    g = stored(f"fedgh_{file}")
    rule = Harmonize(reading=reading)
    for t in range(3):
        G = torch.from_numpy(g["G"][t])
        each = harmonised(gram(G), reading) @ G
        near(each, g[f"harmonized_paper_{reading}"][t], 1e-9)
        for weights, suffix in (
            (g["n_samples"] / g["n_samples"].sum(), "wn"),
            (np.full(len(G), 1 / len(G)), "uni"),
        ):
            dbar, state = rule.direction(G, torch.from_numpy(weights), round_view(len(G)), {})
            near(dbar, g[f"agg_paper_{reading}_{suffix}"][t], 1e-9)
            assert state == {}


@pytest.mark.parametrize("file", [*FILES, "round_m4", "round_m5"])
def test_the_version_of_fedld(file: str) -> None:
    """Three rounds with history. The layer of one entry divides by a cancelled number (tolerance 1e-7, README 1c)."""
    g = stored(f"fedgh_{file}")
    m, sizes = int(g["m"]), g["layer_sizes"].tolist()
    rule, model = Harmonize(variant="reference"), with_tensors(sizes)
    state = rule.setup(model)
    for t in range(3):
        G = torch.from_numpy(g["G"][t]).double()
        p = torch.from_numpy(g["n_samples"] / g["n_samples"].sum())
        dbar, state = rule.direction(G, p, round_view(m), state)
        for start, stop in itertools.pairwise(model.layout.bounds):
            atol = 1e-7 if stop - start == 1 else 1e-9
            near(dbar[start:stop], g["agg_code"][t][start:stop], atol)
        if "history_code" in g:
            near(state["history"], g["history_code"][t], 1e-7)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_updates_that_agree_are_averaged_and_zeros_never_conflict(variant: str) -> None:
    G = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]).double()
    p = torch.full((3,), 1 / 3, dtype=torch.float64)
    state = {"history": torch.ones(2).double(), "rounds": 1, "bounds": torch.tensor([0, 2])}
    dbar, _ = Harmonize(variant=variant).direction(G, p, round_view(3), state)
    near(dbar, [1 / 3, 2 / 3])
