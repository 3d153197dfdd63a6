"""Local steps as CUDA graphs: one launch in place of hundreds.

The host launches the kernels of a small network more slowly than a GPU carries them out. A step that was recorded once
is launched as a whole, with the same kernels and so the same bits. A graph reads and writes the same memory in every
launch. What rules read of a visit (what one client trains in one round) is therefore copied to fixed places before its
first step, and a recorded step serves all visits whose tensors have the same shapes.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs
"""

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from benchmark.errors import ConfigError, wrong
from benchmark.system import no_gpu_memory
from methods.core.contexts import ClientContext
from methods.core.rules import ClientRule

Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, bool]]
"""``step(x, y, positions)``: (mean cross-entropy, whether a second gradient was taken)."""

USUAL_STEPS = 2
"""Steps with a batch size that are taken as usual before one is recorded."""

MOST_KEPT = 8
"""Most recorded steps that are kept, and most sets of places. A rate that changes needs a new step each round."""

COPIED = ("w", "buffers", "received", "state", "local")
"""Fields of a context whose tensors are copied to fixed places."""

NOTED = {one.name for one in fields(ClientContext)} - set(COPIED)
ON_HOST = {"frozen", "generators", "gradients"}
"""The other fields, and those whose use counts or draws on the host."""


@dataclass(frozen=True)
class FixedContext(ClientContext):
    """A context whose tensors are at fixed places.

    Attributes:
        read: What has been read beside those: `client`, `round` or `lr`, say. A graph holds these values.
    """

    read: dict[str, Any] = field(default_factory=dict)

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in NOTED:
            self.read[name] = value
        return value


@dataclass(eq=False)
class Places:
    """Where what the steps of like visits read lies: visits with the same rules, shapes and numbers."""

    rules: Sequence[ClientRule]
    tensors: list[Tensor]


class Visit(NamedTuple):
    """A visit whose steps can be recorded: its places, and the contexts of the rules that take part in steps."""

    places: Places
    contexts: list[FixedContext]


def _form(leaf: Any, device: torch.device) -> Hashable:
    """What two leaves have in common if one can take the place of the other in a graph; None if none can."""
    if isinstance(leaf, Tensor):
        fits = leaf.device == device and not leaf.requires_grad
        return (leaf.shape, leaf.stride(), leaf.dtype) if fits else None
    return (type(leaf), leaf) if leaf is None or isinstance(leaf, int | float | str) else None


def _keep(kept: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Make ``value`` the newest entry; the oldest is forgotten if there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]


