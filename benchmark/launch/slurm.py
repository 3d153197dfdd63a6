"""Runs on a SLURM cluster: one array of identical tasks, each of which starts workers that pull runs.

A task whose time is up or that is preempted (SIGUSR2) has its runs save their state, and submitit queues it again.
"""

import io
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark import code
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.launch.launch import plan_of
from benchmark.launch.local import Workers, environment
from benchmark.launch.progress import Following, say
from benchmark.launch.settings import SlurmSettings
from benchmark.launch.work import Plan, read_plan
from benchmark.runs.folder import ResultsFolder
from benchmark.tracking import Wandb

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

TIMEOUTS = 1000
"""How often a task may use up its time and be queued again: as often as its runs need."""

LOSSES = 3
"""How often in a row all tasks may be lost, with their node for example, before a round has ended."""

WAITS = ("PENDING", "REQUEUED")
"""States of tasks that do not run."""


# On the node ------------------------------------------------------------------------------------------------------


@dataclass
class Task:
    """One task of the array. submitit calls it on the node, and its `checkpoint` on SIGUSR2."""

    plan: Path
    settings: SlurmSettings
    workers: Workers | None = field(default=None, repr=False)
    began: float = 0.0
    rounds: int = 0

    def __call__(self) -> None:
        """Start workers, and wait until they have ended. Raises RuntimeError if none can be started."""
        if self.settings.gpus:
            _require_gpu()
        plan, self.began = read_plan(self.plan), time.monotonic()
        self.rounds = _rounds(plan)
        index = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
        self.workers = Workers(plan, self.settings.on_node, index * self.settings.side_by_side)
        self.workers.start(self.settings.side_by_side)
        while self.workers.alive:
            time.sleep(0.2)
        if all(process.returncode for process in self.workers.processes):
            raise RuntimeError(f"no worker ended well. The last lines of one:\n{self.workers.last_words()}")

    def checkpoint(self) -> "DelayedSubmission":
        """Let all runs save their state; the submission that continues from there."""
        seconds = self.settings.seconds_to_signal
        if self.workers is not None:
            self.workers.stop()
            # SLURM may tell a minute earlier. What it preempts before that is queued again in any case.
            is_up = time.monotonic() - self.began > 0.9 * seconds - 60
            if is_up and _rounds(read_plan(self.plan)) <= self.rounds:
                raise RuntimeError(
                    f"no run finished one round before the task's time was up ({seconds:.0f} s), and it would be "
                    "queued again for ever. Raise launcher.time."
                )
        from submitit.helpers import DelayedSubmission  # slow, and only a task needs it

        return DelayedSubmission(Task(self.plan, self.settings))


