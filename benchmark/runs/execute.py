"""Carries out one run to its end: rounds, records, checkpoints, status."""

import contextlib
import hashlib
import logging
import math
import platform
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Record
from benchmark.engine.state import Diverged, FederationState, Interrupted
from benchmark.errors import UserError
from benchmark.paths import ROOT
from benchmark.runs import checkpoint, code
from benchmark.runs.build import build_run
from benchmark.runs.data import RunData, load_data
from benchmark.runs.lease import Busy, LeaseLost
from benchmark.runs.status import RunResult, RunState, Status
from benchmark.runs.store import DamagedError, Results, RunFolder
from benchmark.runs.writer import RunWriter
from benchmark.system import explain
from methods.core.method import Method
from methods.core.vectors import Layout
from partitions.core.registry import get as get_scheme

log = logging.getLogger("fedtables")

WRITE_SECONDS = 1.0
"""Time between two writes of records. A checkpoint and the end write all records at once."""

Progress = Callable[[int, int], None]
"""``progress(round, rounds)``, called after every round."""

Stop = Callable[[], bool]


def work(payload: dict[str, Any], progress: Progress, stop: Stop) -> RunResult:
    """`execute` for a launcher. ``payload`` is a plain configuration; a user's mistake is a failure."""
    try:
        return execute(RunConfig.model_validate(payload), progress, stop)
    except UserError as error:
        return RunResult(RunState.FAILED, str(error))


def execute(
    config: RunConfig, progress: Progress = lambda r, n: None, stop: Stop = lambda: False
) -> RunResult:
    """Carry out one run, or continue it, or return the outcome of a run that has ended.

    The folder of the run gets all results. A failure leaves its message in status.json and its traceback in log.txt.

    Args:
        config: The run.
        progress: Called after every round.
        stop: Asked between clients and rounds. If it returns true, the run saves its state and returns.

    Raises:
        UserError: The run failed because of a user's mistake.
    """
    code.sources()  # before a method is imported
    results = Results(Path(config.paths.results)).open()
    folder = results.run(config.key)
    try:
        problem = _problem(config, folder)
        if problem:
            with folder.lease():
                problem = _problem(config, folder)  # another process may have been faster
                if problem:
                    problem += f" What was there is now in {results.set_aside(config.key)}."
        return _outcome(folder) or _execute(config, folder, progress, stop, problem)
    except Busy as error:
        return RunResult(RunState.RUNNING, str(error))
    except LeaseLost as error:
        return RunResult(RunState.INTERRUPTED, str(error))


def _problem(config: RunConfig, folder: RunFolder) -> str:
    """Why what lies in the folder cannot be used; empty if it can."""
    try:
        status = folder.status()
        if status is not None and status.ended:
            folder.check_size(status)
            changed = code.changed(status) if config.runtime.stale == "rerun" else []
            return f"The code of {', '.join(changed)} has changed." if changed else ""
        if folder.config_path.exists():
            folder.check_config()
    except DamagedError as error:
        return str(error)
    return ""


def _outcome(folder: RunFolder) -> RunResult | None:
    """The outcome of a run that has ended."""
    status = folder.status()
    return RunResult(status.state, status.message) if status is not None and status.ended else None


