"""Features on the unit sphere after training on all classes, on few, and on few with FedMR (FedMR, Fig. 1c)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from benchmark.config.schema import TrainConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.measures import spread
from benchmark.engine.state import Problem, Schedule
from benchmark.models.flat import FlatModel
from benchmark.models.networks import Net
from benchmark.papers.figures import Drawing, Request
from benchmark.reports.statistics import summarise
from methods.core.contexts import FrozenModel
from methods.core.method import build

CLASSES = 6
TITLES = ("All classes", "Two classes per client", "Two classes per client, FedMR")
INPUTS = 3


def sphere(request: Request) -> Drawing:
    """Toy data of six classes, a network with three features; each panel shows test points of all classes.

    Left: one client with all classes. Middle and right: three clients with two classes each, rounds of FedAvg and of
    FedMR, then the model of the first client after its local training. Options: ``rounds``, ``epochs``, ``lr``,
    ``mu1``, ``mu2``, ``samples`` per class, ``noise`` of the data, ``repeats``.
    """
    torch.set_num_threads(1)  # the same picture on every machine
    repeats = [_panels(request, seed) for seed in range(request.seeds or request.option("repeats", 3))]
    data = pd.concat([points for points, _, _ in repeats[0]], ignore_index=True)
    remarks = [
        "Spread: sum of squared deviations of the three eigenvalues of the features' correlation matrix (0: even, 6: "
        f"one direction). Numbers: mean and sample standard deviation over {len(repeats)} draws of data and first "
        "weights; the picture shows the first."
    ]
    for title, *panels in zip(TITLES, *repeats, strict=True):
        _, spreads, accuracies = zip(*panels, strict=True)
        numbers = f"spread {summarise(spreads)}, accuracy on all classes {summarise(accuracies)} %"
        remarks.append(f"{title}: {numbers}.")
    return Drawing(_draw(data), data, tuple(remarks))


def _panels(request: Request, seed: int) -> list[tuple[pd.DataFrame, float, float]]:
    """Of each panel: place of each test point on the sphere, spread of eigenvalues, accuracy in percent."""
    (x, y), (points, labels) = (_blobs(seed, part, request) for part in ("train", "test"))
    fedmr = {"client": {"fedmr": {name: request.option(name) for name in ("mu1", "mu2")}}}
    everything = [np.arange(len(y))]
    disjoint = [np.flatnonzero(y.numpy() // 2 == client) for client in range(CLASSES // 2)]
    panels = []
    for title, method, clients in zip(TITLES, ({}, {}, fedmr), (everything, disjoint, disjoint), strict=True):
        model = _train(request, method, (x, y), clients, seed)
        z = model.features(points)
        right = (model.classify(z).argmax(1) == labels).double().mean()
        unit = (z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)).numpy()
        places = dict(zip("xyz", unit.T, strict=True))
        frame = pd.DataFrame({"panel": title, "class": labels.numpy(), **places})
        panels.append((frame, 128 * (spread(z) or 0.0), 100 * float(right)))
    return panels


def _blobs(seed: int, part: str, request: Request) -> tuple[Tensor, Tensor]:
    """(x [N, 3], y [N]): normal blobs around the six points +-e_i, in class order."""
    rng = np.random.default_rng([seed, len(part)])
    centres = np.concatenate([np.eye(INPUTS), -np.eye(INPUTS)])[[0, 3, 1, 4, 2, 5]]
    y = np.repeat(np.arange(CLASSES), request.option("samples"))
    x = centres[y] + request.option("noise") * rng.normal(size=(len(y), INPUTS))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def _net(seed: int) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(inplace=True), nn.Linear(32, 3))
        return Net(body, nn.Linear(3, CLASSES), 3)


def _train(
    request: Request,
    method: Mapping[str, Any],
    train: tuple[Tensor, Tensor],
    clients: list[np.ndarray],
    seed: int,
) -> FrozenModel:
    """The model of the first client after its local training in the last round."""
    rounds, rate = request.option("rounds"), request.option("lr")
    problem = Problem(*train, None, clients, CLASSES, 0, transform=lambda x: x, evaluation_sets={})
    spec = TrainConfig(epochs=request.option("epochs"), batch_size=32, momentum=0.9)
    schedule = Schedule(rounds, len(clients), lambda t: rate)
    run = FederatedRun(problem, build(method), FlatModel(_net(seed)), spec, schedule, seed)
    state = run.initial_state()
    for _ in range(rounds - 1):
        state, _ = run.run_round(state)
    # The last round at the first client alone: what the server then holds is this client's model.
    alone = replace(run, problem=replace(problem, clients=clients[:1]))
    state, _ = alone.run_round(state)
    return alone.model.frozen(state.w, state.buffers)


def _draw(data: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(3.4 * len(TITLES), 3.6), layout="constrained")
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13))
    globe = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
    for number, title in enumerate(TITLES):
        axis = figure.add_subplot(1, len(TITLES), number + 1, projection="3d")
        axis.plot_wireframe(*globe, color="0.85", linewidth=0.4)
        part = data[data["panel"] == title]
        for c, colour in enumerate(sns.color_palette("colorblind", CLASSES)):
            points = part[part["class"] == c]
            axis.scatter(points["x"], points["y"], points["z"], s=8, color=colour, label=f"class {c + 1}")
        axis.set_title(title, fontsize=10)
        axis.set_box_aspect((1, 1, 1), zoom=1.55)
        axis.set_axis_off()
    shown = axis.get_legend_handles_labels()
    figure.legend(*shown, loc="outside lower center", ncols=CLASSES, fontsize=8, frameon=False)
    return figure
