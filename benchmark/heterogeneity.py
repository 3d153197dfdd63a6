"""How heterogeneous the data of clients are: the triplets and the six metrics of FedDiverse (2025), equations 2-10.

From a count matrix [classes, attributes], normalised to sum 1, with natural logarithms and 0 log 0 = 0:

    class imbalance       CI = 1 - H(Y) / log |Y|
    attribute imbalance   AI = 1 - H(A) / log |A|
    spurious correlation  SC = 2 I(Y; A) / (H(Y) + H(A)), and 0 where H(Y) + H(A) = 0

|Y| and |A| count empty rows and columns, too. All three lie in [0, 1]. Partitions, methods and figures read them here.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]

METRICS = ("GCI", "GAI", "GSC", "CCI", "CAI", "CSC")


def class_counts(clients: Sequence[IntArray], labels: IntArray, num_classes: int) -> IntArray:
    """Samples of each class on each client, int64 [K, Y]; a sample given twice counts twice."""
    return np.stack([np.bincount(labels[client], minlength=num_classes) for client in clients])


def group_counts(
    clients: Sequence[IntArray], labels: IntArray, attributes: IntArray, num_classes: int, num_attributes: int
) -> IntArray:
    """Samples of each (class, attribute) group on each client, int64 [K, Y, A]."""
    groups = class_counts(clients, labels * num_attributes + attributes, num_classes * num_attributes)
    return groups.reshape(len(clients), num_classes, num_attributes)


def triplets(counts: ArrayLike) -> NDArray[np.float64]:
    """(CI, AI, SC) [..., 3] of count matrices [..., Y, A]; 0 without samples."""
    from scipy.special import (
        entr,  # slow to import, and a mistake in a configuration is to be found in a second
    )

    counts = np.asarray(counts, dtype=np.float64)
    total = counts.sum(axis=(-2, -1), keepdims=True)
    joint = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    entropy_classes, entropy_attributes = entr(joint.sum(-1)).sum(-1), entr(joint.sum(-2)).sum(-1)
    both = entropy_classes + entropy_attributes
    information = both - entr(joint).sum((-2, -1))
    columns = (
        1 - entropy_classes / np.log(max(counts.shape[-2], 2)),
        1 - entropy_attributes / np.log(max(counts.shape[-1], 2)),
        np.divide(2 * information, both, out=np.zeros_like(both), where=both > 0),
    )
    # Rounding leaves -1e-16 where the value is 0, which would be no probability.
    return np.where(total[..., 0] > 0, np.clip(np.stack(columns, -1), 0.0, 1.0), 0.0)


def six_metrics(matrices: ArrayLike) -> dict[str, float | None]:
    """GCI, GAI, GSC of the pooled counts and CCI, CAI, CSC, the plain means over clients.

    Args:
        matrices: counts [K, Y, A], or [K, Y] for data without attributes.

    Returns:
        The six values by name, in [0, 1]; None where undefined: everything about attributes if there are none
        (or only one), everything about classes if there is only one.
    """
    counts = np.asarray(matrices, dtype=np.float64)
    if counts.ndim == 2:
        counts = counts[:, :, None]
    values = (*triplets(counts.sum(axis=0)), *triplets(counts).mean(axis=0))
    has_classes, has_attributes = counts.shape[1] > 1, counts.shape[2] > 1
    defined = (has_classes, has_attributes, has_classes and has_attributes) * 2
    return {n: float(v) if ok else None for n, v, ok in zip(METRICS, values, defined, strict=True)}
