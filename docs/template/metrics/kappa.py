"""Cohen's kappa: agreement of prediction and label beyond chance (Cohen 1960)."""

import numpy as np
from sklearn.metrics import cohen_kappa_score

from benchmark.metrics import metric


@metric("kappa", label="Cohen's kappa", higher_is_better=True)
def kappa(scores: np.ndarray, labels: np.ndarray) -> float:
    """From softmax probabilities [N, C] and labels [N]."""
    return cohen_kappa_score(labels, scores.argmax(axis=1))
