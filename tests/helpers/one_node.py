"""A SLURM of one node, commands given beside it, and what files tell about the processes that worked on a run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml
from processes import wait_until

from benchmark.runs.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]

TABLE = "name=fedld_table1"
ROWS = ("fedavg", "fedpac", "fedld")
COLUMNS = ("retina_split1", "retina_split2", "retina_split3")

LONG_ROWS = ("fedpac", "fedld")
"""Two runs with all that there is to lose: models and means of the clients' own, and directions of past rounds."""

ROUNDS, CHECKPOINT, MIDDLE = 60, 5, 20
"""Of a long run: its rounds, those between two checkpoints, and the first one in which it may be disturbed."""

NODE = ("launcher=slurm", "launcher.partition=low", "launcher.poll=0.5", "launcher.time=30")
"""Above ten minutes: with fewer, every SIGUSR2 counts as the end of the time."""

SLURM = ("launcher.probe=false", *NODE)
"""Without the job that goes before the first ones, for tests that are about something else."""


def answer(*words: str) -> str:
    """What a command of SLURM prints; CalledProcessError if it fails."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """A signal to those of the processes that there are."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Node:
    """The cluster, started and stopped by its script."""

    def script(self, word: str, **environment: str) -> None:
        """``start`` it, or those of its daemons that are missing; ``stop``: end all its jobs and daemons."""
        done = subprocess.run(
            [str(ROOT / "scripts" / "slurm-dev-cluster"), word],
            env=os.environ | {"SLURM_DEV_CPUS": "4"} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"the cluster does not {word}: {done.stderr}"

    def runs(self) -> bool:
        """Whether its controller runs. SLURM's own commands would look for it for ten seconds."""
        try:
            return Path(f"/proc/{self.daemon('slurmctld')}").exists()
        except FileNotFoundError:
            return False

    def daemon(self, name: str) -> int:
        """Process number of a daemon."""
        folder = Path(os.environ.get("SLURM_DEV_DIR", "/var/lib/slurm-dev"))
        return int((folder / f"{name}.pid").read_text())

    def jobs(self, folder: Path = Path("/")) -> list[str]:
        """Numbers of what waits or runs and was submitted below a folder; tasks of an array one by one."""
        lines = [line.split("|") for line in answer("squeue", "-h", "-r", "-o", "%i|%Z").splitlines()]
        return [job for job, where in lines if Path(where).is_relative_to(folder)]


class Command:
    """``python -m benchmark WORDS`` in a folder, in a process of its own."""

    def __init__(self, folder: Path, words: Iterable[str], environment: Mapping[str, str]) -> None:
        self.log = folder / f"command-{time.monotonic_ns()}.txt"
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmark", *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, code: int = 0) -> str:
        """Its output, once it has ended with ``code``."""
        wait_until(lambda: self.process.poll() is not None, f"the end of the command of {self.log}", 600)
        assert self.process.returncode == code, self.output
        return self.output


@dataclass(frozen=True)
class Desk:
    """A folder in which a user gives commands; results are below it."""

    folder: Path
    commands: list[Command] = field(default_factory=list)

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def give(self, *words: str, **environment: str) -> Command:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = Command(self.folder, words, environment)
        self.commands.append(command)
        return command

    def table(self, *words: str, **environment: str) -> Command:
        """The quick table of `ROWS` and `COLUMNS` or, by ``words``, a part of it."""
        part = {"rows": ROWS, "columns": COLUMNS}
        given = {word.partition("=")[0] for word in words}
        rest = [f"{axis}={','.join(names)}" for axis, names in part.items() if axis not in given]
        return self.give("table", TABLE, "seeds=1", *rest, *words, **environment)

    def long(self, *words: str) -> Command:
        """The two long runs, side by side in one job unless ``words`` say otherwise."""
        write_long_runs(self.folder / "tuned")
        part = ("tuned=tuned", f"rows={','.join(LONG_ROWS)}", f"columns={COLUMNS[0]}")
        return self.table(*part, *words)

    def runs(self) -> dict[str, Path]:
        """Folders of all runs, by key."""
        root = self.results / "runs"
        return {str(path.relative_to(root)): path for path in sorted(root.glob("*/seed*"))}

    def stop_at_work(self, round: int = MIDDLE, besides: Sequence[int] = ()) -> list[int]:
        """Stop (SIGSTOP) each long run once a process other than ``besides`` brought it to ``round``; the processes.

        They cannot end before they are disturbed, however long that takes.
        """
        stopped: list[int] = []

        def both() -> bool:
            for known in map(status, self.runs().values()):
                pid = int(str(known.get("pid", 0)))
                if int(str(known.get("round", 0))) >= round and pid not in (*stopped, *besides):
                    assert known["state"] == "running"
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
            return len(stopped) == len(LONG_ROWS)

        wait_until(both, f"{len(LONG_ROWS)} runs at round {round}")
        return stopped

    def histories(self) -> list[list["Session"]]:
        """Of each run, who worked on it."""
        return [sessions(path) for path in self.runs().values()]

    def submissions(self) -> Counter[str]:
        """How often each run was submitted, by the launcher's notes."""
        notes = [json.loads(path.read_bytes()) for path in (self.results / "launcher" / "batches").glob("*")]
        return Counter(key for note in notes for pack in note["packs"] for key in pack)

    def job_logs(self) -> str:
        paths = sorted((self.results / "launcher" / "jobs").rglob("*_log.*"))
        return "\n".join(path.read_text() for path in paths)


def write_long_runs(folder: Path) -> None:
    """Values of the table's cells, as `tune` writes them, by which its quick runs take longer and save often."""
    cell = {
        "chosen": {"train.rounds": ROUNDS, "runtime.checkpoint_every": CHECKPOINT, "evaluation.every": 25},
        "metric": "accuracy",
        "which_round": "last",
        "split": 0.1,
        "seeds": 1,
    }
    cells = {row: {COLUMNS[0]: {"method": row, **cell}} for row in LONG_ROWS}
    path = folder / "quick" / "fedld_table1.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"table": "fedld_table1", "preset": "quick", "cells": cells}))


@contextmanager
def desk(folder: Path, node: Node | None = None) -> Iterator[Desk]:
    """A desk that is left clean: no command and no job of it goes on behind the test."""
    it = Desk(folder)
    try:
        yield it
    finally:
        for command in it.commands:
            if command.process.poll() is None:
                os.killpg(command.process.pid, signal.SIGKILL)
                command.process.wait()
        if node is not None and node.runs():
            for job in node.jobs(folder):
                subprocess.run(["scancel", job], check=False)
            wait_until(lambda: not node.jobs(folder), "the end of the test's jobs")


def status(path: Path) -> dict[str, object]:
    """What the folder of a run says of it; empty before it has begun."""
    found = RunFolder(path).status()
    return {} if found is None else asdict(found)


@dataclass(frozen=True)
class Session:
    """A process at work on a run: from which round, to which, and how it ended (None: without a word)."""

    first: int
    last: int
    ending: str | None


LINES = re.compile(
    r"^\S+ \S+ (?:INFO|ERROR|WARNING) (?:(?P<start>start): "
    r"|resumed after round (?P<first>\d+)"
    r"|(?P<ending>done|interrupted|diverged) after round (?P<last>\d+)"
    r"|(?P<bad>failed|stopped): )"
)


def sessions(path: Path) -> list[Session]:
    """All that worked on a run, one after another, by its log.

    A lease is taken for each and numbered; AssertionError if their number is another one, that is, if somebody had the
    run who did not write in its log, or wrote there without having it.
    """
    found: list[Session] = []
    for match in filter(None, map(LINES.match, (path / "log.txt").read_text().splitlines())):
        if match["start"]:
            found.append(Session(0, 0, None))
            continue
        assert found and found[-1].ending is None, f"{path}: {match[0]!r} of a process that had ended"
        before = found.pop()
        if match["first"]:
            found.append(Session(int(match["first"]), int(match["first"]), None))
        elif match["ending"]:
            found.append(Session(before.first, int(match["last"]), match["ending"]))
        else:
            found.append(Session(before.first, before.last, match["bad"]))
    numbers = [int(lease.name.removeprefix("lease.")) for lease in path.glob("lease.*")]
    assert max(numbers, default=0) == len(found), f"{path}: {len(found)} processes, leases {numbers}"
    return found
