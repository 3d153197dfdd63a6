"""Models in evaluation mode for rules: auxiliary copies in training, probes for selection, views for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmark.engine import randomness
from benchmark.engine.records import Cost
from benchmark.models.networks import FlatModel
from methods.core.contexts import Head, Phase, State
from methods.core.rules import ClientRule

if TYPE_CHECKING:
    from benchmark.engine.federation import FederatedRun, FederationState


class Board:
    """What the shared network holds now; lets views skip copies that are already in place.

    Holds the tensors themselves, not their ids: a freed tensor's id may be given to the next one.
    """

    body: tuple[Tensor, Tensor] | None = None
    head: object | None = None


class FrozenView:
    """A model with given values, in evaluation mode and without gradients; loads itself into a shared network."""

    def __init__(
        self,
        model: FlatModel,
        board: Board,
        w: Tensor,
        buffers: Tensor,
        head: Head | None = None,
        cost: Cost | None = None,
    ) -> None:
        """``w`` [d] and ``buffers``; ``head`` replaces the classifier; samples passed forward are added to ``cost``."""
        self._model, self._board, self._cost = model, board, cost
        self._w, self._buffers, self._head = w, buffers, head

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Features [B, h] of inputs [B, c, H, W]."""
        held = self._board.body
        if held is None or held[0] is not self._w or held[1] is not self._buffers:
            body = self._model.body_size
            self._model._w[:body].copy_(self._w[:body])
            self._model.buffers.copy_(self._buffers)
            self._board.body = (self._w, self._buffers)
        if self._cost is not None:
            self._cost.forward += len(x)
        self._model.net.eval()
        return self._model.net.features(x)

    @torch.no_grad()
    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, C] of features [B, h]."""
        if self._board.head is not self:
            self._model.use_head(self._head.key if self._head else None)
            body = self._model.body_size
            self._model.w[body:].copy_(self._head.vector if self._head else self._w[body:])
            self._board.head = self
        self._model.net.eval()
        return self._model.net.classify(z)

    def logits(self, x: Tensor) -> Tensor:
        """Logits [B, C] of inputs [B, c, H, W]."""
        return self.classify(self.features(x))


class FrozenPool:
    """Auxiliary networks beside the one that trains, made when first asked for and used again for the next client."""

    def __init__(self, model: FlatModel) -> None:
        """``model`` is the network that trains; its structure is copied on demand."""
        self.board = Board()
        self.cost = Cost()
        self._model = model
        self._spare: list[FlatModel] = []
        self._used = 0
        self._differentiable: FlatModel | None = None

    def forget(self) -> None:
        """A new client begins: auxiliary networks are free again and the training network holds new values."""
        self.board.body = self.board.head = None
        self._used = 0

    @property
    def used(self) -> int:
        """How many networks the present client holds beside its own."""
        return self._used

    def get(self, w: Tensor, buffers: Tensor, head: Head | None = None) -> FrozenView:
        """A frozen model with the given values, valid until the client's round ends."""
        model = self._model
        if head is None and model.head_key is None and w is model.w and buffers is model.buffers:
            # After training the network itself holds these values: a statistics pass needs no second one.
            view = FrozenView(model, Board(), w, buffers, None, self.cost)
            view._board.body, view._board.head = (w, buffers), view
            return view
        return FrozenView(self._next(), Board(), w, buffers, head, self.cost)

    @torch.no_grad()
    def gradients(self, w: Tensor, buffers: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each sample's cross-entropy [B, d] at the given values, in evaluation mode."""
        if self._differentiable is None:
            self._differentiable = self._model.twin()
        model = self._differentiable
        model.w.copy_(w)
        model.buffers.copy_(buffers)
        model.net.eval()
        self.cost.trained += len(x)
        return model.gradients(x, y)

    def _next(self) -> FlatModel:
        if self._used == len(self._spare):
            self._spare.append(self._model.twin())
        model = self._spare[self._used]
        self._used += 1
        return model


class Probe:
    """A client that answers a question of the server (``methods.core.rules.ClientProbe``)."""

    def __init__(self, run: FederatedRun, state: FederationState, client: int, cost: Cost) -> None:
        """Client ``client`` with the state of the server before the round; its work is added to ``cost``."""
        self._run, self._state, self._cost = run, state, cost
        self.client = client
        self.num_classes = run.problem.num_classes
        self.num_attributes = run.problem.num_attributes
        self.data = run.data(client)
        self.w = state.w
        self.body_size = run.model.body_size
        self.heads = run.heads

    def model(self, w: Tensor | None = None, head: Head | None = None) -> FrozenView:
        """The global model, or the one with the given values; ``head`` replaces its classifier."""
        return FrozenView(
            self._run.model,
            self._run.pool.board,
            self.w if w is None else w,
            self._run.start_buffers(self._state, self.client),
            head,
            self._cost,
        )

    def train(
        self,
        rules: Sequence[ClientRule],
        phase: Phase,
        purpose: str,
        w: Tensor | None = None,
        head: Head | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Local loop with ``rules`` from w; returns the trained vector and leaves nothing behind."""
        run, state, k = self._run, self._state, self.client
        start = self.w if w is None else w
        if head is not None:
            start = torch.cat([start[: self.body_size], head.vector])
        run.model.use_head(head.key if head else None)
        run.pool.forget()
        data = self.data if labels is None else self.data.relabelled(labels)
        with torch.no_grad():
            run.model.w.copy_(start)
            run.model.buffers.copy_(run.start_buffers(state, k))
        received: dict[str, State] = {rule.key: {} for rule in rules}
        done = run.trainer.run(
            data,
            run.contexts(rules, state, k, start, received, {}, purpose, data),
            (phase,),
            lr=run.schedule.lr(state.round),
            round=state.round,
            client=k,
            draw=lambda epoch: run.generators(f"{purpose}/sampling", state.round, k, epoch),
            torch_seed=randomness.torch_seed(run.seed, purpose, state.round, k),
        )
        self._cost.trained += done.samples
        trained = run.model.w.detach().clone()
        run.model.use_head(None)
        run.pool.forget()
        return trained
