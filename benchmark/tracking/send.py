"""Send runs, tables and figures of a results folder to W&B, each part once.

A run is read from its folder, so any process can send it at any time. ``wandb.json`` in the folder says what was sent.
A run that was interrupted and resumed continues under its id.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import yaml
from filelock import FileLock, Timeout

from benchmark.errors import StorageError
from benchmark.runs.files import write_atomically
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results, RunFolder, read_json
from benchmark.tracking.settings import TrackedRun, TrackingSettings

T = TypeVar("T")

EXIT_CODES = {RunState.DONE: 0, RunState.DIVERGED: 0, RunState.FAILED: 1}
"""Exit codes of runs at W&B. Other runs are marked as preempted, with exit code 130."""

LIVE_SECONDS = 60.0
"""Time between two sends of a run that is at work. A server needs about a second to open a run."""

FREE_BYTES = 1 << 20
"""Free space of the disk below which nothing is sent: wandb does not report that it cannot write."""


def say(line: str, stream: TextIO | None = None) -> None:
    """Print one line about tracking on ``stream``, default stderr."""
    with contextlib.suppress(OSError):
        print(f"tracking: {line}", file=stream or sys.stderr, flush=True)


class Sender:
    """Sends what is new to W&B. After a failure, which is reported once, it sends nothing more.

    Attributes:
        failed: Whether W&B failed.
    """

    def __init__(self, settings: TrackingSettings, root: Path, stream: TextIO | None = None) -> None:
        """``root`` is the results folder. A failure is printed on ``stream``, default stderr."""
        self._stream = stream
        self.settings, self.root, self.failed = settings, root.absolute(), False
        self._ended: set[str] = set()
        self._live_at: dict[str, float] = {}

    def send_runs(self, runs: Sequence[TrackedRun]) -> int:
        """Send what is new of ``runs``; number of those that something was sent of."""
        there = Results(self.root).there([run.key for run in runs if run.key not in self._ended])
        return self._guarded(self._send_run, [run for run in runs if run.key in there])

    def send_tables(self, since: float = 0.0) -> int:
        """Send tables and figures that were written after the time ``since``; number of those sent."""
        paths = [path for kind in ("tables", "figures") for path in sorted(self.root.glob(f"{kind}/*/*.csv"))]
        return self._guarded(self._send_table, [path for path in paths if path.stat().st_mtime >= since])

    def _guarded(self, send: Callable[[T], bool], items: Sequence[T]) -> int:
        """Send items until W&B fails; number of those sent."""
        sent = 0
        try:
            for item in () if self.failed else items:
                sent += send(item)
        except Exception as error:  # noqa: BLE001 - whatever wandb or the server does, runs must go on
            self.failed = True
            reason = " ".join(str(error).split()) or type(error).__name__
            command = f"python -m benchmark track results={self.root}"
            say(
                f"W&B cannot be used ({reason}); the runs go on, and this sends them later: {command}",
                self._stream,
            )
        return sent

    def close(self) -> None:
        """End wandb's service process."""
        if "wandb" in sys.modules:
            with contextlib.suppress(Exception):
                sys.modules["wandb"].teardown()

    def _send_run(self, run: TrackedRun) -> bool:
        folder = Results(self.root).run(run.key)
        try:
            status = folder.status()
        except StorageError:
            return False  # The command that needs the run reports it.
        if status is None or not self._is_due(run.key, status, folder):
            return False
        path, version = folder.path / "wandb.json", f"{status.state} {status.round}"
        with contextlib.suppress(Timeout), FileLock(folder.path / "wandb.lock", timeout=0):
            note = self._note(path)
            if note.get("sent") == version:
                if status.ended:
                    self._ended.add(run.key)
                return False
            last = self._log_run(run, folder, status, note.get("round", -1))
            self._write_note(path, sent=version, round=last)
            return True
        return False  # Another process sends it.

    def _is_due(self, key: str, status: Status, folder: RunFolder) -> bool:
        """Whether to send a run now. A run at work is sent now and then, and not into offline files."""
        if status.state is not RunState.RUNNING:
            return not status.ended or folder.complete(status)
        now = time.monotonic()
        due = now - self._live_at.setdefault(key, now) >= LIVE_SECONDS
        if due:
            self._live_at[key] = now
        return due and self.settings.quietest == "online"

    def _log_run(self, run: TrackedRun, folder: RunFolder, status: Status, sent: int) -> int:
        """Send the rounds after round ``sent``; the last round that W&B has now."""
        rounds = read_rounds(folder.records_path, whole=status.state is not RunState.RUNNING)
        opened = self._open(**describe(run, folder, self.settings))
        opened.define_metric("round")
        opened.define_metric("*", step_metric="round")
        first = max(sent + 1, opened.starting_step)
        for number in sorted(rounds):
            if number >= first:
                opened.log({"round": number, **rounds[number]}, step=number)
        opened.summary.update(summarise(status, folder))
        if status.state not in EXIT_CODES:
            opened.mark_preempting()
        opened.finish(exit_code=EXIT_CODES.get(status.state, 130))
        return max([*rounds, first - 1])

    def _send_table(self, path: Path) -> bool:
        kind, preset = path.parent.parent.name.removesuffix("s"), path.parent.name
        files = sorted(path.parent.glob(f"{path.stem}.*"))
        note = self.root / "wandb" / "published" / f"{kind}-{preset}-{path.stem}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(note.with_suffix(".lock")):
            version = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
            if self._note(note).get("sent") == version:
                return False
            self._log_table(kind, preset, path, files)
            self._write_note(note, sent=version)
            return True

    def _log_table(self, kind: str, preset: str, path: Path, files: Sequence[Path]) -> None:
        import pandas
        import wandb

        name = path.stem
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
            cells = pandas.read_csv(path)
            cells = cells.astype(object).where(cells.notna(), None)
            opened.log({"table": wandb.Table(dataframe=cells, allow_mixed_types=True)})
        else:
            opened.log({"figure": wandb.Image(str(path.with_suffix(".png")), caption=name)})
        opened.finish()

    def _open(self, **arguments: Any) -> Any:
        """Open a W&B run, a new one or that of the same id. Raises whatever wandb raises."""
        import wandb

        folder = self.root / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < FREE_BYTES:
            raise OSError(f"the disk of {folder} is full")
        # `wandb sync` needs the files of artifacts, which are kept here.
        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
            os.environ.setdefault(name, str(folder / "data"))
        options = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            # This process is not the one that trains.
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

    def _note(self, path: Path) -> dict[str, Any]:
        """What was sent to this destination; empty if nothing was."""
        try:
            note = read_json(path) or {}
        except StorageError:
            note = {}
        return note if note.get("destination") == self.settings.destination else {}

    def _write_note(self, path: Path, **note: Any) -> None:
        content = {"destination": self.settings.destination, **note}
        write_atomically(path, json.dumps(content).encode(), durable=False)


