"""What selection and prediction rules may read of clients and server."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from benchmark.engine.clients import ClientSide
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState
from methods.core.contexts import ClientPool, ClientProbe, FrozenModel, Head, Phase, ServerView, State
from methods.core.rules import ClientRule


def client_pool(clients: ClientSide, state: FederationState, cost: Cost) -> ClientPool:
    """The clients as a selection rule may reach them; what they do for it adds to ``cost``."""

    def ask(ids: Sequence[int], question: Callable[[ClientProbe], np.ndarray]) -> np.ndarray:
        probes = (_probe(clients, state, int(k), cost) for k in ids)
        rows = [np.atleast_1d(np.asarray(question(probe), dtype=np.float64)) for probe in probes]
        cost.scalars_up += sum(len(row) for row in rows)
        return np.stack(rows) if rows else np.zeros((0, 0))

    return ClientPool(
        num_clients=len(clients),
        rounds=clients.schedule.rounds,
        sizes=clients.sizes,
        layout=clients.model.layouts[None],
        w=state.w,
        group_counts=clients.group_counts,
        ask=ask,
    )


def _probe(clients: ClientSide, state: FederationState, client: int, cost: Cost) -> ClientProbe:
    data, network = clients.data(client), clients.model

    def model(w: Tensor | None = None, head: Head | None = None) -> FrozenModel:
        buffers = clients.start_buffers(state, client)
        return clients.frozen(cost, state.w if w is None else w, buffers, head)

    def train(
        rules: Sequence[ClientRule],
        phase: Phase,
        purpose: str,
        w: Tensor | None = None,
        head: Head | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        start = clients.with_head(state.w if w is None else w, head)
        clients.put(start, clients.start_buffers(state, client), head)
        trained_on = data if labels is None else data.relabelled(labels)
        received: Mapping[str, State] = {rule.key: {} for rule in rules}
        active = clients.contexts(rules, state, client, start, received, {}, purpose, cost, trained_on)
        work = clients.work(trained_on, active, state, client, purpose, f"{purpose}/sampling")
        loop = clients.trainer.run(work, (phase,), clients.schedule.lr(state.round))
        cost.trained += loop.samples
        trained = network.w.detach().clone()
        network.use_head(None)
        return trained

    problem = clients.problem
    return ClientProbe(
        data,
        problem.num_classes,
        problem.num_attributes,
        network.body_size,
        network.initial_heads,
        model,
        train,
    )


def server_view(clients: ClientSide, state: FederationState) -> ServerView:
    """What a prediction rule may read of the federation."""

    def model(client: int | None = None, head: Head | None = None, w: Tensor | None = None) -> FrozenModel:
        if w is None:
            w = state.w if client is None else clients.start_vector(state, client)
        buffers = state.buffers if client is None else clients.start_buffers(state, client)
        return clients.model.frozen(w, buffers, head)

    held_out = clients.problem.evaluation_sets.get("validation")
    server = {"direction": state.direction, "optimizer": state.optimizer, "post": state.post}
    return ServerView(len(clients), state.rules, server, model, held_out, clients.all_data)
