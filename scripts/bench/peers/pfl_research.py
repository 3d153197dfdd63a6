"""pfl-research: its simulated backend with PyTorch, in one process."""

import itertools

import torch
import torch.nn.functional as F
from job import ROUNDS, load
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn


class Classifier(nn.Module):
    """The network with the loss and the metrics that pfl asks it for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Accuracy."""
        return {"accuracy": Weighted(int((self.net(x).argmax(1) == y).sum()), len(y))}


if __name__ == "__main__":
    job = load()
    net = job.network()
    model = PyTorchModel(
        Classifier(net),
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )
    # One user for each client and round, in the order of the job.
    users = itertools.cycle(range(len(job.orders))).__next__
    data = FederatedDataset(lambda position: PyTorchTensorDataset(job.data(position)), users)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS,
            train_cohort_size=job.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch_size),
        NNEvalHyperParams(local_batch_size=None),
        send_metrics_to_platform=False,
    )
    job.report(net)