def _require_gpu() -> None:
    """Raise RuntimeError if torch sees no GPU. Runs would go on a hundred times more slowly on the CPU."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            f"launcher.gpus_per_job: this task asked for a GPU, and torch {torch.__version__} sees none on "
            f"{platform.node()}. Choose nodes with GPUs (launcher.partition), install a torch that fits their driver, "
            "or set launcher.gpus_per_job=0 for runs on the CPU."
        )


def _rounds(plan: Plan) -> int:
    """Rounds of all runs, as far as they are recorded."""
    results = ResultsFolder(plan.root)
    finished = results.finished(plan.keys)
    return sum(
        config.train.rounds if config.key in finished else results.run(config.key).rounds()
        for config in plan.runs
    )


# On the login node ------------------------------------------------------------------------------------------------


def name_of(root: Path) -> str:
    """The name of all tasks of a results folder."""
    return f"fedtables-{code.digest(str(root.absolute()))[:10]}"


def queued(name: str) -> dict[str, str] | None:
    """Tasks of this user, of a name, that wait or run: ``job_index`` -> state; None if SLURM does not answer."""
    words = ["squeue", "--me", "-h", "-r", "-o", "%i|%T", "-n", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else dict(line.split("|") for line in done.stdout.split())


def submit(plan: Plan, settings: SlurmSettings, number: int) -> str:
    """Submit an array of ``number`` tasks; its id. `ConfigError` if SLURM refuses or does not answer."""
    import submitit

    s, folder = settings, plan.path.parent
    if set("%\\\n:") & set(str(folder)):
        raise ConfigError(f"launcher=slurm: got the folder {str(folder)!r}; expected one without % \\ or :.")
    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=TIMEOUTS)
    variables = environment(plan.root / "code" / plan.code)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    executor.update_parameters(
        job_name=name_of(plan.root),
        time=s.time,
        signal_delay_s=s.signal_delay,
        cpus_per_task=s.cores,
        array_parallelism=s.max_parallel,
        setup=[*s.setup, f'{exports[0]}"${{PYTHONPATH:+:$PYTHONPATH}}"', *exports[1:]],
        additional_parameters=s.slurm,
        **s.asked,
    )
    try:
        # submitit prints what sbatch says and raises it too.
        with redirect_stderr(io.StringIO()), executor.batch():
            jobs = [executor.submit(Task(plan.path, s)) for _ in range(number)]
    except submitit.core.utils.FailedJobError as error:
        said = " ".join(str(error).split())
        advice = "If they are too many, set launcher.max_parallel lower."
        raise ConfigError(f"SLURM does not take the tasks: {said} Nothing was submitted. {advice}") from error
    job = str(jobs[0].job_id).partition("_")[0]
    plan.path.with_name("job").write_text(job)
    return job


def _live(root: Path) -> list[tuple[str, Plan]]:
    """The arrays of a results folder that wait or run, with their plans."""
    there = queued(name_of(root)) or {}
    jobs = {task.partition("_")[0] for task in there}
    files = [path for path in (root / "launches").glob("*/job") if path.read_text() in jobs]
    return [(path.read_text(), read_plan(path.with_name("plan.json"))) for path in files]


def carry_out(
    following: Following, runs: Sequence[RunConfig], settings: SlurmSettings, wandb: Wandb | None = None
) -> int:
    """Submit what nobody works on, and follow it; exit code 0, 1 (not all have ended), 130 (left alone)."""
    plan, settings = plan_of(following, runs, settings.grace, wandb), settings.asking_for(runs)
    pulled: set[str] = set()
    for job, other in _live(plan.root):
        shared = set(other.keys) & set(plan.keys)
        if shared and other.code != plan.code:
            raise ConfigError(
                f"launcher=slurm: job {job} carries out {len(shared)} of these runs with other code. Wait for it, or "
                f"end it with `scancel {job}`."
            )
        pulled |= shared
    plan.write()
    with following:
        try:
            return _follow(plan, settings, following, pulled)
        except KeyboardInterrupt:
            ending = f"`scancel --name {name_of(plan.root)}` ends it"
            print(f"left alone: what was submitted goes on; {ending}", file=sys.stderr)
            return 130


def _follow(plan: Plan, settings: SlurmSettings, following: Following, pulled: set[str]) -> int:
    """Submit, and follow until nothing is left or nothing is queued. What was lost is submitted again."""
    name, job, losses = name_of(plan.root), "", 0
    while following.open:
        free = [key for key in following.open if key not in pulled]
        before = _rounds(plan), len(following.open)
        if free:
            number = min(settings.max_parallel, -(-len(free) // settings.side_by_side))
            job = submit(plan, settings, number)
            say(f"each task asks for {settings.request}")
            say(f"job {job}: {number} tasks for {len(free)} runs; logs: {plan.path.parent}/")
        if settings.detach:
            print("the same command shows how far they are, submits what is missing, and writes the tables")
            return 0
        while following.open:
            time.sleep(settings.poll)
            following.look(at_once=True)
            tasks = queued(name)
            if tasks is not None and not tasks:
                break
        pulled = set()
        time.sleep(settings.poll)  # what a task wrote last may not be seen yet from here
        following.look(at_once=True)
        losses = losses + 1 if (_rounds(plan), len(following.open)) == before else 0
        # submitit writes what a task came to, unless the task is lost.
        ended = any(plan.path.parent.glob(f"{job}_*_result.pkl"))
        if following.open and (losses == LOSSES or (losses and ended)):
            print(_why(plan), file=sys.stderr)
            return 1
    return int(bool(following.failed))


def _why(plan: Plan) -> str:
    """What the logs of tasks in which no round ended say."""
    logs = sorted(plan.path.parent.glob("*.err")) + sorted(plan.path.parent.glob("worker*.log"))
    texts = [log.read_text(errors="replace").strip() for log in logs if log.stat().st_size]
    last = "\n".join(texts[0].splitlines()[-5:]) if texts else "no log says why"
    _, error, message = texts[0].rpartition("RuntimeError: ") if texts else ("", "", "")
    last = "\n".join(message.splitlines()[:5]) if error else last  # what a task raises is a message
    return f"the tasks ended, but no round did; logs: {plan.path.parent}/\n{last}"
