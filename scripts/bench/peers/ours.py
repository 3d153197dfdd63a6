"""FedTables: `benchmark.api.run`. With the word ``job``: write the job for all frameworks instead."""

import os
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from job import ROUNDS, Job

from benchmark import api
from benchmark.config.compose import compose, resolve
from benchmark.engine.randomness import generator
from benchmark.engine.records import Cost
from benchmark.engine.views import client_pool
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data

COHORT = 10
"""Clients in each round."""

SETTINGS: dict[str, Any] = {
    "dataset": "mnist", "model": "small_cnn", "method": "fedavg",
    "partition": {"name": "dirichlet", "clients": 100, "alpha": 0.5},
    "train": {"rounds": ROUNDS, "clients_per_round": COHORT, "epochs": 1, "batch_size": 32, "lr": 0.02, "momentum": 0},
    "evaluation": {"every": 100}, "runtime": {"device": "cpu"},
}  # fmt: skip


def make(path: str) -> None:
    """Write the job: what FedTables does with seed 0."""
    config = resolve(compose("quick", SETTINGS))
    data = load_data(config)
    run = build_run(config, data)
    pool = client_pool(run.clients, run.initial_state(), Cost())
    orders = []
    for t in range(ROUNDS):
        rng = generator(config.seed, "participation", t)
        ids, _ = run.method.selection.choose(t, COHORT, pool, {}, rng)
        for k in sorted(ids):
            order = generator(config.seed, "batches", t, k, 0).permutation(len(data.clients[k]))
            orders.append(torch.from_numpy(data.clients[k][order]))
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (data.dataset.mean, data.dataset.std))
    parts = (data.train, data.test)
    images, test_images = ((torch.from_numpy(np.array(part.images)) / 255 - mean) / std for part in parts)
    labels, test_labels = (torch.from_numpy(np.array(part.labels)) for part in parts)
    weights = [parameter.detach() for parameter in run.model.net.parameters()]
    train = config.train
    job = Job(images, labels, test_images, test_labels, COHORT, orders, weights, train.lr, train.batch_size)
    torch.save(vars(job), path)


if __name__ == "__main__":
    if sys.argv[1:] == ["job"]:
        make(os.environ["BENCH_JOB"])
    else:
        with tempfile.TemporaryDirectory() as folder:
            run = api.run(**SETTINGS, paths={"results": folder})
            print(f"accuracy {run.final['test']['accuracy']}")
