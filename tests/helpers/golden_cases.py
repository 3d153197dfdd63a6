"""What comparisons with tests/golden share: files, a round as the server sees it, the stored model, FedSDC's values."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from federations import problem_of

from benchmark.config.compose import load_group
from benchmark.engine.state import Problem
from methods.core.contexts import RoundView
from methods.core.vectors import Layout

GOLDEN = Path(__file__).parents[1] / "golden"

BODY = 56
"""W1 [8, 6] and b1 [8], the body of the stored model W2 tanh(W1 x + b1) + b2; its head has 27 numbers."""


def stored(name: str) -> dict[str, np.ndarray]:
    """The arrays of tests/golden/<name>.npz."""
    return dict(np.load(GOLDEN / f"{name}.npz"))


def stored_problem(g: Mapping[str, np.ndarray], split: str) -> Problem:
    """The four clients of three classes of a file of tests/golden/baselines."""
    return problem_of([g[f"{split}_X{k}"] for k in range(4)], [g[f"{split}_y{k}"] for k in range(4)], 3)


def round_view(m: int, **known: Any) -> RoundView:
    """Round 0 of m clients at rate 0.1; all that is not given is 0."""
    zeros: dict[str, Any] = {name: np.zeros(m) for name in ("weights", "sizes", "steps", "step_norms")}
    zeros |= {"round": 0, "lr": 0.1, "num_clients": m, "clients": tuple(range(m))}
    return RoundView(**(zeros | {"label_counts": np.zeros((m, 2))} | known))


def with_tensors(sizes: Iterable[int], dtype: torch.dtype = torch.float64) -> Any:
    """What a direction is set up from, for a model whose tensors have these sizes."""
    layout = Layout.of((f"p{i}", (size,), "body") for i, size in enumerate(sizes))
    return SimpleNamespace(layout=layout, w=torch.zeros(layout.size, dtype=dtype))


def layers(head: np.ndarray, width: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight, bias) of a head's layers, out of its vector: 8 -> width -> 3, or 8 -> 3."""
    found, start = [], 0
    for rows, columns in [(3, 8)] if width is None else [(width, 8), (3, width)]:
        stop = start + rows * columns
        found.append((head[start:stop].reshape(rows, columns), head[stop : stop + rows]))
        start = stop + rows
    assert start == len(head)
    return found


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray, width: int | None = None) -> np.ndarray:
    """Gradient of the mean cross-entropy by w = (body, head), written out; the head as in ``layers``."""
    w1, b1 = w[:48].reshape(8, 6), w[48:BODY]
    z = np.tanh(x @ w1.T + b1)
    parts, inputs = layers(w[BODY:], width), [z]
    for weight, bias in parts:
        inputs.append(inputs[-1] @ weight.T + bias)
    p = np.exp(inputs[-1])
    d = (p / p.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
    back: list[np.ndarray] = []
    for (weight, _), value in zip(reversed(parts), reversed(inputs[:-1]), strict=True):
        back = [(d.T @ value).ravel(), d.sum(0), *back]
        d = d @ weight
    d = d * (1 - z**2)
    return np.concatenate([(d.T @ x).ravel(), d.sum(0), *back])


def fedsdc(
    name: str = "fedsdc", prediction: Mapping[str, Any] | None = None, **client: Any
) -> dict[str, Any]:
    """conf/method/<name>.yaml with these values of the client rule and the prediction on top."""
    config = load_group("method", name)
    config["client"]["fedsdc"] |= client
    config["prediction"] |= prediction or {}
    return config
