"""The vocabulary of an algorithm: what client, server, selection and prediction rules may do.

A method fills some slots and leaves the others neutral; FedAvg is the neutral value of all of them. Rules are frozen,
validated records of hyper-parameters. They hold no state: a hook takes the old state and returns the new one, and the
engine stores it, so that a run can stop and resume anywhere. A state belongs to one rule, under the name of the rule,
so client rules can be combined. The symbols are those of ``methods/core/contexts.py``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from benchmark.errors import wrong
from benchmark.registry import Registry
from methods.core.contexts import (
    Batch,
    Choice,
    ClientContext,
    ClientPool,
    Federation,
    Generators,
    Heads,
    Loss,
    Message,
    Phase,
    Predictor,
    Reducer,
    RoundView,
    ServerView,
    State,
    Trained,
)
from methods.core.hooks import MethodError, check_hooks


class Rule(BaseModel):
    """Base of all rules: hyper-parameters in the paper's symbols, validated, frozen, unknown ones refused.

    The public names of the classes in this file are the hooks. A subclass adds hyper-parameters and names that begin
    with an underscore, no other public name; what its hooks return is checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    key: ClassVar[str] = ""
    """The name under which the rule is registered; else the name of its class."""

    files: ClassVar[tuple[str, ...]] = ()
    """Data files beside its module that its code reads. A run counts them as its code."""

    for_sgd: ClassVar[bool] = False
    """Whether the rule is derived for local steps of SGD; with another optimizer there is a warning."""

    needs: ClassVar[Mapping[str, str]] = {}
    """Rules that the method must have too, by slot: ``{"prediction": "personal"}``; ``one|another`` for a choice."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.key = vars(cls).get("key", cls.__name__)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse public names that are no hook, and check what hooks return."""
        if cls.__module__ != __name__:
            check_hooks(cls, __name__)

    def heads(self, feature_dim: int, num_classes: int, num_clients: int, generators: Generators) -> Heads:
        """Classifiers by key, asked before all else: h -> C that clients may be given, or that probes train."""
        return {}


class VariantRule(Rule):
    """A rule whose paper and authors' code differ.

    The default of a field is what the paper says. ``reference`` lists what the authors' code does instead. A field that
    is null takes the value of the ``variant``, so that each difference can be chosen alone.
    """

    reference: ClassVar[Mapping[str, Any]] = {}
    variant: Literal["paper", "reference"] = "paper"

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in values.items() if not (value is None and key in cls.reference)}
        switches = cls.reference if given.get("variant") == "reference" else {}
        return {**switches, **given}


class StatefulRule(Rule):
    """A rule that may keep a state at the server."""

    def setup(self, federation: Federation) -> State:
        """This rule's server-side state before round 0."""
        return {}


class ClientRule(StatefulRule):
    """What a method changes at the client. Every hook is optional; the neutral values make FedAvg.

    Order in a round: ``send`` (server), ``begin``, ``phases``; in each epoch ``sample_weights``; in each step ``loss``,
    ``ascend``, ``correct``; then ``finish``, and ``receive`` (server).

    Attributes:
        personal: Groups of parameters that stay at the client (a property where it depends on a parameter). They are
            not aggregated; the engine keeps them.
        equal_layouts: Whether the rule keeps or sends vectors of length d: no heads of different widths beside it.
        trains_all: Whether the rule derives a gradient of the whole model from the update: no phases beside it.
        buffers: BatchNorm policy that replaces that of the run.
        reducers: How each upload is combined over clients.
        owns_head: Whether the rule decides what the classifier is; two such rules cannot be combined.
        blind_ascent: Whether ``ascend`` reads no gradient: then a step takes one gradient only, at w + e.
        pools_data: Whether one client has the samples of all, and takes as many steps as they would on average.
    """

    personal: ClassVar[tuple[str, ...]] = ()
    equal_layouts: ClassVar[bool] = False
    trains_all: ClassVar[bool] = False
    buffers: ClassVar[Literal["average", "local", "frozen"] | None] = None
    reducers: ClassVar[Mapping[str, Reducer]] = {}
    owns_head: ClassVar[bool] = False
    blind_ascent: ClassVar[bool] = False
    pools_data: ClassVar[bool] = False

    @property
    def proximal(self) -> float:
        """mu of a term (mu/2) ||v - w||^2 that ``correct`` adds the gradient of; it is part of a_k."""
        return 0.0

    def classifier(self, feature_dim: int, num_classes: int, generators: Generators) -> nn.Module | None:
        """The model's classifier h -> C in place of the linear one; it is built once, with the model.

        Its parameters are part of w, in the group ``head``; its buffers are averaged as BatchNorm's statistics are.
        None: the linear one.
        """
        return None

    def send(self, server: State, client: int, view: RoundView) -> Message:
        """What goes down to ``client`` beyond w; ``view`` is the round before training.

        A ``Head`` under the key ``head`` replaces the client's classifier.
        """
        return {}

    def begin(self, ctx: ClientContext) -> Message:
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

    def ascend(self, ctx: ClientContext, w: Tensor, g: Tensor) -> Tensor | None:
        """Perturbation e [d] for a second gradient: the step then uses the gradient at w + e instead of ``g``.

        The second gradient is that of the same objective on the same batch, in training mode, with the same augmented
        inputs and the same draws (dropout, and generators in ``ctx.local``); BatchNorm's running statistics come from
        the first pass. ``g`` [d] is the gradient at ``w`` [d] before any ``correct``. None: no second gradient, which
        costs nothing.
        """
        return None

    def correct(self, ctx: ClientContext, w: Tensor, g: Tensor) -> None:
        """Add this rule's correction to the gradient ``g`` [d] at the point ``w`` [d], in place."""

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, dict[str, Tensor]]:
        """After training: (new client state, payload to upload)."""
        return {}, {}

    def receive(self, server: State, view: RoundView) -> State:
        """This rule's new server-side state, from the reduced payloads of the round and the aggregated update."""
        return server


