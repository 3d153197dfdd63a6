"""Send runs, tables and figures of a results folder to W&B, each part once.

Training does not know about it. A process beside a launch reads the folders of finished runs, so nothing that happens
to it, to wandb or to the server slows or changes a run. ``wandb/sent/`` in the results folder says what was sent.
"""

import contextlib
import hashlib
import json
import os
import pickle
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field

from benchmark.config.files import read_yaml
from benchmark.errors import StorageError
from benchmark.paths import ROOT
from benchmark.runs.files import write_atomically
from benchmark.runs.folder import ResultsFolder, RunFolder
from benchmark.runs.status import Result

WAIT_SECONDS = 30.0
"""Time that the process beside a launch has at the end of a command to send what is left."""

MODES = ("online", "offline", "disabled")
"""From the loudest to the quietest."""


class TrackingSettings(BaseModel):
    """What is sent to W&B. A file of ``conf/tracking`` states what differs from these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["off", "wandb"] = "off"
    mode: Literal["online", "offline", "disabled"] = Field(
        "online",
        description="offline: files for `wandb sync`; the variable WANDB_MODE can change it only towards disabled",
    )
    project: str = Field("fedtables", pattern=r"^[^/\\#?%:]+$", description="W&B project of the runs")
    entity: str | None = Field(None, description="user or team; null: the one that the API key belongs to")
    tags: tuple[str, ...] = Field(
        (), description="tags in addition to table, paper, preset, method, data set and selection"
    )
    init_timeout: float = Field(20.0, gt=0, description="seconds to wait for the server when a run is opened")
    poll: float = Field(10.0, gt=0, description="seconds between two looks at the runs")

    @property
    def quietest(self) -> str:
        """The mode, or that of the variable ``WANDB_MODE`` if it is quieter."""
        asked = os.environ.get("WANDB_MODE", "")
        return max(self.mode, asked, key=lambda mode: MODES.index(mode) if mode in MODES else -1)

    @property
    def active(self) -> bool:
        """Whether anything is sent or written."""
        return self.name != "off" and self.quietest != "disabled"


@dataclass(frozen=True)
class TrackedRun:
    """A run: its key below ``results/runs``, the first table that has it, and tags."""

    key: str
    group: str = ""
    tags: tuple[str, ...] = ()


class Sender:
    """Sends what is new to W&B. After a failure (``failed``), which is reported once, it sends nothing more."""

    def __init__(self, settings: TrackingSettings, root: Path, stream: TextIO | None = None) -> None:
        """``root`` is the results folder. A failure is printed on ``stream``, default stderr."""
        self.settings, self.root, self.failed = settings, root.absolute(), False
        self._stream = stream

    def send_runs(self, runs: Sequence[TrackedRun]) -> int:
        """Send what is new of ``runs``; number of those that something was sent of."""
        there = ResultsFolder(self.root).finished([run.key for run in runs])
        return self._send_all(self._send_run, [run for run in runs if run.key in there])

    def send_tables(self, since: float = 0.0) -> int:
        """Send tables and figures that were written after the time ``since``; number of those sent."""
        paths = [*sorted(self.root.glob("tables/*/*.csv")), *sorted(self.root.glob("figures/*/*.csv"))]
        return self._send_all(self._send_table, [path for path in paths if path.stat().st_mtime >= since])

    def _send_all(self, send: Callable[[Any], bool], items: Sequence[Any]) -> int:
        """Send items until W&B fails; number of those sent."""
        sent = 0
        try:
            for item in () if self.failed else items:
                sent += send(item)
        except Exception as error:  # noqa: BLE001 - whatever wandb or the server does, runs must go on
            self.failed = True
            reason = " ".join(str(error).split()) or type(error).__name__
            line = f"W&B cannot be used ({reason}); the runs go on, and this sends them later: {resend(self.root)}"
            _say(line, self._stream)
        return sent

    @contextlib.contextmanager
    def _note(self, path: Path, version: str) -> Iterator[dict[str, Any] | None]:
        """What is noted in ``path`` about this destination; at the end, that ``version`` was sent is noted too.

        None if ``version`` was sent before, or another process sends it.
        """
        # What was sent to one destination still has to be sent to another one.
        destination = f"{self.settings.quietest} {self.settings.entity or ''}/{self.settings.project}"
        with contextlib.suppress(Timeout), FileLock(path.with_suffix(".lock"), timeout=0):
            note: dict[str, Any] = {}
            with contextlib.suppress(OSError, ValueError):  # A damaged note says nothing.
                note = json.loads(path.read_bytes())
            note = note if note.get("destination") == destination else {}
            if note.get("sent") != version:
                yield note
                content = {**note, "destination": destination, "sent": version}
                write_atomically(path, json.dumps(content).encode(), durable=False)
                return
        yield None

    def _send_run(self, run: TrackedRun) -> bool:
        """Send a finished run."""
        folder = ResultsFolder(self.root).run(run.key)
        try:
            result = folder.result()
        except StorageError:
            return False  # The command that needs the run reports it.
        if result is None:
            return False
        place = self.root / "wandb" / "sent" / f"{result.hash}-seed{result.seed}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._note(place, result.records_sha256) as note:
            if note is None:
                return False
            opened = self._open(**describe(run, folder, result, self.settings))
            opened.define_metric("round")
            opened.define_metric("*", step_metric="round")
            for number, values in sorted(read_rounds(folder.path / "records.jsonl").items()):
                if number >= opened.starting_step:
                    opened.log({"round": number, **values}, step=number)
            opened.summary.update(summarise(result, folder))
            opened.finish(exit_code=0)
        return True

    def _send_table(self, path: Path) -> bool:
        """Send a table or figure, whose CSV is ``path``, with all its files."""
        import pandas
        import wandb

        kind, preset, name = path.parent.parent.name.removesuffix("s"), path.parent.name, path.stem
        files = sorted(path.parent.glob(f"{name}.*"))
        place = self.root / "wandb" / "published" / f"{kind}-{preset}-{name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        version = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
        with self._note(place, version) as note:
            if note is None:
                return False
            opened = self._open(
                id=f"{kind}-{preset}-{name}"[:64],
                name=f"{name} ({preset})",
                group=name,
                job_type=kind,
                tags=_tags([preset], self.settings.tags),
                config={"kind": kind, "name": name, "preset": preset, "files": [str(file) for file in files]},
            )
            artifact = wandb.Artifact(f"{preset}-{name}", type=kind)
            for file in files:
                artifact.add_file(str(file))
            opened.log_artifact(artifact)
            if kind == "table":
                cells = pandas.read_csv(path).astype(object)
                cells = cells.where(cells.notna(), None)
                opened.log({"table": wandb.Table(dataframe=cells, allow_mixed_types=True)})
            else:
                opened.log({"figure": wandb.Image(str(path.with_suffix(".png")), caption=name)})
            opened.finish()
        return True

    def _open(self, **arguments: Any) -> Any:
        """Open a W&B run, a new one or that of the same id. Raises whatever wandb raises."""
        import wandb

        folder = self.root / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < 1 << 20:  # wandb does not report that it cannot write
            raise OSError(f"the disk of {folder} is full")
        # `wandb sync` needs the files of artifacts, which are kept here.
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(folder / "data"))
        # This process is not the one that trains: its code, machine and output are left out.
        options = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            init_timeout=self.settings.init_timeout,
            finish_timeout=60.0,
            finish_timeout_raises=True,
        )
        return wandb.init(
            project=self.settings.project,
            entity=self.settings.entity,
            dir=str(self.root),
            mode=self.settings.quietest,  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=options,
            **{key: value for key, value in arguments.items() if value},
        )


def _tags(*groups: Sequence[Any]) -> tuple[str, ...]:
    """Distinct tags, cut to the length that W&B takes."""
    return tuple(dict.fromkeys(str(tag)[:64] for tags in groups for tag in tags if tag))


def metric_name(record: Mapping[str, Any]) -> str:
    """The name of a record at W&B: ``test/accuracy``, or ``test/accuracy/class=3`` of a group."""
    name = f"{record['split']}/{record['metric']}"
    return name if record["group"] == "all" else f"{name}/{record['group']}"


def read_rounds(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by round, without those of single clients."""
    rounds: dict[int, dict[str, float]] = {}
    for line in path.read_bytes().splitlines():
        record = json.loads(line)
        if record["split"] != "participation":
            rounds.setdefault(record["round"], {})[metric_name(record)] = record["value"]
    return rounds


