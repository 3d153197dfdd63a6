"""Kernels of one local step, counted on the CPU, and operations in it that would wait for a GPU.

A kernel is one operation that torch dispatches in the step, forward or backward, and that computes or copies values: on
a GPU it is launched. Views (a transpose, a slice) and new memory without values do not count; a fused operation, or one
over a list of tensors, counts once. The gathering of batches, once for many steps, is no part of the step. The count
does not depend on the size of batch and images. It is that of the last step of round 1, where methods have states.

An operation waits for the device if its result goes to the host (a number, an array), if the size of its result depends
on values (nonzero, a mask as an index), or if it copies between host and device without ``non_blocking``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmark.bench.speed import settings
from benchmark.config.compose import group_names
from benchmark.models.networks import build_net
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data

NO_KERNEL = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operations besides views that neither compute nor copy."""

COPIES = {"cpu", "cuda", "numpy", "tolist", "__array__", "tensor", "as_tensor", "new_tensor"}
"""Calls that copy between host and device. On the CPU torch dispatches nothing for them."""


class _Dispatched(TorchDispatchMode):
    def __init__(self, kernels: Counter[str], waits: set[str]) -> None:
        super().__init__()
        self.kernels, self.waits = kernels, waits

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, op.overloadpacket.__name__
        if not op.is_view and name not in NO_KERNEL:
            self.kernels[name] += 1
        if name in ("index", "index_put", "index_put_"):
            waits = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        elif torch.Tag.dynamic_output_shape in op.tags:
            waits = kwargs.get("output_size") is None  # repeat_interleave's
        else:
            waits = torch.Tag.data_dependent_output in op.tags
        if waits:
            self.waits.add(name)
        return op(*args, **kwargs)


class _Called(TorchFunctionMode):
    def __init__(self, waits: set[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        moved = name == "to" and any(isinstance(a, str | torch.device) for a in (*args, *kwargs.values()))
        if name in COPIES or (moved and not kwargs.get("non_blocking")):
            self.waits.add(name)
        return function(*args, **kwargs)


def watch(work: Callable[[], Any]) -> tuple[Counter[str], set[str]]:
    """How often ``work`` launches each kernel, and the names of what waits for the device in it."""
    kernels: Counter[str] = Counter()
    waits: set[str] = set()
    with _Called(waits), _Dispatched(kernels, waits):
        work()
    return kernels, waits


def local_step(method: str, folder: str, **train: Any) -> tuple[int, set[str]]:
    """Kernels of a local step of ``method``, and the names of what waits in any step of two rounds."""
    data = {"train_size": 384, "test_size": 8, "size": 8, "channels": 3}
    train = {"epochs": None, "steps": 2, "batch_size": 64, **train}
    validation = {"validation": 0.25}  # FedSDC+ ranks its heads there
    config = settings(folder, data, 2, "small_cnn", method=method, train=train, evaluation=validation)
    run, steps = build_run(config, load_data(config)), []
    make = run.clients.trainer.step_function

    def watched(*args: Any) -> Callable[..., Any]:
        step = make(*args)

        def work(*batch: Tensor) -> Any:
            results: list[Any] = []
            steps.append(watch(lambda: results.append(step(*batch))))
            return results[0]

        return work

    run.clients.trainer.step_function = watched  # type: ignore[method-assign, assignment]
    state = run.initial_state()
    for _ in range(2):
        state, _ = run.run_round(state)
    return steps[-1][0].total(), set().union(*(waits for _, waits in steps))


def bare_step() -> int:
    """Kernels of a step of plain PyTorch with the same network, loss and optimizer as FedAvg's.

    The optimizer goes over lists of tensors (``foreach``), as is its default on CUDA.
    """
    net = build_net("small_cnn", 10, (3, 8, 8), {}, 0).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
    x, y = torch.ones(8, 3, 8, 8).to(memory_format=torch.channels_last), torch.arange(8)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    step()  # makes the momentum
    return watch(step)[0].total()


def table(rows: Sequence[tuple[int, str]]) -> str:
    """Markdown: what launches equally many kernels stands in one row."""
    cells = defaultdict(list)
    for number, name in rows:
        cells[number].append(name)
    lines = [f"| {number} | {', '.join(cells[number])} |" for number in sorted(cells)]
    return "\n".join(["| kernels | methods |", "|---|---|", *lines])


def kernels(folder: str) -> None:
    """Print the kernels of one local step of every method."""
    print("Kernels of a local step, small CNN", flush=True)
    rows = [(local_step(method, folder)[0], method) for method in group_names("method")]
    augmented = (local_step("moon", folder, augment="crop_flip")[0], "moon with augmentation")
    print(table([(bare_step(), "a bare PyTorch loop"), *rows, augmented]))
