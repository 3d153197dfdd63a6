"""FedGH: Tackling the Non-IID Issue in Heterogeneous Federated Learning by Gradient Harmonization.

Zhang, Sun, Chen, 2023, https://arxiv.org/abs/2309.06692 (not the FedGH of Yi et al. 2023, a global head)

For every pair of clients whose updates conflict, ⟨D_i, D_j⟩ < 0, each is projected onto the plane orthogonal to the
other,

    g_i <- g_i - <g_i, D_j>/||D_j||^2 D_j,    g_j <- g_j - <g_j, D_i>/||D_i||^2 D_i,    pairs i < j in client order,

and Dbar = sum_k p_k g_k. All of it happens in the m x m space of coefficients, g_i = sum_l A_il D_l, from one Gram
matrix.

The paper leaves open which version of the other update g_i is projected on: ``frozen``, the original one (default);
``current``, the one just before the pair; ``pcgrad``, the original one, and a conflict is tested on the present g_i.

``variant: reference`` is FedLD's code, from which its printed FedGH rows come and which is another algorithm: tensor by
tensor, the first round a plain mean; later the updates are sorted by their projection on a slow average of all rounds,
the highest is paired with the lowest and so on, each pair is harmonised and summed, and the sums are paired again until
one is left, which is divided by m. There, p_k plays no part, 1e-7 is added to squared lengths, and in the last pair
the second is projected on the first as that is by then. (Under partial participation that code divides by K, which
only shortens the step; not copied.)
"""

from collections.abc import Mapping
from itertools import combinations, pairwise, permutations
from typing import Literal

import torch
from torch import Tensor

from methods.core.contexts import Federation, RoundView, State
from methods.core.rules import Aggregator, VariantRule, register
from methods.core.vectors import combine, gram
from methods.shared.history import no_history, remember

EPS = 1e-7
"""Added to squared lengths (code)."""


def harmonised(products: Tensor, reading: Literal["frozen", "current", "pcgrad"]) -> Tensor:
    """A [m, m] with g_i = sum_l A_il D_l, from the inner products <D_i, D_j> [m, m] in float64."""
    m = len(products)
    A = torch.eye(m, dtype=products.dtype)
    if reading == "current":
        for i, j in combinations(range(m), 2):
            gi, gj = A[i].clone(), A[j].clone()
            dot = gi @ products @ gj
            if dot < 0:
                A[i] -= dot / (gj @ products @ gj) * gj
                A[j] -= dot / (gi @ products @ gi) * gi
        return A
    for i, j in permutations(range(m), 2):
        dot = A[i] @ products[:, j]
        if (dot if reading == "pcgrad" else products[i, j]) < 0:
            A[i, j] -= dot / products[j, j]
    return A


def _merged(a: Tensor, b: Tensor, products: Tensor, last: bool) -> Tensor:
    """Coefficients [m] of the sum of two harmonised vectors (reference)."""
    dot = a @ products @ b
    if dot >= 0:
        return a + b
    first = a - dot / (b @ products @ b + EPS) * b
    other = first if last else a
    return first + b - dot / (other @ products @ other + EPS) * other


def hierarchy(products: Tensor, onto: Tensor) -> Tensor:
    """c [m] with Dbar = sum_k c_k D_k of the reference variant.

    ``products`` [m, m] as above; ``onto`` [m] the inner products of the updates with the history.
    """
    m = len(products)
    left = list(torch.eye(m, dtype=products.dtype))
    while len(left) > 2:
        left.sort(key=lambda c: -float(c @ onto))
        half = len(left) // 2
        merged = [_merged(left[i], left[-1 - i], products, last=False) for i in range(half)]
        left = merged + left[half : len(left) - half]
    return (left[0] if m == 1 else _merged(left[0], left[1], products, last=True)) / m


@register("direction", "harmonize")
class Harmonize(VariantRule, Aggregator):
    """Mean of the updates after their pairwise conflicts are projected away.

    ``reading`` frozen | current | pcgrad: of the paper's form, see above.
    """

    reading: Literal["frozen", "current", "pcgrad"] = "frozen"

    @property
    def needs(self) -> Mapping[str, str]:  # type: ignore[override]
        """Clients weigh the same in the reference variant, so another weights rule would be ignored."""
        return {"weights": "size|uniform"} if self.variant == "reference" else {}

    def setup(self, federation: Federation) -> State:
        """The history and the bounds of the tensors, for the reference variant."""
        if self.variant == "paper":
            return {}
        return {"bounds": torch.tensor(federation.layout.bounds), **no_history(federation.w)}

    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], new state) from the updates [m, d] and weights p [m]."""
        if self.variant == "paper":
            return combine(p @ harmonised(gram(updates), self.reading), updates), state
        m = len(updates)
        dbar = torch.empty_like(updates[0])
        for start, stop in pairwise(state["bounds"].tolist()):
            part, history = updates[:, start:stop], state["history"][start:stop]
            c = torch.full_like(p, 1 / m)
            if history.any():
                c = hierarchy(gram(part), (part.double() @ history.double()).cpu())
            dbar[start:stop] = combine(c, part)
        return dbar, remember(state, dbar)
