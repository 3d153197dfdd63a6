"""Carry out many tasks: one after another in this process, or in worker processes of this machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Literal

from benchmark.errors import ConfigError, wrong
from benchmark.launch.pool import Pool
from benchmark.launch.resources import assign_devices
from benchmark.launch.tasks import Listener, Outcome, StopRequest, Task, Work, signals_request_stop
from benchmark.launch.worker import Reporter, attempt, load, set_threads
from benchmark.runs.status import RunState

KINDS = ("inline", "local")


def launch(
    tasks: Sequence[Task],
    work: str,
    *,
    kind: Literal["inline", "local"],
    workers: int | None = None,
    threads: int = 1,
    devices: Sequence[str] | None = None,
    grace: float = 30.0,
    listener: Listener,
    stop: StopRequest | None = None,
) -> list[Outcome]:
    """Carry out all tasks, begun in the given order, and return how each ended, in that order.

    Ctrl-C, SIGTERM and SIGHUP stop the launch: no further task begins, and tasks that have begun are asked to save
    their state and to return. They have ``grace`` seconds for that, or until a second Ctrl-C. Tasks that were not begun
    have no outcome.

    Args:
        tasks: What to do. Keys are unique.
        work: Name of the work function, ``module:function``, imported once in each process.
        kind: ``inline``: one after another in this process. ``local``: in worker processes that stay for many tasks.
        workers: Number of processes (local). Default one per device, or one per usable core divided by ``threads``.
        threads: Threads of the numerical libraries in each process.
        devices: ``cuda:0`` ..., assigned to the workers in turn (each sees only its own), or ``cpu`` alone, which hides
            all GPUs. Default every GPU, else the CPU (local).
        grace: Seconds between the request to stop and the end by force (local).
        listener: Is told of progress.
        stop: By which others than signals can ask to stop, from any thread.

    Raises:
        ConfigError: A setting that is not allowed.
        LaunchError: Workers die before their first task.
    """
    _check(tasks, kind, workers, threads, devices, grace)
    outcomes: dict[int, Outcome] = {}
    with contextlib.ExitStack() as stack:
        if stop is None:
            stop = stack.enter_context(contextlib.closing(StopRequest()))
        stack.enter_context(signals_request_stop(stop))
        listener.started(tasks)
        try:
            if kind == "inline":
                _run_inline(tasks, outcomes, load(work), threads, listener, stop)
            elif tasks:
                assigned = assign_devices(len(tasks), workers, threads, devices)
                Pool(tasks, outcomes, work, assigned, threads, grace, listener, stop).run()
        finally:
            listener.finished([outcomes[index] for index in sorted(outcomes)])
    return [outcomes[index] for index in sorted(outcomes)]


def _check(
    tasks: Sequence[Task],
    kind: str,
    workers: int | None,
    threads: int,
    devices: Sequence[str] | None,
    grace: float,
) -> None:
    if kind not in KINDS:
        raise ConfigError(wrong("launcher", kind, f"one of {', '.join(KINDS)}", known=KINDS))
    if kind == "inline" and (workers not in (None, 1) or devices):
        got = f"workers={workers}, devices={devices}"
        raise ConfigError(wrong("launcher", got, "neither with launcher=inline", where="launcher=local"))
    if workers is not None and workers < 1:
        raise ConfigError(wrong("workers", workers, "1 or more, or null for one per core or GPU"))
    if threads < 1:
        raise ConfigError(wrong("threads", threads, "1 or more"))
    if grace < 0:
        raise ConfigError(wrong("launcher.grace", grace, "0 seconds or more"))
    repeated = len(tasks) - len({task.key for task in tasks})
    if repeated:
        raise ValueError(f"{repeated} of {len(tasks)} tasks have the key of another task")


def _run_inline(
    tasks: Sequence[Task],
    outcomes: dict[int, Outcome],
    work: Work,
    threads: int,
    listener: Listener,
    request: StopRequest,
) -> None:
    told = False

    def stop() -> bool:
        nonlocal told
        if request.reason and not told:
            told = True
            listener.stopping(
                f"{request.reason}: the current run saves its state; Ctrl-C again ends it at once"
            )
        return request.reason is not None

    for index, task in enumerate(tasks):
        if stop():
            break
        listener.task_started(task.key)
        began = time.perf_counter()
        reporter = Reporter(lambda rounds, key=task.key: listener.progress(key, rounds))  # type: ignore[misc]
        set_threads(threads)
        try:
            with request.raising():
                state, message, _ = attempt(work, task.payload, reporter, stop)
        except KeyboardInterrupt:
            if not request.urgent:
                raise
            state, message = RunState.INTERRUPTED, "ended by a second Ctrl-C before it saved its state"
        if reporter.last is not None:
            listener.progress(task.key, reporter.last)
        outcomes[index] = Outcome(task.key, state, message, time.perf_counter() - began)
        listener.task_ended(outcomes[index])
