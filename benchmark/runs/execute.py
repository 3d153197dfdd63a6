"""Carries out one run to its end: rounds, records, checkpoints, status."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from benchmark import digests
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Record
from benchmark.engine.state import Diverged, FederationState, Interrupted
from benchmark.errors import UserError
from benchmark.runs import checkpoint
from benchmark.runs.build import build_run
from benchmark.runs.data import RunData, load_data
from benchmark.runs.index import RunIndex
from benchmark.runs.lease import Busy, LeaseLost
from benchmark.runs.origin import meta_of, origin_of
from benchmark.runs.status import RunResult, RunState, Status, differences
from benchmark.runs.store import DamagedError, ResultsFolder, RunFolder, final_values
from benchmark.runs.writer import RunWriter
from benchmark.sources import place_of
from benchmark.system import explain, kind_of

log = logging.getLogger("fedtables")

WRITE_SECONDS = 1.0
"""Time between two writes of records. A checkpoint and the end write all records at once."""

Progress = Callable[[int, int, Sequence[Record]], object]
"""``progress(round, rounds, records)``, called after every round with what it recorded."""

Stop = Callable[[], bool]


def work(payload: dict[str, Any], stop: Stop) -> RunResult:
    """`execute` for a launcher. ``payload`` is a plain configuration; a user's mistake is a failure."""
    try:
        return execute(RunConfig.model_validate(payload), stop=stop)
    except UserError as error:
        return RunResult(RunState.FAILED, str(error))


def execute(config: RunConfig, progress: Progress = lambda *_: None, stop: Stop = lambda: False) -> RunResult:
    """Carry out one run, or continue it, or return the outcome of a run that has ended.

    The folder of the run gets all results. A failure leaves its message in status.json and its traceback in log.txt.

    Args:
        config: The run.
        progress: Called after every round.
        stop: Asked between clients and rounds. If it returns true, the run saves its state and returns.

    Raises:
        UserError: The run failed because of a user's mistake.
    """
    results = ResultsFolder(Path(config.paths.results), config.runtime.stale).open()
    folder = results.run(config.key)
    try:
        problem = _problem(results, folder)
        if problem:
            with folder.lease():
                problem = _problem(results, folder)  # another process may have been faster
                if problem:
                    problem += f" What was there is now in {results.set_aside(config.key)}."
        return _outcome(folder) or _execute(config, folder, progress, stop, problem)
    except Busy as error:
        return RunResult(RunState.RUNNING, str(error))
    except LeaseLost as error:
        return RunResult(RunState.INTERRUPTED, str(error))


def _problem(results: ResultsFolder, folder: RunFolder) -> str:
    """Why what lies in the folder cannot be used; empty if it can."""
    try:
        status = folder.status()
        if status is not None and status.ended:
            folder.check_size(status)
            why = RunIndex(results).why_stale(status)
            return f"It was made by {why}." if why else ""
        if folder.config_path.exists():
            folder.read_config()
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
            _set_up_torch(config)
            ended = _outcome(folder)  # by a process that had the lease before
            if ended is not None:
                return ended
            if problem:
                log.warning("%s", problem)
            session = _open(config, writer, progress, stop, started)
            log.info("start: %s", config.key)
            status = session.run()
            log.info("%s after round %d: %s", status.state, status.round, status.message)
            messages = problem, session.restarted, status.message
            return RunResult(status.state, " ".join(filter(None, messages)))
        except LeaseLost as error:
            log.warning("stopped: %s", error)
            raise
        except Exception as error:
            explained = str(error) if isinstance(error, UserError) else explain(error)
            message = explained or _fault(error, folder.path / "log.txt")
            log.error("failed: %s\n%s", message, traceback.format_exc())
            try:
                _write_state(config, writer, RunState.FAILED, message)
            except (UserError, OSError) as second:  # a full disk: only the caller gets the message
                log.error("the failure could not be written to %s: %s", folder.path, second)
            if isinstance(error, UserError):
                raise
            if explained is not None:
                raise UserError(explained) from error
            return RunResult(RunState.FAILED, message, kind_of(error))


def _fault(error: Exception, log_file: Path) -> str:
    """The message about a fault of the program or of a user's file. Its first line says all that is known."""
    first, newline, rest = f"{type(error).__name__}: {error}".partition("\n")
    where = "; ".join(filter(None, [place_of(error), f"full log: {log_file}"]))
    return f"{first} ({where}){newline}{rest}"


def _set_up_torch(config: RunConfig) -> None:
    """Set what bits depend on beside the configuration's numbers: threads, algorithms, formats."""
    # With another number of threads the last bits of the results may differ.
    torch.set_num_threads(config.runtime.threads)
    threadpool_limits(config.runtime.threads)
    # Otherwise cuDNN chooses its algorithms by measured time, and a repeated run gives other bits.
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision.tf32


