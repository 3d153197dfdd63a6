"""pfl-research: its simulated backend with PyTorch; torchrun starts it where there is more than one process."""

import itertools
from importlib.metadata import version

import torch
import torch.nn.functional as F
from job import Clock, Job, load
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
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


class Timing(TrainingProcessCallback):
    """Ticks after each round."""

    def __init__(self) -> None:
        self.clock = Clock()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """A round has ended; go on."""
        self.clock.tick()
        return False, Metrics()


def users(job: Job) -> FederatedDataset:
    """The users that take part, in the order of the job: one for each client and round, with its order of samples."""
    return FederatedDataset(
        lambda position: PyTorchTensorDataset(job.data(position)),
        itertools.cycle(range(len(job.orders))).__next__,
        user_id_to_weight=dict(enumerate(map(len, job.orders))),  # balances the load of several processes
    )


def main() -> None:
    """Train, and report."""
    job = load()
    net = job.network()
    model = PyTorchModel(
        Classifier(net),
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )
    data, timing = users(job), Timing()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=job.rounds,
            train_cohort_size=job.cohorts.shape[1],
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch_size),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[timing],
        send_metrics_to_platform=False,
    )
    if get_framework_module().distributed.global_rank == 0:
        timing.clock.report(f"pfl {version('pfl')}", job.accuracy(net))


if __name__ == "__main__":
    main()
