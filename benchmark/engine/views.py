"""What selection and prediction rules may read of clients and server."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor

from benchmark.engine.clients import ClientSide
from benchmark.engine.frozen import FrozenView
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState
from methods.core.contexts import Head, Phase, State
from methods.core.rules import ClientProbe, ClientRule


class Probe:
    """A client that answers a question of the server (`methods.core.rules.ClientProbe`); its work adds to ``cost``."""

    def __init__(self, clients: ClientSide, state: FederationState, client: int, cost: Cost) -> None:
        self._clients, self._state, self._cost = clients, state, cost
        self.client, self.data, self.w = client, clients.data(client), state.w
        self.num_classes = clients.problem.num_classes
        self.num_attributes = clients.problem.num_attributes
        self.body_size = clients.model.body_size
        self.heads: Mapping[str, Tensor] = clients.model.initial_heads

    def model(self, w: Tensor | None = None, head: Head | None = None) -> FrozenView:
        """The global model, or one with the values w [d]. ``head`` replaces its classifier."""
        buffers = self._clients.start_buffers(self._state, self.client)
        w = self.w if w is None else w
        return FrozenView(self._clients.model, w, buffers, head, self._cost)

    def train(
        self,
        rules: Sequence[ClientRule],
        phase: Phase,
        purpose: str,
        w: Tensor | None = None,
        head: Head | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Run the local loop with ``rules`` from w and return the trained vector. No state changes."""
        clients, state = self._clients, self._state
        start = clients.load(state, self.client, self.w if w is None else w, head)
        data = self.data if labels is None else self.data.relabelled(labels)
        received: dict[str, State] = {rule.key: {} for rule in rules}
        active = clients.contexts(rules, state, self.client, start, received, {}, purpose, data)
        done = clients.run_loop(data, active, (phase,), state, self.client, purpose, f"{purpose}/sampling")
        self._cost.trained += done.samples
        trained = clients.model.w.detach().clone()
        clients.model.use_head(None)
        clients.pool.forget()
        return trained


class ProbedClients:
    """The clients as a selection rule may reach them (`methods.core.rules.ClientPool`)."""

    def __init__(self, clients: ClientSide, state: FederationState, cost: Cost) -> None:
        self._clients, self._state, self._cost = clients, state, cost
        self.num_clients, self.sizes, self.w = len(clients), clients.sizes, state.w

    @property
    def group_counts(self) -> np.ndarray | None:
        """N^k [K, C, A]; for measures only."""
        return self._clients.group_counts

    def ask(self, ids: Sequence[int], question: Callable[[ClientProbe], np.ndarray]) -> np.ndarray:
        """Answers [len(ids), s]."""
        probes = (Probe(self._clients, self._state, int(k), self._cost) for k in ids)
        rows = [np.atleast_1d(np.asarray(question(probe), dtype=np.float64)) for probe in probes]
        self._cost.scalars_up += sum(len(row) for row in rows)
        return np.stack(rows) if rows else np.zeros((0, 0))


class PredictionView:
    """What a prediction rule may read (`methods.core.rules.ServerView`)."""

    def __init__(self, clients: ClientSide, state: FederationState) -> None:
        self._clients, self._state = clients, state
        self.num_clients = len(clients)
        self.rules = state.rules

    def model(
        self, client: int | None = None, head: Head | None = None, w: Tensor | None = None
    ) -> FrozenView:
        """The global model, a personal one, or one with the values w [d]. ``head`` replaces its classifier."""
        clients, state = self._clients, self._state
        if w is None:
            w = state.w if client is None else clients.start_vector(state, client)
        buffers = state.buffers if client is None else clients.start_buffers(state, client)
        return FrozenView(clients.model, w, buffers, head)

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the validation split, if there is one."""
        held_out = self._clients.problem.evaluation_sets.get("validation")
        return iter(()) if held_out is None else held_out.batches()

    def training(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all clients' training data, each sample once."""
        return self._clients.all_data().batches()
