"""FedSDC and FedSDC+: Shuffle-Diversity Collaborative Federated Learning for Imbalanced Medical Image Analysis.

Gao, Lan, Liu, Wang, Fan, MICCAI 2025, https://github.com/wpnine/FedSDC (the paper's link)

One body phi for all, H heads that change clients. A participant gets phi and the head of its slot, trains both
and sends both back. Bodies are averaged by FedAvgM (Eqs. 4-5: the server optimizer ``momentum`` with beta 0.5 and rate
1, which sees zeros where the head is); heads go back to their slots as they are. **Diversity** (section 2.2): a head is
Linear(h -> floor(rho_s h)), dropout, Linear(-> C), without a nonlinearity, of another width in each slot; off: one
Linear(h -> C). **Shuffle** (Eq. 6): the slots are dealt anew in every round; off: client k keeps head k. The answer is
the majority vote of all heads on the features of phi; FedSDC+ lets the best share gamma of them vote.

``docs/fidelity.md`` says where paper, table and text disagree, and what the authors' code (``variant:
reference``) does instead.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, skip_init

from benchmark.errors import wrong
from methods.core.contexts import (
    ClientContext,
    Federation,
    Generators,
    Head,
    Heads,
    Predictor,
    RoundView,
    ServerView,
    State,
    Trained,
)
from methods.core.rules import ClientRule, MethodError, Prediction, VariantRule, register

# Heads -----------------------------------------------------------------------------------------------------------


def rho_ladder(low: float, high: float, draws: ArrayLike) -> np.ndarray:
    """rho [H], one in each of H equal parts of [low, high], from uniform draws [H] in [0, 1)."""
    u = np.asarray(draws, dtype=np.float64)
    return low + (high - low) * (np.arange(len(u)) + u) / len(u)


def make_head(
    h: int,
    num_classes: int,
    width: int | None,
    dropout: float,
    rng: np.random.Generator,
    init: Literal["default", "xavier"] = "xavier",
) -> nn.Module:
    """A head h -> ``width`` -> C, or h -> C for width None, with values from ``rng``.

    ``init``: ``xavier``, weights Xavier normal and biases 0; ``default``, torch's own: weights and biases uniform in
    +-1/sqrt(inputs of the layer).
    """
    sizes = [(h, num_classes)] if width is None else [(h, width), (width, num_classes)]
    layers: list[nn.Module] = [skip_init(nn.Linear, *size) for size in sizes]
    draws = torch.Generator().manual_seed(int(rng.integers(2**32)))
    for layer in layers:
        assert isinstance(layer, nn.Linear)
        if init == "xavier":
            nn.init.xavier_normal_(layer.weight, generator=draws)
            nn.init.zeros_(layer.bias)
            continue
        bound = layer.in_features**-0.5
        for values in layer.parameters():
            nn.init.uniform_(values, -bound, bound, generator=draws)
    return layers[0] if width is None else nn.Sequential(layers[0], nn.Dropout(dropout), layers[1])


@register("client", "fedsdc")
class FedSDC(VariantRule, ClientRule):
    """Heads of different widths that change clients in every round.

    ``H``: number of slots (null: one per client); ``rho`` (low, high): range of the compression factors, rho_s uniform
    in part s of H equal parts; ``dropout`` between the two layers; ``diversity`` and ``shuffle``: the two parts of
    Table 2; ``first_heads``: who draws their values, ``server`` or ``client``; ``head_init``: ``default``, torch's own
    values, or ``xavier``; ``down``: how many heads a client is sent, ``one`` or ``all``.
    """

    owns_head = True
    needs = {"prediction": "vote"}
    reducers = {"head": "keep"}
    reference = {"first_heads": "client", "down": "all"}

    H: PositiveInt | None = None
    rho: tuple[float, float]
    dropout: float = Field(ge=0, lt=1)
    diversity: bool
    shuffle: bool
    first_heads: Literal["server", "client"] = "server"
    head_init: Literal["default", "xavier"] = "default"
    down: Literal["one", "all"] = "one"

    @field_validator("rho")
    @classmethod
    def _increasing(cls, rho: tuple[float, float]) -> tuple[float, float]:
        if not 0 < rho[0] < rho[1] <= 1:
            raise ValueError("expected [low, high] with 0 < low < high <= 1")
        return rho

    def heads(self, feature_dim: int, num_classes: int, num_clients: int, generators: Generators) -> Heads:
        """H heads, slot s of width floor(rho_s h) with diversity; the widths are drawn once (section 2.2)."""
        H = num_clients if self.H is None else self.H
        if not self.shuffle and num_clients != H:
            what = f"null or {num_clients}, as without shuffle each client keeps a head of its own"
            raise MethodError(wrong("method.client.fedsdc.H", H, what))
        rho = rho_ladder(*self.rho, generators("fedsdc/rho").random(H))
        widths: list[int | None] = [None] * H
        if self.diversity:
            widths = [max(1, math.floor(share * feature_dim)) for share in rho]
        made: dict[str, nn.Module] = {}
        for s, width in enumerate(widths):
            rng = generators("fedsdc/head", s)
            made[f"fedsdc/{s}"] = make_head(
                feature_dim, num_classes, width, self.dropout, rng, self.head_init
            )
        return made

    def setup(self, federation: Federation) -> State:
        """The heads by slot, and a seed from which every round's shuffle is drawn."""
        return {
            "heads": dict(federation.heads),  # no rule with other heads can be combined with this one
            "seed": int(federation.generators("shuffle").integers(2**32)),
            "feature_dim": federation.feature_dim,
            "num_classes": federation.num_classes,
        }

    def send(self, server: State, client: int, view: RoundView) -> State:
        """The head of the client's slot (Eq. 7), or all of them."""
        heads = server["heads"]
        slot = self._slots(server, view)[client]
        vector = heads[slot]
        if view.round == 0 and self.first_heads == "client":
            vector = self._redrawn(server, vector, client)
        sent: State = {"head": Head(slot, vector)}
        if self.down == "all":
            sent["others"] = {name: head for name, head in heads.items() if name != slot}
        return sent

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Upload the head; the body goes up as every update does."""
        assert trained.head is not None
        return {}, {"head": trained.head}

    def receive(self, server: State, view: RoundView) -> State:
        """Heads return to their slots unaveraged; those that rested stay."""
        slots = self._slots(server, view)
        returned = {slots[k]: head for k, head in view.payload["head"].items()}
        return server | {"heads": server["heads"] | returned}

    def _slots(self, server: State, view: RoundView) -> dict[int, str]:
        """Slot s(k) of each participant, m of the H slots without repeat (Eq. 6); the same whenever it is asked."""
        if not self.shuffle:
            return {k: f"fedsdc/{k}" for k in view.clients}
        dealt = np.random.default_rng((server["seed"], view.round)).permutation(len(server["heads"]))
        if len(view.clients) > len(dealt):
            what = f"null or at least {len(view.clients)}, one head for each client of round {view.round}"
            raise MethodError(wrong("method.client.fedsdc.H", self.H, what))
        return {k: f"fedsdc/{s}" for k, s in zip(view.clients, dealt, strict=False)}

    def _redrawn(self, server: State, old: Tensor, client: int) -> Tensor:
        """First values that the client draws for the head of its slot, of the same shape as ``old``."""
        h, classes = server["feature_dim"], server["num_classes"]
        # A head of width r has (h + 1) r + (r + 1) C numbers.
        width = (len(old) - classes) // (h + 1 + classes) if self.diversity else None
        rng = np.random.default_rng(np.random.SeedSequence(server["seed"], spawn_key=(client,)))
        head = make_head(h, classes, width, self.dropout, rng, self.head_init)
        return parameters_to_vector(head.parameters()).detach().to(old)


# Prediction ------------------------------------------------------------------------------------------------------


def majority(logits: Tensor) -> Tensor:
    """Scores [B, C] whose argmax is the vote of the heads, from their logits [H, B, C].

    Each head votes for its top class, the lowest of equal ones. One class with most votes wins; otherwise all classes,
    also those without a vote, compete by the sum of their logits (code; the paper does not say).
    """
    votes = F.one_hot(logits.argmax(2), logits.shape[2]).sum(0)
    most = votes.amax(1, keepdim=True)
    tied = (votes == most).sum(1, keepdim=True) > 1
    return torch.where(tied, logits.sum(0), votes.to(logits.dtype))


def best_heads(scores: ArrayLike, gamma: float) -> list[int]:
    """The ceil(gamma H) heads with the highest scores [H], best first; of equal ones those that come first."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    count = math.ceil(gamma * len(order) - 1e-9)  # 0.07 * 100 is a little more than 7
    return [int(i) for i in order[:count]]


