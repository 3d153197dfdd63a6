"""ISFL: Federated Learning for Non-i.i.d. Data with Local Importance Sampling.

Zhu, Shi, Liu, Wang, Fu, Letaief, IEEE Internet of Things Journal 11(16), 2024, https://arxiv.org/abs/2210.02119

Clients draw their samples so that the mix of classes follows the global mix p, tilted away from classes whose gradients
change fast. With pi_k the client's own mix and Lc_k its estimates of the gradients' Lipschitz constants by class,

    u_c = 1 - C Lc^2 / sum Lc^2,    al = u/||u||,    q_k = p + Gam al,
    Gam = min over c with al_c < 0 and p_c > sigma pi_c of (p_c - sigma pi_c)/(-al_c),

every epoch draws n_k samples with replacement, a sample of class y with weight q_k[y] / pi_k[y]. Lc_k[c] is the largest
||grad l(x; w_k) - grad l(x; w)|| / ||w_k - w|| over proxy samples x of class c. In the first round q_k = p. The server
takes the plain mean (``weights: uniform``).

From the authors' code, as the paper's text was not at hand; ``docs/fidelity.md`` says more on its proxy
set (``proxy: pooled``). A class without proxy samples takes the mean Lc^2 of the others (the code fails there).
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from methods.core.contexts import ClientContext, Federation, RoundView, State, Trained
from methods.core.rules import ClientRule, register
from methods.core.samples import to_device

AT_A_TIME = 1 << 24
"""Numbers of single-sample gradients that are held at once (64 MiB)."""


def target_mix(p: np.ndarray, pi: np.ndarray, lipschitz: np.ndarray, sigma: float) -> np.ndarray:
    """q_k [C] from the global mix p [C], the client's pi [C] and Lc_k [C]; NaN in Lc_k where nothing is known."""
    squares = lipschitz**2
    finite = np.isfinite(squares)
    if not finite.any():
        return p
    squares = np.where(finite, squares, squares[finite].mean())
    u = 1 - len(p) * squares / (squares.sum() or 1.0)
    length = np.linalg.norm(u)
    if squares.sum() == 0 or length < 1e-12:
        return p
    al = u / length
    room = (al < 0) & (p > sigma * pi)
    if not room.any():
        return p
    q = p + ((p - sigma * pi)[room] / -al[room]).min() * al
    q = np.clip(q, 0.0, None)  # rounding
    return q / q.sum()


@register("client", "isfl")
class ISFL(ClientRule):
    """Importance sampling of the client's own samples.

    ``sigma``: share of its own mix that every class keeps; ``N_p``: proxy samples; ``proxy``: pooled | local;
    ``refresh_every``: rounds between two estimates of Lc_k.
    """

    reducers = {"lipschitz": "keep"}

    sigma: float = Field(ge=0, lt=1)
    N_p: int = Field(ge=1)
    proxy: Literal["pooled", "local"] = "pooled"
    refresh_every: int = Field(default=1, ge=1)

    def setup(self, federation: Federation) -> State:
        """The label counts of all clients, uploaded once; no q_k yet."""
        return {"counts": torch.from_numpy(np.asarray(federation.label_counts)), "q": {}}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """q_k, p at first."""
        pooled = server["counts"].double().sum(0)
        return {"q": server["q"].get(str(client), pooled / pooled.sum())}

    def sample_weights(self, ctx: ClientContext) -> np.ndarray | None:
        """Weights q_k[y] / pi_k[y]; None, so plain epochs, for a single class or where nothing could be drawn."""
        q, counts = ctx.received["q"].cpu().numpy(), ctx.label_counts
        by_class = np.divide(q, counts, out=np.zeros(len(q)), where=counts > 0)
        weights = by_class[ctx.data.y.cpu().numpy()]
        return None if (counts > 0).sum() < 2 or not weights.any() else weights

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Uploads Lc_k [C], -1 for classes without a proxy sample."""
        way = float(trained.update.norm())
        if ctx.round % self.refresh_every or way == 0:
            return {}, {}
        largest = torch.full((ctx.num_classes,), -1.0, dtype=ctx.w.dtype, device=ctx.w.device)
        for x, y in self._proxy(ctx):
            after = ctx.gradients(trained.w, trained.buffers, x, y)
            change = (after - ctx.gradients(ctx.w, ctx.buffers, x, y)).norm(dim=1)
            largest.scatter_reduce_(0, y, change / way, "amax")
        return {}, {"lipschitz": largest}

    def _proxy(self, ctx: ClientContext) -> list[tuple[Tensor, Tensor]]:
        """The proxy set in pieces whose single-sample gradients fit."""
        if self.proxy == "pooled":
            x, y = ctx.pooled(self.N_p)
        else:
            batches = list(ctx.data.batches())
            x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
            if len(y) > self.N_p:
                picked = ctx.generators("proxy").choice(len(y), self.N_p, replace=False)
                x, y = (part[to_device(torch.from_numpy(picked), y.device)] for part in (x, y))
        size = max(1, AT_A_TIME // len(ctx.w))
        return list(zip(x.split(size), y.split(size), strict=True))

    def receive(self, server: State, view: RoundView) -> State:
        """New q_k of the participants."""
        counts = server["counts"].double().cpu().numpy()
        p = counts.sum(0) / counts.sum()
        new = {}
        for k, lipschitz in view.payload.get("lipschitz", {}).items():
            pi = counts[k] / max(counts[k].sum(), 1)
            estimate = lipschitz.double().cpu().numpy()
            q = target_mix(p, pi, np.where(estimate < 0, np.nan, estimate), self.sigma)
            new[str(k)] = torch.from_numpy(q)
        return server | {"q": server["q"] | new}
