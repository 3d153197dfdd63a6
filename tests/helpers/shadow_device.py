"""A device that is not the CPU, on a machine that has only a CPU.

Inside `device` there is a device ``shadow:0``. A tensor on it holds its values in a CPU tensor, and each operation is
carried out on these values, so that a run gives the bits of a CPU. But the device is as strict as CUDA:

- operands on two devices raise, with CUDA's exceptions: a CPU tensor without dimensions, an index on the CPU, copies;
- ``numpy()`` raises, and a draw from a generator of the CPU;
- it has a random stream of its own, so that a forgotten seed changes the bits;
- everything that makes the host wait for the device is noted, with the line of the project, also a copy from memory
  that is not pinned.

torch knows devices of this kind as PrivateUse1. It learns of one for the whole process, and before the first backward
pass, since autograd later has no thread for it. So `register` is called first of all in a process of its own.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

ROOT = f"{Path(__file__).parents[2]}/"

INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


class MixedDevices(RuntimeError):
    """An operation has operands on two devices."""


# Waits -----------------------------------------------------------------------------------------------------------


class Wait(NamedTuple):
    """The host waited for the device: in which operation, at which line of the project."""

    operation: str
    line: str


waits: list[Wait] = []


def _line() -> str:
    """The innermost line of the project that is being carried out, ``file:line``."""
    frame = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and not file.startswith((f"{ROOT}tests/", f"{ROOT}.venv")):
            return f"{file.removeprefix(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a line of torch"


def _note_waits(func: Any, args: Any, kwargs: dict[str, Any], to_device: bool) -> None:
    """Note why ``func`` waits, if it does."""
    name, reasons = func.overloadpacket.__name__, []
    if name in ("_to_copy", "copy_"):
        source = args[1] if name == "copy_" else args[0]
        asked = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        # A copy to the host gets pinned memory from torch; memory that is not pinned is copied with a wait.
        blocking = not asked or (to_device and not is_pinned(source))
        if is_shadow(source) != to_device and blocking:
            reasons.append("copy to the device" if to_device else "copy to the host")
    elif name in INDEXING:
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                reasons.append("a mask as an index")
            elif index is not None and not is_shadow(index):
                reasons.append("an index on the host")
    elif torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        reasons.append(name)
    waits.extend(Wait(reason, _line()) for reason in reasons)


# The device and its random stream --------------------------------------------------------------------------------


class Backend:
    """What torch asks of the module of a device, ``torch.shadow``."""

    def __init__(self) -> None:
        self.state = torch.Generator().manual_seed(987654321).get_state()

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def manual_seed_all(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def device(self, device: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def manual_seed(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def get_rng_state(self, device: Any = None) -> Tensor:
        return self.state.clone()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.state = state.clone()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Let torch's default generator draw from the stream of the device."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(before)


BACKEND = Backend()

LOWERED = "conv2d linear matmul mm addmm bmm baddbmm prelu"
RAISED = (
    "log_softmax.int softmax.int cross_entropy_loss nll_loss nll_loss_nd layer_norm group_norm norm.Scalar "
    "norm.ScalarOpt_dim cosine_similarity cdist exp log log1p pow.Tensor_Scalar softplus sum sum.dim_IntList rsqrt prod"
)
"""What CUDA's autocast carries out in bf16 and in float32, as far as the networks and rules here use it."""

LIBRARIES: list[torch.library.Library] = []
"""Kernels are registered as long as their library lives."""


def register() -> None:
    """Tell torch of the device; call it once in a process."""
    torch.utils.backend_registration._setup_privateuseone_for_python_backend("shadow", BACKEND)
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    autocast = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    own = torch.library.Library("aten", "IMPL", "PrivateUse1")
    LIBRARIES.extend((others, autocast, own))
    others.fallback(torch.library.fallthrough_kernel)
    for names, dtype in ((LOWERED, torch.bfloat16), (RAISED, torch.float32)):
        for name in names.split():
            autocast.impl(name, _in_type(name, dtype))
    # A device without this kernel takes a formula with other last bits. It is never called: `_carry_out` comes first.
    own.impl("silu_backward", lambda *args: None)