def describe(
    run: TrackedRun, folder: RunFolder, result: Result, settings: TrackingSettings
) -> dict[str, Any]:
    """The arguments of ``wandb.init`` that describe a run."""
    config = read_yaml(folder.path / "config.yaml", "configuration")
    method, dataset, selection = (config.get(group) or {} for group in ("method", "dataset", "selection"))
    data = dataset.get("options", {}).get("stands_for") or dataset.get("name")
    names = [config.get("preset"), method.get("name"), data, selection.get("name")]
    name, _, seed = run.key.partition("/")
    return {
        "id": f"{name.rpartition('-')[2]}-{seed}",  # hash of the configuration, and seed
        "name": f"{name.rpartition('-')[0]} {seed}",
        "group": run.group[:128],
        "job_type": str(method.get("name", "run"))[:64],
        "tags": _tags(run.tags, names, settings.tags),
        "config": {**config, "made": result.made, "origin": result.origin, "folder": str(folder.path)},
    }


def summarise(result: Result, folder: RunFolder) -> dict[str, Any]:
    """The summary at W&B, with the last evaluation as ``final/<split>/<metric>``."""
    final = {f"final/{split}/{m}": value for split, ms in result.final.items() for m, value in ms.items()}
    return {
        "state": str(result.state),
        "message": result.message[:1000],
        "folder": str(folder.path),
        "rounds_done": result.round,
        "seconds": result.seconds,
        "seconds_per_round": result.seconds / max(1, result.round),
        **final,
    }


