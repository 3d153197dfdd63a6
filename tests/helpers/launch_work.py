"""Work functions and a listener for the tests of the launcher; workers import this file as a module of its own."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from processes import wait_until

from benchmark.launch.tasks import Listener, Outcome, Task

Stop = Callable[[], bool]


class Log(Listener):
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def started(self, tasks: Sequence[Task]) -> None:
        self.events.append(("started", len(tasks)))

    def task_started(self, key: str) -> None:
        self.events.append(("task_started", key))

    def task_ended(self, outcome: Outcome) -> None:
        self.events.append(("task_ended", outcome.key, outcome.state))

    def stopping(self, message: str) -> None:
        self.events.append(("stopping", message))

    def finished(self) -> None:
        self.events.append(("finished",))

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] == name]


def echo(payload: Any, stop: Stop) -> tuple[str, str]:
    return "done", str(payload)


def pid(payload: Any, stop: Stop) -> tuple[str, str]:
    """This process; the payload says how it ends: None, or `signal`, `exit`, `raise`, `state`, `sys.exit`."""
    if payload == "signal":
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif payload == "exit":
        os._exit(3)
    elif payload == "raise":
        raise ArithmeticError("two and two\nare five")
    elif payload == "state":
        return "perfect", ""
    elif payload == "sys.exit":
        sys.exit(1)
    time.sleep(0.02)
    return "done", str(os.getpid())


def environment(payload: tuple[str, str, int], stop: Stop) -> tuple[str, str]:
    """A variable, once so many workers have a task; each leaves a file in a folder."""
    name, folder, workers = payload
    Path(folder, str(os.getpid())).touch()
    wait_until(lambda: len(list(Path(folder).iterdir())) >= workers, "all workers have a task")
    return "done", os.environ.get(name, "unset")


def until_stop(payload: str, stop: Stop) -> tuple[str, str]:
    """Write the number of this process to a file, save when asked to stop."""
    path = Path(payload)
    path.write_text(f"{os.getpid()}\n")
    while not stop():
        time.sleep(0.005)
    path.with_suffix(".saved").touch()
    return "interrupted", "saved"


def deaf(payload: str, stop: Stop) -> tuple[str, str]:
    """Like `until_stop`, but never looks whether to stop."""
    return until_stop(payload, lambda: False)


class LoadsNowhere:
    """A payload that cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("nine",)


def at_last(payload: dict[str, Any], stop: Stop) -> tuple[str, str]:
    """End badly, as ``how`` says, until it was tried ``times`` times; each try leaves a line in ``path``."""
    with Path(payload["path"]).open("a") as tries:
        tries.write("tried\n")
    if len(Path(payload["path"]).read_text().splitlines()) <= payload["times"]:
        if payload["how"] == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        return payload["how"], "not yet"
    return "done", ""
