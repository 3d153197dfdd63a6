"""Tracking: what arrives at W&B is what stands in the run's folder, once; and whatever breaks, training does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import descendants, is_alive, wait_until
from tiny_runs import STATELESS, bits, folder_of, tiny, words_of
from tracked_runs import (
    CONFIG,
    ID,
    KEY,
    LOGGED,
    META,
    RUN,
    closed_port,
    history,
    inspect,
    lines,
    merged,
    of_type,
    offline_files,
    server,
    settings,
    write_run,
)
from wandb_server import Kept, Wandb, wandb_server

from benchmark.errors import ConfigError
from benchmark.tracking import process, send
from benchmark.tracking.process import tracking
from benchmark.tracking.send import Sender, metric_name, read_rounds
from benchmark.tracking.settings import TrackedRun, TrackingSettings

ROOT = Path(__file__).resolve().parents[2]
FAKE_KEY = "0123456789" * 4
OTHER = TrackedRun(KEY.replace("seed3", "seed4"))


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server, no key, no settings of the user's; what is sent all the same ends at a closed port."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # A slow machine is no dead server.
    monkeypatch.setattr(process, "WAIT_SECONDS", 300.0)
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # with the address of the server, which it keeps


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A results folder."""
    return tmp_path / "results"


def track(root: Path, *runs: TrackedRun, **changes: Any) -> None:
    """Send runs that are not at work any more, through the process beside a launch."""
    with tracking(settings(**changes), root, runs or (RUN,)):
        pass


# What arrives ------------------------------------------------------------------------------------------------------


def test_everything_arrives_as_it_stands_in_the_folder(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(root, "done", range(5))
    with tempfile.TemporaryDirectory() as place:  # pytest's paths are too long for wandb's sockets
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", place)
            track(root, tags=["mine"])
        assert not list(Path(place).iterdir()), "nothing is left in the temporary folder"
    (file,) = offline_files(root)
    assert history([file]) == list(LOGGED.items())

    records = inspect(file)
    (run,) = of_type(records, "run")
    assert (run["run_id"], run["project"], run["run_group"]) == (ID, "fedtables", "fedmr_table1")
    assert (run["job_type"], run["display_name"]) == ("fedavg", "digits-pcdd-fedavg-uniform seed3")
    assert set(run["tags"]) == {"fedmr_table1", "fedmr", "quick", "fedavg", "mnist", "uniform", "mine"}
    sent = run["config"]["update"]
    assert {key: value for key, value in sent.items() if key in CONFIG} == CONFIG
    assert (sent["meta"], sent["folder"]) == (META, str(folder))

    summary = merged(of_type(records, "summary"))
    assert (summary["state"], summary["final/test/accuracy"], summary["rounds_done"]) == ("done", 0.75, 4)
    assert summary["seconds_per_round"] == 2.0  # 8 seconds, 4 rounds
    globs = [metric for metric in of_type(records, "metric") if metric.get("glob_name") == "*"]
    assert [metric["step_metric"] for metric in globs] == ["round"]
    assert not of_type(records, "stats"), "the sender is not the process that trains"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("state", "code"), [("diverged", 0), ("failed", 1), ("interrupted", 130)])
def test_how_a_run_ended(root: Path, state: str, code: int) -> None:
    write_run(root, state, range(5), message="why")
    assert Sender(settings(), root).send_runs([RUN]) == 1
    records = inspect(offline_files(root)[0])
    summary = merged(of_type(records, "summary"))
    assert (summary["state"], summary["message"]) == (state, "why")
    assert of_type(records, "exit")[0].get("exit_code", 0) == code