def _execute(config: RunConfig, folder: RunFolder, progress: Progress, stop: Stop, problem: str) -> RunResult:
    started = time.perf_counter()
    with folder.lease() as lease, _log_file(folder):
        writer = RunWriter(folder, lease)
        try:
            # With another number of threads the last bits of the results may differ.
            torch.set_num_threads(config.runtime.threads)
            threadpool_limits(config.runtime.threads)
            # Otherwise cuDNN chooses its algorithms by measured time, and a repeated run gives other bits.
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
            ended = _outcome(folder)  # by a process that had the lease before
            if ended is not None:
                return ended
            if problem:
                log.warning("%s", problem)
            writer.write_config(config)
            _write_state(config, writer, RunState.RUNNING)
            data = load_data(config, Path(config.paths.results) / "partitions")
            run = build_run(config, data, stop)
            writer.write_meta(_meta(config, data, run.problem.images.device))
            log.info("start: %s", config.key)
            status = RunSession(config, writer, progress, stop, started, run).run()
            log.info("%s after round %d: %s", status.state, status.round, status.message)
            return RunResult(status.state, f"{problem} {status.message}".strip())
        except LeaseLost as error:
            log.warning("stopped: %s", error)
            raise
        except Exception as error:
            known = str(error) if isinstance(error, UserError) else explain(error)
            message = known or f"{type(error).__name__}: {error}"
            log.error("failed: %s\n%s", message, traceback.format_exc())
            try:
                _write_state(config, writer, RunState.FAILED, message)
            except (UserError, OSError) as second:  # a full disk: only the caller gets the message
                log.error("the failure could not be written to %s: %s", folder.path, second)
            if isinstance(error, UserError):
                raise
            if known is not None:
                raise UserError(known) from error
            where = f"traceback in {folder.path / 'log.txt'}"
            return RunResult(RunState.FAILED, f"{message} ({where})", type(error).__name__)


def _write_state(config: RunConfig, writer: RunWriter, state: RunState, message: str = "") -> None:
    """Write the state of a run that stays in the round which it had reached."""
    known = writer.folder.status()
    round = known.round if known else 0
    writer.write_status(
        Status(state, round, config.train.rounds, message, hash=config.hash, seed=config.seed)
    )


