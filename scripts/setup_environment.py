"""Build `.venv` from `requirements.lock`, with the command `fedtables`: what `make` runs before anything else.

Only the standard library is used, because nothing is installed yet. Every step can be interrupted: the
stamp `.venv/.ready` is written last, a folder without a stamp is made again, one with the stamp of another
lock file is brought up to date. Calls that run at once wait for each other.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".ready"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
OLDEST = (3, 11)


def say(text: str) -> None:
    """Print one line of progress to standard error, where it does not mix with a command's own output."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def wait_for_others() -> IO[str]:
    """Wait until no other process sets up; the returned file is the lock, which lasts until it is closed.

    It lies beside `.venv`, not inside: the folder may be made again.
    """
    handle = (ROOT / ".venv.lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another make is setting up .venv; waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:  # some network file systems have no locks
        say(f"going on without a lock ({error})")
    return handle


def interpreter_works() -> bool:
    """Whether `.venv` has an interpreter that starts and is new enough (its base may have been removed)."""
    check = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    try:
        return subprocess.run([PYTHON, "-I", "-c", check], capture_output=True).returncode == 0
    except OSError:
        return False


def step(command: list[str], failed: str) -> None:
    """Run one command, its output on standard error; stop with the message ``failed`` if it does not end well."""
    if subprocess.run(command, stdout=sys.stderr, cwd=ROOT).returncode != 0:
        sys.exit(f"setup: stopped: {failed}")


def uv_works() -> bool:
    """Whether uv is on PATH and starts; a version manager's stub may have nothing behind it."""
    path = shutil.which("uv")
    return path is not None and subprocess.run(["uv", "--version"], capture_output=True).returncode == 0


def find_uv() -> list[str]:
    """The command that starts uv: the one on PATH, otherwise one that pip installs into `.venv`."""
    if uv_works():
        return ["uv"]
    python = [str(PYTHON), "-m"]
    step([*python, "pip", "install", "-q", "uv"], "pip could not install uv. Is the package index reachable?")
    return [*python, "uv"]


def set_up() -> None:
    """Complete `.venv`: interpreter, packages, stamp. Does nothing but touch the stamp if all are right."""
    stamp = hashlib.sha256(LOCK.read_bytes() + PROJECT.read_bytes()).hexdigest()
    if not VENV.is_dir():  # a link to a folder on a larger disk is fine, a dead link or a file is not
        VENV.unlink(missing_ok=True)
    finished = STAMP.read_text().strip() if STAMP.is_file() and interpreter_works() else None
    if finished == stamp:
        STAMP.touch()  # newer than requirements.lock again, so that make does not call once more
        return
    STAMP.unlink(missing_ok=True)
    if finished is None:
        # An installer that was killed leaves half a package that looks installed: nothing of it is kept.
        say(f"making .venv with Python {sys.version.split()[0]}")
        without_pip = ["--without-pip"] if uv_works() else []
        step(
            [sys.executable, "-m", "venv", "--clear", *without_pip, str(VENV)],
            "python3 could not make a virtual environment. Install its venv module (Debian and Ubuntu: apt-get "
            "install python3-venv) or uv, then run the same make command again.",
        )
    say("installing the packages of requirements.lock (the first time this downloads PyTorch)")
    pip = [*find_uv(), "pip"]
    options = ["--quiet", "--python", str(PYTHON)]
    again = "the reason stands above. Run the same make command again: what was downloaded is kept."
    step(
        [*pip, "sync", *options, "--require-hashes", str(LOCK)],
        f"the packages could not be installed; {again}",
    )
    step(
        [*pip, "install", *options, "--no-deps", "--editable", str(ROOT)],
        f"FedTables could not be installed in .venv; {again}",
    )
    STAMP.write_text(stamp + "\n")
    say("done")


if __name__ == "__main__":
    try:
        with wait_for_others():
            set_up()
    except KeyboardInterrupt:
        say("interrupted; the next make starts it again")
        sys.exit(130)