def _in_type(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """The operation called ``name`` on floating-point operands that are brought to ``dtype`` before."""
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(value: Any) -> Any:
        casts = is_shadow(value) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(dtype) if casts else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return operation(*tree_map(cast, args), **tree_map(cast, kwargs))

    return kernel


# Tensors ---------------------------------------------------------------------------------------------------------


class ShadowTensor(Tensor):
    """A tensor on the device; its values are those of ``host``, on the CPU."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> "ShadowTensor":
        self = torch.Tensor._make_wrapper_subclass(
            cls, host.shape, strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype,
            device="shadow:0",
        )  # fmt: skip
        self.host = host
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _carry_out(func, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, value: "ShadowTensor") -> None:
        Tensor.data.__set__(self, value)
        self.host = value.host

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert shadow:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ShadowTensor":
        if id(self) not in memo:
            copy = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, self.requires_grad)
            memo[id(self)] = copy
        return memo[id(self)]

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:
        return f"ShadowTensor({self.host!r})"


def is_shadow(value: Any) -> bool:
    """Whether a value is a tensor on the device."""
    return isinstance(value, ShadowTensor)


def to_device(value: Any) -> Any:
    """A tensor on the CPU as one on the device, without a wait; anything else as it is."""
    return ShadowTensor(value) if type(value) is Tensor else value


def pinned(tensor: Tensor) -> Tensor:
    """A copy of a tensor on the CPU that counts as one in pinned memory."""
    if is_shadow(tensor):
        raise RuntimeError("cannot pin 'torch.shadow.FloatTensor' only dense CPU tensors can be pinned")
    copy = tensor.clone()
    copy.in_pinned_memory = True  # type: ignore[attr-defined]
    return copy


def is_pinned(tensor: Tensor) -> bool:
    """Whether a tensor on the CPU counts as one in pinned memory."""
    return getattr(tensor, "in_pinned_memory", False)


def _to_host(value: Any) -> Any:
    """What stands for an operand on the CPU, without a wait."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.host if isinstance(value, ShadowTensor) else value


# Operations ------------------------------------------------------------------------------------------------------


def _carry_out(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation of torch: its result is on the device if an operand is, or if it is asked for there."""
    operands, spec = tree_flatten((args, kwargs))
    tensors = [x for x in operands if isinstance(x, Tensor)]
    wanted, name = kwargs.get("device"), func.overloadpacket.__name__
    if name == "copy_":
        on_device = is_shadow(args[0])
    elif wanted is not None:
        on_device = torch.device(wanted).type == "shadow"
    else:
        on_device = any(map(is_shadow, tensors))
    if not on_device and not any(map(is_shadow, tensors)):
        return func(*args, **kwargs)
    if name not in ("_to_copy", "copy_"):
        _require_one_device(func, args, tensors)
    _note_waits(func, args, kwargs, on_device)
    plain_args, plain_kwargs = tree_unflatten([_to_host(x) for x in operands], spec)
    draws = on_device and torch.Tag.nondeterministic_seeded in func.tags
    if draws and any(isinstance(x, torch.Generator) for x in operands):
        raise MixedDevices(f"{func}: a draw on shadow:0 from a generator of the CPU, {_line()}")
    with BACKEND.drawing() if draws else contextlib.nullcontext():
        result = func(*plain_args, **plain_kwargs)
    if not on_device:
        if name == "_to_copy" and kwargs.get("non_blocking"):
            result.in_pinned_memory = True
        return result
    # An operation in place returns the operand itself.
    operand = {id(x.host): x for x in tensors if isinstance(x, ShadowTensor)}
    return tree_map(lambda x: operand[id(x)] if id(x) in operand else to_device(x), result)


def _require_one_device(func: Any, args: Any, tensors: list[Tensor]) -> None:
    """Raise `MixedDevices` where CUDA would raise."""
    name = func.overloadpacket.__name__
    host = [x for x in tensors if not is_shadow(x) and (x.dim() > 0 or name in ("cat", "stack"))]
    if name in INDEXING and is_shadow(args[0]):
        host = [x for x in host if not any(x is index for index in args[1])]
    if host and len(host) < len(tensors):
        raise MixedDevices(f"{func}: operands on shadow:0 and on the CPU, {_line()}")


class _Operations(TorchDispatchMode):
    """Sees the operations without an operand on the device too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _carry_out(func, args, kwargs or {})


@contextlib.contextmanager
def device() -> Iterator[None]:
    """Let ``shadow`` be a device."""
    original = torch.load

    def load(*args: Any, map_location: Any = "cpu", **kwargs: Any) -> Any:
        content = original(*args, map_location="cpu", **kwargs)
        return tree_map(to_device, content) if torch.device(map_location).type == "shadow" else content

    before = torch._C._only_lift_cpu_tensors()
    # torch.tensor(..., device="shadow") makes the tensor on the CPU and copies it, where it can be seen.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            mock.patch.object(torch, "load", load),
            mock.patch.object(Tensor, "pin_memory", pinned),
            _Operations(),
        ):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
