"""What `make` does: the variables it hands on, the errors it shows, and how it sets up `.venv`."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import executable

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
VARIABLES = set(re.findall(r"^([A-Z]+) +\?=", MAKEFILE, re.MULTILINE))
# `make test` hands its own variables down; what these tests start must not inherit them.
INHERITED = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"} | VARIABLES


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**kept, **environment}, timeout=300)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `make` reads, with a ready `.venv` whose interpreter only says how it was called."""
    (tmp_path / "scripts").mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "scripts/setup_environment.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    executable(python, '[ "$1" = -IS ] && echo 1 && exit\nprintf "[%s]" "$@"\nexit ${FAKE_STATUS:-0}')
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update((tmp_path / name).read_bytes())
    (tmp_path / ".venv" / ".ready").write_text(digest.hexdigest() + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (["table1"], "table table=1 preset=quick launcher=local"),
        (["table1", "PAPER=fedmr", "PRESET=small"], "table table=1 paper=fedmr preset=small launcher=local"),
        (["table", "PAPER=fedld", "TABLE=3"], "table table=3 paper=fedld preset=quick launcher=local"),
        (["tables", "LAUNCHER=inline", "SEEDS=0"], "table preset=quick seeds=0 launcher=inline"),
        (["report", "PAPER=fedmr", "TABLE=1"], "report table=1 paper=fedmr preset=quick"),
        (["status", "PAPER=it's;"], "status paper=it's; preset=quick"),
    ],
)
def test_make_hands_its_variables_on(checkout: Path, arguments: list[str], called: str) -> None:
    done = make(checkout, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"[{word}]" for word in ["-m", "benchmark", *called.split()])


def test_make_passes_a_failure_on_and_refuses_a_misspelt_variable(checkout: Path) -> None:
    done = make(checkout, "table1", "SEEDS=0", FAKE_STATUS="2")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    done = make(checkout, "table1", "SEED=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown variable SEED;" in done.stderr and "SEEDS" in done.stderr


@pytest.mark.parametrize(("python", "found"), [("old", "Python 3.9.2"), ("none", "not installed")])
def test_make_refuses_an_old_python(checkout: Path, tmp_path: Path, python: str, found: str) -> None:
    executable(tmp_path / "bin" / "old", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    (checkout / ".venv" / ".ready").unlink()
    done = make(checkout, "test", f"PYTHON={tmp_path}/bin/{python}")
    assert done.returncode == 2
    assert "3.11 or newer" in done.stderr and found in done.stderr


# Setting up --------------------------------------------------------------------------------------


@pytest.fixture
def fresh(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without `.venv`; `uv` only records how it was called."""
    shutil.rmtree(checkout / ".venv")
    executable(checkout / "bin" / "uv", f'[ "$1" = pip ] && echo "$@" >> {checkout}/uv.log\nexit 0')
    monkeypatch.setenv("PATH", f"{checkout}/bin:{os.environ['PATH']}")
    return checkout


def setup(folder: Path) -> subprocess.CompletedProcess[str]:
    return make(folder, "setup", f"PYTHON={sys.executable}")


def installs(folder: Path) -> list[str]:
    """Calls that installed the packages of the lock; behind each stands one that installed FedTables itself."""
    log = folder / "uv.log"
    calls = log.read_text().splitlines() if log.exists() else []
    assert all(call.endswith(f"--editable {folder}") for call in calls[1::2])
    return calls[::2]


def test_setup_installs_the_lock_and_again_when_its_content_changes(fresh: Path) -> None:
    assert setup(fresh).returncode == 0
    (call,) = installs(fresh)
    assert call.startswith("pip sync") and call.endswith(f"{fresh}/requirements.lock")
    assert "--require-hashes" in call and f"{fresh}/.venv/bin/python" in call
    assert setup(fresh).stderr == ""
    kept = fresh / ".venv" / "kept"
    kept.touch()
    later = time.time() + 10
    os.utime(fresh / "requirements.lock", (later, later))  # newer, but the same: as after a checkout
    setup(fresh)
    assert len(installs(fresh)) == 1
    with (fresh / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    os.utime(fresh / "requirements.lock", (later + 10, later + 10))
    setup(fresh)
    assert len(installs(fresh)) == 2
    assert kept.exists(), "a finished .venv is updated, not made again"


@pytest.mark.slow
def test_setup_that_fails_leaves_no_stamp(fresh: Path) -> None:
    executable(fresh / "bin" / "uv", '[ "$1" = pip ] && { echo "no route to index" >&2; exit 1; }\nexit 0')
    done = setup(fresh)
    assert done.returncode == 2
    assert "no route to index" in done.stderr and "Traceback" not in done.stderr
    assert not (fresh / ".venv" / ".ready").exists()