@pytest.mark.parametrize("kind", ["table", "figure"])
def test_tables_and_figures_are_artifacts(root: Path, kind: str) -> None:
    """Sent once, and again when their files have changed."""
    rows = [["method", "mean", "note"], ["FedAvg", "70.125", ""], ["FedMR", "", "diverged"]]
    folder = root / f"{kind}s" / "quick"
    folder.mkdir(parents=True)
    (folder / "t.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (folder / "t.tex").write_text("tex")
    if kind == "figure":
        from PIL import Image

        Image.new("L", (4, 4)).save(folder / "t.png")
    assert [Sender(settings(), root).send_tables() for _ in range(2)] == [1, 0]
    (file,) = offline_files(root, f"{kind}-quick-t")
    records = inspect(file)
    (run,) = of_type(records, "run")
    assert (run["job_type"], run["run_group"]) == (kind, "t")
    assert {artifact["type"]: artifact["name"] for artifact in of_type(records, "artifact")}[
        kind
    ] == "quick-t"
    if kind == "table":
        (table,) = file.parent.glob("files/media/table/*.table.json")
        data = [["FedAvg", 70.125, None], ["FedMR", None, "diverged"]]
        assert json.loads(table.read_text()) == {"columns": rows[0], "data": data}
    else:
        assert list(file.parent.glob("files/media/images/*.png"))
    assert Sender(settings(), root).send_tables(since=time.time() + 60) == 0
    time.sleep(1.1)  # offline files are named by the second
    (folder / "t.tex").write_text("other")
    assert Sender(settings(), root).send_tables() == 1
    assert len(offline_files(root, f"{kind}-quick-t")) == 2


def test_records_of_a_run_at_work(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert read_rounds(path, whole=False) == {}
    path.write_bytes(lines([0, 1, 2])[:-1])  # the last line lacks its end
    assert read_rounds(path, whole=False) == {0: LOGGED[0], 1: LOGGED[1]}
    path.write_bytes(lines([0, 1, 2]))
    assert read_rounds(path, whole=True) == {number: LOGGED[number] for number in range(3)}


# Once --------------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_twice(root: Path) -> None:
    write_run(root, "done", range(5))
    track(root)
    track(root)
    assert len(offline_files(root)) == 1
    time.sleep(1.1)
    track(root, project="other")
    first, second = offline_files(root)
    assert history([first]) == history([second]), "another project gets everything"
    assert of_type(inspect(second), "run")[0]["project"] == "other"


def test_a_run_that_another_process_sends(root: Path) -> None:
    folder = write_run(root, "done", range(5))
    code = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]): print('locked', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(folder / "wandb.lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "locked\n"
        assert Sender(settings(), root).send_runs([RUN]) == 0
        assert other.stdin is not None
        other.stdin.close()
    assert Sender(settings(), root).send_runs([RUN]) == 1


def test_resumed_offline_and_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was interrupted has two files under one id; `wandb sync` sends them (docs/wandb.md)."""
    write_run(root, "interrupted", [0, 1, 2])
    track(root)
    time.sleep(1.1)
    write_run(root, "done", range(5))
    track(root)
    files = offline_files(root)
    assert len(files) == 2 and history(files) == list(LOGGED.items())
    assert [of_type(inspect(file), "run")[0]["run_id"] for file in files] == [ID, ID]
    with wandb_server() as online:
        monkeypatch.setenv("WANDB_BASE_URL", online.url)
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        words = [sys.executable, "-m", "wandb", "sync", *(str(file.parent) for file in files)]
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, cwd=root
        )
        assert done.returncode == 0, done.stderr
        assert lines_of(online.runs[ID]) == list(LOGGED.items())


# Online ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wandb]:
    """A server that takes runs."""
    with wandb_server() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        yield state


def lines_of(kept: Kept) -> list[tuple[int, dict[str, float]]]:
    """(round, values) of each line that the server has, in order; each came with one content."""
    found = []
    for number in sorted(kept.history):
        item, *again = kept.history[number]
        assert all(other == item for other in again)
        values = {key: value for key, value in item.items() if key != "round" and key[0] != "_"}
        found.append((item["round"], values))
    return found


def test_a_server_gets_every_round_once(root: Path, online: Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    """At work, interrupted, and resumed from a checkpoint after round 1, which repeats round 2 in the same bits."""
    monkeypatch.setattr(send, "LIVE_SECONDS", 0.0)
    sender = Sender(settings(mode="online", init_timeout=60), root)
    write_run(root, "running", [0, 1, 2])
    assert sender.send_runs([RUN, OTHER]) == 1
    assert [number for number, _ in lines_of(online.runs[ID])] == [0, 1]
    write_run(root, "interrupted", [0, 1, 2])
    sender.send_runs([RUN])
    write_run(root, "running", [0, 1])
    write_run(root, "done", range(5))
    assert [sender.send_runs([RUN]) for _ in range(2)] == [1, 0]
    # The note is lost, as after a kill: the server says how far it is.
    (root / "runs" / KEY / "wandb.json").unlink()
    assert Sender(settings(mode="online", init_timeout=60), root).send_runs([RUN]) == 1
    kept = online.runs[ID]
    assert lines_of(kept) == list(LOGGED.items())
    assert kept.exit_codes[1:3] == [130, 0] and kept.group == "fedmr_table1" and "fedmr" in kept.tags


# Whatever breaks ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["unreachable", "bad key", "hanging", "no key"])
def trouble(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that cannot be used, by what the line about it says."""
    if request.param != "no key":
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    if request.param in ("unreachable", "no key"):
        yield {"unreachable": "connection refused", "no key": "No API key"}[request.param]
        return
    with server(401 if request.param == "bad key" else None) as url:
        monkeypatch.setenv("WANDB_BASE_URL", url)
        yield "401" if request.param == "bad key" else "deadline exceeded"


def test_a_server_that_cannot_be_used(root: Path, trouble: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One line; both runs are sent when it can be used."""
    for run in (RUN, OTHER):
        write_run(root, "done", range(5), key=run.key)
    track(root, RUN, OTHER, mode="online")
    (said,) = capfd.readouterr().err.splitlines()
    assert trouble in said and f"python -m benchmark track results={root}" in said
    track(root, RUN, OTHER)
    for run in (RUN, OTHER):
        assert history(offline_files(root, run.id)) == list(LOGGED.items())


def run_command(words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmark", *words],
        cwd=ROOT,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_training_is_the_same_with_tracking(tmp_path: Path, mode: str) -> None:
    """Bytes of the records, model and final metrics, with a dead server too; all values arrive."""
    plain, tracked = tiny(tmp_path / "plain", STATELESS), tiny(tmp_path / "tracked", STATELESS)
    code = (
        "import sys; from benchmark.__main__ import main; code = main(sys.argv[1:]); "
        "assert 'wandb' not in sys.modules; sys.exit(code)"
    )
    words = ["tracking=wandb", f"tracking.mode={mode}", "tracking.init_timeout=1"]
    without = run_command(words_of(plain))
    done = subprocess.run(
        [sys.executable, "-c", code, *words_of(tracked), *words],
        cwd=ROOT, env={**os.environ, "WANDB_API_KEY": FAKE_KEY}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (without.returncode, done.returncode) == (0, 0), done.stderr
    assert done.stdout == without.stdout.replace("plain", "tracked")
    assert bits(plain) == bits(tracked)
    assert not (tmp_path / "plain" / "wandb").exists()
    assert len(done.stderr.splitlines()) == (1 if mode == "online" else 0)
    if mode == "offline":
        expected: dict[int, dict[str, float]] = {}
        for record in folder_of(tracked).read_records():
            if record.split != "participation":
                expected.setdefault(record.round, {})[metric_name(record._asdict())] = record.value
        assert len(expected) == 4 and "test/accuracy/class=2" in expected[0]
        files = offline_files(tmp_path / "tracked", f"{tracked.hash}-seed0")
        assert history(files) == list(expected.items())


def test_many_short_runs_do_not_wait_for_the_server(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """800 runs end while the server has not answered once; nothing of it is in the process of the runs."""
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.1)
    monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
    runs = [TrackedRun(KEY.replace("seed3", f"seed{seed}")) for seed in range(800)]
    with wandb_server() as state:
        state.deaf.set()
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        before = descendants(os.getpid())
        with tracking(settings(mode="online", init_timeout=60), root, runs):
            (child,) = set(descendants(os.getpid())) - set(before)
            for run in runs:
                write_run(root, "done", [0], key=run.key)
        assert not state.runs and not list(root.glob("runs/*/*/wandb.json"))
    assert not is_alive(child)


def test_a_tracker_that_is_killed_or_hangs(
    root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.2)
    write_run(root, "done", range(5))
    for number in (signal.SIGKILL, signal.SIGSTOP):
        before = descendants(os.getpid())
        with tracking(settings(), root, [RUN]):
            (child,) = set(descendants(os.getpid())) - set(before)
            os.kill(child, number)
        assert not is_alive(child)
        assert f"python -m benchmark track results={root}" in capfd.readouterr().err


@pytest.mark.parametrize("sigint", ["default", "ignored"])
def test_no_process_is_left_behind_a_killed_command(root: Path, sigint: str) -> None:
    """The tracker sends what there is, and leaves; by SIGKILL, or SIGTERM where SIGINT is ignored."""
    write_run(root, "done", range(5))
    code = (
        "import signal, sys, time; sys.path[:0] = sys.argv[1:3]; from pathlib import Path\n"
        "if sys.argv[4] == 'ignored': signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from tracked_runs import RUN, settings; from benchmark.tracking.process import tracking\n"
        "with tracking(settings(poll=1000), Path(sys.argv[3]), [RUN]):\n"
        "    print('started', flush=True); time.sleep(1000)"
    )
    words = [sys.executable, "-c", code, str(ROOT), str(ROOT / "tests" / "helpers"), str(root), sigint]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None and command.stdout.readline() == "started\n"
    left = descendants(command.pid)
    assert len(left) == 1
    command.send_signal(signal.SIGTERM if sigint == "ignored" else signal.SIGKILL)
    command.communicate()
    wait_until(lambda: not any(map(is_alive, left)), "the tracker has left")
    assert history(offline_files(root)) == list(LOGGED.items())


def test_full_disk(root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "done", range(5))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        sender = Sender(settings(), root)
        assert [sender.send_runs([RUN]) for _ in range(2)] == [0, 0]
    assert capfd.readouterr().err.count("is full") == 1
    assert Sender(settings(), root).send_runs([RUN]) == 1


def test_a_damaged_folder_stops_nothing(root: Path) -> None:
    folder = write_run(root, "done", range(5))
    (folder / "status.json").write_text("{")
    write_run(root, "done", range(5), key=OTHER.key)
    (root / "runs" / OTHER.key / "wandb.json").write_text('{"foreign": 1}')
    assert Sender(settings(), root).send_runs([RUN, OTHER]) == 1
    assert len(offline_files(root, OTHER.id)) == 1


# Settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "variable"),
    [({"name": "off"}, ""), ({"mode": "disabled"}, ""), ({}, "disabled"), ({"mode": "online"}, "disabled")],
)
def test_off(root: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], variable: str) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    write_run(root, "done", range(5))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    track(root, **chosen)
    assert not (root / "wandb").exists()


@pytest.mark.parametrize(
    ("variable", "asked", "expected"),
    [
        ("offline", "online", "offline"),
        ("online", "offline", "offline"),
        ("nonsense", "online", "online"),
        ("disabled", "offline", "disabled"),
    ],
)
def test_the_variable_makes_it_quieter_only(
    monkeypatch: pytest.MonkeyPatch, variable: str, asked: str, expected: str
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    assert settings(mode=asked).quietest == expected


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        ({"mode": "loud"}, r"tracking\.mode: got 'loud'.*'online', 'offline' or 'disabled'"),
        ({"poll": -1}, r"tracking\.poll: got -1"),
        ({"projct": "x"}, r"tracking\.projct: .*'project'"),
        ({"project": "a/b"}, r"tracking\.project: got 'a/b'"),
        ({"tags": "x"}, r"tracking\.tags: got 'x'"),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        TrackingSettings.of({"name": "wandb", **values})


def test_the_id_is_that_of_configuration_and_seed(tmp_path: Path) -> None:
    run = tiny(tmp_path, STATELESS, seed=7)
    assert TrackedRun(run.key).id == f"{run.hash}-seed7"
