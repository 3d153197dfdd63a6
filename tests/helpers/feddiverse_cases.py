"""What tests of FedDiverse share: its usual values, a small model, and clients with a spurious attribute."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from federations import mlp, problem_of

from benchmark.engine.state import Problem
from benchmark.models.networks import Net
from methods.selection.feddiverse import FedDiverse

USUAL: dict[str, Any] = {"T0": 1, "tau_b": 50, "tau_a": 10, "q": 0.3}


def rule(**values: Any) -> FedDiverse:
    return FedDiverse(**(USUAL | values))


def table6(published: Path, setting: str) -> np.ndarray:
    """True matrices [K, C, 2] of the paper's Table 6."""
    lines = pd.read_csv(published / "feddiverse_table6.csv").query("setting == @setting")
    matrices = [[[int(cell) for cell in row.split()] for row in text.split(";")] for text in lines["matrix"]]
    return np.repeat(matrices, lines["n_clients"], axis=0)


def perceptron(classes: int = 2) -> Net:
    """The model of the golden baselines, always with the same first values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return mlp(classes=classes)


def spurious(matrices: Sequence[Any], seed: int = 0, noise: float = 1.0) -> tuple[Problem, np.ndarray]:
    """Clients with these class x attribute counts: the attribute is easy to see, the class is noisy; and the counts."""
    rng = np.random.default_rng(seed)
    xs, ys, attributes = [], [], []
    counts = np.array(matrices)
    for matrix in counts:
        y, a = (np.repeat(values.ravel(), matrix.ravel()) for values in np.indices(matrix.shape))
        x = rng.normal(0, noise, (len(y), 6))
        x[:, 0] += np.where(a == 1, 4.0, -4.0)
        x[np.arange(len(y)), 1 + y] += 1.0
        order = rng.permutation(len(y))
        xs.append(x[order])
        ys.append(y[order])
        attributes.append(a[order])
    return problem_of(xs, ys, counts.shape[1], np.concatenate(attributes)), counts


TWO = [[[90, 10], [10, 90]], [[10, 90], [90, 10]], [[80, 20], [30, 70]]]
