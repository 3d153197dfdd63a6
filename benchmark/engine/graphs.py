"""Local steps as CUDA graphs: one launch in place of hundreds.

The host launches the kernels of a small network more slowly than a GPU carries them out. A step that was recorded once
is launched as a whole, with the same kernels and so the same bits.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs
"""

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from benchmark.errors import ConfigError, wrong
from benchmark.system import no_gpu_memory
from methods.core.contexts import ClientContext

Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, bool]]
"""``step(x, y, positions)``: (mean cross-entropy, whether a second gradient was taken)."""

USUAL_STEPS = 2
"""Steps with a batch size that are taken as usual before one is recorded. A visit with no more is not worth it."""

MOST_KEPT = 4
"""Most recorded steps that are kept for other visits. A rate that changes needs a new one each round."""


class StepRecorder:
    """What all recorded steps of a run share: a stream, a pool of memory, and the steps that any visit may take.

    The pool lives as long as a graph that uses it, so the newest one is kept.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.newest: torch.cuda.CUDAGraph | None = None
        self.kept: dict[Hashable, RecordedStep] = {}

    def shared(self, key: Hashable, make: Callable[[], Step]) -> "RecordedStep":
        """The step called ``key``, recorded, for all visits: it reads nothing of the client but its batches."""
        if key not in self.kept:
            self.kept[key] = RecordedStep(make(), self, ())
            if len(self.kept) > MOST_KEPT:
                del self.kept[next(iter(self.kept))]
        return self.kept[key]

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """What is launched in the block is carried out on this stream, after what came before on the present one."""
        device = self.stream.device
        present = torch.cuda.current_stream(device)
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


@dataclass
class RecordedStep:
    """A local step without a second gradient: some times as usual, then recorded, then replayed.

    Attributes:
        contexts: What the rules read. If a step replaces something in ``local``, every step is as usual: a graph would
            go on with the old values.
    """

    step: Step
    recorder: StepRecorder
    contexts: Sequence[ClientContext]
    seen: dict[torch.Size, int] = field(default_factory=dict)
    graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, list[Tensor]]] = field(default_factory=dict)
    refused: bool = False

    def __call__(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, bool]:
        with self.recorder.in_order():
            return self._carry_out([x, y, index]), False

    def _carry_out(self, batch: list[Tensor]) -> Tensor:
        size = batch[0].shape
        times = self.seen[size] = self.seen.get(size, 0) + 1
        if self.refused or times <= USUAL_STEPS:
            before = self._local()
            ce, _ = self.step(*batch)
            after = self._local()
            self.refused |= len(before) != len(after) or any(map(operator.is_not, before, after))
            return ce
        if size not in self.graphs:
            inputs = [part.clone() for part in batch]
            self.graphs[size] = (*self.recorder.record(self.step, inputs), inputs)
        graph, ce, inputs = self.graphs[size]
        for mine, given in zip(inputs, batch, strict=True):
            mine.copy_(given)
        graph.replay()
        return ce.clone()

    def _local(self) -> list[Any]:
        return tree_leaves([dict(context.local) for context in self.contexts])
