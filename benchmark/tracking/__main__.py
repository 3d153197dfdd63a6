"""``python -m benchmark.tracking``: the process that `benchmark.tracking.process` starts beside a launch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

from benchmark.tracking.send import Sender
from benchmark.tracking.settings import TrackedRun, TrackingSettings


def main() -> None:
    """Send what is new again and again until standard input closes, then once more."""
    # A batch system ends all processes of a job. This one stays until the runs have saved their state.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)  # Training comes first.
    with os.fdopen(int(sys.argv[1])) as stream:
        plan = json.load(stream)
    settings = TrackingSettings.of(plan["settings"])
    runs = [TrackedRun(**run) for run in plan["runs"]]
    folder = Path(plan["root"]) / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    # What wandb prints goes to a file, and what the user has to know to the real stderr.
    terminal = os.fdopen(os.dup(2), "w")
    with (folder / "tracking.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sender = Sender(settings, Path(plan["root"]), terminal)
    while not select.select([sys.stdin], [], [], settings.poll)[0]:
        sender.send_runs(runs)
    sender.send_runs(runs)
    sender.send_tables(plan["began"])
    sender.close()


if __name__ == "__main__":
    main()
