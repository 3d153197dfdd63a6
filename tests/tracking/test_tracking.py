"""Tracking: what arrives at W&B is what stands in the run's folder, once; and whatever breaks, training does not."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import STATELESS, bits, fill, folder_of, tiny, wait_until, words_of
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
from benchmark.tracking.following import Locks, Records, metric_name
from benchmark.tracking.publishing import typed_rows
from benchmark.tracking.settings import (
    Note,
    Publication,
    TrackedRun,
    TrackingSettings,
    command_for_the_rest,
    tracking,
    unsent,
)

ROOT = Path(__file__).resolve().parents[2]
FAKE_KEY = "0123456789" * 4


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server, no key, no settings of the user's; what is sent all the same ends at a closed port."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A results folder."""
    return tmp_path / "results"


def send(root: Path, chosen: TrackingSettings | None = None, *runs: TrackedRun) -> None:
    """Follow runs that are not at work any more."""
    with tracking(chosen or settings(), root, runs or (RUN,)):
        pass


# What arrives ------------------------------------------------------------------------------------------------------


def test_everything_arrives_as_it_stands_in_the_folder(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(root, "done", range(5))
    send(root, settings(tags=["mine"]))
    (file,) = offline_files(root)
    assert dict(history([file])) == LOGGED
    assert len(history([file])) == 5

    records = inspect(file)
    (run,) = of_type(records, "run")
    assert run["run_id"] == ID
    assert run["project"] == "fedtables"
    assert run["run_group"] == "fedmr_table1"
    assert run["job_type"] == "fedavg"
    assert run["display_name"] == "digits-pcdd-fedavg-uniform seed3"
    assert run["notes"] == str(folder)
    assert set(run["tags"]) == {"fedmr_table1", "fedmr", "quick", "mine"}
    sent = run["config"]["update"]
    assert {key: value for key, value in sent.items() if key in CONFIG} == CONFIG
    assert sent["meta"] == META
    assert sent["folder"] == str(folder)

    summary = merged(of_type(records, "summary"))
    assert summary["state"] == "done"
    assert summary["final/test/accuracy"] == 0.75
    assert summary["rounds_done"] == 4
    assert summary["seconds_per_round"] == 2.0  # 8 seconds, 4 rounds
    steps = {metric["name"]: metric for metric in of_type(records, "metric") if "name" in metric}
    assert "round" in steps
    globs = [metric for metric in of_type(records, "metric") if metric.get("glob_name") == "*"]
    assert [metric["step_metric"] for metric in globs] == ["round"]
    assert of_type(records, "exit")[0].get("exit_code", 0) == 0
    assert not of_type(records, "stats"), "the run was carried out elsewhere"
    assert "wandb sync" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("state", "code"), [("done", 0), ("diverged", 0), ("failed", 1), ("interrupted", 130)]
)
def test_how_a_run_ended(root: Path, state: str, code: int) -> None:
    write_run(root, state, range(5), message="why")
    send(root)
    records = inspect(offline_files(root)[0])
    assert merged(of_type(records, "summary"))["state"] == state
    assert merged(of_type(records, "summary"))["message"] == "why"
    assert of_type(records, "exit")[0].get("exit_code", 0) == code
    note = Note.read(root / "runs" / KEY)
    assert note is not None and note.sent == f"{state} 4"


def test_nothing_is_left_in_the_temporary_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "done", range(5))
    with tempfile.TemporaryDirectory() as place:  # pytest's paths are too long for wandb's sockets
        monkeypatch.setenv("TMPDIR", place)
        send(root)
        assert offline_files(root) and not list(Path(place).iterdir())


def test_a_run_at_work_is_followed(root: Path) -> None:
    """The process that trains is this one: its number and machine stand in the status."""
    folder = write_run(root, "running", [0, 1, 2], pid=os.getpid(), host=os.uname().nodename)
    with tracking(settings(system=0.1), root, [RUN]):
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 1, "rounds 0 and 1")
        with (folder / "records.jsonl").open("ab") as stream:
            stream.write(lines([3])[:20])
            stream.flush()
            stream.write(lines([3])[20:] + lines([4]))
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 3, "rounds 2 and 3")
        write_run(root, "done", range(5))
    (file,) = offline_files(root)
    assert history([file]) == list(LOGGED.items())
    stats = of_type(inspect(file), "stats")
    assert any("proc.memory.rssMB" in item["item"] for item in stats), "of the process that trains"


