"""The vocabulary of an algorithm: what client, server, selection and prediction rules may do.

A method fills some slots and leaves the others neutral; FedAvg is the neutral value of all of them. Rules are
frozen, validated records of hyper-parameters. They hold no state: a hook takes the old state and returns the new
one, the engine stores it (and so can stop and resume anywhere). A server-side state and a client-side state belong
to one rule each, under the rule's name, so any client rules stack without collisions.

Symbols, as in the papers: K clients, S participants of the round, m = |S|, n_k samples of client k, w in R^d the
model at the start of the round, w_k after local training, D_k = w_k - w the update (the server adds it), p_k the
server's weight of client k, z [B, h] features, f [B, C] logits, tau_k local steps, eta the client's rate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from methods.core.vectors import Layout

if TYPE_CHECKING:
    from methods.core.build import Method

State = dict[str, Any]
"""Named tensors, numbers and nested dicts of them: exactly what a checkpoint stores."""

Generators = Callable[..., np.random.Generator]
"""``generators(purpose, *ids)``: an independent generator for each purpose (and round, client)."""


class Rule(BaseModel):
    """Base of all rules: hyper-parameters in the paper's symbols, validated, frozen, unknown ones refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    key: ClassVar[str] = ""

    def check(self, method: Method) -> None:
        """Raise ``MethodError``, with the reason, if this rule cannot be combined with the rest of ``method``."""


# What the engine hands to rules -------------------------------------------------------------------------------


class Head(NamedTuple):
    """A classifier that the server hands to one client: its shape (``key``; None = the model's own) and values."""

    key: str | None
    vector: Tensor


@dataclass(frozen=True)
class Federation:
    """What the server knows before round 0.

    ``sizes`` [K] samples per client; ``label_counts`` [K, C]; ``rounds`` R; ``feature_dim`` h; ``heads`` the initial
    vectors of the heads that a rule's model surgery asked for; ``w`` the initial model [d]; ``generators`` belong to
    the rule that is set up; ``steps(n)`` is how many local steps a client with n samples takes in a round.
    """

    num_clients: int
    num_classes: int
    sizes: np.ndarray
    label_counts: np.ndarray
    rounds: int
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
    """The client's own samples, as a rule may read them."""

    @property
    def y(self) -> Tensor:
        """Labels [n_k]."""

    @property
    def attributes(self) -> Tensor | None:
        """Attribute of each sample [n_k], where the data set has them."""

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples once, in order, normalised and without augmentation: (x [B, ...], y [B])."""


@dataclass(frozen=True)
class ClientContext:
    """What a client rule may read during one round at one client.

    ``w`` [d] is the vector that training starts from (read only); ``received`` what this rule's :meth:`ClientRule.send`
    gave; ``state`` this rule's client state ({} before the first participation); ``local`` what ``begin`` returned;
    ``frozen(vector, buffers, head)`` an auxiliary model (evaluation mode, no gradient) with the given values, to be
    asked for in ``begin`` (each call takes a model of its own until the client's round ends) or, with the values of
    :class:`Trained` as they are, in ``finish`` (no model of its own: the trained one); ``gradients(vector, buffers, x,
    y)`` the gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode; ``augmented``
    whether a sample looks different in every epoch; ``pooled(count)`` the same (x [count, ...], y [count]) at each
    client and in each round, drawn from all clients' data, for methods whose authors assume such a set; ``generators``
    belong to this rule.
    """

    client: int
    round: int
    rounds: int
    num_classes: int
    layout: Layout
    w: Tensor
    buffers: Tensor
    lr: float
    momentum: float
    data: LocalData
    label_counts: np.ndarray
    received: State
    state: State
    frozen: Callable[..., FrozenModel]
    gradients: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    pooled: Callable[[int], tuple[Tensor, Tensor]]
    augmented: bool
    generators: Generators
    local: State = field(default_factory=dict)

    @property
    def n(self) -> int:
        """n_k, the number of samples of this client."""
        return len(self.data.y)


class Batch(NamedTuple):
    """One mini-batch inside the local loop: inputs, labels [B], features [B, h], logits [B, C], mean cross-entropy.

    ``positions`` [B] say which of the client's own samples these are.
    """

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor
    ce: Tensor
    positions: Tensor


class Loss(NamedTuple):
    """What a rule adds to the objective: ``L = ce_weight * CE + extra`` (weights of stacked rules multiply)."""

    extra: Tensor | float
    ce_weight: float = 1.0


@dataclass(frozen=True)
class Phase:
    """One stage of local training.

    ``groups`` that train (None: all); ``epochs`` or ``steps`` (None: the run's); ``lr`` (None: the run's); ``losses``
    whether extra losses are on. Each phase has its own optimizer, so momentum starts afresh.
    """

    name: str = "all"
    groups: tuple[str, ...] | None = None
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    losses: bool = True


@dataclass(frozen=True)
class Trained:
    """The end of local training at one client.

    ``w`` [d] and ``update`` D_k [d]; ``buffers``; ``steps`` tau_k; ``step_norm`` a_k, the total weight of the
    client's gradients in its update (tau_k for plain SGD; with momentum rho and a proximal term mu: c <- rho c + 1 -
    eta mu a, a <- a + c, from 0); ``head`` the
    trained vector of a head handed down by the server, else None. Tensors are the engine's own: copy what you keep.
    """

    w: Tensor
    update: Tensor
    buffers: Tensor
    steps: int
    step_norm: float
    head: Tensor | None


Reducer = Literal["sum", "mean", "keep"]


@dataclass(frozen=True)
class RoundView:
    """What the server knows after a round.

    ``lr`` the clients' rate eta; ``clients`` S in ascending order, ``weights`` p_k [m], ``sizes`` n_k [m], ``steps``
    tau_k [m], ``step_norms`` a_k [m], ``proximal`` the clients' mu (:attr:`ClientRule.proximal`), ``payload`` this
    rule's reduced uploads: a tensor for ``sum`` and ``mean`` (weighted by p_k), a dict from client to tensor for
    ``keep``.
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


