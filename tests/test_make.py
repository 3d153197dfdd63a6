"""What `make` does: the variables it hands on, the errors it shows, and how it sets up `.venv`."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import executable, is_alive, wait_until

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
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


def test_help_explains_every_target_and_variable() -> None:
    shown = make(ROOT, "help").stdout
    assert set(re.findall(r"^  ([a-z0-9-]+) ", shown, re.MULTILINE)) == TARGETS
    assert set(re.findall(r"^  ([A-Z]+) ", shown, re.MULTILINE)) == VARIABLES


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


@pytest.mark.parametrize(
    ("words", "rows"),
    [("", ""), ("methods=mine columns=pacs results=r", " rows=fedavg,mine columns=pacs results=r")],
)
def test_the_steps_of_the_leaderboard(checkout: Path, words: str, rows: str) -> None:
    """The search has one seed whatever SEEDS says; with methods= or columns= there is no figure."""
    done = make(checkout, "leaderboard", "SEEDS=2", f"ARGS={words}")
    assert (done.returncode, done.stderr) == (0, "")
    how = f"preset=quick launcher=local{rows}"
    steps = [
        f"table name=leaderboard tuned=off {how} seeds=2",
        f"tune name=leaderboard_tuned trials=6 {how}",
        f"table name=leaderboard_tuned {how} seeds=2",
        f"analyse leaderboard preset=quick seeds=2{' results=r' if words else ''}",
    ]
    if not words:
        steps.append(f"figure name=leaderboard tuned=off {how} seeds=2")
        steps.append(f"figure name=leaderboard_tuned {how} seeds=2")
    called = [["-m", "benchmark", *step.split()] for step in steps]
    assert done.stdout == "".join(f"[{word}]" for step in called for word in step)


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


@pytest.mark.parametrize("damage", ["no stamp", "dead interpreter", "a file", "dead link"])
def test_setup_mends_what_an_interruption_left(fresh: Path, damage: str) -> None:
    venv = fresh / ".venv"
    setup(fresh)
    half = venv / "lib" / "half-installed"
    half.touch()
    if damage == "no stamp":
        (venv / ".ready").unlink()
    elif damage == "dead interpreter":
        (venv / "bin" / "python").unlink()
        (venv / "bin" / "python").symlink_to(fresh / "nowhere")
    else:
        shutil.rmtree(venv)
        venv.symlink_to(fresh / "nowhere") if damage == "dead link" else venv.touch()
    done = setup(fresh)
    assert done.returncode == 0, done.stderr
    assert len(installs(fresh)) == 2
    assert (venv / ".ready").exists() and not half.exists()


def test_setup_that_fails_leaves_no_stamp(fresh: Path) -> None:
    executable(fresh / "bin" / "uv", '[ "$1" = pip ] && { echo "no route to index" >&2; exit 1; }\nexit 0')
    done = setup(fresh)
    assert done.returncode == 2
    assert "no route to index" in done.stderr and "Traceback" not in done.stderr
    assert not (fresh / ".venv" / ".ready").exists()


def test_setups_at_once_wait_for_each_other(fresh: Path) -> None:
    with (fresh / ".venv.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = [sys.executable, str(fresh / "scripts" / "setup_environment.py")]
        waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None and "waiting" in waiting.stderr.readline()
        assert not (fresh / ".venv").exists()
    waiting.communicate(timeout=300)
    assert waiting.returncode == 0
    assert len(installs(fresh)) == 1


# The test suite ----------------------------------------------------------------------------------


def test_a_stopped_suite_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "def test_endless():\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "    child.wait()\n"
    )
    options = ["-n", "1", "-p", "conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    suite = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and bool(pid.read_text()), "the child of the test")
    suite.terminate()
    assert suite.wait(300) == pytest.ExitCode.INTERRUPTED
    wait_until(lambda: not is_alive(int(pid.read_text())), "the end of the child")
