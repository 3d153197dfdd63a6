"""Large clients take part more often: the softmax of the clients' shares of the data."""

import numpy as np
from numpy.random import Generator
from pydantic import PositiveFloat

from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import Selection, register


@register("selection", "size_softmax")
class SizeSoftmax(Selection):
    """Clients drawn without replacement, with probabilities proportional to exp(n_k / (n temperature)).

    ``temperature``: a large one makes all clients equally likely.
    """

    temperature: PositiveFloat

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        sizes = np.asarray(clients.sizes)
        weights = np.exp(sizes / sizes.sum() / self.temperature)
        return rng.choice(len(sizes), size=kappa, replace=False, p=weights / weights.sum()).tolist(), state
