"""A worker: a process that takes a task, carries it out, and takes the next.

Over its connection it asks for a task by sending None, gets it, and sends the `Outcome`. A closed connection means that
there is no other task.
"""

import contextlib
import faulthandler
import importlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmark.launch.tasks import Outcome, Task, Work
from benchmark.runs.status import RunResult, RunState
from benchmark.system import end_with_parent, explain, kind_of


def load(work: str) -> Work:
    """Import ``module:function``. Raises whatever the import raises, and AttributeError for a missing function."""
    module, _, name = work.partition(":")
    function: Work = getattr(importlib.import_module(module), name)
    return function


def attempt(work: Work, task: Task, stop: Callable[[], bool]) -> Outcome:
    """Carry out one task in this process.

    After an exception the state is failed. The first line of the message names the exception, its traceback follows.
    """
    began = time.perf_counter()
    try:
        state, message, *error = work(task.payload, stop)
        result = RunResult(RunState(state), message, *error)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - other tasks must go on, whatever one raises
        name = kind_of(raised)
        summary = f"{type(raised).__name__}: {raised}".strip().rstrip(":").splitlines()[0]
        trace = "".join(traceback.format_exception(raised)).rstrip()
        result = RunResult(RunState.FAILED, f"{summary}\n{trace}", name)
    return Outcome(task.key, result.state, result.message, time.perf_counter() - began, result.error)


def serve(connection: Connection, work: str, grace: float) -> None:
    """Be a worker: the main function of a process that the launcher started.

    SIGTERM and the death of the launcher ask it to save the state of its task, and to take no other one. After the
    death of the launcher it has ``grace`` seconds for that.
    """
    # A terminal sends these to every process of the group. The launcher decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    end_with_parent(stop.set, grace)
    try:
        function = load(work)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        sys.exit(message)
    with contextlib.suppress(EOFError, OSError):  # the launcher has closed the connection, or has died
        while not stop.is_set():
            connection.send(None)
            outcome = attempt(function, connection.recv(), stop.is_set)
            connection.send(outcome)
            # After an error on a GPU, its context may be unusable and its memory lost for all later tasks.
            torch = sys.modules.get("torch")
            if outcome.error and torch is not None and torch.cuda.is_initialized():
                break
