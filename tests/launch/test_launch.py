import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launch_work import LoadsNowhere, Log
from processes import is_alive, wait_until

from benchmark.errors import ConfigError, validate
from benchmark.launch import local as launcher
from benchmark.launch import resources
from benchmark.launch.local import launch
from benchmark.launch.pool import LaunchError
from benchmark.launch.settings import LocalSettings
from benchmark.launch.tasks import SECOND_PRESS, STOP_SIGNALS, Outcome, Task
from benchmark.runs.status import RunState
from benchmark.system import NO_MEMORY

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"


def tasks(*payloads: Any) -> list[Task]:
    return [Task(f"run/seed{index}", payload) for index, payload in enumerate(payloads)]


def settings_of(**values: Any) -> LocalSettings:
    return validate(LocalSettings, values, "launcher.")


def local(
    work: str, *payloads: Any, listener: Log | None = None, retries: int = 0, **settings: Any
) -> list[Outcome]:
    given = settings_of(**{"workers": 2, **settings})
    return launch(tasks(*payloads), f"launch_work:{work}", given, retries=retries, listener=listener or Log())


# Doing all tasks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inline", "local"])
@pytest.mark.parametrize("number", [0, 1000])
def test_outcomes_come_in_the_order_of_the_tasks(kind: Any, number: int) -> None:
    log, given = Log(), tasks(*range(number))
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    outcomes = launch(given, "launch_work:echo", LocalSettings(name=kind), listener=log)
    assert [(o.key, o.state, o.message) for o in outcomes] == [
        (f"run/seed{index}", "done", str(index)) for index in range(number)
    ]
    assert log.events[0] == ("started", number) and log.events[-1] == ("finished",)
    assert [event[1] for event in log.named("task_started")] == [task.key for task in given]
    assert len(log.named("task_ended")) == number
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


# Failures ----------------------------------------------------------------------------------------


def test_a_killed_worker_costs_its_task_only() -> None:
    outcomes = local("pid", None, None, "signal", None, None, LoadsNowhere(), None, "exit", workers=1)
    states = ["done", "done", "failed", "done", "done", "failed", "done", "failed"]
    assert [outcome.state for outcome in outcomes] == states
    first, second = {o.message for o in outcomes[:2]}, {o.message for o in outcomes[3:5]}
    assert len(first) == len(second) == 1 and first != second, "one worker before, another one after"
    why, output = outcomes[2].message.splitlines()
    assert "worker process died" in why and "SIGKILL" in why and NO_MEMORY in why and output == "last words"
    assert "worker process died" in outcomes[5].message, "of a payload that cannot be read"
    assert "exit code 3" in outcomes[-1].message


@pytest.mark.parametrize(
    ("how", "times", "retries", "states"),
    [
        ("crash", 1, 0, ["failed", "done"]),
        ("crash", 2, 0, ["failed", "failed"]),
        ("failed", 1, 0, ["failed"]),
        ("failed", 3, 2, ["failed", "failed", "failed"]),
    ],
)
def test_tries_of_failed_tasks(tmp_path: Path, how: str, times: int, retries: int, states: list[str]) -> None:
    """Those of dead workers at least once."""
    log, payload = Log(), {"path": str(tmp_path / "tries"), "times": times, "how": how}
    (outcome,) = local("at_last", payload, listener=log, retries=retries)
    assert [event[2] for event in log.named("task_ended")] == states and outcome.state == states[-1]


