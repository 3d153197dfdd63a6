"""Uniform selection: Kappa of K clients without replacement, all equally likely (McMahan et al. 2017)."""

from numpy.random import Generator

from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import Selection, register


@register("selection", "uniform")
class Uniform(Selection):
    """Every client is equally likely."""

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        return rng.choice(clients.num_clients, size=kappa, replace=False).tolist(), state
