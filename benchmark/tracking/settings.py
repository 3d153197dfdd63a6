"""Tracking of runs by a process of its own: its settings, how it is started and ended, what it notes in a run's folder.

Training knows nothing of it. The process (`benchmark.tracking.tracker`) reads the folders of runs and sends what stands
there; whatever happens to it, or to the server, costs no run anything. What was sent is noted in ``wandb.json`` of the
run's folder, so that the next process goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from benchmark.errors import ConfigError, StorageError, format_validation_error
from benchmark.paths import ROOT
from benchmark.runs.files import write_atomically
from benchmark.runs.status import Status
from benchmark.runs.store import Results, read_json

NOTE = "wandb.json"
Kind = Literal["table", "figure"]
MODES = ("online", "offline", "disabled")
"""From the loudest to the quietest."""

# SIGUSR2 goes to all processes of a batch job and would end one that does not know it yet.
_BOOT = (
    "import signal, sys; signal.signal(signal.SIGUSR2, signal.SIG_IGN); "
    "sys.path.insert(0, sys.argv[1]); from benchmark.tracking.tracker import main; main(int(sys.argv[2]))"
)


class TrackingSettings(BaseModel):
    """``conf/tracking/*.yaml``, where the meaning of each key stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["off", "wandb"] = "off"
    mode: Literal["online", "offline", "disabled"] = "online"
    project: str = Field(default="fedtables", min_length=1)
    entity: str | None = None
    tags: tuple[str, ...] = ()
    dir: str | None = None
    patience: float = Field(default=30.0, ge=0)
    init_timeout: float = Field(default=20.0, gt=0)
    poll: float = Field(default=2.0, gt=0)
    system: float = Field(default=15.0, gt=0)

    @field_validator("project")
    @classmethod
    def _usable_project(cls, value: str) -> str:
        if re.search(r"[/\\#?%:]", value):
            raise ValueError("the name of a project holds none of / \\ # ? % :")
        return value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrackingSettings:
        """From plain values. `ConfigError`, naming the key, for what is not allowed."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            message = format_validation_error(error, cls, "tracking.")
            raise ConfigError(
                f"{message} Set it in conf/tracking/wandb.yaml or on the command line."
            ) from error

    @property
    def quietest(self) -> str:
        """The mode, or that of the variable ``WANDB_MODE`` if it is quieter."""
        asked = {"dryrun": "offline"}.get(found := os.environ.get("WANDB_MODE", ""), found)
        return max(self.mode, asked, key=lambda mode: MODES.index(mode) if mode in MODES else -1)

    @property
    def active(self) -> bool:
        """Whether anything is to be sent or written."""
        return self.name != "off" and self.quietest != "disabled"

    @property
    def destination(self) -> str:
        """Entity and project: a note about another one says nothing about this one."""
        return f"{self.entity or ''}/{self.project}"

    def folder(self, root: Path) -> Path:
        """The folder named ``wandb`` that holds the offline files."""
        return Path(self.dir or root).absolute() / "wandb"


# What there is to send -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrackedRun:
    """A run to follow: its folder below ``results/runs``; the table that it belongs to first; its tags."""

    key: str
    group: str = ""
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The run's id at W&B: the hash of its configuration and its seed."""
        name, _, seed = self.key.partition("/")
        return f"{name.rpartition('-')[2]}-{seed}"


@dataclass(frozen=True)
class Publication:
    """A finished table or figure: ``name`` of it, its preset, and its files."""

    kind: Kind
    name: str
    preset: str
    files: tuple[str, ...]
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id at W&B of the run that holds it."""
        return re.sub(r"[^\w-]", "_", f"{self.kind}-{self.preset}-{self.name}")[:64]


@dataclass(frozen=True)
class Note:
    """``wandb.json`` in a run's folder: what W&B, or an offline file, has of the run.

    Attributes:
        id: the run's id there.
        destination: entity and project.
        mode: online or offline.
        round: last round that was logged; -1 for none.
        first: first round that the offline file holds.
        file: the offline file; empty online.
        closed: whether the file, or the connection, was ended in order; if not, ``round`` is a guess.
        sent: state and round of the run when all was sent; empty as long as something is left.
        group: of the run.
        tags: of the run.
    """

    id: str
    destination: str
    mode: str
    round: int = -1
    first: int = 0
    file: str = ""
    closed: bool = False
    sent: str = ""
    group: str = ""
    tags: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Note | None:
        """The note; None if there is none, or one that cannot be used."""
        try:
            content = read_json(folder / NOTE)
            return None if content is None else cls(**content | {"tags": tuple(content.get("tags", ()))})
        except (StorageError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Replace the note; `StorageError` if the disk is full."""
        write_atomically(folder / NOTE, json.dumps(asdict(self)).encode(), durable=False)


def token(status: Status) -> str:
    """What `Note.sent` is when everything of a run with this status was sent."""
    return f"{status.state} {status.round}"


def unsent(settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun]) -> list[TrackedRun]:
    """Those of ``runs`` that have begun and of which not everything was sent."""
    left = []
    for run in runs:
        folder = Results(root).run(run.key)
        try:
            status = folder.status()
        except StorageError:
            continue  # named by whoever needs the run; there is nothing to send
        if status is None:
            continue
        note = Note.read(folder.path)
        if note is None or note.destination != settings.destination or note.sent != token(status):
            left.append(run)
    return left


def command_for_the_rest(settings: TrackingSettings, root: Path) -> str:
    """The command line that sends what is left in a results folder."""
    words = [f"results={root}"]
    for key in ("mode", "project", "entity", "dir"):
        value = getattr(settings, key)
        if value != TrackingSettings.model_fields[key].default:
            words.append(f"tracking.{key}={value}")
    return "python -m benchmark track " + shlex.join(words)


# The process -----------------------------------------------------------------------------------------------------


@dataclass
class Tracker:
    """The handle of a tracking process; without one, all calls do nothing. No call waits, but `finish`."""

    settings: TrackingSettings
    root: Path
    runs: list[TrackedRun] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    _reader: threading.Thread | None = None

    def follow(self, run: TrackedRun) -> None:
        """Follow one more run; one that is followed already stays so."""
        if self.process is not None and all(other.key != run.key for other in self.runs):
            self.runs.append(run)
            self._tell({"run": asdict(run)})

    def publish(self, publication: Publication) -> None:
        """Send a table or figure; the same files are sent once."""
        if publication.files:
            self._tell({"publication": asdict(publication)})

    def finish(self, patience: float | None) -> None:
        """Have everything sent, for ``patience`` seconds (null: as long as it takes), then end the process."""
        process = self.process
        if process is None:
            return
        self._tell({"finish": True})
        try:
            process.wait(patience)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            self.process = None
            _end(process)
            if self._reader is not None:
                self._reader.join(2.0)
        left = unsent(self.settings, self.root, self.runs)
        if left:
            say(
                f"{len(left)} of {len(self.runs)} runs are not wholly sent; this sends the rest: "
                f"{command_for_the_rest(self.settings, self.root)}"
            )

    def _tell(self, message: Mapping[str, Any]) -> None:
        if self.process is None or self.process.stdin is None:
            return
        # Without waiting: one that does not read any more misses a message, and training goes on.
        with contextlib.suppress(OSError):
            os.write(self.process.stdin.fileno(), json.dumps(message).encode() + b"\n")


@contextlib.contextmanager
def tracking(
    settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun], patience: float | None = -1.0
) -> Iterator[Tracker]:
    """Inside, a process of its own follows ``runs`` of the results folder ``root``; nothing waits for it to start.

    At the end it is given ``settings.patience`` seconds (or ``patience``; null: no limit) for what is left. One line on
    stderr says if something is. With tracking off nothing happens. Errors of tracking are said there too, and never
    raised.
    """
    tracker = Tracker(settings, root, list(runs))
    if settings.active:
        try:
            _start(tracker)
        except OSError as error:
            say(f"not started ({error}); the runs go on without")
    try:
        yield tracker
    finally:
        tracker.finish(settings.patience if patience == -1.0 else patience)


def say(line: str) -> None:
    """One line of tracking on stderr."""
    with contextlib.suppress(OSError):
        print(f"tracking: {line}", file=sys.stderr, flush=True)


def _start(tracker: Tracker) -> None:
    plan = {
        "settings": tracker.settings.model_dump(mode="json"),
        "root": str(tracker.root.absolute()),
        "runs": [asdict(run) for run in tracker.runs],
    }
    # A file, not a pipe: thousands of runs do not fit into a pipe, and writing to it would wait for the process.
    with tempfile.TemporaryFile() as stream:
        stream.write(json.dumps(plan).encode())
        stream.flush()
        stream.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(ROOT), str(stream.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(stream.fileno(),),
            # Ctrl-C in the terminal is for the training; the process learns by its standard input that all is over.
            start_new_session=True,
        )
    assert process.stdin is not None and process.stderr is not None
    os.set_blocking(process.stdin.fileno(), False)
    tracker.process = process
    # Through Python's own stderr, which a live view of the progress knows how to share.
    tracker._reader = threading.Thread(target=_repeat, args=(process.stderr,), name="tracking", daemon=True)
    tracker._reader.start()


def _repeat(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            say(line.decode(errors="replace").rstrip())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input; end it by force if it lives."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
