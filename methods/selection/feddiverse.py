"""FedDiverse: Diversity-Driven Learning: Tackling Spurious Correlations and Data Heterogeneity in Federated Models.

Nemeth, Fani, Ng, Caputo, Lozano, Oliver, Quadrianto, 2025, https://arxiv.org/abs/2504.11216

After T0 rounds of FedAvg every client estimates how its classes and attributes interact, N~^k [C, 2], without knowing
the attributes (section 4.1, Algorithms 2-4), and uploads the triplet T^k = (CI, AI, SC) of that matrix. From then on
the server picks clients in threes whose triplets differ (section 4.2, Algorithm 5).

``docs/fidelity.md`` lists how the authors' code (``variant: reference``) differs; each difference is a
parameter of its own. The cross product of two collinear triplets is 0, so that the third client is drawn at random.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from torch import Tensor

from benchmark.heterogeneity import triplets as triplets_of
from methods.core.contexts import (
    Choice,
    ClientPool,
    ClientProbe,
    FrozenModel,
    Generators,
    Head,
    Heads,
    Phase,
    State,
)
from methods.core.rules import ClientRule, MethodError, VariantRule, register
from methods.shared.linear import default_linear
from methods.shared.triplets import (
    AI,
    CI,
    SC,
    Balanced,
    Gce,
    PreTrained,
    interaction_matrix,
    require_attributes,
)

ATTRIBUTE = "feddiverse/attribute"
ORDER = (SC, CI, AI)
TIE = 1e-9


@register("selection", "feddiverse")
class FedDiverse(VariantRule, PreTrained):
    """Clients whose data are heterogeneous in different ways: by class, by attribute, by spurious correlation.

    ``T0`` rounds of pre-training; ``tau_b`` steps of the biased model on generalised cross-entropy with ``q``;
    ``tau_a`` steps of the attribute head. ``triplets``: estimated, or known: from the true N^k (Table 4).
    ``setup_sampling``: balanced over labels with replacement (code; paper silent) or uniform.

    ``estimate`` after_pretraining | first_round, from the initial model; ``pretraining_rules`` plain FedAvg | the
    method's own, server momentum included; ``extra_step`` whether both trainings take one step more; ``pivot``
    smallest_gap | first class that has samples; ``body`` whose features the attribute head reads where C > 2: those of
    the pivot class's biased model | each class's own; ``normalise`` l1: each triplet by its sum | rows_l2: each
    dimension by its sum over clients, then each client by its norm; ``start`` dimension of a triple, rotate | random;
    ``last`` triple of a round cut at kappa | whole. ``third`` client by the signed triple product (paper and code) |
    its absolute value (with which the shares of Appendix F come out).
    """

    reference = {
        "estimate": "first_round",
        "pretraining_rules": "method",
        "extra_step": True,
        "pivot": "first",
        "body": "own",
        "normalise": "rows_l2",
        "start": "random",
        "last": "whole",
    }

    tau_b: int = Field(ge=1)
    tau_a: int = Field(ge=1)
    q: float = Field(gt=0, le=1)
    triplets: Literal["estimated", "known"] = "estimated"
    setup_sampling: Literal["balanced", "uniform"] = "balanced"
    estimate: Literal["after_pretraining", "first_round"] = "after_pretraining"
    pretraining_rules: Literal["plain", "method"] = "plain"
    extra_step: bool = False
    pivot: Literal["smallest_gap", "first"] = "smallest_gap"
    body: Literal["pivot", "own"] = "pivot"
    normalise: Literal["l1", "rows_l2"] = "l1"
    start: Literal["rotate", "random"] = "rotate"
    third: Literal["signed", "absolute"] = "signed"
    last: Literal["cut", "whole"] = "cut"

    # Before round 0 ---------------------------------------------------------------------------------------------

    def heads(self, feature_dim: int, num_classes: int, num_clients: int, generators: Generators) -> Heads:
        """The attribute head and, for C > 2, a two-way head for each class against the rest (Appendix G)."""
        if num_classes < 2:
            raise MethodError(
                f"selection: feddiverse needs 2 classes; got {num_classes}. Choose another one."
            )
        if self.triplets == "known":
            return {}
        keys = [ATTRIBUTE, *(f"feddiverse/class{y}" for y in range(num_classes) if num_classes > 2)]
        return {key: default_linear(feature_dim, 2, generators(key)) for key in keys}

    def setup(self, clients: ClientPool) -> State:
        """No state yet. MethodError if triplets are known and the data have no attributes."""
        if self.triplets == "known":
            require_attributes(clients, "feddiverse with triplets known")
        return {}

    def pretraining(self, round: int) -> bool:
        """Rounds 0 to T0 - 1 are plain FedAvg; in the authors' code the server's momentum is on already."""
        return self.pretraining_rules == "plain" and super().pretraining(round)

    # Selection ----------------------------------------------------------------------------------------------------

    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """Everybody in rounds before T0; then the set-up, once, and triples (Algorithm 6)."""
        when = 0 if self.estimate == "first_round" else self.T0
        if "triplets" not in state and round >= when:
            state = self._ask(clients)
        if round < self.T0:
            return range(clients.num_clients), state
        return self._triples(np.array(state["triplets"]), kappa, round, rng), state

    def measures(self, state: State) -> Mapping[str, float]:
        """Error of the estimated triplets, ||T~^k - T^k||: mean (Table 8) and largest (Fig. 4) over clients."""
        if "errors" not in state:
            return {}
        return {
            "dht_error": float(np.mean(state["errors"])),
            "dht_error_max": float(np.max(state["errors"])),
        }

    def _ask(self, clients: ClientPool) -> State:
        """All clients upload three numbers: {"triplets": [K, 3]} and, where the truth is there, {"errors": [K]}."""
        is_known = self.triplets == "known"
        triplets = clients.ask(
            range(clients.num_clients),
            lambda probe: triplets_of(interaction_matrix(probe) if is_known else self._matrix(probe)),
        )
        state: State = {"triplets": triplets.tolist()}
        truth = clients.group_counts
        if not is_known and truth is not None and truth.shape[2] > 1:
            state["errors"] = np.linalg.norm(triplets - triplets_of(truth), axis=1).tolist()
        return state

    def _triples(self, triplets: np.ndarray, kappa: int, round: int, rng: np.random.Generator) -> list[int]:
        """kappa clients, three by three (Algorithm 5), from triplets [K, 3]; each is drawn from those left."""
        unit = self._normalised(triplets)
        total = kappa if self.last == "cut" else -(-kappa // 3) * 3
        ids: list[int] = []
        for position in range(min(total, len(triplets))):
            left = np.setdiff1d(np.arange(len(triplets)), ids)
            j, step = divmod(position, 3)
            if step == 0:  # with probability T_i^k / sum over those left
                i = ORDER[(round + j) % 3] if self.start == "rotate" else int(rng.integers(3))
                p = triplets[left, i]
                client = int(rng.choice(left, p=p / p.sum() if p.sum() > 0 else None))
            elif step == 1:  # the least aligned one
                client = _smallest(unit[left] @ unit[ids[-1]], left, rng)
            else:  # the one most orthogonal to both
                product = unit[left] @ np.cross(unit[ids[-2]], unit[ids[-1]])
                client = _smallest(-np.abs(product) if self.third == "absolute" else -product, left, rng)
            ids.append(client)
        return ids

    def _normalised(self, triplets: np.ndarray) -> np.ndarray:
        """U^k [K, 3]: T^k / ||T^k||_1 (0 for T^k = 0), or the form of the authors' code."""
        if self.normalise == "l1":
            return _divided(triplets, triplets.sum(1, keepdims=True))
        rows = _divided(triplets, triplets.sum(0, keepdims=True))
        return _divided(rows, np.linalg.norm(rows, axis=1, keepdims=True))

    # Set-up at one client -----------------------------------------------------------------------------------------

    def _matrix(self, probe: ClientProbe) -> np.ndarray:
        """The estimate N~^k [C, 2] (Algorithms 2-4): how many samples of each class look like a majority or not."""
        y = probe.data.y
        counts = np.zeros((probe.num_classes, 2))
        biased = self._biased(probe)
        for c, (_, right) in biased.items():
            counts[c] = int(right.sum()), int((~right).sum())
        if not biased:
            return counts  # no samples
        classes = list(biased)
        pivot = classes[0]
        if self.pivot == "smallest_gap":
            pivot = min(classes, key=lambda c: abs(counts[c, 0] - counts[c, 1]))
        rest = [c for c in classes if c != pivot]
        if not counts[pivot].all():  # one group only: all samples are of one attribute
            column = int(counts[pivot].argmax())
            for c in rest:
                counts[c] = 0
                counts[c, column] = int((y == c).sum())
            return counts
        # A head that tells the two groups of the pivot class apart: 0 for G, 1 for g.
        labels = torch.full_like(y, -1)
        labels[y == pivot] = (~biased[pivot][1]).to(y)
        phase = Phase(groups=("head",), steps=self.tau_a + int(self.extra_step), body_eval=True)
        head = Head(ATTRIBUTE, probe.heads[ATTRIBUTE])
        w = probe.train(self._rules(), phase, "feddiverse/attribute", biased[pivot][0], head, labels)
        head = Head(ATTRIBUTE, w[probe.body_size :])
        for c in rest:
            body = biased[c if self.body == "own" else pivot][0]
            attribute = _answers(probe, probe.model(body, head), y == c)
            counts[c] = torch.bincount(attribute, minlength=2).tolist()
        return counts

    def _biased(self, probe: ClientProbe) -> dict[int, tuple[Tensor, Tensor]]:
        """For each class that has samples: (biased model, which of its samples that predicts right).

        Two classes share one model with the task head; more have one each, trained for the class against the rest.
        """
        y = probe.data.y
        classes = torch.unique(y).tolist()
        phase = Phase(steps=self.tau_b + int(self.extra_step))
        rules = self._rules(Gce(q=self.q))
        if probe.num_classes == 2 and classes:
            w = probe.train(rules, phase, "feddiverse/biased")
            right = _answers(probe, probe.model(w), y >= 0) == y
            return {c: (w, right[y == c]) for c in classes}
        models = {}
        for c in classes:
            key, mine = f"feddiverse/class{c}", y == c
            head = Head(key, probe.heads[key])
            w = probe.train(rules, phase, f"feddiverse/biased/{c}", head=head, labels=mine.to(y))
            model = probe.model(w, Head(key, w[probe.body_size :]))
            models[c] = w, _answers(probe, model, mine) == 1
        return models

    def _rules(self, *rules: ClientRule) -> list[ClientRule]:
        return [*rules, *([Balanced()] if self.setup_sampling == "balanced" else [])]


def _answers(probe: ClientProbe, model: FrozenModel, where: Tensor) -> Tensor:
    """Predicted labels of the samples in ``where`` [n_k], in their order."""
    answers, start = [where.new_zeros(0, dtype=torch.int64)], 0
    for x, y in probe.data.batches():
        part = where[start : start + len(y)]
        start += len(y)
        if bool(part.any()):
            answers.append(model.logits(x[part]).argmax(1))
    return torch.cat(answers)


def _smallest(values: np.ndarray, ids: np.ndarray, rng: np.random.Generator) -> int:
    """One of ``ids`` whose value is smallest, ties at random."""
    return int(rng.choice(ids[values <= values.min() + TIE]))


def _divided(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0)
