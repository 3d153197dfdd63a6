"""The tracking process: reads the folders of runs again and again, and sends to W&B what is new.

Started by `benchmark.tracking.settings`, which hands over a file with the settings and runs, and then tells it by lines
of JSON on standard input: one more run, a finished table, or that all is over. A closed input means that the starter is
dead: what there is is sent, for as long as ``patience`` says. What the user has to know goes to standard error, one
line each; what wandb itself says goes to ``wandb/tracker.log`` of the results folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import IO, Any

from benchmark.errors import StorageError
from benchmark.runs.store import Results
from benchmark.tracking.following import Follower, Locks
from benchmark.tracking.publishing import publish
from benchmark.tracking.settings import Publication, TrackedRun, TrackingSettings
from benchmark.tracking.wandb_session import Broken, Session

NICE = 10
"""Training comes first, where both want the same core."""

FINISH, CLOSED = "finish", "closed"


def main(handle: int) -> None:
    """The whole life of the process; ``handle``: the file with what to do."""
    # A batch system ends all processes of a job: this one has to stay until the runs have saved their state. Whoever
    # started it ends it by closing its input, or by force.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with os.fdopen(handle, "rb") as stream:
        plan = json.loads(stream.read())
    settings, root = TrackingSettings.of(plan["settings"]), Path(plan["root"])
    inbox, mouth = _own_streams(settings.folder(root))

    def say(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            mouth.write(f"{line}\n")
            mouth.flush()

    own = _own_temporary_folder()
    tracker = _Tracker(settings, root, Session(settings, root, say))
    for run in plan["runs"]:
        tracker.add(run)
    box: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, box, settings.patience, own), daemon=True).start()
    try:
        tracker.work(box)
    except StorageError as error:
        reason = str(error).partition(" What was there before")[
            0
        ]  # and what it says of runs is not meant here
        say(f"{reason} Nothing more is sent to W&B; the runs go on.")
    except Broken as error:
        say(f"wandb fails again and again ({error}); nothing more is sent, the runs go on.")
    except Exception as error:  # noqa: BLE001 - it is said where the user reads, and costs no run anything
        traceback.print_exc()
        log = settings.folder(root) / "tracker.log"
        say(f"stopped by {type(error).__name__}: {error} (see {log}); the runs go on.")
    # Not through wandb's exit handlers: what they would wait for has been waited for.
    shutil.rmtree(own, ignore_errors=True)
    os._exit(0)


def _own_temporary_folder() -> str:
    """A folder for all that wandb puts into the temporary one: its exit handlers, which do not run, would remove it."""
    own = tempfile.mkdtemp(
        prefix="fedtables-"
    )  # short: it holds sockets, whose paths may have 100 characters
    os.environ["TMPDIR"] = tempfile.tempdir = own
    return own


def _own_streams(folder: Path) -> tuple[IO[bytes], IO[str]]:
    """(what the starter says, where the user reads); what wandb and its processes print goes to a file."""
    inbox, mouth = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(2), "w")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = os.open(folder / "tracker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    return inbox, mouth


def _listen(inbox: IO[bytes], box: queue.SimpleQueue[Any], patience: float, own: str) -> None:
    for line in inbox:
        with contextlib.suppress(ValueError):  # half a line, if this process was too slow to read
            message = json.loads(line)
            box.put(FINISH if "finish" in message else message)
    box.put(CLOSED)
    threading.Event().wait(patience)
    shutil.rmtree(own, ignore_errors=True)
    os._exit(1)


class _Tracker:
    """What is followed, and the session that it is sent through."""

    def __init__(self, settings: TrackingSettings, root: Path, session: Session) -> None:
        self.settings, self.root, self.session = settings, root, session
        self.locks = Locks(root / "wandb" / "locks")
        self.followers: list[Follower] = []
        self.publications: list[Publication] = []

    def add(self, plain: dict[str, Any]) -> None:
        """Follow a run."""
        run = TrackedRun(plain["key"], plain["group"], tuple(plain["tags"]))
        folder = Results(self.root).run(run.key)
        self.followers.append(Follower(run, folder, self.settings, self.session, self.locks))

    def work(self, box: queue.SimpleQueue[Any]) -> None:
        """Look at all runs, listen, and so on until told to finish.

        Raises:
            StorageError: the disk is full.
            Broken: wandb does not work.
        """
        over = False
        while not over:
            over = self._hear(box)
            self._look(last=over)
        for publication in self.publications:
            while True:
                try:
                    publish(publication, self.settings, self.root, self.session, self.locks)
                    break
                except Broken as error:
                    self.session.restart(error)
        self.session.close()

    def _hear(self, box: queue.SimpleQueue[Any]) -> bool:
        """Wait for the time between two looks or for the end; whether all is over."""
        with contextlib.suppress(queue.Empty):
            message = box.get(timeout=self.settings.poll)
            while True:
                if message in (FINISH, CLOSED):
                    return True
                if "run" in message:
                    self.add(message["run"])
                else:
                    plain = message["publication"]
                    self.publications.append(
                        Publication(**plain | {"files": tuple(plain["files"]), "tags": tuple(plain["tags"])})
                    )
                message = box.get_nowait()
        return False

    def _look(self, last: bool) -> None:
        for follower in self.followers:
            while True:
                try:
                    follower.look(last)
                    break
                except Broken as error:
                    self.session.restart(error)
        self.session.check_space()


if __name__ == "__main__":
    sys.exit("error: this process is started by the commands that track runs; see docs/wandb.md")