class StepRecorder:
    """What all recorded steps of a run share: a stream, a pool of memory, places, and the steps themselves.

    The pool lives as long as a graph that uses it, so the newest one is kept.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.newest: torch.cuda.CUDAGraph | None = None
        self.places: dict[Hashable, Places] = {}
        self.kept: dict[Hashable, RecordedStep] = {}

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def visit(self, rules: Sequence[ClientRule], contexts: Sequence[ClientContext]) -> Visit | None:
        """Copy what the rules may read in steps to the places of like visits.

        None if a rule keeps anything but tensors on the device, numbers and texts: a generator draws on the host, and a
        model counts on the host what passes through it.
        """
        leaves, tree = tree_flatten([{name: getattr(one, name) for name in COPIED} for one in contexts])
        forms = [_form(leaf, contexts[0].w.device) for leaf in leaves]
        if None in forms:
            return None
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        key = (*map(id, rules), tree, *forms)
        places = self.places.get(key) or Places(rules, [tensor.clone() for tensor in given])
        _keep(self.places, key, places)
        for place, tensor in zip(places.tensors, given, strict=True):
            place.copy_(tensor)
        rest = iter(places.tensors)
        values = tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree)
        fixed = [FixedContext(**{**vars(one), **own}) for one, own in zip(contexts, values, strict=True)]
        return Visit(places, fixed)

    def shared(self, name: Hashable, visit: Visit, make: Callable[[], Step]) -> "RecordedStep":
        """The step of a visit, which ``make`` makes; it replays what like visits have recorded under the same name."""
        key = (visit.places, name)
        found = self.kept.get(key)
        if found is None or not found.serves(visit.contexts):
            found = RecordedStep(self)
        found.step, found.contexts = cache(make), visit.contexts
        _keep(self.kept, key, found)
        return found

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """What is launched in the block is carried out on this stream, after what came before on the present one."""
        present = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(present)
        with torch.cuda.stream(self.stream):
            yield
        present.wait_stream(self.stream)

    def record(self, step: Step, batch: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """(graph of the step, where it writes the mean cross-entropy). Nothing is computed yet.

        Raises:
            ConfigError: The step does what a graph cannot hold; it waits for the GPU, say.
        """
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(self.pool, capture_error_mode="thread_local")
        try:
            ce, _ = step(*batch)
            graph.capture_end()
        except RuntimeError as error:
            if no_gpu_memory(error):
                raise  # the step may be fine
            why = str(error).partition("\n")[0]
            expected = f"false, because a local step of this method cannot be recorded ({why})"
            raise ConfigError(wrong("runtime.cuda_graphs", True, expected)) from error
        self.newest = graph
        return graph, ce


class Graph(NamedTuple):
    """A recorded step: what is launched, where it writes the mean cross-entropy, its inputs, and the step itself.

    The graph reads tensors that only the step holds.
    """

    graph: torch.cuda.CUDAGraph
    ce: Tensor
    inputs: list[Tensor]
    step: Step


@dataclass
class RecordedStep:
    """A local step without a second gradient: some times as usual, then recorded, then replayed.

    Attributes:
        step: Makes the step of the present visit, once.
        contexts: What the rules read in it. If a step replaces something in ``local``, or uses the host, every step is
            as usual: a graph would go on with the old values.
        read: What the graphs hold of each context.
    """

    recorder: StepRecorder
    step: Callable[[], Step] = field(init=False)
    contexts: Sequence[FixedContext] = field(init=False)
    seen: dict[torch.Size, int] = field(default_factory=dict)
    graphs: dict[torch.Size, Graph] = field(default_factory=dict)
    read: dict[tuple[int, str], Any] = field(default_factory=dict)
    refused: bool = False

    def serves(self, contexts: Sequence[ClientContext]) -> bool:
        """Whether a visit with these contexts has all the values that the graphs hold."""
        now = {(n, name): getattr(contexts[n], name) for n, name in self.read}
        return all(
            a is now[key] or (isinstance(a, int | float) and a == now[key]) for key, a in self.read.items()
        )

    def __call__(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, bool]:
        with self.recorder.in_order():
            return self._carry_out([x, y, index]), False

    def _carry_out(self, batch: list[Tensor]) -> Tensor:
        size = batch[0].shape
        times = self.seen[size] = self.seen.get(size, 0) + 1
        if self.refused or times <= USUAL_STEPS:
            before = self._local()
            ce, _ = self.step()(*batch)
            after = self._local()
            self.refused |= len(before) != len(after) or any(map(operator.is_not, before, after))
            self.refused |= any(ON_HOST & context.read.keys() for context in self.contexts)
            return ce
        if size not in self.graphs:
            self.graphs[size] = self._record([part.clone() for part in batch])
        graph, ce, inputs, _ = self.graphs[size]
        for mine, given in zip(inputs, batch, strict=True):
            mine.copy_(given)
        graph.replay()
        return ce.clone()

    def _record(self, inputs: list[Tensor]) -> Graph:
        for context in self.contexts:
            context.read.clear()
        step = self.step()
        graph, ce = self.recorder.record(step, inputs)
        for n, context in enumerate(self.contexts):
            self.read |= {(n, name): value for name, value in context.read.items()}
        return Graph(graph, ce, inputs, step)

    def _local(self) -> list[Any]:
        return tree_leaves([dict(context.local) for context in self.contexts])