def test_what_does_not_fit_beside_others_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two GPUs with two workers each; of four tasks only the first one fits."""
    calls: list[tuple[int, list[str]]] = []

    class FullPool:
        def __init__(self, some: list[Task], work: str, places: list[str], *_: Any) -> None:
            calls.append((len(some), places))
            done = [Outcome(task.key, RunState.DONE, "", 1.0) for task in some]
            full = [Outcome(task.key, RunState.FAILED, "full", 1.0, "OutOfMemoryError") for task in some]
            self.outcomes = done if len(calls) > 1 else [done[0], *full[1:]]

        def run(self) -> list[Outcome]:
            return self.outcomes

    monkeypatch.setattr(launcher, "Pool", FullPool)
    monkeypatch.setattr(resources, "cuda_devices", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert {outcome.state for outcome in local("echo", 0, 1, 2, 3, workers=4)} == {"done"}
    assert calls == [(4, ["0", "1", "0", "1"]), (3, ["0", "1"])]


@pytest.mark.parametrize("kind", ["inline", "local"])
def test_an_exception_is_a_failure_of_its_task(kind: Any) -> None:
    given = tasks("raise", None, "state", "sys.exit", None)
    outcomes = launch(given, "launch_work:pid", LocalSettings(name=kind, workers=1), listener=Log())
    assert [outcome.state for outcome in outcomes] == ["failed", "done", "failed", "failed", "done"]
    assert [outcome.error for outcome in outcomes] == ["ArithmeticError", "", "ValueError", "SystemExit", ""]
    lines = outcomes[0].message.splitlines()
    assert lines[0] == "ArithmeticError: two and two"
    assert lines[1].startswith("Traceback") and any("launch_work.py" in line for line in lines)
    assert "'perfect'" in outcomes[2].message
    assert outcomes[3].message.startswith("SystemExit: 1\n")
    assert outcomes[1].message == outcomes[4].message, "the worker stays"


def test_workers_that_cannot_start_end_the_launch(tmp_path: Path, monkeypatch: Any) -> None:
    """One never starts; one starts once, and dies on its second task."""
    (tmp_path / "broken_work.py").write_text("import os\nos.write(2, b'a library is missing')\nos._exit(7)\n")
    (tmp_path / "once_work.py").write_text(
        "import os, pathlib\n"
        "pathlib.Path(__file__).with_name('started').touch(exist_ok=False)\n"
        "def work(payload, stop):\n"
        "    return ('done', '') if payload == 0 else os._exit(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    said = {
        "broken_work": "exit code 7. Its last output:\na library is missing",
        "once_work": "FileExistsError",
        "big_work": f"exit code 1. Its last output:\n{NO_MEMORY}",
    }
    (tmp_path / "big_work.py").write_text("raise MemoryError\n")
    for name, ended in {"broken_work": [], "once_work": ["done", "failed"], "big_work": []}.items():
        log = Log()
        with pytest.raises(LaunchError) as caught:
            launch(tasks(*range(4)), f"{name}:work", LocalSettings(workers=1), listener=log)
        assert "3 in a row" in str(caught.value) and said[name] in str(caught.value)
        assert [event[2] for event in log.named("task_ended")] == ended, "what was finished counts"
        assert log.events[-1] == ("finished",)


def test_a_device_where_no_worker_starts(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    """The other one does all tasks; the first lasts until three workers have died."""
    (tmp_path / "one_sided.py").write_text(
        "import os, pathlib, time\n"
        "other, deaths = (pathlib.Path(__file__).with_name(name) for name in ('other', 'deaths'))\n"
        "def wait(path, size):\n"
        "    while not path.exists() or path.stat().st_size < size: time.sleep(0.01)\n"
        "if os.environ['CUDA_VISIBLE_DEVICES'] == '1':\n"
        "    wait(other, 0)\n"
        "    os.write(os.open(deaths, os.O_CREAT | os.O_APPEND | os.O_WRONLY), b'x')\n"
        "    os._exit(7)\n"
        "def work(payload, stop):\n"
        "    other.touch()\n"
        "    wait(deaths, 3)\n"
        "    time.sleep(0.02)\n"
        "    return 'done', ''\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(resources, "cuda_devices", lambda: 2)
    outcomes = launch(tasks(*range(30)), "one_sided:work", LocalSettings(), listener=Log())
    assert [outcome.state for outcome in outcomes] == ["done"] * 30
    assert "a worker died 3 times before its first task: exit code 7" in caplog.text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"name": "locall"}, ["'locall'", "'local' or 'inline'", "Did you mean 'local'?"]),
        ({"workers": 0}, ["workers: got 0"]),
        ({"threads": 0}, ["threads: got 0"]),
        ({"grace": -1}, ["launcher.grace: got -1"]),
        ({"name": "inline", "workers": 4}, ["workers=4", "launcher=local"]),
        ({"devices": ["cuda:2"]}, ["cuda:2", "here: cuda:0, cuda:1"]),
        ({"devices": ["cpu", "cuda:0"]}, ["cpu alone"]),
        ({"devices": ["gpu"]}, ["'gpu'"]),
        ({"devices": ["cuda"]}, ["'cuda'", "here: no GPU"]),
    ],
)
def test_settings_that_are_not_allowed(setting: Any, words: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(resources, "cuda_devices", lambda: 0 if "no GPU" in words[-1] else 2)
    with pytest.raises(ConfigError) as caught:
        launch(tasks(1), "launch_work:echo", settings_of(**setting), listener=Log())
    assert all(word in str(caught.value) for word in words)


def test_a_system_that_starts_no_process_ends_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(LaunchError, match="Resource temporarily unavailable"):
        local("echo", 1, 2)


# Threads and devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "settings", "listed", "assigned"),
    [
        (0, {}, None, [None] * 8),  # one worker per core
        (0, {"threads": 3}, None, [None] * 2),
        (0, {"threads": 16}, None, [None]),
        (0, {"workers": 64, "devices": ["cpu"]}, None, [""] * 9),  # not more than tasks
        (3, {}, None, ["0", "1", "2"]),
        (3, {"devices": ["cuda:2", "cuda:0"]}, None, ["2", "0"]),
        (3, {"devices": ["cuda"]}, None, ["0", "1", "2"]),  # device=cuda of a command
        (3, {"workers": 4, "devices": ["cuda:0", "cuda:1"]}, None, ["0", "1", "0", "1"]),
        (3, {"devices": ["cuda:1", "cuda:2"]}, "7,3,GPU-5", ["3", "GPU-5"]),
        (3, {"workers": 2, "devices": ["cpu"]}, "7,3,5", ["", ""]),
    ],
)
def test_workers_and_their_devices(
    gpus: int, settings: Any, listed: str | None, assigned: list[str | None], monkeypatch: Any
) -> None:
    """Of nine tasks on eight cores, by number of workers, threads and devices."""
    monkeypatch.setattr(resources, "cuda_devices", lambda: gpus)
    monkeypatch.setattr(resources, "usable_cores", lambda: 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert resources.assign_devices(9, settings_of(**settings)) == assigned


def test_the_environment_of_a_worker_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cuda_devices", lambda: 4)
    payload = ("CUDA_VISIBLE_DEVICES", str(tmp_path), 2)
    outcomes = local("environment", payload, payload, devices=["cuda:1", "cuda:3"])
    assert sorted(outcome.message for outcome in outcomes) == ["1", "3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    (outcome,) = local("environment", ("OMP_NUM_THREADS", str(tmp_path), 1), threads=3, devices=["cpu"])
    assert outcome.message == "3" and os.environ["OMP_NUM_THREADS"] == "5"


# Stopping ----------------------------------------------------------------------------------------

SCRIPT = """
import json, signal, sys
signal.signal(signal.SIGINT, {sigint})  # it may be ignored where tests run in the background
sys.path[:0] = {path}
from pathlib import Path
from launch_work import Log
from benchmark.launch.local import LocalSettings, Task, launch
log = Log()
tasks = [Task(f"run{{index}}", f"{folder}/run{{index}}") for index in range(4)]
outcomes = launch(tasks, "launch_work:{work}", LocalSettings(name="{kind}", {settings}), listener=log)
print(json.dumps([[(o.key, o.state, o.message) for o in outcomes], log.named("stopping"), "torch" in sys.modules]))
"""


@pytest.fixture
def background(tmp_path: Path) -> Any:
    """Starts a launch of four endless tasks in a process group of its own, as a terminal does."""
    processes: list[subprocess.Popen[str]] = []

    def start(
        work: str,
        kind: str = "local",
        settings: str = "workers=2",
        sigint: str = "signal.default_int_handler",
    ) -> subprocess.Popen[str]:
        script = tmp_path / "script.py"
        names = {"path": [str(HELPERS), str(ROOT)], "folder": tmp_path, "work": work, "kind": kind}
        script.write_text(SCRIPT.format(**names, settings=settings, sigint=sigint))
        process = subprocess.Popen(
            [sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        expected = 2 if kind == "local" else 1
        wait_until(lambda: len(workers(tmp_path)) == expected, "the tasks have begun")
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def workers(folder: Path) -> list[int]:
    """Processes that have begun a task."""
    return [int(text) for path in sorted(folder.glob("run?")) if (text := path.read_text().strip())]


def result(process: subprocess.Popen[str], folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    outcomes, stopping, torch_imported = json.loads(out)
    if resources.cuda_devices() == 0:
        assert not torch_imported, "the launcher needs no torch"
    assert not any(map(is_alive, workers(folder))), "no process is left"
    return outcomes, stopping


@pytest.mark.parametrize(
    ("kind", "number", "to"),
    [
        ("local", signal.SIGINT, "group, twice"),
        ("local", signal.SIGTERM, "launcher"),
        ("local", signal.SIGTERM, "group"),
        ("local", signal.SIGHUP, "group"),
        ("local", signal.SIGQUIT, "group"),
        ("inline", signal.SIGINT, "group"),
        ("inline", signal.SIGTERM, "launcher"),
        ("inline", signal.SIGQUIT, "launcher"),
    ],
)
def test_a_signal_lets_tasks_save(background: Any, kind: str, number: int, to: str, tmp_path: Path) -> None:
    process = background("until_stop", kind, "workers=2" if kind == "local" else "")
    if "group" in to:
        os.killpg(process.pid, number)
    if to != "group":
        process.send_signal(number)
    outcomes, stopping = result(process, tmp_path)
    begun = ["run0", "run1"] if kind == "local" else ["run0"]
    # A worker may have ended, and a new one have begun, before the launcher saw a SIGTERM to all.
    exact = number != signal.SIGTERM or to != "group"
    assert outcomes[: None if exact else 2] == [[key, "interrupted", "saved"] for key in begun]
    assert {state for _, state, _ in outcomes} == {"interrupted"} and len(stopping) == 1
    saved = {path.name for path in tmp_path.glob("*.saved")}
    assert saved >= {f"{key}.saved" for key in begun} and len(saved) == len(outcomes)


def test_with_sigint_ignored_sigterm_ends_all(background: Any, tmp_path: Path) -> None:
    """As started by `nohup make table1 &`: Ctrl-C stays ignored, SIGTERM leaves no process behind."""
    process = background("until_stop", sigint="signal.SIG_IGN")
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None and all(map(is_alive, workers(tmp_path)))
    process.terminate()
    outcomes, stopping = result(process, tmp_path)
    assert [state for _, state, _ in outcomes] == ["interrupted"] * 2
    assert [message.partition(":")[0] for _, message in stopping] == ["SIGTERM"]


@pytest.mark.parametrize(
    ("kind", "settings", "presses", "why"),
    [
        ("inline", "", 2, "second Ctrl-C"),
        ("local", "workers=2", 2, "second Ctrl-C"),
        ("local", "workers=2, grace=0.3", 1, "after 0.3 s"),
    ],
)
def test_deaf_work(background: Any, kind: str, settings: str, presses: int, why: str, tmp_path: Path) -> None:
    process = background("deaf", kind, settings)
    os.killpg(process.pid, signal.SIGINT)
    if presses == 2:
        time.sleep(SECOND_PRESS + 0.1)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
    outcomes, _ = result(process, tmp_path)
    assert {state for _, state, _ in outcomes} == {"interrupted"}
    assert all(why in message for _, _, message in outcomes)


@pytest.mark.parametrize("work", ["until_stop", "deaf"])
def test_workers_end_with_a_killed_launcher(background: Any, work: str, tmp_path: Path) -> None:
    process = background(work, "local", "workers=2, grace=0.5")
    pids = workers(tmp_path)
    assert all(map(is_alive, pids))
    process.kill()
    wait_until(lambda: not any(map(is_alive, pids)), "the workers end")
    saved = sorted(path.name for path in tmp_path.glob("*.saved"))
    assert saved == (["run0.saved", "run1.saved"] if work == "until_stop" else [])


def test_an_error_of_the_listener_lets_tasks_save(tmp_path: Path) -> None:
    class Broken(Log):
        def task_started(self, key: str) -> None:
            wait_until(lambda: workers(tmp_path), "the task has begun")
            raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        local("until_stop", str(tmp_path / "run0"), listener=Broken(), workers=1)
    assert (tmp_path / "run0.saved").exists() and not any(map(is_alive, workers(tmp_path)))
