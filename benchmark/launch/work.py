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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.errors import UserError, printable
from benchmark.runs.files import write_with_folder
from benchmark.runs.folder import ResultsFolder
from benchmark.runs.status import RunResult, RunState
from benchmark.system import end_with_parent, explain
from benchmark.tracking import Wandb

Told = Callable[[str, RunResult | None, float], object]
"""``told(key, result, seconds)``: a run begins (result None), or this process has left it."""


@dataclass(frozen=True)
class Plan:
    """What one launch carries out, and what its workers have to be.

    Attributes:
        id: Name of the launch.
        root: The results folder.
        runs: Plain configurations, in the order in which runs are begun.
        code: Digest of the snapshot of the code.
        engine, torch: What every worker has to have: digest and version.
        grace: Seconds that workers have to save their state when the launcher has died.
        tracking: What is sent to W&B; None if nothing is.
    """

    id: str
    root: str
    runs: tuple[dict[str, Any], ...]
    code: str
    engine: str
    torch: str
    grace: float = 30.0
    tracking: dict[str, Any] | None = None

    @property
    def path(self) -> Path:
        """Its file; logs and the name of a cluster's job lie beside it."""
        return Path(self.root) / "launches" / self.id / "plan.json"

    def write(self) -> None:
        write_with_folder(self.path, json.dumps(asdict(self)).encode())

    @property
    def keys(self) -> list[str]:
        return [config.key for config in self.configs()]

    def configs(self) -> list[RunConfig]:
        return [RunConfig.model_validate(plain) for plain in self.runs]


def read_plan(path: Path) -> Plan:
    """The plan that a file has."""
    return Plan(**json.loads(path.read_bytes()))


def work(
    plan: Plan,
    runs: Sequence[RunConfig],
    stop: Callable[[], bool],
    offset: int = 0,
    told: Told = lambda *_: None,
    progress: Any = None,
) -> int:
    """Carry out what is neither finished nor given up, from ``offset`` on; the number of runs that were begun.

    Returns when nothing is free any more: others may still be at work.
    """
    from benchmark.runs.execute import Launch, execute  # with it torch

    results, began = ResultsFolder(Path(plan.root)), 0
    wandb = None if plan.tracking is None else Wandb.model_validate(plan.tracking)
    launch = Launch(plan.id, plan.code, **tracked_by(wandb))
    left, taken = [*runs[offset:], *runs[:offset]], 1
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
                told(config.key, None, 0.0)
                started = time.perf_counter()
                try:
                    result = execute(config, folder, launch, progress or (lambda *_: None), stop)
                except UserError as error:
                    result = RunResult(RunState.FAILED, str(error))
                told(config.key, result, time.perf_counter() - started)
            if result.state is RunState.FAILED and _has_gpu():
                return (
                    began + taken
                )  # its context may be unusable, and its memory lost: another process goes on
        began += taken
        left = [config for config in left if not results.run(config.key).is_finished]
    return began


def tracked_by(wandb: Wandb | None) -> dict[str, Any]:
    """What a launch has to know to send its runs to W&B."""
    return {} if wandb is None else {"track": wandb.begin}


def _has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def main(path: str, offset: str) -> int:
    """A worker; exit code 0, or 1 if it is another program than the launch asks for."""
    # A terminal sends these to every process of the group. The launcher decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    stop, plan = threading.Event(), read_plan(Path(path))
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    end_with_parent(stop.set, plan.grace)
    try:
        import torch

        others = {"engine": (code.engine(), plan.engine), "torch": (str(torch.__version__), plan.torch)}
        differing = [
            f"{name} {here}; expected {there}" for name, (here, there) in others.items() if here != there
        ]
        if differing:
            print(
                f"this machine has other code than the launch: {', '.join(differing)}. Make .venv anew for it."
            )
            return 1
        runs = plan.configs()
        work(plan, runs, stop.is_set, int(offset) % max(1, len(runs)), _say)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(message)
        return 1
    return 0


def _say(key: str, result: RunResult | None, seconds: float) -> None:
    """A line of the worker's log."""
    line = (
        f"begins      {key}"
        if result is None
        else f"{result.state:<11} {key} ({seconds:.0f} s) {result.message}"
    )
    with contextlib.suppress(OSError):
        print(printable(f"{time.strftime('%F %T')} {line}".rstrip()), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
