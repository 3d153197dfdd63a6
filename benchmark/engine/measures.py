"""Measures of a model's features on a test set."""

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.core.contexts import FrozenModel
from methods.core.samples import Samples

TOP = 50
"""How many eigenvalues count (FedMR, Table 7)."""

BATCH = 128
"""Samples of a mini-batch, and the divisor of the printed formula (FedMR, Table 7)."""


def spread(z: Tensor) -> float | None:
    """(1/128) sum over the 50 largest eigenvalues of (lam_i - their mean)^2, of the correlation matrix of z [n, h].

    FedMR (TMLR 2023), Table 7: features are standardised over the n samples (population variance) and
    M = zh' zh / (n - 1). With h < 50 all eigenvalues count. Float64; a feature without variance stays 0. None for
    n < 2, where M is undefined.
    """
    if len(z) < 2:
        return None
    z = z.double()
    centred = z - z.mean(0)
    deviation = centred.square().mean(0).sqrt()
    standard = torch.where(deviation > 0, centred / deviation.clamp_min(1e-300), 0.0)
    # The eigenvalues of zh' zh are the squared singular values of zh, and zeros.
    values = torch.linalg.svdvals(standard).square() / (len(z) - 1)
    kept = F.pad(values, (0, TOP))[: min(TOP, z.shape[1])]
    return float((kept - kept.mean()).square().sum() / BATCH)


def eigenvalue_spread(model: FrozenModel, data: Samples) -> dict[str, float]:
    """Mean :func:`spread` over mini-batches of 128 samples, of the whole batch and of each class in it.

    The paper says "covariance matrices of all classes within a mini-batch": ``eigenvalue_spread`` takes the batch as
    one set, ``eigenvalue_spread_class`` the mean over its classes. A last batch under 128 samples is left out if there
    is another.
    """
    collected: dict[str, list[float]] = {}
    # Test sets may be stored class by class, so the samples are shuffled, in the same way for all methods.
    shuffled = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
    order = shuffled.to(data.y.device)
    for part in order.split(BATCH)[: max(1, len(order) // BATCH)]:
        z, y = model.features(data.transform(data.stored(part))), data.y[part]
        sets = {"eigenvalue_spread": [z], "eigenvalue_spread_class": [z[y == c] for c in y.unique()]}
        for name, features in sets.items():
            values = [value for some in features if (value := spread(some)) is not None]
            if values:
                collected.setdefault(name, []).append(sum(values) / len(values))
    return {name: sum(values) / len(values) for name, values in collected.items()}
