"""FedDiverse with N^k: Diversity-driven selection from whole interaction matrices (section 5.7, Table 4).

Nemeth et al., 2025, https://arxiv.org/abs/2504.11216

The server finds client weights om that make the pooled matrix S = sum_k om_k N^k as even as it can be,

    min Var(S) = (1/(C A)) sum over cells of (s_ya - mean s)^2   over om >= 0, sum om = 1,

and draws clients with these probabilities. The paper remarks that this raises privacy concerns.
"""

import numpy as np
from numpy.random import Generator
from scipy.optimize import nnls

from methods.core.contexts import Choice, ClientPool, State
from methods.core.rules import register
from methods.shared.triplets import PreTrained, interaction_matrix, require_attributes

RIDGE = 1e-9
"""Added to the diagonal of Q, which is singular where clients are alike: the most even solution is taken."""

FLOOR = 1e-6
"""Added to every om_k, so that kappa clients can always be drawn (the authors' solver never gives a 0)."""


@register("selection", "feddiverse_nk")
class FedDiverseNk(PreTrained):
    """Clients with the probabilities that even out the pooled class x attribute matrix; needs the true N^k.

    ``T0``: rounds of pre-training.
    """

    def setup(self, clients: ClientPool) -> State:
        """No state yet. MethodError if the data have no attributes."""
        require_attributes(clients, "feddiverse_nk")
        return {}

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """Everybody in rounds before T0; then kappa clients without replacement with probability om."""
        everybody = range(clients.num_clients)
        if round < self.T0:
            return everybody, state
        if "om" not in state:
            counts = clients.ask(everybody, lambda probe: interaction_matrix(probe).ravel())
            state = {"om": evening_weights(counts).tolist()}
        p = np.array(state["om"]) + FLOOR
        return rng.choice(clients.num_clients, size=kappa, replace=False, p=p / p.sum()).tolist(), state


def evening_weights(counts: np.ndarray) -> np.ndarray:
    """om [K] on the simplex that minimises om'(Q + 1e-9 I)om, from counts [K, C A], one row per client.

    Q = Dv Dv'/(C A), row k of Dv = N^k minus its own mean. With a homogeneous objective the constraint sum om = 1 may
    be one more row of a non-negative least squares problem: that only shrinks the solution, which is scaled back.
    Equal clients share one weight, as 1e-9 I makes them do, so that rounding cannot part them.
    """
    different, place, times = np.unique(
        np.asarray(counts, dtype=np.float64), axis=0, return_inverse=True, return_counts=True
    )
    dv = (different - different.mean(1, keepdims=True)) / np.sqrt(different.shape[1])
    system = np.vstack([dv.T, np.diag(np.sqrt(RIDGE / times)), np.ones(len(times))])
    target = np.append(np.zeros(len(system) - 1), 1.0)
    shared, _ = nnls(system, target, maxiter=100 * len(times))
    om = (shared / times)[place.ravel()]
    return om / om.sum()
