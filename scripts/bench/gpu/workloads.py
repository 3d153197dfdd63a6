"""Two published workloads with their own networks, on random images and without evaluation, beside a bare loop."""

import sys
import tempfile

from speed import compare, settings

# Network: clients, samples of each, rounds, how many of them are measured, settings of training.
WORKLOADS = {
    "pfl_research": (1000, 50, 1500, 20, {"clients_per_round": 50, "batch_size": 10, "momentum": 0.0}),
    "blazefl": (100, 500, 5, 1, {"epochs": 5, "batch_size": 50, "momentum": 0.0}),
}
for name, (clients, samples, rounds, measured, train) in WORKLOADS.items():
    if sys.argv[2:] == ["mini"]:
        clients, samples, measured, train = 2, 10, 1, {}
    data = {"train_size": clients * samples, "test_size": 10, "size": 32, "channels": 3}
    for graphs in (False, True):
        runtime = {"device": sys.argv[1], "cuda_graphs": graphs}
        more = {"train": {"rounds": measured, **train}, "runtime": runtime}
        with tempfile.TemporaryDirectory() as folder:
            times = compare(f"{name}, graphs {graphs}", settings(folder, data, clients, name, **more))
        bare, ours = (f"{seconds * rounds / measured:.1f} s" for seconds in times)
        print(f"{name}, {rounds} rounds: bare loop {bare}, FedTables {ours}", flush=True)