def _tags(*groups: Sequence[Any]) -> tuple[str, ...]:
    """Distinct tags, cut to the length that W&B takes."""
    return tuple(dict.fromkeys(str(tag)[:64] for tags in groups for tag in tags if tag))


def metric_name(record: Mapping[str, Any]) -> str:
    """The name of a record at W&B: ``test/accuracy``, or ``test/accuracy/class=3`` of a group."""
    name = f"{record['split']}/{record['metric']}"
    return name if record["group"] == "all" else f"{name}/{record['group']}"


def read_rounds(path: Path, whole: bool) -> dict[int, dict[str, float]]:
    """Metrics by round from a file of records. Unless it is ``whole``, the last round may be cut and is left out.

    The split ``participation`` is left out too: it has a value per client.
    """
    rounds: dict[int, dict[str, float]] = {}
    content = path.read_bytes() if path.exists() else b""
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        record = json.loads(line)
        if record["split"] != "participation":
            rounds.setdefault(record["round"], {})[metric_name(record)] = record["value"]
    if not whole:
        rounds.pop(max(rounds, default=0), None)
    return rounds


def describe(run: TrackedRun, folder: RunFolder, settings: TrackingSettings) -> dict[str, Any]:
    """The arguments of ``wandb.init`` that describe a run."""
    config: dict[str, Any] = yaml.safe_load((folder.path / "config.yaml").read_text())
    method, dataset, selection = (config.get(group) or {} for group in ("method", "dataset", "selection"))
    data = dataset.get("options", {}).get("stands_for") or dataset.get("name")
    own = [config.get("preset"), method.get("name"), data, selection.get("name")]
    name, _, seed = run.key.partition("/")
    return {
        "id": run.id,
        "name": f"{name.rpartition('-')[0]} {seed}",
        "group": run.group[:128],
        "job_type": str(method.get("name", "run"))[:64],
        "tags": _tags(run.tags, own, settings.tags),
        "config": {**config, "meta": read_json(folder.path / "meta.json"), "folder": str(folder.path)},
    }


def summarise(status: Status, folder: RunFolder) -> dict[str, Any]:
    """The summary at W&B, with the last evaluation as ``final/<split>/<metric>``."""
    final = {
        f"final/{split}/{m}": value for split, metrics in status.final.items() for m, value in metrics.items()
    }
    return {
        "state": str(status.state),
        "message": status.message[:1000],
        "folder": str(folder.path),
        "rounds_done": status.round,
        "seconds": status.seconds,
        "seconds_per_round": status.seconds / max(1, status.round),
        **final,
    }
