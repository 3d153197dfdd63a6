"""Weighted draws that several selections share."""

import numpy as np


def without_replacement(rng: np.random.Generator, weights: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the indices of ``weights`` [n], one after another with probability proportional to the weights left.

    Where fewer than ``count`` weights are positive, those are all taken and the others filled uniformly.
    """
    positive = np.flatnonzero(weights > 0)
    if len(positive) > count:
        p = np.zeros(len(weights))
        p[positive] = weights[positive] / weights[positive].sum()
        return rng.choice(len(weights), size=count, replace=False, p=p)
    others = np.setdiff1d(np.arange(len(weights)), positive)
    return np.concatenate([positive, rng.choice(others, size=count - len(positive), replace=False)])
