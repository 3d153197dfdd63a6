"""A worker of the local launcher: a process that carries out one task after another.

Over one duplex connection the launcher sends pickled payloads, or an empty message to ask for a stop. The worker
answers with ``("ready",)``, ``("progress", done)`` and ``("ended", result, seconds, leaving)``. A closed connection
means that the launcher is gone, and counts as a request to stop.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from benchmark.launch.tasks import Work
from benchmark.runs.status import RunResult, RunState

PROGRESS_SECONDS = 0.2
"""Time between two progress reports of a worker."""


def _throttled(send: Callable[[int], None]) -> Callable[[int, int], None]:
    """The ``progress`` argument of a work function. Sends at most one report in `PROGRESS_SECONDS`."""
    sent_at = -PROGRESS_SECONDS

    def progress(round: int, rounds: int) -> None:
        nonlocal sent_at
        now = time.monotonic()
        if now - sent_at >= PROGRESS_SECONDS:
            sent_at = now
            send(round)

    return progress


def load(work: str) -> Work:
    """Import ``module:function``. Raises whatever the import raises, and AttributeError for a missing function."""
    module, _, name = work.partition(":")
    function: Work = getattr(importlib.import_module(module), name)
    return function


def _set_threads(threads: int) -> None:
    """Give torch ``threads`` threads, if it was imported. The number decides about the last bits of results."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def attempt(
    work: Work, payload: Any, threads: int, report: Callable[[int], None], stop: Callable[[], bool]
) -> RunResult:
    """Carry out one task in this process.

    After an exception the state is failed. The first line of the message names the exception, its traceback follows.
    """
    _set_threads(threads)
    try:
        state, *more = work(payload, _throttled(report), stop)
        return RunResult(RunState(state), *more)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - other tasks must go on, whatever one raises
        name = type(error).__name__
        summary = f"{name}: {error}".strip().rstrip(":").splitlines()[0]
        trace = "".join(traceback.format_exception(error)).rstrip()
        return RunResult(RunState.FAILED, f"{summary}\n{trace}", name)


def _cuda_in_use() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


class _Server:
    """The worker's side of the connection. A thread reads it, so that a look at ``stop`` is cheap."""

    def __init__(self, connection: Connection, grace: float) -> None:
        self.connection = connection
        self.grace = grace
        self.stop = threading.Event()
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def leave(self, *_: object) -> None:
        """Stop the current task and take no other one. Also the handler of SIGTERM."""
        self.stop.set()
        self.inbox.put(None)

    def listen(self) -> None:
        """Read until the launcher closes the connection or dies."""
        try:
            while True:
                message = self.connection.recv_bytes()
                if message:
                    self.inbox.put(message)
                else:
                    self.leave()
        except (EOFError, OSError):
            self.leave()
        # Nobody waits for this process any more. A task that ignores `stop` must not outlive its launcher for hours.
        time.sleep(self.grace)
        os._exit(1)

    def send(self, *message: object) -> None:
        """Send to the launcher. If it is gone, stop, but let the task save its state first."""
        try:
            self.connection.send(message)
        except OSError:
            self.leave()

    def serve(self, work: Work, threads: int) -> None:
        """Carry out tasks until told to leave."""
        self.send("ready")
        while (content := self.inbox.get()) is not None:
            began = time.perf_counter()
            # Unpickled inside `attempt`, so that a failure there is a failure of the task.
            result = attempt(
                lambda raw, progress, stop: work(pickle.loads(raw), progress, stop),
                content,
                threads,
                lambda done: self.send("progress", done),
                self.stop.is_set,
            )
            # After an error on a GPU, its context may be unusable and its memory lost for all later tasks.
            leaving = self.stop.is_set() or bool(result.error and _cuda_in_use())
            self.send("ended", result, time.perf_counter() - began, leaving)
            if leaving:
                break


def serve(connection: Connection, work: str, threads: int, grace: float) -> None:
    """Be a worker: the main function of a process that the launcher started."""
    # A terminal sends Ctrl-C and hang-ups to every process of the group. The launcher decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    faulthandler.enable()
    server = _Server(connection, grace)
    # A batch system or `timeout` sends SIGTERM to workers too: save the state, then leave.
    signal.signal(signal.SIGTERM, server.leave)
    threading.Thread(target=server.listen, name="launcher", daemon=True).start()
    server.serve(load(work), threads)
