"""FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.

Li, Jiang, Zhang, Kamp, Dou, ICLR 2021, https://arxiv.org/abs/2102.07623

Algorithm 1: the normalisation layers, parameters and statistics, stay at their client; everything else is averaged.
The client's own models answer. The layers are found by type, not by "bn" in their names.
"""

import logging
from collections.abc import Iterator
from typing import Literal

from methods.core.contexts import Federation, Predictor, ServerView, State
from methods.core.rules import ClientRule, Prediction, register
from methods.core.vectors import NORM, OTHER_NORM

log = logging.getLogger(__name__)


@register("client", "fedbn")
class FedBN(ClientRule):
    """Local normalisation layers.

    ``norm``: batch, BatchNorm alone, or all, GroupNorm, LayerNorm and InstanceNorm too.
    """

    buffers = "local"
    needs = {"prediction": "personal"}

    norm: Literal["batch", "all"] = "batch"

    @property
    def personal(self) -> tuple[str, ...]:  # type: ignore[override]
        """The groups that stay."""
        return (NORM, OTHER_NORM) if self.norm == "all" else (NORM,)

    def setup(self, federation: Federation) -> State:
        """Warn if the model has no such layer."""
        if not federation.layout.mask(*self.personal).any():
            kind = "normalisation" if self.norm == "all" else "BatchNorm"
            log.warning("fedbn: this model has no %s layer; fedbn is FedAvg with personal evaluation", kind)
        return {}


@register("prediction", "personal")
class PersonalPrediction(Prediction):
    """Mean over all K clients of the metrics of each one's own model on the same test set (FedRep's too).

    A client's model is the present global one with the client's own groups in their places, so it stands as after the
    download and before the next local training; a client that never took part has their initial values.
    """

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor per client: logits of its model. Each is to be used before the next is asked for."""
        for client in range(view.num_clients):
            yield view.model(client).logits