@contextlib.contextmanager
def _log_file(folder: RunFolder) -> Iterator[None]:
    """Append the log to log.txt."""
    handler = _LogFile(folder.path / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """Ignores a full disk; the status and the command line say what ended the run."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # there may be no inode left to create the file
            super().emit(record)


# Meta ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _commit() -> tuple[str, bool]:
    """(commit of this checkout, whether files differ from it); an empty commit without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except OSError:
        return "", False


def _meta(config: RunConfig, data: RunData, device: torch.device) -> dict[str, Any]:
    commit, dirty = _commit()
    processor = platform.processor() or platform.machine()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor
    return {
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "host": socket.gethostname(),
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "preset": config.preset,
        "dataset": data.dataset.name,
        "fingerprint": data.dataset.fingerprint,
        "partition": data.partition.id,
        "note": data.dataset.note,
        "label": config.method.get("label", config.method.get("name", "")),
    }


# Rounds ----------------------------------------------------------------------------------------------------------


@dataclass
class RunSession:
    """One process that works on one run."""

    config: RunConfig
    writer: RunWriter
    progress: Progress
    stop: Stop
    started: float
    federation: FederatedRun
    pending: list[Record] = field(default_factory=list)
    written_at: float = 0.0

    def run(self) -> Status:
        """Carry out all remaining rounds and return the final status, which is already written."""
        run, config = self.federation, self.config
        state = self._resume()
        self.progress(state.round, config.train.rounds)
        last: list[Record] = []
        try:
            if not self.writer.records_bytes:
                self._record(run.evaluate(state))
            while state.round < config.train.rounds:
                state, report = run.step(state)
                records = report.records(run.num_clients)
                ended = state.round == config.train.rounds
                if ended or state.round % config.evaluation.every == 0:
                    last = run.evaluate(state)
                    records += last
                self._record(records)
                self.progress(state.round, config.train.rounds)
                if not ended and state.round % config.runtime.checkpoint_every == 0:
                    self._checkpoint(state)
                if not ended and self.stop():
                    raise Interrupted
        except Interrupted:
            self._checkpoint(state)
            message = "stopped; give the same command to continue"
            status = self._status(RunState.INTERRUPTED, state.round, message)
            self.writer.write_status(status, durable=True)
            return status
        except Diverged as error:
            return self._end(RunState.DIVERGED, state, str(error), [])
        # A kept checkpoint may be the last round's: then the process was killed just before the end.
        return self._end(RunState.DONE, state, "", last or run.evaluate(state))

    def _resume(self) -> FederationState:
        """The state to start from. The writer then has the records that belong to it."""
        run, writer = self.federation, self.writer
        saved = self._checkpoint_before()
        if saved is not None and not writer.start_records(saved["records_bytes"], saved["records_sha256"]):
            # After a power failure the checkpoint may be on the disk while the records before it are not.
            log.warning("the records are not those that the checkpoint counts: the run starts again")
            saved = None
        if saved is None:
            writer.start_records()
            return run.initial_state()
        # Another version of a library may build the same model with other tensors.
        layout = Layout.from_list(saved["layout"])
        run.layout.require_same(layout, f"checkpoint {writer.folder.checkpoint_path}")
        self.started -= saved["seconds"]  # the seconds of earlier processes count too
        log.info("resumed after round %d", saved["state"]["round"])
        return FederationState(**saved["state"])

    def _checkpoint_before(self) -> dict[str, Any] | None:
        """The checkpoint of the process before. A damaged one is set aside."""
        path = self.writer.folder.checkpoint_path
        try:
            return checkpoint.load(path, self.config, self.federation.problem.images.device)
        except DamagedError as error:
            place = path.replace(path.with_name("checkpoint.damaged.pt"))
            log.warning("%s The run starts again; the file is now %s", error, place)
            return None

    def _record(self, records: Sequence[Record]) -> None:
        """Collect records. They are written once a second, because a file server is slow to open a file."""
        self.pending += [record for record in records if math.isfinite(record.value)]
        if time.monotonic() - self.written_at >= WRITE_SECONDS:
            self._write_records()

    def _write_records(self) -> None:
        """Write the collected records."""
        self.writer.lease.check()
        self.writer.append_records(self.pending)
        self.pending, self.written_at = [], time.monotonic()

    def _checkpoint(self, state: FederationState) -> None:
        self._write_records()
        content = {
            "hash": self.config.hash,
            "seed": self.config.seed,
            "layout": self.federation.layout.to_list(),
            "state": state.to_dict(),
            "seconds": time.perf_counter() - self.started,
        }
        self.writer.save_checkpoint(content)
        self.writer.write_status(self._status(RunState.RUNNING, state.round))

    def _status(self, state: RunState, round: int, message: str = "", **more: Any) -> Status:
        config, seconds = self.config, float(f"{time.perf_counter() - self.started:.2f}")
        more |= {"seconds": seconds, "hash": config.hash, "seed": config.seed}
        return Status(state, round, config.train.rounds, message, **more)

    def _end(self, outcome: RunState, state: FederationState, message: str, last: list[Record]) -> Status:
        self._write_records()
        if self.config.runtime.keep_checkpoint:
            self._checkpoint(state)
        final: dict[str, dict[str, float]] = {}
        for record in last:
            if record.group == "all":
                final.setdefault(record.split, {})[record.metric] = record.value
        model = state.w.cpu().numpy().tobytes() + state.buffers.cpu().numpy().tobytes()
        writer = self.writer
        status = self._status(
            outcome,
            state.round,
            message,
            records_bytes=writer.records_bytes,
            records_sha256=writer.records_sha256.hexdigest(),
            model_sha256=hashlib.sha256(model).hexdigest(),
            final=final,
            code=_own_code(self.config, self.federation.method),
            engine=code.engine(),
            files=writer.files,
        )
        writer.publish(status, self.config.runtime.keep_checkpoint)
        return status


def _own_code(config: RunConfig, method: Method) -> dict[str, str]:
    """Digests of the files of the method's rules and of the partition scheme."""
    scheme = get_scheme(config.partition.name)
    return code.own([type(rule).__module__ for rule in method.rules] + [scheme.__module__])
