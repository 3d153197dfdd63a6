"""FedTables: what ``python -m benchmark run`` does, with the run's folder, records and checkpoints.

``python ours.py sweep`` carries out four runs on two workers, through the local launcher. ``python ours.py job`` writes
the job for all frameworks: samples, weights, the clients of each round and the order of their samples.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from job import Clock, Job

from benchmark.cli.overrides import configuration
from benchmark.cli.run import main as run_command
from benchmark.engine.randomness import generator
from benchmark.engine.records import Cost
from benchmark.engine.views import client_pool
from benchmark.launch.launch import run_here
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.index import RunIndex

SETTINGS = (
    "dataset=mnist partition=dirichlet partition.clients=100 partition.alpha=0.5 model=small_cnn method=fedavg "
    "train.rounds=8 train.clients_per_round=10 train.epochs=1 train.batch_size=32 train.lr=0.02 train.momentum=0 "
    "evaluation.every=8 runtime.device=cpu"
).split()
"""The job as words of ``python -m benchmark run``."""


def make(path: Path, words: list[str]) -> None:
    """Write the job that ``words`` of ``python -m benchmark run`` describe: what FedTables does with seed 0."""
    config = configuration(words)
    data = load_data(config)
    run = build_run(config, data)
    pool = client_pool(run.clients, run.initial_state(), Cost())
    per_round = config.train.clients_per_round or len(data.clients)
    cohorts, orders = [], []
    for t in range(config.train.rounds):
        rng = generator(config.seed, "participation", t)
        ids, _ = run.method.selection.choose(t, per_round, pool, {}, rng)
        cohorts.append(sorted(ids))
        for k in cohorts[-1]:
            order = generator(config.seed, "batches", t, k, 0).permutation(len(data.clients[k]))
            orders.append(torch.from_numpy(data.clients[k][order]))
    images, labels, test_images, test_labels = (
        torch.from_numpy(np.array(array))
        for part in (data.train, data.test) for array in (part.images, part.labels)
    )  # fmt: skip
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (data.dataset.mean, data.dataset.std))
    weights = [parameter.detach() for parameter in run.model.net.parameters()]
    train = config.train
    job = Job(images, labels, test_images, test_labels, mean, std, torch.tensor(cohorts), orders, weights,
              train.lr, train.batch_size)  # fmt: skip
    torch.save(vars(job), path)


def one(results: str) -> int:
    """Carry out the job, and report."""
    clock = Clock()
    words = [*SETTINGS, f"paths.results={results}"]
    config = configuration(words)
    index = RunIndex(ResultsFolder(Path(results)).open())
    run_here(index, config, lambda done, *_: clock.tick() if done else None)
    clock.report("this checkout", index.final(config.key, "test", "accuracy") or 0.0)
    return 0


def sweep(results: str) -> int:
    """Carry out the job with four learning rates."""
    return run_command(
        ["-m", *SETTINGS, "train.lr=0.02,0.021,0.022,0.023", "workers=2", f"paths.results={results}"]
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["job"]:
        make(Path(os.environ["BENCH_PEERS_JOB"]), SETTINGS)
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(sweep(folder) if sys.argv[1:] == ["sweep"] else one(folder))