def test_one_run_more_while_others_are_followed(root: Path) -> None:
    write_run(root, "done", range(5))
    other = TrackedRun(KEY.replace("seed3", "seed4"))
    with tracking(settings(), root, [RUN]) as tracker:
        write_run(root, "done", range(3), key=other.key)
        tracker.follow(other)
    assert [number for number, _ in history(offline_files(root, other.id))] == [0, 1, 2]
    assert len(history(offline_files(root))) == 5


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


# Once --------------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_twice(root: Path) -> None:
    write_run(root, "done", range(5))
    send(root)
    send(root)
    assert len(offline_files(root)) == 1


def test_another_project_gets_everything(root: Path) -> None:
    write_run(root, "done", range(5))
    send(root)
    send(root, settings(project="other"))
    first, second = offline_files(root)
    assert history([first]) == history([second])
    assert of_type(inspect(second), "run")[0]["project"] == "other"


def test_an_interrupted_run_goes_on_under_its_id(root: Path) -> None:
    """Killed after round 2 and resumed from a checkpoint after round 1: round 2 is repeated in the same bits."""
    write_run(root, "interrupted", [0, 1, 2])
    send(root)
    write_run(root, "done", range(5))
    send(root)
    files = offline_files(root)
    assert len(files) == 2
    assert history(files) == list(LOGGED.items())
    assert [of_type(inspect(file), "run")[0]["run_id"] for file in files] == [ID, ID]


def test_rounds_repeated_within_one_tracker(root: Path) -> None:
    folder = write_run(root, "running", [0, 1, 2, 3])
    with tracking(settings(), root, [RUN]):
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 2, "three rounds")
        (folder / "records.jsonl").write_bytes(lines([0, 1]))
        write_run(root, "done", range(5))
    assert history(offline_files(root)) == list(LOGGED.items())


def test_a_killed_tracker(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(root, "running", [0, 1, 2])
    with tracking(settings(), root, [RUN]) as tracker:
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 1, "rounds 0 and 1")
        assert tracker.process is not None
        os.kill(tracker.process.pid, signal.SIGKILL)
        tracker.process.wait()
        write_run(root, "done", range(5))
    assert "1 of 1 runs are not wholly sent" in capfd.readouterr().err
    assert unsent(settings(), root, [RUN]) == [RUN]
    send(root)
    # What the dead process had not brought to the disk is sent again, what it had is not.
    assert history(offline_files(root)) == list(LOGGED.items())
    assert unsent(settings(), root, [RUN]) == []


def test_a_killed_service(root: Path) -> None:
    """A batch system ends all processes of a job, that of wandb too."""
    folder = write_run(root, "running", [0, 1, 2])
    with tracking(settings(), root, [RUN]) as tracker:
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 1, "rounds 0 and 1")
        assert tracker.process is not None
        services = children(tracker.process.pid)
        assert services
        for pid in services:
            os.kill(pid, signal.SIGKILL)
        os.kill(tracker.process.pid, signal.SIGTERM)
        write_run(root, "done", range(5))
    assert history(offline_files(root)) == list(LOGGED.items())
    assert unsent(settings(), root, [RUN]) == []


