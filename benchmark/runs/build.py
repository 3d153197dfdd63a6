"""From a configuration and its data to a `FederatedRun`."""

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmark.config.schedules import learning_rate
from benchmark.config.schema import LossConfig, RunConfig, TrainConfig
from benchmark.engine import randomness
from benchmark.engine.evaluation import ClientSamples
from benchmark.engine.federation import FederatedRun
from benchmark.engine.graphs import StepRecorder
from benchmark.engine.state import Problem, Schedule
from benchmark.engine.training import batch_sizes
from benchmark.errors import ConfigError, wrong
from benchmark.metrics import OwnMetric, own_metric
from benchmark.models.flat import FlatModel, focal_loss
from benchmark.models.networks import build_net, network_of
from benchmark.models.pretrained import read_weights
from benchmark.runs.data import RunData
from benchmark.transforms.augmentation import Normalise, augmentation
from methods.core.method import Method, asked_heads, build
from methods.core.samples import Samples, TwoArrays

log = logging.getLogger("fedtables")

EVALUATED_VALUES = 2**24
"""Most numbers in a batch of evaluation, 64 MiB: 37 RGB images of 384 x 384, 111 of 224 x 224.

The first layers of ResNet-50 need three tensors of 9 MB for one image of 384 x 384, so 512 images would need 14 GB.
"""


def choose_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is cuda if there is one. Raises `ConfigError` if it is not there."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name.startswith("cuda") and not available:
        raise ConfigError(wrong("runtime.device", name, "auto or cpu: torch finds no GPU here"))
    return torch.device(name)


STATES_SHARE = 0.25
"""Share of a GPU's memory that clients' states may take by default. They take twice as much while they change."""


def state_bytes(place: str | None, device: torch.device) -> float:
    """Most bytes of clients' states on the device, by ``runtime.client_state``."""
    if place == "host" and device.type != "cpu":
        return 0.0
    if place == "device" or device.type != "cuda":
        return math.inf
    return STATES_SHARE * torch.cuda.get_device_properties(device).total_memory


def check(config: RunConfig) -> None:
    """Raise a `UserError` if there is no such network, method or metric."""
    network_of(config.model.name, config.model.parameters)
    own_metrics(config)
    build_method(config)


def own_metrics(config: RunConfig) -> list[OwnMetric]:
    """The metrics of repositories that a run records. `UserError` if there is none of a name."""
    return [own_metric("evaluation.metrics", name) for name in config.evaluation.metrics]


def build_method(config: RunConfig) -> Method:
    """The method's rules.

    Raises:
        MethodError: What does not exist or does not fit together.
        ConfigError: The method needs data that this run does not hold out.
    """
    method = build(config.method, config.selection)
    if method.prediction.needs_validation and not config.evaluation.validation:
        raise ConfigError(
            f"evaluation.validation: got 0, but prediction {method.prediction.key!r} of method {method.name!r} "
            "chooses on a validation split. Set it to the share of every client's training data to hold out, "
            "0.1 say."
        )
    return method


def build_run(config: RunConfig, data: RunData, stop: Callable[[], bool] = lambda: False) -> FederatedRun:
    """The federation that a configuration describes. ``stop`` is asked between clients."""
    method, train = build_method(config), config.train
    device = choose_device(config.runtime.device)
    derived = [rule.key for rule in method.rules if rule.for_sgd]
    if derived and train.optimizer != "sgd":
        log.warning(
            "train.optimizer: %s is derived for local steps of sgd; got %s",
            ", ".join(derived),
            train.optimizer,
        )
    if not method.prediction.logits:
        left_out = ", ".join(["loss", "auroc", *config.evaluation.metrics])
        log.info("prediction %s has no scores: %s are not recorded", method.prediction.key, left_out)
    pools, parts = any(rule.pools_data for rule in method.client), data.clients
    if pools:
        data = replace(data, clients=[np.concatenate(parts)], ids=[0])
    problem = build_problem(config, data, device)
    model = _build_model(config, method, problem, device)
    if pools:
        train = _steps_of_one(train, parts, model)
    num_clients = len(data.clients)
    wanted = train.clients_per_round or num_clients
    if wanted > num_clients:
        out = f", {len(data.unseen)} never take part" if data.unseen else ""
        there = f"the partition has {len(data.partition.clients)} clients{out}"
        expected = f"1 to {num_clients} ({there}), or null for all"
        raise ConfigError(wrong("train.clients_per_round", wanted, expected))
    if train.batch_size == 1 and model.has_batch_norm and train.buffers != "frozen":
        expected = f"at least 2, since {config.model.name} has BatchNorm, or train.buffers=frozen"
        raise ConfigError(wrong("train.batch_size", 1, expected))
    lr = learning_rate(train.lr, train.rounds, train.schedule)
    schedule = Schedule(train.rounds, wanted, lr, train.first_round_full)
    run = FederatedRun(
        problem, method, model, train, schedule, config.seed, None, config.evaluation.measures, stop,
        state_bytes(config.runtime.client_state, device), own_metrics(config),
    )  # fmt: skip
    if config.runtime.cuda_graphs and device.type == "cuda":
        run.clients.trainer.recorder = StepRecorder(device)
    return run


