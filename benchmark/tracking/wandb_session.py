"""The one place that talks to wandb: opens and ends W&B runs, and goes on in offline files where no server answers.

Imported by the tracking process alone, and wandb itself only once there is something to send.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.runs.files import storage_error
from benchmark.tracking.settings import Note, TrackingSettings

NOT_OURS = (
    "WANDB_CONSOLE",
    "WANDB_DIR",
    "WANDB_DISABLED",
    "WANDB_JOB_TYPE",
    "WANDB_MODE",
    "WANDB_NAME",
    "WANDB_NOTES",
    "WANDB_RESUME",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_ID",
    "WANDB_SERVICE",
    "WANDB_SWEEP_ID",
    "WANDB_TAGS",
)
"""Variables that would give all runs one name or one id."""

FLUSH_SECONDS = 1.0
"""What a killed process can cost an offline file; the next one reads there how far it came."""

FINISH_SECONDS = 60.0
"""Time that the server has to take the last data of a run."""

LEAST_SPACE = 1 << 16
"""Bytes below which a disk counts as full: wandb itself does not say when it cannot write."""

BREAKS = 3
"""How often wandb's service may die before nothing more is sent."""


class Broken(Exception):
    """wandb's service has died, or wandb raised something else; what was open is to be opened again."""


@dataclass
class Log:
    """One open W&B run.

    ``first``: first round that is not there yet; ``file``: the offline file, empty online; ``usable``: as long as it is
    open and nothing broke; ``ended``: in order.
    """

    run: Any
    mode: str
    first: int
    file: str = ""
    usable: bool = True
    ended: bool = False
    history: int = field(init=False)

    def __post_init__(self) -> None:
        self.history = self.first - 1

    def round(self, number: int, values: Mapping[str, Any]) -> None:
        """Log the metrics of a round, once, as the step of the same number. `Broken` if wandb raises."""
        if number <= self.history:
            return
        with _guarded(self):
            self.run.log({"round": number, **values}, step=number, commit=True)
        self.history = number

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set values of the whole run. `Broken` if wandb raises."""
        with _guarded(self):
            self.run.summary.update(dict(values))

    def finish(self, exit_code: int, comes_back: bool = False) -> None:
        """End the run there; ``comes_back`` marks it as preempted. `Broken` if not all of it could be sent."""
        with _guarded(self):
            if comes_back:
                self.run.mark_preempting()
            self.run.finish(exit_code=exit_code)
        self.usable, self.ended = False, True


@contextlib.contextmanager
def _guarded(log: Log) -> Any:
    try:
        yield
    except Exception as error:
        log.usable = False
        raise Broken(f"{type(error).__name__}: {error}") from error


class Session:
    """wandb in this process, in one mode; ``say`` prints a line for the user."""

    def __init__(self, settings: TrackingSettings, root: Path, say: Callable[[str], None]) -> None:
        self.settings, self.root, self.say = settings, root, say
        self.mode = settings.quietest
        self.folder = settings.folder(root)
        self.used = False
        self.offline_files = 0
        self._left: list[str] = []
        self._logs: list[Log] = []
        self._breaks = 0

    def open(self, wanted: Mapping[str, Any], note: Note | None, pid: int | None, host: str) -> Log:
        """Open a W&B run, a new one or the one that the note is about.

        Args:
            wanted: arguments of ``wandb.init``: id, name, group, job_type, tags, notes, config.
            note: what was sent before.
            pid: the process whose use of the machine is sampled, on this machine; null samples nothing.
            host: where the run was carried out; empty if unknown.

        Raises:
            Broken: wandb raises offline too.
            StorageError: the disk is full or cannot be written.
        """
        self._prepare()
        self.check_space()
        if self.mode == "online" and not _lies_in_file(note):
            try:
                return self._open("online", wanted, 0, pid, host)
            except Exception as error:  # noqa: BLE001 - whatever the server or wandb says, offline files remain
                self._go_offline(error)
        first = 0 if note is None else _reached(note) + 1
        try:
            return self._open("offline", wanted, first, pid, host)
        except Exception as error:
            raise Broken(f"{type(error).__name__}: {error}") from error

    def check_space(self) -> None:
        """`StorageError` if the disk with the offline files is full."""
        if self.used:
            there = os.statvfs(self.folder)
            if there.f_bavail * there.f_frsize < LEAST_SPACE:
                raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), self.folder)

    def restart(self, why: Broken) -> None:
        """Begin wandb's service anew after an error; raises it again if there were too many."""
        self._breaks += 1
        if self._breaks > BREAKS:
            raise why
        if isinstance(why.__cause__, TimeoutError):
            # What the server did not take of these lies on the disk, and `wandb sync` sends it.
            self._left += [
                str(Path(log.run.settings.sync_file).parent) for log in self._logs if not log.ended
            ]
            self._go_offline(why.__cause__)
        else:
            self._tear_down()

    def close(self) -> None:
        """End wandb's service; say where the offline files are."""
        self._tear_down()
        files = [f"{self.folder}/offline-run-*"] if self.offline_files else []
        if files or self._left:
            self.say(
                f"W&B files in {self.folder}; this sends them: wandb sync {' '.join([*files, *self._left])}"
            )

    def _prepare(self) -> None:
        if self.used:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.folder) from error
        for name in NOT_OURS:
            os.environ.pop(name, None)
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        # Beside the offline files: `wandb sync` needs what is staged there, on whatever machine it is given.
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(self.folder / "data"))
        self.used = True

    def _open(self, mode: str, wanted: Mapping[str, Any], first: int, pid: int | None, host: str) -> Log:
        import wandb

        if mode == "offline":
            _wait_for_a_new_name(self.folder, str(wanted["id"]))
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            disable_job_creation=True,
            symlink=False,
            use_dot_wandb=False,
            x_save_requirements=False,
            # What the sender looks like says nothing about a run that was carried out elsewhere or long ago.
            x_disable_meta=pid is None,
            x_disable_machine_info=pid is None,
            x_disable_stats=pid is None,
            x_stats_pid=pid or os.getpid(),
            x_stats_sampling_interval=max(0.1, self.settings.system),
            x_transaction_log_flush_interval=FLUSH_SECONDS,
            init_timeout=self.settings.init_timeout,
            finish_timeout=FINISH_SECONDS,
            finish_timeout_raises=True,
            host=host or None,
        )
        run = wandb.init(
            project=self.settings.project,
            entity=self.settings.entity,
            dir=str(self.folder.parent),
            mode=mode,  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=settings,
            **{key: value for key, value in wanted.items() if value},
        )
        run.define_metric("round")
        run.define_metric("*", step_metric="round")
        if mode == "online":
            log = Log(run, mode, run.starting_step)
        else:
            log = Log(run, mode, first, str(run.settings.sync_file))
            self.offline_files += 1
        self._logs = [other for other in self._logs if not other.ended] + [log]
        return log

    def _go_offline(self, error: BaseException) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        self.say(f"W&B cannot be used ({reason}); from here on offline files are written")
        self.mode = "offline"
        self._tear_down()

    def _tear_down(self) -> None:
        """End the service, which keeps the ids of runs whose opening failed, and with it all logs."""
        for log in self._logs:
            log.usable = False
        self._logs = []
        wandb = sys.modules.get("wandb")
        if wandb is not None:
            with contextlib.suppress(Exception):
                wandb.teardown()


def _wait_for_a_new_name(folder: Path, id: str) -> None:
    """Offline files are named by the second and the id: a second one in the same second would replace the first."""
    while (folder / f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-{id}").exists():
        time.sleep(0.05)


def _lies_in_file(note: Note | None) -> bool:
    """Whether a part of the run lies in an offline file that was not sent: the rest has to follow it there."""
    return note is not None and note.mode == "offline" and not Path(f"{note.file}.synced").exists()


def _reached(note: Note) -> int:
    """The last round that was logged: what the note says, or the offline file itself if it was not closed."""
    if note.closed or not note.file:
        return note.round
    words = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", note.file]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
        step = json.loads(done.stdout)["step"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return note.round
    return max(note.first - 1, -1 if step is None else int(step))
