"""Rounds on a device that is not the CPU: torch's ``meta``, whose tensors have a shape and no values.

What the host reads from it is what it sent there, or ones: no number is checked here, only where operands are.
"""

import contextlib
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from every_file import both_variants
from federations import bn_dropout, federation, problem_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmark.engine import training
from benchmark.engine.state import map_tensors
from methods.core.method import build
from methods.core.samples import Samples

READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
SHORT = {"feddiverse": {"tau_b": 3, "tau_a": 2}}


def on_host(x: Tensor) -> Tensor:
    return getattr(x, "sent", torch.ones(x.shape, dtype=x.dtype)) if x.is_meta else x


class Device(TorchDispatchMode):
    """Raises as CUDA does for operands on two devices, and where a local step (``strict``) reads a value."""

    strict = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not any(x.is_meta for x in tensors):
            result = func(*args, **kwargs)
            if name == "_to_copy" and result.is_meta:
                result.sent = args[0]
            return result
        index = args[1] if name == "index" or name.startswith("index_put") else ()
        host = [x for x in tensors if not x.is_meta and not any(x is i for i in index)]
        if name not in ("_to_copy", "copy_") and any(x.dim() or name in ("cat", "stack") for x in host):
            raise RuntimeError(f"{name}: operands on two devices")
        read = str(kwargs.get("device")) == "cpu" or (name == "copy_" and not args[0].is_meta)
        masks = any(i is not None and i.dtype == torch.bool for i in index)
        if read or masks or (not index and READS & set(func.tags)):
            assert not self.strict, f"{name}: a local step waits for the device"
        elif name != "multi_margin_loss_backward":  # torch has none for meta
            return func(*args, **kwargs)
        result = func(*tree_map_only(Tensor, on_host, args), **tree_map_only(Tensor, on_host, kwargs))
        return result if read else tree_map_only(Tensor, lambda x: x.to("meta"), result)


def two_rounds(settings: dict[str, Any], selection: dict[str, Any] | None = None) -> None:
    """Two rounds on the device, the second from a checkpoint, and an evaluation."""
    make_step, device = training.LocalTrainer.step_function, Device()

    def step_function(*args: Any) -> Any:
        return mock.patch.object(device, "strict", True)(make_step(*args))

    with contextlib.ExitStack() as stack:
        for owner, name, new in (
            (training.LocalTrainer, "step_function", step_function),
            (Tensor, "pin_memory", lambda tensor: tensor),  # This device has no pinned memory, no autocast
            (torch, "autocast", lambda *_, **__: contextlib.nullcontext()),
            (training, "seed_torch", lambda *_: None),  # and no random numbers.
            (training, "rewinder", lambda *_: lambda: None),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        stack.enter_context(device)
        xs, ys = [np.ones((n, 6)) for n in (9, 5, 3)], [np.arange(n) % 3 for n in (9, 5, 3)]
        problem = problem_of(xs, ys, 3, np.arange(17) % 2)
        there = {key: getattr(problem, key).to("meta") for key in ("images", "labels", "attributes")}
        test = Samples(there["images"], there["labels"], problem.transform, there["attributes"])
        problem = replace(problem, **there, evaluation_sets={"test": test, "validation": test})
        with torch.device("meta"):
            net = bn_dropout()
        run = federation(
            problem, build(settings, selection), net, momentum=0.9, batch_size=4, weight_decay=0.1
        )
        state, _ = run.run_round(run.initial_state())
        saved = map_tensors(state.to_dict(), lambda tensor: tensor.cpu())
        state, _ = run.run_round(run.restored(saved))
        assert state.w.is_meta and run.evaluate(state)


@both_variants("method")
def test_methods(name: str, settings: dict[str, Any]) -> None:
    two_rounds(settings)


@both_variants("selection")
def test_selections(name: str, settings: dict[str, Any]) -> None:
    two_rounds({"name": "fedavg"}, settings | SHORT.get(name, {}))
