"""The two anchors of a table: every client alone, and all data in one place."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import class_run, classes, near, run
from tiny_runs import tiny

from benchmark.runs.build import build_run
from benchmark.runs.data import load_data


def test_local_is_each_client_without_the_others() -> None:
    """Three rounds of `local` end in the same models as three rounds of FedAvg with one client."""
    local = {"client": {"local": {}}, "prediction": {"name": "personal"}}
    sizes = (9, 5, 12)
    together = run(class_run(local, problem=classes(sizes), clip=1.0))[-1]
    whole = classes(sizes)
    for number, rows in enumerate(whole.clients):
        # The other clients are there with nothing to train on, so that random orders are the same.
        clients = [rows if k == number else rows[:0] for k in range(len(sizes))]
        alone = run(class_run({}, problem=replace(whole, clients=clients), clip=1.0))[-1]
        near(together.clients[number]["personal"], alone.w)
    assert torch.equal(together.w, run(class_run(local, problem=whole, clip=1.0), rounds=0)[-1].w)


@pytest.mark.parametrize("drop_last", [False, True])
def test_central_has_all_samples_and_the_steps_of_one_client(tmp_path: Path, drop_last: bool) -> None:
    """Clients with n_k samples take E n_k / B steps in a round, rounded up or down; one with all takes their mean."""
    train = {"epochs": 2, "batch_size": 5, "clients_per_round": 2, "drop_last": drop_last}
    config = tiny(tmp_path, {"method": "central", "train": train})
    data = load_data(config)
    federation = build_run(config, data)
    (rows,) = federation.problem.clients
    assert sorted(rows.tolist()) == sorted(np.concatenate(data.clients).tolist())
    steps = [2 * (len(client) // 5 if drop_last else -(-len(client) // 5)) for client in data.clients]
    _, report = federation.run_round(federation.initial_state())
    assert report.clients == (0,)
    assert federation.clients.trainer.steps(len(rows)) == round(sum(steps) / len(steps))


@pytest.mark.parametrize(("optimizer", "said"), [("sgd", False), ("adam", True)])
def test_a_method_that_is_derived_for_sgd(
    optimizer: str, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SCAFFOLD counts gradients in an update; with another optimizer the log says so, once."""
    config = tiny(tmp_path, {"method": "scaffold", "train": {"optimizer": optimizer}})
    with caplog.at_level(logging.WARNING, "fedtables"):
        build_run(config, load_data(config))
    assert ["train.optimizer: scaffold is derived for local steps of sgd; got adam"] * said == caplog.messages