def overrides(rule: ClientRule, hook: str) -> bool:
    """Whether ``rule`` has a hook of its own, or sets a flag."""
    return getattr(type(rule), hook) is not getattr(ClientRule, hook)


# Server rules: weights -> direction -> optimizer -> post -----------------------------------------------------


class Weights(Rule):
    """How much each participant counts: the weights p_k.

    ``needs_training``: whether they depend on the steps of training; the updates are then all held in memory.
    """

    needs_training: ClassVar[bool] = False

    @abstractmethod
    def weights(self, view: RoundView) -> np.ndarray:
        """p_k [m]; sums to 1 unless the method says otherwise. Before training, steps are zero."""


class Aggregator(StatefulRule):
    """Turns the updates of a round into one vector (slot ``direction``).

    ``streams``: whether updates are added one by one and never held together, as the plain weighted mean can.
    """

    streams: ClassVar[bool] = False

    @abstractmethod
    def direction(self, updates: Tensor, p: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(Dbar [d], new state) from the updates [m, d] and weights p [m], which are float64."""


class ServerOptimizer(StatefulRule):
    """The server's step along Dbar."""

    def broadcast(self, w: Tensor, state: State) -> Tensor:
        """The model [d] that clients start a round from and measure their updates from; neutral: w itself."""
        return w

    @abstractmethod
    def step(self, w: Tensor, dbar: Tensor, state: State) -> tuple[Tensor, State]:
        """(new w [d], new state)."""


class Post(StatefulRule):
    """What the server does after the optimizer's step. Its state may keep models of earlier rounds for a prediction."""

    def apply(self, w: Tensor, dbar: Tensor, view: RoundView, state: State) -> tuple[Tensor, State]:
        """(new w [d], new state) from the model after the optimizer's step and Dbar."""
        return w, state


# Selection and prediction --------------------------------------------------------------------------------------


class Selection(Rule):
    """Chooses the clients of a round. Draws come from the given generator, which depends on (seed, round) only.

    ``trains_head``: whether it trains the head of the global model: no rule that owns the head beside it.
    """

    trains_head: ClassVar[bool] = False

    def watches(self, round: int) -> bool:
        """Whether the rule wants to see the updates of ``round``, which are then all held in memory."""
        return False

    @property
    def reweighs(self) -> bool:
        """Whether ``reweigh`` may change the weights p_k."""
        return False

    def pretraining(self, round: int) -> bool:
        """Whether ``round`` is plain FedAvg whatever the method is: only its weights p_k count."""
        return False

    def measures(self, state: State) -> Mapping[str, float]:
        """Numbers to record about ``state``, by name, under the split ``selection``."""
        return {}

    def setup(self, clients: ClientPool) -> State:
        """State before round 0; clients are not to be asked yet."""
        return {}

    @abstractmethod
    def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Generator) -> Choice:
        """(ids of the clients of this round, new state); ``kappa`` is how many are wanted, kappa <= K."""

    def reweigh(self, ids: Sequence[int], updates: Tensor, p: np.ndarray, state: State) -> np.ndarray:
        """Weights [m] for the round's mean, from the updates [m, d] and the method's own weights p [m]."""
        return p

    def observe(self, ids: Sequence[int], updates: Tensor, state: State) -> State:
        """New state after seeing the updates [m, d] of the round."""
        return state


class Prediction(Rule):
    """How a trained federation answers; metrics are averaged over the predictors it yields.

    ``logits``: whether scores are logits, so that cross-entropy is meaningful.
    """

    logits: ClassVar[bool] = True

    @property
    def needs_validation(self) -> bool:
        """Whether the answer depends on the validation split, so that there must be one."""
        return False

    @abstractmethod
    def predictors(self, view: ServerView) -> Iterable[Predictor]:
        """One predictor (global model, vote of heads) or one per client (personal models)."""


# Rules by slot and name ------------------------------------------------------------------------------------------

SLOTS: Mapping[str, type[Rule]] = {
    "client": ClientRule,
    "weights": Weights,
    "direction": Aggregator,
    "optimizer": ServerOptimizer,
    "post": Post,
    "prediction": Prediction,
    "selection": Selection,
}
"""The slots of a method, and the base class of the rules in each."""

registered: dict[str, Registry[type[Rule]]] = {
    slot: Registry(f"{slot} rule", "methods", MethodError) for slot in SLOTS
}
"""The classes of rules."""

R = TypeVar("R", bound=type[Rule])


def register(slot: str, name: str) -> Callable[[R], R]:
    """Class decorator: make a rule available in ``slot`` under ``name``."""
    if slot not in SLOTS:
        raise MethodError(wrong("register: slot", slot, f"one of: {', '.join(SLOTS)}", known=SLOTS))

    def decorate(cls: R) -> R:
        if not issubclass(cls, SLOTS[slot]):
            expected = f"a subclass of {SLOTS[slot].__name__} in slot {slot!r}"
            raise MethodError(wrong("register", cls.__name__, expected))
        cls.key = name
        registered[slot].add(name, cls, cls.__module__)
        return cls

    return decorate
