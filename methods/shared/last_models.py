"""The mean of the clients' last models answers: what the code of FedDyn and FedDC reports beside the server's model.

No server rule sees that mean, so the client rule ``last_models`` follows it: over the participants of the round, or
over all K clients, of whom those that never took part count with the initial model. It changes nothing in training. A
real server has the models anyway; here each is uploaded once more, which the recorded costs show.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from methods.core.contexts import (
    ClientContext,
    Federation,
    Predictor,
    RoundView,
    ServerView,
    State,
    Trained,
)
from methods.core.rules import ClientRule, Prediction, register


@register("client", "last_models")
class LastModels(ClientRule):
    """Follows the mean of the models that clients ended their training with.

    ``over``: the participants of the last round, or all clients.
    """

    equal_layouts = True
    reducers = {"change": "sum"}

    over: Literal["participants", "all"]

    def setup(self, federation: Federation) -> State:
        """The initial model."""
        return {"mean": federation.w.clone(), "start": federation.w}

    def send(self, server: State, client: int, view: RoundView) -> State:
        """What a model is measured from: all clients start at the initial one."""
        return {"start": server["start"]} if self.over == "all" else {}

    def finish(self, ctx: ClientContext, trained: Trained) -> tuple[State, State]:
        """Uploads how far the client's last model has moved (all), or the model (participants)."""
        if self.over == "participants":
            return {}, {"change": trained.w}
        last: Tensor = ctx.state["w"] if ctx.state else ctx.received["start"]
        return {"w": trained.w}, {"change": trained.w - last}

    def receive(self, server: State, view: RoundView) -> State:
        change = view.payload["change"]
        if self.over == "participants":
            return server | {"mean": change / len(view.clients)}
        return server | {"mean": server["mean"] + change / view.num_clients}


@register("prediction", "last_models")
class MeanOfLastModels(Prediction):
    """The mean that the client rule of the same name follows."""

    needs = {"client": "last_models"}

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor: logits of the mean model."""
        yield view.model(w=torch.as_tensor(view.rules["last_models"]["mean"])).logits