# Client rules --------------------------------------------------------------------------------------------------


class ClientRule(Rule):
    """What a method changes at the client. Every hook is optional; the neutral values make FedAvg.

    Order in a round: ``send`` (server) -> ``begin`` -> ``phases`` -> for each step ``sample_weights`` (once per
    epoch), ``loss``, ``correct`` -> ``finish`` -> ``receive`` (server).

    ``personal`` names the groups of parameters that stay at the client (a property where it depends on a parameter):
    they are not aggregated, and the engine keeps them for it. ``buffers`` overrides the run's BatchNorm policy.
    ``reducers`` says how each payload is combined over clients. ``owns_head`` marks rules that decide what the
    classifier is; two of them cannot be stacked.
    ``equal_layouts`` marks rules that keep or send vectors of length d, which heads of different widths would break.
    """

    personal: ClassVar[tuple[str, ...]] = ()
    equal_layouts: ClassVar[bool] = False
    buffers: ClassVar[Literal["average", "local", "frozen"] | None] = None
    reducers: ClassVar[Mapping[str, Reducer]] = {}
    owns_head: ClassVar[bool] = False

    @property
    def proximal(self) -> float:
        """mu of a term (mu/2) ||v - w||^2 that :meth:`correct` adds the gradient of; it is part of a_k."""
        return 0.0

    def for_clients(self, num_clients: int, per_round: int) -> Self:
        """This rule for a federation of K clients of which at most ``per_round`` take part; asked before all else.

        For parameters whose default depends on these numbers. MethodError if the rule cannot serve them.
        """
        return self

    def heads(self, feature_dim: int, num_classes: int, generators: Generators) -> dict[str, nn.Module]:
        """Model surgery: the classifiers (h -> C) that clients may be given, by key."""
        return {}

    def setup(self, federation: Federation) -> State:
        """This rule's server-side state before round 0."""
        return {}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """What goes down to ``client`` beyond w; ``view`` is the round before training.

        A :class:`Head` under the key ``head`` replaces the client's classifier.
        """
        return {}

    def begin(self, ctx: ClientContext) -> State:
        """Before training, for instance a statistics pass over the client's data; returned as ``ctx.local``."""
        return {}

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        """The stages of local training."""
        return (Phase(),)

    def sample_weights(self, ctx: ClientContext) -> np.ndarray | None:
        """Weight of each local sample [n_k]: an epoch then draws n_k samples with replacement."""
        return None

    def loss(self, ctx: ClientContext, batch: Batch) -> Loss:
        """Extra loss on features, logits and labels."""
        return Loss(0.0)

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """Add this rule's correction to the gradient ``g`` [d] at the point ``w`` [d], in place."""

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """After training: (new client state, payload to upload)."""
        return {}, {}

    def receive(self, server: State, view: RoundView) -> State:
        """This rule's new server-side state, from the reduced payloads of the round."""
        return server