def test_a_killed_starter(root: Path) -> None:
    """The tracker sends what there is, and leaves."""
    write_run(root, "running", [0, 1, 2])
    code = (
        "import os, sys; sys.path[:0] = sys.argv[1:3]; from pathlib import Path\n"
        "from tracked_runs import RUN, settings; from benchmark.tracking.settings import tracking\n"
        "with tracking(settings(), Path(sys.argv[3]), [RUN]) as tracker:\n"
        "    print(tracker.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    words = [sys.executable, "-c", code, str(ROOT), str(ROOT / "tests" / "helpers"), str(root)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    wait_until(lambda: is_gone(pid), "the tracker has left")
    note = Note.read(root / "runs" / KEY)
    assert note is not None and note.closed and note.round == 1 and note.sent == ""


def test_a_run_that_another_tracker_sends(root: Path) -> None:
    write_run(root, "done", range(5))
    locks = root / "wandb" / "locks"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; "
        "from benchmark.tracking.following import Locks; locks = Locks(Path(sys.argv[2])); "
        "print(locks.take(sys.argv[3]), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(ROOT), str(locks), ID]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        assert not Locks(locks).take(ID)
        assert Locks(locks).take("another")
        send(root)
        assert offline_files(root) == []
        assert other.stdin is not None
        other.stdin.close()
        other.wait()
    send(root)
    assert len(offline_files(root)) == 1


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


def test_a_server_gets_every_round_once(root: Path, online: Wandb, capfd: pytest.CaptureFixture[str]) -> None:
    chosen = settings(mode="online", init_timeout=20)
    write_run(root, "interrupted", [0, 1, 2])
    send(root, chosen)
    assert [number for number, _ in lines_of(online.runs[ID])] == [0, 1, 2]
    write_run(root, "done", range(5))
    send(root, chosen)
    send(root, chosen)
    kept = online.runs[ID]
    assert lines_of(kept) == list(LOGGED.items())
    assert (kept.exit_codes, kept.opened, kept.group) == ([130, 0], 2, "fedmr_table1")
    assert set(kept.tags) == {"fedmr_table1", "fedmr", "quick"}
    assert capfd.readouterr().err == ""


def test_a_server_that_stops_to_answer(root: Path, online: Wandb, capfd: pytest.CaptureFixture[str]) -> None:
    """The tracker is given up; what the server has not got is sent by the next one, and only that."""
    folder = write_run(root, "running", [0, 1, 2])
    chosen = settings(mode="online", init_timeout=20, patience=2)
    with tracking(chosen, root, [RUN]):
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 1, "rounds 0 and 1")
        wait_until(lambda: ID in online.runs and 1 in online.runs[ID].history, "the server has them")
        online.deaf.set()
        write_run(root, "done", range(5))
    (line,) = capfd.readouterr().err.splitlines()
    assert "1 of 1 runs are not wholly sent" in line
    online.deaf.clear()
    online.over.set()
    send(root, settings(mode="online", init_timeout=20))
    assert lines_of(online.runs[ID]) == list(LOGGED.items())
    assert unsent(chosen, root, [RUN]) == []


def test_a_run_that_began_offline_stays_there_until_it_is_sent(root: Path, online: Wandb) -> None:
    write_run(root, "interrupted", [0, 1, 2])
    send(root)
    write_run(root, "done", range(5))
    send(root, settings(mode="online", init_timeout=20))
    assert online.runs == {}
    assert history(offline_files(root)) == list(LOGGED.items())


def test_wandb_sync_sends_offline_files(root: Path, online: Wandb) -> None:
    """What docs/wandb.md says of clusters without a network; both files of a run that was resumed, in order."""
    write_run(root, "interrupted", [0, 1, 2])
    send(root)
    write_run(root, "done", range(5))
    send(root)
    folders = [str(file.parent) for file in offline_files(root)]
    done = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", *folders],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert lines_of(online.runs[ID]) == list(LOGGED.items())
    assert all(Path(f"{file}.synced").exists() for file in offline_files(root))


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
    other = TrackedRun(KEY.replace("seed3", "seed4"))
    write_run(root, "done", range(5))
    write_run(root, "done", range(5), key=other.key)
    send(root, settings(mode="online"), RUN, other)
    for run in (RUN, other):
        assert history(offline_files(root, run.id)) == list(LOGGED.items())
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2, said
    assert "W&B cannot be used" in said[0] and trouble in said[0]
    assert f"wandb sync {root}/wandb/offline-run-*" in said[1]
    assert unsent(settings(), root, [RUN, other]) == []


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


