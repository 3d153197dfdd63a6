"""A linear layer that starts from torch's default values, drawn from a given generator."""

import numpy as np
import torch
from torch import nn


def default_linear(inputs: int, outputs: int, rng: np.random.Generator) -> nn.Module:
    """Linear(inputs, outputs); weights and biases uniform in +-1/sqrt(inputs), the default of ``nn.Linear``."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(parameter.shape))))
    return layer