def _steps_of_one(train: TrainConfig, clients: Sequence[np.ndarray], model: FlatModel) -> TrainConfig:
    """The budget of a client that has all samples: as many steps in a round as ``clients`` take on average."""
    batches = [len(batch_sizes(len(client), train, model.has_batch_norm)) for client in clients]
    steps = train.steps or max(1, round((train.epochs or 1) * sum(batches) / len(batches)))
    return train.model_copy(update={"epochs": None, "steps": steps, "clients_per_round": None})


def build_problem(config: RunConfig, data: RunData, device: torch.device) -> Problem:
    """The data of a run on the device."""
    dataset, train = data.dataset, data.train
    plain = Normalise.of(dataset.mean, dataset.std, torch.float32, device, config.precision.channels_last)
    augment = augmentation(config.train.augment, train.images.shape[1])
    transform = plain if augment is None else replace(plain, first=augment.evaluation)
    images = to_tensor(train.images, device)
    labels = to_tensor(train.labels, device)
    attributes = None if train.attributes is None else to_tensor(train.attributes, device)
    values = math.prod(transform(images[:1]).shape)
    size = max(1, min(config.evaluation.batch_size, EVALUATED_VALUES // values))

    def samples(indices: np.ndarray) -> Samples:
        rows = to_tensor(indices, device)
        groups = None if attributes is None else attributes[rows]
        return Samples(images, labels[rows], transform, groups, rows, size)

    sets = {"test": _test_set(data, images, transform, size)}
    if data.validation is not None:
        sets["validation"] = samples(data.validation)
    owned = {"validation": data.held_out if "clients" in config.evaluation.measures else []}
    owned["unseen"] = list(data.unseen.values())
    by_client = {
        split: ClientSamples(samples(np.concatenate(parts)), [len(part) for part in parts])
        for split, parts in owned.items()
        if parts
    }
    return Problem(
        images=images,
        labels=labels,
        attributes=attributes,
        clients=data.clients,
        num_classes=len(dataset.classes),
        num_attributes=len(dataset.attributes),
        transform=transform,
        evaluation_sets=sets,
        client_sets=by_client,
        augment=None if augment is None else augment.train,
        augmented_transform=plain,
    )


def to_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on the device; on the CPU it is used in place, also if it is memory-mapped."""
    with warnings.catch_warnings():
        # torch warns that a memory-mapped array is read-only. Nothing writes to it.
        warnings.simplefilter("ignore", UserWarning)
        # Without pinned memory: torch would not give it back, and it would be as large as the data set.
        return torch.from_numpy(np.asarray(array)).to(device, non_blocking=True)


def _test_set(data: RunData, images: Tensor, transform: Normalise, size: int) -> Samples:
    """The test split, and after it the samples of the training split that are test data; those ``images`` are given."""
    train, test, rest, device = data.train, data.test, data.rest, images.device
    first = to_tensor(test.images, device)
    attributes = None
    if train.attributes is not None and test.attributes is not None:
        attributes = to_tensor(np.concatenate([test.attributes, train.attributes[rest]]), device)
    return Samples(
        TwoArrays(first, images, to_tensor(rest, device)) if len(rest) else first,
        to_tensor(np.concatenate([test.labels, train.labels[rest]]), device),
        transform,
        attributes,
        batch_size=size,
    )


def _build_model(config: RunConfig, method: Method, problem: Problem, device: torch.device) -> FlatModel:
    """The model with the heads that rules asked for."""
    channels, height, width = problem.transform(problem.images[:1]).shape[1:]  # as the network sees them

    def some_images(count: int) -> Tensor:
        """Random images of the clients' training data."""
        held = np.unique(np.concatenate(problem.clients))
        drawn = randomness.generator(config.seed, "calibration").permutation(held)[:count]
        return problem.transform(problem.images[torch.from_numpy(drawn).to(device)]).cpu()

    net = build_net(
        config.model.name,
        problem.num_classes,
        (channels, height, width),
        config.model.parameters,
        randomness.torch_seed(config.seed, "model"),
        lambda source: read_weights(source, config.paths),
        some_images,
    )

    def generators(purpose: str, *ids: int) -> np.random.Generator:
        return randomness.generator(config.seed, f"heads/{purpose}", *ids)

    heads = asked_heads(method, net.feature_dim, problem.num_classes, len(problem.clients), generators)
    model = FlatModel(
        net, heads, device=device, channels_last=config.precision.channels_last, amp=config.precision.amp
    )
    if config.train.loss != LossConfig():
        weights, C = config.train.loss.weights, problem.num_classes
        if weights is not None and len(weights) != C:
            raise ConfigError(wrong("train.loss.weights", list(weights), f"{C} numbers, one for each class"))
        of_class = None if weights is None else torch.tensor(weights, device=device)
        model.criterion = partial(focal_loss, gamma=config.train.loss.gamma, weights=of_class)
    return model
