"""The one loop of all launchers: a worker takes the next run that nobody works on, until nothing is free.

Every worker has the same list of runs, and the results folder is the queue. ``python -m benchmark.launch.work PLAN
OFFSET`` is a worker in a process of its own.
"""

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError, UserError, printable
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.status import RunResult, RunState
from benchmark.system import end_with_parent, explain
from benchmark.tracking import Wandb


class Plan(BaseModel):
    """What one launch carries out.

    Attributes:
        id: Name of the launch.
        root: The results folder.
        runs: In the order in which they are begun.
        code: Digest of the snapshot of the code.
        grace: Seconds that workers have to save their state when the launcher has died.
        tracking: Sends the runs to W&B; None if nothing is sent.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    root: Path
    runs: tuple[RunConfig, ...]
    code: str = ""
    grace: float = 30.0
    tracking: Wandb | None = None

    @property
    def path(self) -> Path:
        """Its file; logs and the name of a cluster's job lie beside it."""
        return self.root / "launches" / self.id / "plan.json"

    def write(self) -> None:
        plain = self.model_dump(mode="json") | {"keys": self.keys}
        write_with_folder(self.path, json.dumps(plain).encode())

    @property
    def keys(self) -> list[str]:
        return [config.key for config in self.runs]


def read_plan(path: Path) -> Plan:
    """The plan that a file has."""
    return Plan.model_validate(json.loads(path.read_bytes()))


def work(
    plan: Plan, stop: Callable[[], bool], offset: int = 0, told: Callable[[str], object] = lambda _: None
) -> int:
    """Carry out what is neither finished nor given up, from ``offset`` on; the number of runs that were begun.

    Returns when nothing is free any more: others may still be at work. ``told`` gets a line when a run begins, and one
    when this process has left it.
    """
    from benchmark.runs.execute import Launch, execute  # with it torch

    results, began = ResultsFolder(plan.root), 0
    launch = Launch(plan.id, plan.code, plan.tracking.begin if plan.tracking else None)
    left, taken = [*plan.runs[offset:], *plan.runs[:offset]], 1
    while left and taken and not stop():
        taken = 0
        for config in left:
            folder = results.run(config.key)
            if stop() or folder.is_finished or folder.failure(plan.id):
                continue
            with folder.claimed() as is_ours:
                if not is_ours or folder.is_finished:
                    continue
                taken += 1
                told(f"begins      {config.key}")
                started = time.perf_counter()
                try:
                    result = execute(config, folder, launch, stop=stop)
                except StorageError:  # nothing can be written, so not even that the run has failed
                    raise
                except UserError as error:
                    result = RunResult(RunState.FAILED, str(error))
                seconds = time.perf_counter() - started
                told(f"{result.state:<11} {config.key} ({seconds:.0f} s) {result.message}".rstrip())
            if result.state is RunState.FAILED and _has_gpu():
                # Its context may be unusable, and its memory lost: another process goes on.
                return began + taken
        began += taken
        left = [config for config in left if not results.run(config.key).is_finished]
    return began


def _has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def main(path: str, offset: str) -> int:
    """A worker; exit code 0, or 1 if the system refuses something."""
    # A terminal sends these to every process of the group. The launcher decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    stop, plan = threading.Event(), read_plan(Path(path))
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    end_with_parent(stop.set, plan.grace)
    try:
        work(plan, stop.is_set, int(offset) % max(1, len(plan.runs)), _log)
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else explain(error)
        if message is None:
            raise
        print(message)
        return 1
    return 0


def _log(line: str) -> None:
    """A line of the worker's log."""
    with contextlib.suppress(OSError):
        print(printable(f"{time.strftime('%F %T')} {line}"), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
