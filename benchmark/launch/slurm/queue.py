"""The SLURM scheduler, asked through submitit and its own commands."""

import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from benchmark.errors import ConfigError, wrong
from benchmark.launch.slurm.preflight import PreflightCheck
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.paths import ROOT, ROOTS, VARIABLE

TIMEOUTS = 1000
"""How often a task may use up its time and be queued again: as often as its runs need."""

PREFLIGHT_MINUTES = 5


class QueueFullError(Exception):
    """The scheduler takes no more jobs for now."""


class SchedulerUnavailableError(ConfigError):
    """The scheduler does not answer. Whether it has taken the job is not known."""


@dataclass(frozen=True)
class QueuedTask:
    """A task in the queue: its id, whether it runs or waits, and the scheduler's reason for waiting."""

    id: str
    running: bool
    reason: str = ""


Queued = dict[str, dict[int, QueuedTask]]
"""Name of an array -> index -> task that waits or runs."""


def waiting_reasons(tasks: Iterable[QueuedTask]) -> str:
    """What tasks wait for, as the scheduler says it: `` (Priority, Resources)``, or an empty string."""
    reasons = sorted({task.reason for task in tasks} - {"", "None"})
    return f" ({', '.join(reasons)})" if reasons else ""


class SlurmQueue:
    """The scheduler of this machine."""

    def __init__(self, settings: SlurmSettings, folder: Path) -> None:
        """``folder`` is for submitit's files and the logs of jobs. `ConfigError` if there is no SLURM."""
        self.require()
        # SLURM replaces %j and the like in names of logs; a colon separates the entries of PYTHONPATH.
        for path, signs in (*((root, ":\n") for root in ROOTS), (folder, "%\\\n")):
            if set(signs) & set(str(path.absolute())):
                shown = ", ".join(map(repr, signs))
                raise ConfigError(
                    f"launcher=slurm: got the folder {str(path)!r}; expected one without {shown}."
                )
        self.settings, self.folder = settings, folder

    @staticmethod
    def require() -> None:
        """Raise `ConfigError` if there is no SLURM on this machine."""
        if shutil.which("sbatch") is None:
            expected = "local or inline: there is no `sbatch` here. On a cluster use a login node"
            raise ConfigError(wrong("launcher", "slurm", expected, where="with launcher=local"))

    def submit(
        self, name: str, jobs: Sequence[Callable[[], object]], parallel: int = 1, after: str | None = None
    ) -> str:
        """Submit an array of tasks; id of the first.

        Args:
            name: Name of the array.
            jobs: What each task calls.
            parallel: Tasks that may run at a time.
            after: Id of a job that must have succeeded before.

        Raises:
            QueueFullError: The scheduler takes no more jobs for now.
            SchedulerUnavailableError: It does not answer.
            ConfigError: It takes no job with these settings.
        """
        import submitit

        s = self.settings
        executor = submitit.SlurmExecutor(folder=self.folder / name, max_num_timeout=TIMEOUTS)
        # Without the second option, tasks would wait for ever for a preflight check that failed.
        waits = {"dependency": f"afterok:{after}", "kill_on_invalid_dep": "yes"} if after else {}
        executor.update_parameters(
            job_name=name,
            time=s.time,
            signal_delay_s=s.signal_delay,
            cpus_per_task=s.cpus_per_job or s.side_by_side * s.threads,
            array_parallelism=parallel,
            setup=[
                *s.preparation,
                f"export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}",
                f"export {VARIABLE}={shlex.quote(':'.join(map(str, ROOTS)))}",
            ],
            additional_parameters={**waits, **s.slurm},
            **s.place,
            **({"mem": s.mem} if s.mem is not None else {}),
        )
        try:
            # submitit prints what sbatch says and raises it too.
            with redirect_stderr(io.StringIO()), executor.batch():
                submitted = [executor.submit(job) for job in jobs]
        except submitit.core.utils.FailedJobError as error:
            refusal = _refusal(str(error))
            if not isinstance(refusal, SchedulerUnavailableError):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            raise refusal from error
        return submitted[0].job_id

    def submit_preflight(self, check: PreflightCheck) -> str:
        """Submit a short job that checks a node; its id. Raises what `submit` raises."""
        changes = {"time": min(PREFLIGHT_MINUTES, self.settings.time), "signal_delay": 30, "cpus_per_job": 1}
        short = self.settings.model_copy(update={**changes, "mem": None})
        return SlurmQueue(short, self.folder).submit(check.name, [check])

    @staticmethod
    def tasks() -> Queued | None:
        """Tasks of this user that wait or run; None if there is no SLURM, or it does not answer."""
        answer = ask("squeue", "--me", "-h", "-r", "-o", "%i|%T|%r|%j")
        if answer is None:
            return None
        queued: Queued = {}
        for line in answer.splitlines():
            job, state, reason, name = line.split("|", 3)
            index = int(job.partition("_")[2] or 0)
            waits = state in ("PENDING", "REQUEUED")
            queued.setdefault(name, {})[index] = QueuedTask(job, not waits, reason if waits else "")
        return queued

    @staticmethod
    def cancel(tasks: Sequence[QueuedTask]) -> None:
        """End tasks, which may save their state. A command line can hold about a thousand ids."""
        for start in range(0, len(tasks), 1000):
            ask("scancel", *(task.id for task in tasks[start : start + 1000]))

    @staticmethod
    def largest_array() -> int:
        """Most tasks that one array may have."""
        answer = ask("scontrol", "show", "config") or ""
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer, re.MULTILINE)
        return int(match[1]) - 1 if match and int(match[1]) > 1 else 1000


def ask(*words: str) -> str | None:
    """What a command of SLURM prints; None if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def _refusal(output: str) -> Exception:
    """The error for what sbatch prints: it has no codes for the reasons."""
    message = " ".join(output.split())
    if re.search(r"MaxSubmit|MaxJobCount|job submit limit|submit limit", message, re.IGNORECASE):
        return QueueFullError(message)
    if re.search(r"Unable to contact|timed out|Zero Bytes|standby mode", message, re.IGNORECASE):
        return SchedulerUnavailableError(
            f"SLURM does not answer: {message} Give the same command again later; it submits what is missing."
        )
    return ConfigError(f"SLURM refuses these settings (launcher.*): {message} Nothing was submitted.")