def head_scores(
    answers: Iterable[tuple[Tensor, Tensor]], metric: Literal["micro_f1", "balanced_accuracy"]
) -> np.ndarray:
    """Score [H] of each head alone, from batches of (logits [H, B, C], labels [B]).

    Micro-F1 is the share of right answers, as each sample has one label; balanced accuracy the mean recall over the
    classes present. NaN if there are no samples.
    """
    hits, counts = np.zeros((1, 1)), np.zeros(1)
    for logits, y in answers:
        labels = F.one_hot(y, logits.shape[2]).double()
        hits = hits + ((logits.argmax(2) == y).double() @ labels).cpu().numpy()  # [H, C]
        counts = counts + labels.sum(0).cpu().numpy()
    present = counts > 0
    if metric == "micro_f1":
        return hits.sum(1) / counts.sum()
    return (hits[:, present] / counts[present]).mean(1)


@register("prediction", "vote")
class Vote(VariantRule, Prediction):
    """Majority vote of FedSDC's heads, or of the best of them.

    ``gamma``: share of the heads that vote (FedSDC: 1; FedSDC+ less); ``ranking``: the data on which heads are ranked,
    ``validation`` (paper) or ``train_reference``, all clients' training data (code); ``metric``: ``micro_f1`` (paper)
    or ``balanced_accuracy`` (code). Never the test set.
    """

    logits = False
    needs = {"client": "fedsdc"}

    reference = {"ranking": "train_reference", "metric": "balanced_accuracy"}

    gamma: float = Field(gt=0, le=1)
    ranking: Literal["validation", "train_reference"] = "validation"
    metric: Literal["micro_f1", "balanced_accuracy"] = "micro_f1"

    @property
    def needs_validation(self) -> bool:
        """Whether heads are ranked on the validation split."""
        return self.gamma < 1 and self.ranking == "validation"

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor, the vote; the body runs once per batch."""
        body = view.model()
        members = [view.model(head=Head(key, v)) for key, v in view.rules["fedsdc"]["heads"].items()]

        def logits(x: Tensor) -> Tensor:
            z = body.features(x)
            return torch.stack([head.classify(z) for head in members])

        if self.gamma < 1:
            data = view.validation if self.ranking == "validation" else view.training
            if data is None:
                raise MethodError(
                    "prediction 'vote' ranks heads on a validation split: set evaluation.validation"
                )
            scores = head_scores(((logits(x), y) for x, y in data.batches()), self.metric)
            members = [members[s] for s in best_heads(scores, self.gamma)]
        yield lambda x: majority(logits(x))
