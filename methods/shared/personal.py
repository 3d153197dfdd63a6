"""Personal models answer: the prediction of FedBN, FedRep and FedPAC.

The score is the mean over all K clients of the metrics of each client's own model on the same test set. A client's
model is the present global one with the client's own groups of parameters in their places, so it stands as after the
download and before the next local training; a client that never took part has the initial values of its groups.
"""

from collections.abc import Iterator

from methods.core.contexts import Predictor, ServerView
from methods.core.registry import register
from methods.core.rules import Prediction


@register("prediction", "personal")
class PersonalPrediction(Prediction):
    """Mean over clients of their personal models."""

    def predictors(self, view: ServerView) -> Iterator[Predictor]:
        """One predictor per client: logits of its model. Each is to be used before the next is asked for."""
        for client in range(view.num_clients):
            yield view.model(client).logits
