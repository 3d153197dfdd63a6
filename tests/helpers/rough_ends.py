"""Runs in processes of their own that end in the middle of it, or fall asleep."""

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import FORKS, Gate, carry_out, folder_of

from benchmark.config.schema import RunConfig
from benchmark.launch.work import Plan, work
from benchmark.runs import claim, execute
from benchmark.runs.folder import Attempt

KEPT = {"config.yaml", "result.json", "records.jsonl", "log.txt"}
"""Files of a finished run."""


def fork(config: RunConfig, *progress: Gate) -> Any:
    """Carry out the run in another process."""
    return start(carry_out, config, *progress)


def start(target: Callable[..., object], *args: Any) -> Any:
    """Start a process that calls the function."""
    process = FORKS.Process(target=target, args=args)
    process.start()
    return process


def remains(config: RunConfig) -> list[str]:
    """What lies in and beside the folder of a finished run and does not belong there."""
    folder = folder_of(config).path
    beside = [path.name for path in folder.parent.iterdir() if path != folder]
    return beside + [path.name for path in folder.iterdir() if path.name not in KEPT]


class Killed(BaseException):
    """Stands for the end of the process: no handler of ours may catch it."""


class Reaper:
    """Kills a run at the n-th step on its way to the disk: before or after the step, or in its middle."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left, self.patch = number, patch
        for name in ("replace", "rename"):
            self.watch(Path, name, lambda path, to: Path(to).name)
        self.watch(Path, "unlink", lambda *_, **__: "")
        self.watch(shutil, "rmtree", lambda *_, **__: "")
        start = Attempt.append

        def append(attempt: Attempt, lines: bytes) -> None:
            with (attempt.path / "records.jsonl").open("ab") as stream:
                self.step("before records")
                stream.write(lines[: len(lines) // 2])
                stream.flush()
                self.step("within records")
                stream.truncate(attempt.size)
            start(attempt, lines)
            self.step("after records")

        patch.setattr(Attempt, "append", append)
        patch.setattr(execute, "WRITE_SECONDS", 0.0)

    def watch(self, place: Any, name: str, what: Callable[..., str]) -> None:
        """Make a function steps: before it, and after it."""
        of = getattr(place, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.step(f"before {name} {what(*args)}".strip())
            done = of(*args, **kwargs)
            self.step(f"after {name} {what(*args)}".strip())
            return done

        self.patch.setattr(place, name, watched)

    def step(self, name: str) -> None:
        """One step more."""
        self.left -= 1
        if self.left == -1:
            self.patch.setattr(claim, "_is_mine", lambda *_: False)  # a killed process keeps its claim
            raise Killed(name)


def deaths(config: RunConfig) -> Iterator[str]:
    """Carry out the run again and again, each time killed one step later; gives the step. Ends with the run."""
    for number in itertools.count():
        with pytest.MonkeyPatch.context() as patch:
            Reaper(patch, number)
            try:
                carry_out(config)
                return
            except Killed as death:
                step = str(death)
        for path in folder_of(config).path.parent.glob(".*.claim"):
            world, pid, _, mark = path.read_text().split()
            path.write_text(f"{world} {pid} 0 {mark}")  # the number is another process's now
        yield step


def fall_asleep(config: RunConfig, at: int, results: Any) -> None:
    """Carry out the run, suspended after a round; its claim lives for a second. ``results`` gets how it ended."""
    claim.BEAT_SECONDS, claim.STALE_SECONDS = 0.1, 1.0
    execute.WRITE_SECONDS = 0.0

    def progress(round: int, *_: object) -> None:
        if round == at:
            os.kill(os.getpid(), signal.SIGSTOP)

    results.put(tuple(carry_out(config, progress)))


def work_and_die(plan: Plan) -> None:
    """Be a worker whose process dies in its first run."""
    asked = itertools.count()
    work(plan, lambda: next(asked) > 2 and os.kill(os.getpid(), signal.SIGKILL) is None)
