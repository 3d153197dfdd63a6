"""POW-D: Towards Understanding Biased Client Selection in Federated Learning.

Cho, Wang, Joshi, AISTATS 2022, https://arxiv.org/abs/2010.01243

Power of choice: d candidates are drawn with probability n_k/n, each says its mean loss under the global model, and the
kappa with the highest loss train. FedDiverse asks all clients, d = K; ``docs/fidelity.md`` says what it
prints and what its code does (``prefer``, ``loss``).
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from pydantic import Field

from benchmark.errors import wrong
from methods.core.contexts import Choice, ClientPool, ClientProbe, State
from methods.core.rules import MethodError, Selection, VariantRule, register
from methods.shared.draw import without_replacement


@register("selection", "powd")
class PowD(VariantRule, Selection):
    """The kappa clients with the highest loss among d candidates, ties at random.

    ``d``: candidates, kappa <= d <= K (null: K); ``batch_size``: of ``loss: batch_means`` only.
    """

    reference = {"loss": "batch_means"}

    d: int | None = Field(ge=1)
    prefer: Literal["highest", "lowest"] = "highest"
    loss: Literal["mean", "batch_means"] = "mean"
    batch_size: int = Field(default=28, ge=1)

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """(ids, state)."""
        everybody = clients.num_clients
        d = everybody if self.d is None else self.d
        # In round 0 the run may want everybody (train.first_round_full), whatever d is.
        full = round == 0 and kappa == everybody
        if d > everybody or (d < kappa and not full):
            expected = f"clients_per_round <= d <= number of clients, here {kappa} to {everybody}"
            where = "with selection.d (null: all clients), or change train.clients_per_round"
            raise MethodError(wrong("selection.d", d, expected, where=where))
        if kappa == everybody:
            return range(everybody), state  # no choice, so nobody is asked
        candidates = without_replacement(rng, clients.sizes / clients.sizes.sum(), d)
        candidates = rng.permutation(candidates)  # the stable sort keeps this order among ties
        losses = clients.ask(candidates.tolist(), self._loss)[:, 0]
        order = np.argsort(losses if self.prefer == "lowest" else -losses, kind="stable")
        return candidates[order[:kappa]].tolist(), state

    def _loss(self, probe: ClientProbe) -> np.ndarray:
        """Mean cross-entropy [1] over D_k under w, in evaluation mode; 0 for a client without samples."""
        model = probe.model()
        batches = probe.data.batches()
        losses = torch.cat(
            [F.cross_entropy(model.logits(x), y, reduction="none").double() for x, y in batches]
        )
        if not len(losses):
            return np.zeros(1)
        total = losses.sum()
        if self.loss == "batch_means":
            total = torch.stack([batch.mean() for batch in losses.split(self.batch_size)]).sum()
        return np.array([float(total) / len(losses)])
