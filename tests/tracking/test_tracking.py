"""Tracking: what arrives at W&B is what stands in the run's folder, once; and whatever breaks, training does not."""

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
from filelock import FileLock
from finished_runs import MADE, ORIGIN
from processes import descendants, is_alive, wait_until
from tiny_runs import STATELESS, bits, folder_of, result_of, tiny, words_of
from tracked_runs import (
    CONFIG,
    ID,
    KEY,
    LOGGED,
    RUN,
    history,
    inspect,
    merged,
    of_type,
    offline_files,
    settings,
    wandb_environment,  # noqa: F401
    write_run,
)
from wandb_server import Wandb, wandb_server

from benchmark import tracking as module
from benchmark.errors import ConfigError, validate
from benchmark.runs.folder import read_records
from benchmark.tracking import Sender, TrackedRun, TrackingSettings, metric_name, tracking

ROOT = Path(__file__).resolve().parents[2]
FAKE_KEY = "0123456789" * 4
OTHER = TrackedRun(KEY.replace("seed3", "seed4"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A results folder."""
    return tmp_path / "results"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wandb]:
    """A server that takes runs."""
    with wandb_server() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        yield state


# What arrives ------------------------------------------------------------------------------------------------------


def test_everything_arrives_once(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As it stands in the folder, through the process beside a launch."""
    folder = write_run(root)
    with tempfile.TemporaryDirectory() as place:  # pytest's paths are too long for wandb's sockets
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", place)
            with tracking(settings(tags=["mine"]), root, [RUN]):
                pass
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
    assert (sent["made"], sent["origin"], sent["folder"]) == (MADE, ORIGIN, str(folder))

    summary = merged(of_type(records, "summary"))
    assert (summary["state"], summary["final/test/accuracy"], summary["rounds_done"]) == ("done", 0.75, 4)
    assert summary["seconds_per_round"] == 2.0  # 8 seconds, 4 rounds
    globs = [metric for metric in of_type(records, "metric") if metric.get("glob_name") == "*"]
    assert [metric["step_metric"] for metric in globs] == ["round"]
    assert not of_type(records, "stats"), "the sender is not the process that trains"
    assert capfd.readouterr().err == ""

    assert Sender(settings(), root).send_runs([RUN]) == 0
    with FileLock(root / "wandb" / "sent" / f"{ID}.lock"):
        assert Sender(settings(project="other"), root).send_runs([RUN]) == 0, "another process sends it"
    time.sleep(1.1)  # offline files are named by the second
    assert Sender(settings(project="other"), root).send_runs([RUN]) == 1
    first, second = offline_files(root)
    assert history([first]) == history([second]), "another project gets everything"
    assert of_type(inspect(second), "run")[0]["project"] == "other"


def test_a_run_that_diverged(root: Path) -> None:
    write_run(root, state="diverged", message="why")
    assert Sender(settings(), root).send_runs([RUN]) == 1
    summary = merged(of_type(inspect(offline_files(root)[0]), "summary"))
    assert (summary["state"], summary["message"]) == ("diverged", "why")


def test_tables_and_figures_are_artifacts(root: Path) -> None:
    """Sent once, and again when their files have changed."""
    from PIL import Image

    rows = [["method", "mean", "note"], ["FedAvg", "70.125", ""], ["FedMR", "", "diverged"]]
    for kind in ("table", "figure"):
        folder = root / f"{kind}s" / "quick"
        folder.mkdir(parents=True)
        (folder / "t.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    Image.new("L", (4, 4)).save(folder / "t.png")
    sender = Sender(settings(), root)
    assert [sender.send_tables() for _ in range(2)] == [2, 0]
    for kind in ("table", "figure"):
        (file,) = offline_files(root, f"{kind}-quick-t")
        records = inspect(file)
        (run,) = of_type(records, "run")
        assert (run["job_type"], run["run_group"]) == (kind, "t")
        artifacts = {artifact["type"]: artifact["name"] for artifact in of_type(records, "artifact")}
        assert artifacts[kind] == "quick-t"
        if kind == "table":
            (table,) = file.parent.glob("files/media/table/*.table.json")
            data = [["FedAvg", 70.125, None], ["FedMR", None, "diverged"]]
            assert json.loads(table.read_text()) == {"columns": rows[0], "data": data}
        else:
            assert list(file.parent.glob("files/media/images/*.png"))
    (root / "tables" / "quick" / "t.tex").write_text("other")
    assert sender.send_tables(since=time.time() + 60) == 0
    time.sleep(1.1)
    assert sender.send_tables() == 1
    assert len(offline_files(root, "table-quick-t")) == 2


def test_offline_files_are_synced(root: Path, online: Wandb) -> None:
    """`wandb sync` sends them (docs/how-to/wandb.md)."""
    write_run(root)
    assert Sender(settings(), root).send_runs([RUN]) == 1
    words = [sys.executable, "-m", "wandb", "sync", *(str(file.parent) for file in offline_files(root))]
    done = subprocess.run(
        words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
    assert online.runs[ID].lines() == list(LOGGED.items())


def test_a_server_gets_every_round_once(root: Path, online: Wandb) -> None:
    """Also when the note of what was sent is lost, as after a kill: the server says how far it is."""
    sender = Sender(settings(mode="online", init_timeout=60), root)
    write_run(root)
    assert [sender.send_runs([RUN, OTHER]) for _ in range(2)] == [1, 0], "the other run is not finished"
    (root / "wandb" / "sent" / f"{ID}.json").unlink()
    assert sender.send_runs([RUN]) == 1
    assert online.runs[ID].lines() == list(LOGGED.items())


# Whatever breaks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["No API key", "401", "deadline exceeded"])
def test_a_server_that_cannot_be_used(
    root: Path, online: Wandb, trouble: str, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """One line; both runs are sent when it can be used."""
    if trouble == "No API key":
        monkeypatch.delenv("WANDB_API_KEY")
    online.status = 401 if trouble == "401" else 200
    if trouble == "deadline exceeded":
        online.deaf.set()
    for run in (RUN, OTHER):
        write_run(root, run.key)
    sender = Sender(settings(mode="online"), root)
    assert sender.send_runs([RUN, OTHER]) == sender.send_tables() == 0
    (said,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("tracking: "))
    assert trouble in said and f"python -m benchmark track results={root}" in said
    if trouble == "No API key":
        assert Sender(settings(), root).send_runs([RUN, OTHER]) == 2


def test_training_is_the_same_with_tracking(tmp_path: Path) -> None:
    """Bytes of the records, model and final metrics, with a dead server too; all values arrive."""
    code = (
        "import sys; from benchmark.__main__ import main; code = main(sys.argv[1:]); "
        "assert 'wandb' not in sys.modules; sys.exit(code)"
    )
    runs, outputs = {}, {}
    for mode, number in {"disabled": 0, "online": 1, "offline": 0}.items():
        runs[mode] = tiny(tmp_path / mode, STATELESS)
        words = ["tracking=wandb", f"tracking.mode={mode}", "tracking.init_timeout=1"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words_of(runs[mode]), *words],
            cwd=ROOT, env={**os.environ, "WANDB_API_KEY": FAKE_KEY}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, len(done.stderr.splitlines())) == (0, number), done.stderr
        # A slow machine prints rounds with the time that is left.
        lines = [line for line in done.stdout.splitlines() if not line.startswith("round ")]
        outputs[mode] = "\n".join(lines).replace(str(tmp_path / mode), "")
    assert len(set(outputs.values())) == 1
    assert bits(runs["disabled"]) == bits(runs["online"]) == bits(runs["offline"])
    assert not (tmp_path / "disabled" / "wandb").exists()
    expected: dict[int, dict[str, float]] = {}
    for record in read_records(folder_of(runs["offline"]).path, result_of(runs["offline"])):
        if record.split != "participation":
            expected.setdefault(record.round, {})[metric_name(record._asdict())] = record.value
    assert len(expected) == 4 and "test/accuracy/class=2" in expected[0]
    files = offline_files(tmp_path / "offline", f"{runs['offline'].hash}-seed0")
    assert history(files) == list(expected.items())


def test_many_short_runs_do_not_wait_for_the_server(root: Path, online: Wandb, monkeypatch: Any) -> None:
    """800 runs end while the server has not answered once; nothing of it is in the process of the runs."""
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    runs = [TrackedRun(KEY.replace("seed3", f"seed{seed}")) for seed in range(800)]
    online.deaf.set()
    before = descendants(os.getpid())
    with tracking(settings(mode="online", init_timeout=60), root, runs):
        (child,) = set(descendants(os.getpid())) - set(before)
        for run in runs:
            write_run(root, run.key)
    assert not online.runs and not list(root.glob("wandb/sent/*.json"))
    assert not is_alive(child)


def test_a_tracker_killed_or_hanging(root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
    write_run(root)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        before = descendants(os.getpid())
        with tracking(settings(), root, [RUN]):
            (child,) = set(descendants(os.getpid())) - set(before)
            os.kill(child, number)
        assert not is_alive(child)
        assert f"python -m benchmark track results={root}" in capfd.readouterr().err


def test_a_tracker_that_cannot_start(root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    with tracking(settings(), root, [RUN]):
        pass
    assert "the runs go on without it" in capfd.readouterr().err


@pytest.mark.parametrize("sigint", ["default", "ignored"])
def test_no_process_is_left_behind_a_killed_command(root: Path, sigint: str) -> None:
    """The tracker sends what there is, and leaves; by SIGKILL, or SIGTERM where SIGINT is ignored."""
    write_run(root)
    code = (
        "import signal, sys, time; sys.path[:0] = sys.argv[1:3]; from pathlib import Path\n"
        "if sys.argv[4] == 'ignored': signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from tracked_runs import RUN, settings; from benchmark.tracking import tracking\n"
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


def test_full_disk_and_damaged_files(root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (write_run(root) / "result.json").write_text("{")
    write_run(root, OTHER.key)
    note = root / "wandb" / "sent" / f"{ID.replace('seed3', 'seed4')}.json"
    note.parent.mkdir(parents=True)
    note.write_text("{")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        sender = Sender(settings(), root)
        assert [sender.send_runs([RUN, OTHER]) for _ in range(2)] == [0, 0]
    assert capfd.readouterr().err.count("is full") == 1
    assert Sender(settings(), root).send_runs([RUN, OTHER]) == 1
    assert len(offline_files(root, ID.replace("seed3", "seed4"))) == 1


# Settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "variable", "mode"),
    [
        ({"name": "off"}, "", None),
        ({"mode": "disabled"}, "", None),
        ({"mode": "online"}, "disabled", None),
        ({"mode": "online"}, "offline", "offline"),
        ({"mode": "offline"}, "online", "offline"),
        ({"mode": "online"}, "nonsense", "online"),
    ],
)
def test_the_variable_makes_it_quieter_only(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], variable: str, mode: str | None
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    found = settings(**chosen)
    assert (found.quietest if found.active else None) == mode


@pytest.mark.parametrize(("key", "value"), [("poll", -1), ("project", "a/b"), ("tags", "x")])
def test_settings_that_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"tracking\.{key}: got {value!r}"):
        validate(TrackingSettings, {"name": "wandb", key: value}, "tracking.")
