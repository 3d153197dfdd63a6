"""Flower: a ServerApp and a ClientApp on its simulation runtime, with one Ray actor for each core."""

import os
from collections.abc import Iterable
from importlib.metadata import version

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from job import Clock, load

client, server = ClientApp(), ServerApp()
CLIENTS = 100


class Timed(FedAvg):
    """FedAvg that trains the clients which the job names, and ticks after each round."""

    def __init__(self, share: float) -> None:
        super().__init__(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        self.clock = Clock()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of FedAvg, each with the client that its node plays."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for j, message in enumerate(messages):
            number = ConfigRecord({"position": (server_round - 1) * len(messages) + j})
            message.content = RecordDict({"arrays": arrays, "config": number})
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The mean of the replies."""
        result = super().aggregate_train(server_round, replies)
        self.clock.tick()
        return result


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
    net, strategy = job.network(), Timed(job.cohorts.shape[1] / CLIENTS)
    result = strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=job.rounds)
    net.load_state_dict(result.arrays.to_torch_state_dict())
    strategy.clock.report(f"flwr {version('flwr')}, ray {version('ray')}", job.accuracy(net))


if __name__ == "__main__":
    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": int(os.environ["BENCH_PEERS_CORES"])},
    }
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
