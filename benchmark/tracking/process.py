"""The process beside a launch that sends runs to W&B.

Training does not know about it. The process reads the folders of runs, so nothing that happens to it, to wandb or to
the server slows or changes a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark.paths import ROOT
from benchmark.tracking.send import say
from benchmark.tracking.settings import TrackedRun, TrackingSettings

WAIT_SECONDS = 30.0
"""Time that the process has at the end of a command to send what is left."""


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
            say(f"not started ({error}); the runs go on without it")
    try:
        yield
    finally:
        if process is not None:
            _finish(process, root)


def _start(settings: TrackingSettings, root: Path, runs: Sequence[TrackedRun]) -> subprocess.Popen[bytes]:
    plan = {
        "settings": settings.model_dump(mode="json"),
        "root": str(root.absolute()),
        "began": time.time(),
        "runs": [asdict(run) for run in runs],
    }
    # A file, because thousands of runs do not fit into a pipe, and writing to it would wait for the process.
    with tempfile.TemporaryFile() as stream:
        stream.write(json.dumps(plan).encode())
        stream.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "benchmark.tracking", str(stream.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=(stream.fileno(),),
            # Ctrl-C in the terminal is for the training. This process ends when its standard input closes.
            start_new_session=True,
        )


def _finish(process: subprocess.Popen[bytes], root: Path) -> None:
    try:
        process.communicate(timeout=WAIT_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        say(f"not all was sent; this sends the rest: python -m benchmark track results={root}")