# Server rules: weights -> direction -> optimizer -> post -----------------------------------------------------


class Weights(Rule):
    """How much each participant counts: the weights p_k."""

    needs_training: ClassVar[bool] = False
    """True if p_k depends on what happened in training (steps); the updates are then all held in memory."""

    @abstractmethod
    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]; sums to 1 unless the method says otherwise. Before training, steps are zero."""


class Aggregator(Rule):
    """Turns the updates of a round into one vector."""

    streams: ClassVar[bool] = False
    """True for the plain weighted mean: updates are added one by one and never held together."""

    def setup(self, federation: Federation) -> State:
        """State before round 0."""
        return {}

    @abstractmethod
    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], new state) from the updates [m, d] and weights p [m]."""


class ServerOptimizer(Rule):
    """The server's step along Dbar."""

    def setup(self, w: Tensor) -> State:
        """State before round 0, for a model w [d]."""
        return {}

    @abstractmethod
    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """(new w [d], new state)."""


class Post(Rule):
    """What the server does after the optimizer's step."""

    def setup(self, federation: Federation) -> State:
        """State before round 0."""
        return {}

    def apply(
        self, w_old: Tensor, w: Tensor, dbar: Tensor, view: RoundView, state: State
    ) -> tuple[Tensor, State]:
        """(new w [d], new state), given the model before the round, after the optimizer, and Dbar."""
        return w, state


# Selection -----------------------------------------------------------------------------------------------------