def test_training_is_the_same_with_tracking(tmp_path: Path) -> None:
    """Bytes of the records, model and final metrics; what arrives is what stands in the records, value by value."""
    plain, tracked = tiny(tmp_path / "plain", STATELESS), tiny(tmp_path / "tracked", STATELESS)
    without = run_command(words_of(plain))
    added = ["tracking=wandb", "tracking.mode=online", "tracking.init_timeout=1"]
    done = run_command([*words_of(tracked), *added], WANDB_API_KEY=FAKE_KEY)
    assert (without.returncode, done.returncode) == (0, 0), done.stderr
    assert without.stderr == ""
    assert done.stdout == without.stdout.replace("plain", "tracked")
    assert bits(plain) == bits(tracked)
    assert not (tmp_path / "plain" / "wandb").exists()

    expected: dict[int, dict[str, float]] = {}
    for record in folder_of(tracked).read_records():
        if record.split != "participation":
            expected.setdefault(record.round, {})[metric_name(record._asdict())] = record.value
    assert len(expected) == 4
    assert "test/accuracy/class=2" in expected[0]
    id = f"{tracked.hash}-seed0"
    assert history(offline_files(tmp_path / "tracked", id)) == list(expected.items())


def test_full_disk(small_disk: Path, tmp_path: Path) -> None:
    plain, tracked = tiny(tmp_path / "plain", STATELESS), tiny(tmp_path / "tracked", STATELESS)
    assert run_command(words_of(plain)).returncode == 0
    fill(small_disk)
    added = ["tracking=wandb", "tracking.mode=offline", f"tracking.dir={small_disk}"]
    done = run_command([*words_of(tracked), *added])
    assert done.returncode == 0
    said = done.stderr.splitlines()
    assert len(said) == 2, said
    assert "the disk is full" in said[0] and "Nothing more is sent" in said[0]
    assert "1 of 1 runs are not wholly sent" in said[1]
    assert bits(plain) == bits(tracked)