def resend(root: Path) -> str:
    """The command that sends what was not sent."""
    return shlex.join(["python", "-m", "benchmark", "track", f"results={root}"])


def _say(line: str, stream: TextIO | None = None) -> None:
    with contextlib.suppress(OSError):
        print(f"tracking: {line}", file=stream or sys.stderr, flush=True)


@contextlib.contextmanager
def tracking(settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun]) -> Iterator[None]:
    """Inside the ``with``, if tracking is on, a process of its own sends ``runs`` of the results folder ``root``.

    At the end it sends tables and figures that were written meanwhile, and has `WAIT_SECONDS` for what is left. Errors
    of tracking are printed and never raised.
    """
    process = None
    if settings.active:
        try:
            process = _start(settings, root, runs)
        except OSError as error:
            _say(f"not started ({error}); the runs go on without it")
        else:
            assert process.stderr is not None
            listener = threading.Thread(target=_pass_on, args=(process.stderr,), daemon=True)
            listener.start()
    try:
        yield
    finally:
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(timeout=WAIT_SECONDS)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            listener.join(1.0)
            if process.returncode:
                _say(f"not all was sent; this sends the rest: {resend(root)}")


def _pass_on(stream: IO[bytes]) -> None:
    """Print what the process says. Written to the terminal by itself, it would be lost in a live view."""
    for line in stream:
        with contextlib.suppress(OSError):
            print(line.decode(errors="replace"), end="", file=sys.stderr, flush=True)


def _start(settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun]) -> subprocess.Popen[bytes]:
    # A file, because thousands of runs do not fit into a pipe, and writing to it would wait for the process.
    with tempfile.TemporaryFile() as stream:
        pickle.dump((settings, root.absolute(), runs, time.time()), stream)
        stream.seek(0)
        return subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main({stream.fileno()})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            pass_fds=(stream.fileno(),),
            # Ctrl-C in the terminal is for the training. This process ends when its standard input closes.
            start_new_session=True,
        )


def main(plan: int) -> None:
    """The process: send what is new again and again until standard input closes, then once more."""
    # A batch system ends all processes of a job. This one stays until the runs have saved their state.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    os.nice(10)  # Training comes first.
    with os.fdopen(plan, "rb") as stream:
        settings, root, runs, began = pickle.load(stream)
    (root / "wandb").mkdir(parents=True, exist_ok=True)
    # What wandb prints goes to a file, and what the user has to know to the real stderr.
    terminal = os.fdopen(os.dup(2), "w")
    with (root / "wandb" / "tracking.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sender = Sender(settings, root, terminal)
    while not select.select([sys.stdin], [], [], settings.poll)[0]:
        sender.send_runs(runs)
    sender.send_runs(runs)
    sender.send_tables(began)
