"""What the engine hands to the rules of a method, and what the rules hand back.

Symbols, as in the papers: K clients; S participants of the round, m = |S|; n_k samples of client k; w [d] the model at
the start of the round, w_k after local training; D_k = w_k - w the update (the server adds it); p_k the server's weight
of client k; z [B, h] features; f [B, C] logits; tau_k local steps; eta the rate of the clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

from methods.core.samples import Samples
from methods.core.vectors import Layout

State = Annotated[dict[str, Any], "saved"]
"""Named tensors, numbers, texts, and nested dicts and lists of them: what a checkpoint stores."""

Message = dict[str, Any]
"""Named values of any kind, which live for one round at most."""

Generators = Callable[..., np.random.Generator]
"""``generators(purpose, *ids)``: an independent generator for each purpose (and round, client)."""

Predictor = Callable[[Tensor], Tensor]
"""Scores [B, C] of normalised inputs [B, c, H, W]; the class with the highest score is the answer."""

Heads = dict[str, nn.Module]
"""Classifiers h -> C, by key."""

Choice = tuple[Sequence[int], State]
"""The clients of a round, and the new state of the selection."""

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
        heads: Initial vectors of the heads that ``Rule.heads`` asked for, by key.
        generators: Generators of the rule that is set up.
        steps: ``steps(n)`` is how many local steps a client with n samples takes in a round.
        batch_size: Samples in a local step.
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
    batch_size: int


@dataclass(frozen=True)
class FrozenModel:
    """A model in evaluation mode, without gradients.

    Attributes:
        features: Features [B, h] of normalised inputs [B, c, H, W].
        classify: Logits [B, C] of features [B, h].
    """

    features: Callable[[Tensor], Tensor]
    classify: Callable[[Tensor], Tensor]

    def logits(self, x: Tensor) -> Tensor:
        """Logits [B, C] of normalised inputs [B, c, H, W]."""
        return self.classify(self.features(x))


@dataclass(frozen=True)
class ClientContext:
    """What a client rule may read during one round at one client.

    Attributes:
        w: Vector [d] that training starts from; read only.
        received: What this rule's ``ClientRule.send`` returned.
        state: This rule's state at the client; {} before the first participation.
        local: What this rule's ``ClientRule.begin`` returned.
        frozen: ``frozen(vector, buffers)`` is an auxiliary model with the given values, of which it holds views.
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
    data: Samples
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
        body_eval: Whether the body is in evaluation mode: no dropout, and BatchNorm's statistics as they are.
    """

    groups: tuple[str, ...] | None = None
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    losses: bool = True
    body_eval: bool = False


@dataclass(frozen=True)
class Trained:
    """The end of local training at one client. The tensors belong to the engine: copy what you keep.

    Attributes:
        w: w_k [d].
        update: D_k [d].
        steps: tau_k.
        step_norm: a_k, the total weight of the client's gradients in its update. tau_k for plain SGD; with momentum rho
            and a proximal term mu: c <- rho c + 1 - eta mu a, a <- a + c, from 0. The gradients at which
            ``ClientRule.ascend`` looks for its point are not part of the update and do not count.
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
        update: Dbar [d], the aggregated update, in ``ClientRule.receive``; else None.
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


@dataclass(frozen=True)
class ClientProbe:
    """A client that answers a question of the server without taking part in the round.

    Attributes:
        data: Its own samples.
        num_attributes: How many values the attribute has; 0 without attributes.
        body_size: Length of the part of w in front of the classifier.
        heads: First values of the heads that ``Rule.heads`` asked for, the same at each client.
        model: ``model(w=None, head=None)`` is the global model, or the one with values w [d]; ``head`` (a `Head`)
            replaces its classifier.
        train: ``train(rules, phase, purpose, w=None, head=None, labels=None)`` runs the local loop with these client
            rules from w (default: the global model) and returns the trained vector. ``head`` takes the place of the
            classifier: the vector then ends, after ``body_size`` values, with the head's. ``labels`` [n_k] replace
            those of the client; samples with a negative label are left out. No state changes.
    """

    data: Samples
    num_classes: int
    num_attributes: int
    body_size: int
    heads: Mapping[str, Tensor]
    model: Callable[..., FrozenModel]
    train: Callable[..., Tensor]


@dataclass(frozen=True)
class ClientPool:
    """All K clients, with n_k [K] samples, and the global model w [d]; what is asked is counted as overhead.

    Attributes:
        rounds: Rounds of the run.
        layout: Names and places of the tensors in w and in the updates.
        group_counts: N^k [K, C, A], samples by class and attribute, for measures and refusals only; None without
            attributes.
        ask: ``ask(ids, question)`` are the answers [len(ids), s] of ``question(probe)`` at each of these clients.
    """

    num_clients: int
    rounds: int
    sizes: np.ndarray
    layout: Layout
    w: Tensor
    group_counts: np.ndarray | None
    ask: Callable[[Sequence[int], Callable[[ClientProbe], np.ndarray]], np.ndarray]


@dataclass(frozen=True)
class ServerView:
    """What a prediction rule may read.

    Attributes:
        rules: The server-side state of each client rule, by name.
        server: The states of the server's rules, by slot: ``direction``, ``optimizer`` and ``post``.
        model: ``model(client=None, head=None, w=None)`` is the global model, a client's personal one, or the one with
            values w [d]; ``head`` (a `Head`) replaces its classifier.
        validation: The validation split, if the run holds one out.
        training: All clients' training data, each sample once; no server of a real federation sees them.
    """

    num_clients: int
    rules: Mapping[str, State]
    server: Mapping[str, State]
    model: Callable[..., FrozenModel]
    validation: Samples | None
    training: Samples
