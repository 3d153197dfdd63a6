"""What the engine hands to the rules of a method, and what the rules hand back.

Symbols, as in the papers: K clients; S participants of the round, m = |S|; n_k samples of client k; w [d] the model at
the start of the round, w_k after local training; D_k = w_k - w the update (the server adds it); p_k the server's weight
of client k; z [B, h] features; f [B, C] logits; tau_k local steps; eta the rate of the clients.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from methods.core.vectors import Layout

State = Annotated[dict[str, Any], "saved"]
"""Named tensors, numbers, texts, and nested dicts and lists of them: what a checkpoint stores."""

Message = dict[str, Any]
"""Named values of any kind, which live for one round at most."""

Generators = Callable[..., np.random.Generator]
"""``generators(purpose, *ids)``: an independent generator for each purpose (and round, client)."""

Predictor = Callable[[Tensor], Tensor]
"""Scores [B, C] of normalised inputs [B, c, H, W]; the class with the highest score is the answer."""

Reducer = Literal["sum", "keep"]
"""How an upload is combined over clients: summed, or kept for each client."""


class Head(NamedTuple):
    """A classifier that the server hands to one client: its shape (``key``; None = the model's own) and values."""

    key: str | None
    vector: Tensor


@dataclass(frozen=True)
class Federation:
    """What the server knows before round 0: K, C, n_k [K], label counts [K, C], the initial model w [d], and more.

    Attributes:
        feature_dim: h.
        heads: Initial vectors of the heads that :meth:`Rule.heads` asked for, by key.
        generators: Generators of the rule that is set up.
        steps: ``steps(n)`` is how many local steps a client with n samples takes in a round.
    """

    num_clients: int
    num_classes: int
    sizes: np.ndarray
    label_counts: np.ndarray
    layout: Layout
    feature_dim: int
    w: Tensor
    heads: Mapping[str, Tensor]
    generators: Generators
    steps: Callable[[int], int]


class FrozenModel(Protocol):
    """A model in evaluation mode, without gradients."""

    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of normalised inputs [B, c, H, W]."""

    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, C] of features [B, h]."""

    def logits(self, x: Tensor) -> Tensor:
        """Logits [B, C] of normalised inputs [B, c, H, W]."""


class LocalData(Protocol):
    """The samples of one client."""

    @property
    def y(self) -> Tensor:
        """Labels [n_k]."""

    @property
    def attributes(self) -> Tensor | None:
        """Attribute of each sample [n_k], where the data set has attributes."""

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order, normalised and without augmentation: (x [B, ...], y [B])."""


@dataclass(frozen=True)
class ClientContext:
    """What a client rule may read during one round at one client.

    Attributes:
        w: Vector [d] that training starts from; read only.
        received: What this rule's :meth:`ClientRule.send` returned.
        state: This rule's state at the client; {} before the first participation.
        local: What this rule's :meth:`ClientRule.begin` returned.
        frozen: ``frozen(vector, buffers)`` is an auxiliary model with the given values, until the client's round
            ends. It takes memory of its own, but for the values of :class:`Trained` as they are.
        gradients: ``gradients(vector, buffers, x, y)`` is the gradient of each sample's cross-entropy [B, d] at the
            given values, in evaluation mode.
        pooled: ``pooled(count)`` gives the same (x [count, ...], y [count]) at each client and in each round, drawn
            from the data of all clients, for methods whose authors assume such a set.
        augmented: Whether a sample looks different in every epoch.
        generators: Generators of this rule.
    """

    client: int
    round: int
    rounds: int
    num_classes: int
    layout: Layout
    w: Tensor
    buffers: Tensor
    lr: float
    data: LocalData
    label_counts: np.ndarray
    received: Message
    state: State
    frozen: Callable[[Tensor, Tensor], FrozenModel]
    gradients: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    pooled: Callable[[int], tuple[Tensor, Tensor]]
    augmented: bool
    generators: Generators
    local: Message = field(default_factory=dict)


class Batch(NamedTuple):
    """Inputs, labels [B], features, logits, mean cross-entropy, and which of the client's samples these are [B]."""

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor
    ce: Tensor
    positions: Tensor


class Loss(NamedTuple):
    """What a rule adds to the objective: ``L = ce_weight * CE + extra``. The weights of several rules multiply."""

    extra: Tensor | float
    ce_weight: float = 1.0


@dataclass(frozen=True)
class Phase:
    """One stage of local training, with an optimizer of its own, so that momentum starts from zero.

    Attributes:
        groups: Groups of parameters that train; None: all.
        epochs: Number of epochs, or ``steps`` of steps; both None: those of the run.
        lr: Rate; None: that of the run.
        losses: Whether extra losses are on.
    """

    groups: tuple[str, ...] | None = None
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    losses: bool = True


@dataclass(frozen=True)
class Trained:
    """The end of local training at one client. The tensors belong to the engine: copy what you keep.

    Attributes:
        w: w_k [d].
        update: D_k [d].
        steps: tau_k.
        step_norm: a_k, the total weight of the client's gradients in its update. tau_k for plain SGD; with momentum rho
            and a proximal term mu: c <- rho c + 1 - eta mu a, a <- a + c, from 0. The gradients at which
            :meth:`ClientRule.ascend` looks for its point are not part of the update and do not count.
        head: Trained vector of a head that the server handed down, else None.
    """

    w: Tensor
    update: Tensor
    buffers: Tensor
    steps: int
    step_norm: float
    head: Tensor | None


@dataclass(frozen=True)
class RoundView:
    """What the server knows of a round.

    Attributes:
        lr: Rate eta of the clients.
        clients: S, ascending; the arrays below are in their order.
        weights, sizes, steps, step_norms: p_k, n_k, tau_k and a_k [m]. Before training, steps are 0.
        label_counts: Samples per participant and class [m, C].
        proximal: mu of the clients (:attr:`ClientRule.proximal`).
        payload: Reduced uploads of the rule that is asked: a tensor for ``sum``, a dict from client to tensor for
            ``keep``.
        update: Dbar [d], the aggregated update, in :meth:`ClientRule.receive`; else None.
    """

    round: int
    lr: float
    num_clients: int
    clients: tuple[int, ...]
    weights: np.ndarray
    sizes: np.ndarray
    steps: np.ndarray
    step_norms: np.ndarray
    label_counts: np.ndarray
    proximal: float = 0.0
    payload: State = field(default_factory=dict)
    update: Tensor | None = None


class ServerView(Protocol):
    """What a prediction rule may read: the server-side state of each client rule, by name, and models."""

    num_clients: int
    rules: dict[str, State]

    def model(
        self, client: int | None = None, head: Head | None = None, w: Tensor | None = None
    ) -> FrozenModel:
        """The global model, a client's personal one, or the one with values w [d]; ``head`` replaces its classifier."""

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches (x, y) of the validation split; none if the run holds none out."""

    def training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches (x, y) of all clients' training data, each sample once; no server of a real federation sees them."""