def test_disk_that_becomes_full(small_disk: Path, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(root, "running", [0, 1, 2])
    chosen = settings(dir=str(small_disk))
    with tracking(chosen, root, [RUN]):
        wait_until(lambda: (note := Note.read(folder)) is not None and note.round == 1, "rounds 0 and 1")
        ballast = fill(small_disk)
        write_run(root, "done", range(5))
    said = capfd.readouterr().err
    assert said.count("the disk is full") == 1
    assert unsent(chosen, root, [RUN]) == [RUN]
    ballast.unlink()
    send(root, chosen)
    assert history(offline_files(small_disk)) == list(LOGGED.items())


def test_a_tracker_that_hangs(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(root, "done", range(5))
    chosen = settings(patience=0.2, project="p")
    with tracking(chosen, root, [RUN]) as tracker:
        assert tracker.process is not None
        pid = tracker.process.pid
        os.kill(pid, signal.SIGSTOP)
        for index in range(3000):  # more than a pipe holds
            tracker.follow(TrackedRun(f"{KEY[:-5]}seed{index}"))
    assert not Path(f"/proc/{pid}").exists()
    (line,) = capfd.readouterr().err.splitlines()
    assert "1 of 3000 runs are not wholly sent" in line
    assert line.endswith(f"python -m benchmark track results={root} tracking.mode=offline tracking.project=p")


def test_a_damaged_folder_stops_nothing(root: Path) -> None:
    other = TrackedRun(KEY.replace("seed3", "seed4"))
    folder = write_run(root, "done", range(5))
    (folder / "status.json").write_text("{")
    write_run(root, "done", range(5), key=other.key)
    (root / "runs" / other.key / "wandb.json").write_text('{"foreign": 1}')
    send(root, None, RUN, other)
    assert offline_files(root) == []
    assert len(offline_files(root, other.id)) == 1


# Off ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["tracking=wandb", "tracking.mode=offline"]])
def test_training_imports_no_wandb(tmp_path: Path, words: list[str]) -> None:
    code = (
        "import sys; from benchmark.__main__ import main; code = main(sys.argv[1:]); "
        "assert 'wandb' not in sys.modules; assert 'benchmark.tracking.tracker' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words_of(tiny(tmp_path, STATELESS)), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("chosen", "variable"),
    [({"name": "off"}, ""), ({"mode": "disabled"}, ""), ({}, "disabled"), ({"mode": "online"}, "disabled")],
)
def test_off(root: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], variable: str) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    folder = write_run(root, "done", range(5))
    with tracking(settings(**chosen), root, [RUN]) as tracker:
        assert tracker.process is None
        tracker.follow(RUN)
        tracker.publish(Publication("table", "t", "quick", ()))
    assert not (folder / "wandb.json").exists()
    assert not (root / "wandb").exists()


def test_the_variable_makes_it_quieter_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, asked, expected in [
        ("offline", "online", "offline"),
        ("online", "offline", "offline"),
        ("dryrun", "online", "offline"),
        ("nonsense", "online", "online"),
        ("disabled", "offline", "disabled"),
    ]:
        monkeypatch.setenv("WANDB_MODE", variable)
        assert settings(mode=asked).quietest == expected


# Tables and figures ------------------------------------------------------------------------------------------------


def test_a_table_is_sent_once(root: Path, tmp_path: Path) -> None:
    rows = [["method", "mean", "note"], ["FedAvg", "70.125", ""], ["FedMR", "", "diverged"]]
    path = tmp_path / "t.csv"
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    (tmp_path / "t.tex").write_text("tex")
    item = Publication("table", "fedmr_table1", "quick", (str(path), str(tmp_path / "t.tex")), ("fedmr",))
    for _ in range(2):
        with tracking(settings(), root, []) as tracker:
            tracker.publish(item)
    assert typed_rows(path) == (rows[0], [["FedAvg", 70.125, ""], ["FedMR", None, "diverged"]])
    (file,) = offline_files(root, "table-quick-fedmr_table1")
    records = inspect(file)
    (run,) = of_type(records, "run")
    assert (run["job_type"], run["run_group"]) == ("table", "fedmr_table1")
    tables = list(file.parent.glob("files/media/table/*.table.json"))
    assert [json.loads(table.read_text()) for table in tables] == [
        {"columns": rows[0], "data": [["FedAvg", 70.125, ""], ["FedMR", None, "diverged"]]}
    ]
    kinds = {artifact["type"]: artifact for artifact in of_type(records, "artifact")}
    assert kinds["table"]["name"] == "quick-fedmr_table1"

    path.write_text("method,mean,note\n")
    with tracking(settings(), root, []) as tracker:
        tracker.publish(item)
    assert len(offline_files(root, "table-quick-fedmr_table1")) == 2


# Parts -------------------------------------------------------------------------------------------------------------


def test_records_that_grow(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = Records(path)
    assert list(records.rounds(False)) == []
    path.write_bytes(lines([0, 1])[:-1])  # the last line lacks its end
    assert list(records.rounds(False)) == [(0, LOGGED[0])]
    path.write_bytes(lines([0, 1, 2]))
    assert list(records.rounds(False)) == [(1, LOGGED[1])]
    assert list(records.rounds(True)) == [(2, LOGGED[2])]
    path.write_bytes(lines([0]))  # cut by a run that resumes
    assert list(records.rounds(True)) == [(0, LOGGED[0])]


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        ({"mode": "loud"}, r"tracking\.mode: came 'loud'.*'online', 'offline' or 'disabled'"),
        ({"patience": -1}, r"tracking\.patience: came -1"),
        ({"projct": "x"}, r"tracking\.projct: came 'x'.*Did you mean 'project'\?"),
        ({"project": "a/b"}, r"tracking\.project: came 'a/b'"),
        ({"tags": "x"}, r"tracking\.tags: came 'x'"),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        TrackingSettings.of({"name": "wandb", **values})


def test_settings_and_runs_travel_to_a_job() -> None:
    chosen = settings(tags=["a"])
    assert pickle.loads(pickle.dumps((chosen, RUN))) == (chosen, RUN)


def test_the_id_is_that_of_configuration_and_seed(tmp_path: Path) -> None:
    run = tiny(tmp_path, STATELESS, seed=7)
    assert TrackedRun(run.key).id == f"{run.hash}-seed7"


def test_the_command_for_the_rest() -> None:
    chosen = TrackingSettings(name="wandb", entity="a team")
    assert command_for_the_rest(chosen, Path("my results")) == (
        "python -m benchmark track 'results=my results' 'tracking.entity=a team'"
    )
