"""``python -m benchmark logs RUN``: what a run said, and the job that carried it out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from benchmark.cli.launching import SHOWN
from benchmark.cli.options import convert, parse
from benchmark.errors import ConfigError, nearest
from benchmark.launch.slurm.submission_log import SubmissionLog, task_log
from benchmark.runs.store import Results, RunFolder


@dataclass(frozen=True)
class LogsOptions:
    """Options of the command. ``follow``: go on until the run has ended."""

    lines: Annotated[str, "NUMBER|all"] = "40"
    results: Path = Path("results")
    follow: bool = False


def main(words: Sequence[str]) -> int:
    """Print the log of one run, and the part of its job's log that is about it; exit code 0."""
    names = [word for word in words if "=" not in word and not word.startswith("-")]
    options = parse([word for word in words if word not in names], "logs RUN", LogsOptions)
    if len(names) != 1:
        raise ConfigError(
            "logs: name one run: a part of its folder's name, and /seedK where it has several seeds."
        )
    results = Results(options.results).existing()
    lines = None if options.lines == "all" else convert("lines", options.lines, int)
    key = _run_called(results, names[0])
    folder = results.run(key)
    state = folder.status()
    print(
        f"== {folder.path}: {state.state if state else 'not begun'} {state.message if state else ''}".rstrip()
    )
    shown = _print_end(folder.path / "log.txt", lines)
    place = SubmissionLog(results).places().get(key)
    if place is not None:
        _print_job(task_log(results.root / "launcher" / "jobs", place), key, lines)
    if options.follow:
        _follow(folder, shown)
    return 0


def _run_called(results: Results, text: str) -> str:
    """The key of the one run whose folder's name has ``text`` in it; `ConfigError` if there are none or several."""
    name, _, seed = text.strip("/").removeprefix(f"{results.root}/").removeprefix("runs/").partition("/")
    runs = results.root / "runs"
    there = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.exists() else []
    found = [other for other in there if other == name] or [other for other in there if name in other]
    keys = [
        f"{other}/{path.name}"
        for other in found
        for path in sorted((runs / other).glob("seed*"))
        if seed in ("", path.name)
    ]
    if len(keys) == 1:
        return keys[0]
    if not keys:
        raise ConfigError(f"logs: no run in {runs} is called {text!r}.{nearest(name, there)}")
    listed = "\n  ".join(keys[:SHOWN]) + ("\n  ..." if len(keys) > SHOWN else "")
    raise ConfigError(f"logs: {text!r} fits {len(keys)} runs; name one:\n  {listed}")


def _print_end(path: Path, lines: int | None) -> int:
    """Print the last lines of a file; its size in bytes."""
    if not path.exists():
        print(f"{path} is not there")
        return 0
    content = path.read_bytes()
    kept = content.decode(errors="replace").splitlines()
    print("\n".join(kept if lines is None else kept[-lines:]))
    return len(content)


def _print_job(out: Path | None, key: str, lines: int | None) -> None:
    """What the job's log says: its lines about the run, and the last errors."""
    if out is None:
        return
    print(f"\n== {out} (lines on this run)")
    print("\n".join(line for line in out.read_text(errors="replace").splitlines() if key in line))
    error = out.with_suffix(".err")
    if error.exists() and error.stat().st_size:
        print(f"\n== {error}")
        _print_end(error, lines)


def _follow(folder: RunFolder, shown: int) -> None:
    path = folder.path / "log.txt"
    while True:
        status = folder.status()
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(shown)
                new = stream.read()
            shown += len(new)
            print(new.decode(errors="replace"), end="", flush=True)
        if status is not None and status.state != "running":
            return
        time.sleep(1.0)
