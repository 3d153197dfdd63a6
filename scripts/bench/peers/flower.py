"""Flower: a ServerApp and a ClientApp on its simulation runtime, with one Ray actor."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from job import ROUNDS, load

client, server = ClientApp(), ServerApp()
CLIENTS = 100


class OfTheJob(FedAvg):
    """FedAvg that trains the clients which the job names."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of FedAvg, each with the client that its node plays."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for j, message in enumerate(messages):
            number = ConfigRecord({"position": (server_round - 1) * len(messages) + j})
            message.content = RecordDict({"arrays": arrays, "config": number})
        return messages


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one client from the weights that were sent."""
    job = load()
    net = job.network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = job.train(net, message.content["config"]["position"])
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": samples})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Train, and report."""
    job = load()
    net = job.network()
    strategy = OfTheJob(
        fraction_train=job.cohort / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS
    )
    result = strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=ROUNDS)
    net.load_state_dict(result.arrays.to_torch_state_dict())
    job.report(net)


if __name__ == "__main__":
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=backend)