class ClientProbe(Protocol):
    """A client that answers a question of the server without taking part in the round."""

    @property
    def client(self) -> int:
        """Its number."""

    @property
    def num_classes(self) -> int:
        """C."""

    @property
    def num_attributes(self) -> int:
        """How many values the attribute has; 0 without attributes."""

    @property
    def data(self) -> LocalData:
        """Its own samples."""

    @property
    def w(self) -> Tensor:
        """The global model [d]."""

    @property
    def body_size(self) -> int:
        """Length of the part of w in front of the classifier."""

    @property
    def heads(self) -> Mapping[str, Tensor]:
        """First values of the heads that the selection asked for (:meth:`Selection.heads`), the same at each client."""

    def model(self, w: Tensor | None = None, head: Head | None = None) -> FrozenModel:
        """The global model, or the one with values w [d], in evaluation mode; ``head`` replaces its classifier."""

    def train(
        self,
        rules: Sequence[ClientRule],
        phase: Phase,
        purpose: str,
        w: Tensor | None = None,
        head: Head | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Run the local loop from w (default: the global model) and return the trained vector.

        ``head`` takes the place of the classifier: the vector then ends, behind ``body_size`` values, with the head's.
        ``labels`` [n_k] take the place of the client's own; samples with a negative one are left out.
        """


class ClientPool(Protocol):
    """All clients as a selection rule may reach them; every number asked for is counted as overhead."""

    @property
    def num_clients(self) -> int:
        """K."""

    @property
    def sizes(self) -> np.ndarray:
        """n_k [K]."""

    @property
    def group_counts(self) -> np.ndarray | None:
        """N^k [K, C, A], how many samples of each class and attribute each client has; None without attributes.

        What no server knows: for :meth:`Selection.measures` alone (and to refuse data without attributes), never for
        choosing. It is not counted as sent.
        """

    def ask(self, ids: Sequence[int], question: Callable[[ClientProbe], np.ndarray]) -> np.ndarray:
        """Answers [len(ids), s] of ``question`` evaluated at each client."""


class Selection(Rule):
    """Chooses the clients of a round. Draws come from the given generator, which depends on (seed, round) only."""

    observes: ClassVar[bool] = False
    """True if the rule wants to see the updates of the round (they are then all held in memory)."""

    def watches(self, round: int) -> bool:
        """Whether the rule wants to see the updates of ``round``; in other rounds they can stream."""
        return self.observes

    @property
    def reweighs(self) -> bool:
        """Whether :meth:`reweigh` may change the weights p_k."""
        return False

    def heads(self, feature_dim: int, num_classes: int, generators: Generators) -> dict[str, nn.Module]:
        """Classifiers (h -> anything) that probes train for this rule, by key."""
        return {}

    def pretraining(self, round: int) -> bool:
        """Whether ``round`` is plain FedAvg whatever the method is: its rules rest, only its weights p_k count."""
        return False

    def measures(self, state: State) -> Mapping[str, float]:
        """What is worth recording about ``state``, by name; recorded under the split ``selection``."""
        return {}

    def setup(self, clients: ClientPool) -> State:
        """State before round 0."""
        return {}

    @abstractmethod
    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> tuple[Sequence[int], State]:
        """(ids of the clients of this round, new state); ``kappa`` is how many are wanted, kappa <= K."""

    def reweigh(self, ids: Sequence[int], updates: Tensor, p: np.ndarray, state: State) -> np.ndarray:
        """Weights [m] for the round's mean, from the updates [m, d] and the method's own weights p [m]."""
        return p

    def observe(self, ids: Sequence[int], updates: Tensor, state: State) -> State:
        """New state after seeing the updates [m, d] of the round."""
        return state


# Prediction ----------------------------------------------------------------------------------------------------

Predictor = Callable[[Tensor], Tensor]
"""Scores [B, C] of normalised inputs [B, c, H, W]; the class with the highest score is the answer."""


class ServerView(Protocol):
    """What a prediction rule may read: the server's state and, for personal models, the clients'."""

    @property
    def num_clients(self) -> int:
        """K."""

    @property
    def w(self) -> Tensor:
        """The global model [d]."""

    @property
    def buffers(self) -> Tensor:
        """Its BatchNorm statistics."""

    @property
    def rules(self) -> Mapping[str, State]:
        """Server-side state of each client rule, by its name."""

    def model(
        self, client: int | None = None, head: Head | None = None, w: Tensor | None = None
    ) -> FrozenModel:
        """The global model, a client's personal one, or the one with values w [d]; ``head`` replaces its classifier."""

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches (x, y) of the validation split; none if the run holds none out."""

    def training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches (x, y) of all clients' training data, each sample once; no server of a real federation sees them."""


class Prediction(Rule):
    """How a trained federation answers; metrics are averaged over the predictors it yields."""

    logits: ClassVar[bool] = True
    """Whether scores are logits, so that cross-entropy is meaningful."""

    asks: ClassVar[str | None] = None
    """The client rule whose server state holds what answers; a method with this prediction must have it."""

    @property
    def needs_validation(self) -> bool:
        """Whether the answer depends on the validation split, so that there must be one."""
        return False

    @abstractmethod
    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor (global model, vote of heads) or one per client (personal models)."""