def _open(config: RunConfig, writer: RunWriter, progress: Progress, stop: Stop, started: float) -> RunSession:
    """The run with its data. Its folder then says what it is made of."""
    writer.write_config(config)
    _write_state(config, writer, RunState.RUNNING)
    data = load_data(config)
    run = build_run(config, data, stop)
    origin = origin_of(config, data, run)
    writer.write_code(name for name in {**origin["code"], **origin["builder"]} if not digests.is_engine(name))
    writer.write_meta(meta_of(config, data, origin))
    return RunSession(config, writer, progress, stop, started, run, data, origin)


def _write_state(config: RunConfig, writer: RunWriter, state: RunState, message: str = "") -> None:
    """Write the state of a run that stays in the round which it had reached."""
    before = writer.folder.status()
    round, rounds = before.round if before else 0, config.train.rounds
    writer.write_status(Status(state, round, rounds, message, hash=config.hash, seed=config.seed))


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


# Rounds ----------------------------------------------------------------------------------------------------------


@dataclass
class RunSession:
    """One process that works on one run.

    Attributes:
        origin: What its numbers depend on beside the configuration, as a `Status` says it.
        restarted: Why the checkpoint of a process before is not used; empty if it is, or if there is none.
    """

    config: RunConfig
    writer: RunWriter
    progress: Progress
    stop: Stop
    started: float
    federation: FederatedRun
    data: RunData
    origin: dict[str, Any]
    restarted: str = ""
    pending: list[Record] = field(default_factory=list)
    written_at: float = 0.0

    def run(self) -> Status:
        """Carry out all remaining rounds and return the final status, which is already written."""
        run, config = self.federation, self.config
        state = self._resume()
        self.progress(state.round, config.train.rounds, [])
        last: list[Record] = []
        try:
            if not self.writer.records_bytes:
                self._record(run.evaluate(state))
            while state.round < config.train.rounds:
                state, report = run.run_round(state)
                records = report.records(self.data.ids)
                ended = state.round == config.train.rounds
                if ended or state.round % config.evaluation.every == 0:
                    last = run.evaluate(state)
                    records += last
                self._record(records)
                self.progress(state.round, config.train.rounds, records)
                if not ended and state.round % config.runtime.checkpoint_every == 0:
                    self._checkpoint(state)
                if not ended and self.stop():
                    raise Interrupted
            # A kept checkpoint may be the last round's: then the process was killed just before the end.
            last = last or run.evaluate(state)
        except Interrupted:
            self._checkpoint(state)
            message = "stopped; give the same command to continue"
            status = self._status(RunState.INTERRUPTED, state.round, message)
            self.writer.write_status(status, durable=True)
            return status
        except Diverged as error:
            return self._end(RunState.DIVERGED, state, str(error), [])
        return self._end(RunState.DONE, state, "", last)

    def _resume(self) -> FederationState:
        """The state to start from. The writer then has the records that belong to it."""
        run, writer = self.federation, self.writer
        saved = self._same_origin(self._checkpoint_before())
        if saved is not None and not writer.start_records(saved["records_bytes"], saved["records_sha256"]):
            # After a power failure the checkpoint may be on the disk while the records before it are not.
            log.warning("the records are not those that the checkpoint counts: the run starts again")
            saved = None
        if saved is None:
            writer.start_records()
            return run.initial_state()
        # Another version of a library may build the same model with other tensors.
        run.layout.require_same(saved["layout"], f"checkpoint {writer.folder.checkpoint_path}")
        self.started -= saved["seconds"]  # the seconds of earlier processes count too
        log.info("resumed after round %d", saved["state"]["round"])
        return run.restored(saved["state"])

    def _same_origin(self, saved: dict[str, Any] | None) -> dict[str, Any] | None:
        """The checkpoint, if its numbers were made as this process makes them, or if the user asks for a mixture."""
        if saved is None:
            return None
        before = saved["origin"]
        other = ", ".join(differences(before, self.origin))
        if other and self.config.runtime.stale == "rerun":
            self.restarted = (
                f"It had stopped after round {saved['state']['round']} and has started again, because these are others "
                f"now: {other}. runtime.stale=keep would have gone on, with a mark in tables."
            )
            log.warning("%s", self.restarted)
            return None
        mixed, processors = (dict.fromkeys(before.get(key, "").split("; ")) for key in ("mixed", "processor"))
        self.origin["mixed"] = "; ".join(filter(None, {**mixed, other: None}))
        self.origin["processor"] = "; ".join(filter(None, {**processors, self.origin["processor"]: None}))
        return saved

    def _checkpoint_before(self) -> dict[str, Any] | None:
        """The checkpoint of the process before. A damaged one is set aside."""
        path = self.writer.folder.checkpoint_path
        try:
            return checkpoint.load(path, self.config)
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
            "origin": self.origin,
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
        model = state.w.cpu().numpy().tobytes() + state.buffers.cpu().numpy().tobytes()
        writer = self.writer
        status = self._status(
            outcome,
            state.round,
            message,
            records_bytes=writer.records_bytes,
            records_sha256=writer.records_sha256.hexdigest(),
            model_sha256=hashlib.sha256(model).hexdigest(),
            final=final_values(last, state.round),
            files=writer.files,
            **self.origin,
        )
        writer.publish(status, self.config.runtime.keep_checkpoint)
        return status
