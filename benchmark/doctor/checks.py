"""All checks in their order, on this machine or by a short job on a compute node."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmark.config.schema import Device, PathsConfig, RuntimeConfig, declared
from benchmark.doctor import CheckResult, machine, papers, services
from benchmark.experiments.selection import FileName, ResultsOptions, TableChoice, TableQuery
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.preflight import PreflightCheck
from benchmark.launch.slurm.queue import PREFLIGHT_MINUTES, QueuedTask, SlurmQueue
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.runs.files import write_with_folder


class Wanted(ResultsOptions):
    """What the user wants to do on a machine."""

    paper: str | None = declared(TableChoice, "paper")
    preset: FileName | None = Field(
        None,
        title="quick|small|paper",
        description="data, model and budget; if left out: quick, and what paper would need",
    )
    device: Device = declared(RuntimeConfig, "device")
    data: Path | None = declared(PathsConfig, "data")

    def lines(self, launcher: LocalSettings) -> Iterator[CheckResult]:
        """One line after the other, as checks end; ``launcher``: how runs are carried out on this machine."""
        yield from _attempt("Python", machine.python)
        yield from _attempt("cores", machine.cores)
        yield from _attempt("GPU", machine.gpu, self.device)
        yield from _attempt("MPS", machine.mps, launcher)
        yield from _attempt("same bits", machine.same_bits, self.device)
        yield from _attempt("results", machine.folder, self.results)
        for preset in (self.preset,) if self.preset else ("quick", "paper"):
            runs = papers.runs_of(TableQuery(paper=self.paper, table=1, preset=preset), self.data)
            yield from _attempt("speed", papers.speed, runs, preset, self.device)
        asked = bool(self.paper or self.preset)
        for paper, runs_of_paper in runs.items():
            yield from _attempt(paper, papers.data, paper, runs_of_paper, preset, asked)
        yield from _attempt("W&B", services.wandb)
        yield from _attempt("LaTeX", services.latex)
        yield from _attempt("Chromium", services.chromium)


def _attempt(
    what: str, check: Callable[..., CheckResult | Iterable[CheckResult]], *arguments: Any
) -> Iterator[CheckResult]:
    """The lines of a check; a problem if it raises, as a broken driver or library may do."""
    try:
        lines = check(*arguments)
        yield from [lines] if isinstance(lines, CheckResult) else lines
    except Exception as error:  # noqa: BLE001
        why = " ".join(f"{type(error).__name__}: {error}".split())[:150]
        yield CheckResult(what, "problem", why, "If a package is broken: make setup")


@dataclass(frozen=True)
class NodeCheck(PreflightCheck):
    """A job that writes the lines of its node. ``began`` makes its name unlike that of any other."""

    options: Wanted
    launcher: LocalSettings
    began: float

    @property
    def name(self) -> str:
        """Name of its job and of its file."""
        return f"fedtables-doctor-{self.began}"

    def __call__(self) -> None:
        """The job."""
        unlike, node = self.check(), CheckResult("node", "ok", "as here")
        if unlike:
            node = CheckResult("node", "problem", unlike, "Its jobs would fail")
        write_with_folder(self.path, json.dumps([node, *self.options.lines(self.launcher)]).encode())


def lines_of_node(settings: SlurmSettings, options: Wanted) -> list[CheckResult]:
    """Submit a job like those of tables, but short, and wait for the lines of its node."""
    short = {"time": min(PREFLIGHT_MINUTES, settings.time), "signal_delay": 30}
    queue = SlurmQueue(settings.model_copy(update=short), options.results / "launcher" / "jobs")
    usual = PreflightCheck.of(options.results, settings)
    data = None if options.data is None else options.data.absolute()
    there = options.model_copy(update={"results": options.results.absolute(), "data": data})
    check = NodeCheck(**vars(usual), options=there, launcher=settings.on_node, began=time.time())
    job = queue.submit(check.name, [check])
    log = queue.folder / check.name / f"{job}_0_log.err"
    try:
        while (text := check.outcome(queue.tasks, log, settings.poll)) is None:
            time.sleep(settings.poll)
    except KeyboardInterrupt:
        queue.cancel([QueuedTask(job, running=False)])
        raise
    check.path.unlink(missing_ok=True)
    if not text.startswith("["):
        return [CheckResult("node", "problem", text, "launcher.KEY=VALUE chooses other nodes")]
    return [CheckResult(*values) for values in json.loads(text)]
