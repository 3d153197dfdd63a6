"""What is submitted to a cluster, and what is not: against a queue that does as it is told."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.cli.options import group_settings
from benchmark.config.compose import group_names
from benchmark.errors import ConfigError
from benchmark.launch.slurm.batch_job import BatchJob
from benchmark.launch.slurm.packing import check_time, pack_tasks
from benchmark.launch.slurm.preflight import PreflightCheck
from benchmark.launch.slurm.queue import (
    Queued,
    QueuedTask,
    QueueFullError,
    SchedulerUnavailableError,
    SlurmQueue,
)
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.launch.slurm.submission_log import Batch, Place, task_log
from benchmark.launch.slurm.submissions import Cluster, Lost, Snapshot
from benchmark.launch.tasks import Task
from benchmark.paths import CONF
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import Results, RunFolder

KEYS = [f"method-{m}/seed{s}" for m in range(4) for s in range(3)]


def tasks(keys: Sequence[str] = KEYS) -> list[Task]:
    return [Task(key, 1, {}) for key in keys]


class FakeQueue(SlurmQueue):
    """Arrays by name, with those of their tasks that wait or run; ``room`` for so many tasks."""

    def __init__(self, largest: int = 1000, room: int = 1000) -> None:
        self.largest, self.room = largest, room
        self.arrays: dict[str, list[list[str]]] = {}
        self.alive: dict[str, set[int]] | None = {}
        self.parallel: list[int] = []
        self.packs: list[BatchJob] = []
        self.after: Callable[[], None] = lambda: None
        self.running: dict[str, set[int]] = {}
        self.asked = 0
        self.waits_for: list[str | None] = []
        self.probes: list[str] = []
        self.endings: dict[str, tuple[str, int | None]] = {}

    def submit(self, name: str, packs: Sequence[BatchJob], parallel: int, after: str | None) -> None:
        assert self.alive is not None
        self.asked += 1
        if sum(map(len, self.alive.values())) + len(packs) > self.room:
            raise QueueFullError
        self.arrays[name] = [[task.key for task in pack.tasks] for pack in packs]
        self.alive[name] = set(range(len(packs)))
        self.parallel.append(parallel)
        self.packs += packs
        self.waits_for.append(after)
        self.after()

    def submit_preflight(self, name: str, script: str) -> str:
        assert self.alive is not None
        self.alive[name] = {0}
        self.probes.append(script)
        return f"{name}_0"

    def tasks(self) -> Queued | None:
        if self.alive is None:
            return None
        return {
            name: {
                index: QueuedTask(f"{name}_{index}", index in self.running.get(name, ())) for index in found
            }
            for name, found in self.alive.items()
            if found
        }

    def cancel(self, tasks: Sequence[QueuedTask]) -> None:
        assert self.alive is not None
        for task in tasks:
            name, _, index = task.id.rpartition("_")
            self.alive[name].discard(int(index))

    def ending(self, job: str) -> tuple[str, int | None]:
        return self.endings.get(job, ("", None))

    def largest_array(self) -> int:
        return self.largest

    def submitted(self) -> list[str]:
        """Every run, as often as it was submitted."""
        return [key for packs in self.arrays.values() for pack in packs for key in pack]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results").open()


def end(results: Results, *keys: str, state: str = "done", seconds: float = 0.0) -> None:
    for key in keys:
        folder = results.run(key)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_status(Status(RunState(state), 1, 1, "why", seconds=seconds))


def cluster(results: Results, queue: FakeQueue, **settings: Any) -> Cluster:
    queue.folder = results.root / "launcher" / "jobs"
    return Cluster(
        results, queue, SlurmSettings.of({"poll": 0.01, "probe": False, **settings}), "module:work"
    )


# Packing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        # 70 % of 10 minutes are 420 s: four runs of 100 s, or four times two side by side.
        ({}, [4, 4, 4]),
        ({"workers": 2}, [8, 4]),
        ({"gpus_per_job": 2}, [8, 4]),
        ({"runs_per_job": 5}, [5, 5, 2]),
        ({"runs_per_job": 1}, [1] * 12),
    ],
)
def test_runs_fill_the_time(settings: dict[str, Any], sizes: list[int]) -> None:
    packs = pack_tasks(tasks(), lambda task: 100.0, SlurmSettings.of({"time": 10, **settings}))
    assert [len(pack) for pack in packs] == sizes
    assert [task.key for pack in packs for task in pack] == KEYS


def test_a_run_longer_than_the_time_has_a_task_of_its_own() -> None:
    """It is queued again until it is done."""
    seconds = {KEYS[0]: 10.0, KEYS[1]: 9000.0, KEYS[2]: 10.0}
    packs = pack_tasks(tasks(KEYS[:3]), lambda task: seconds[task.key], SlurmSettings.of({"time": 10}))
    assert [len(pack) for pack in packs] == [1, 1, 1]


def test_times_are_those_of_other_seeds(results: Results) -> None:
    """Two minutes for method 0, the setting's ten for the others: 84 minutes hold 2 x 2 + 8 x 10, not one more."""
    end(results, KEYS[0], seconds=120.0)
    queue = FakeQueue()
    assert cluster(results, queue).submit(tasks()) == 11
    (packs,) = queue.arrays.values()
    assert [len(pack) for pack in packs] == [10, 1]


# What is submitted -------------------------------------------------------------------------------------------------


def test_what_neither_ended_nor_lives(results: Results) -> None:
    end(results, KEYS[0])
    end(results, KEYS[1], state="diverged")
    end(results, KEYS[2], state="failed")
    queue = FakeQueue()
    with results.run(KEYS[3]).lease():
        assert cluster(results, queue).submit(tasks()) == 9
    assert queue.submitted() == [KEYS[2], *KEYS[4:]]
    assert all(pack.work == "module:work" and pack.retries == 1 for pack in queue.packs)
    # Another launcher, or the same command once more: all that was submitted lives.
    assert cluster(results, queue).submit(tasks(KEYS[4:])) == 0
    assert cluster(results, queue).submit(tasks()) == 1 and queue.submitted()[-1] == KEYS[3]


def test_a_task_that_is_gone_is_submitted_again(results: Results) -> None:
    queue = FakeQueue()
    assert cluster(results, queue, runs_per_job=6).submit(tasks()) == 12
    (name,) = queue.arrays
    assert queue.alive is not None
    queue.alive[name] = {1}  # the first six runs: killed, cancelled, its node lost
    end(results, KEYS[0])
    assert cluster(results, queue).submit(tasks()) == 5
    assert queue.submitted()[12:] == KEYS[1:6]


def test_a_launcher_that_dies_after_submitting(results: Results) -> None:
    """The jobs carry the name that was noted before."""
    queue = FakeQueue()

    def killed() -> None:
        raise KeyboardInterrupt

    queue.after = killed
    with pytest.raises(KeyboardInterrupt):
        cluster(results, queue).submit(tasks())
    queue.after = lambda: None
    assert cluster(results, queue).submit(tasks()) == 0
    assert queue.submitted() == KEYS


def test_a_launcher_that_dies_before_submitting(results: Results) -> None:
    queue = FakeQueue()
    first = cluster(results, queue)
    first.queue.submit = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.submit(tasks())
    assert cluster(results, FakeQueue()).submit(tasks()) == 12


def test_refused_settings_leave_nothing(results: Results) -> None:
    class Refusing(FakeQueue):
        def submit(self, name: str, packs: Sequence[BatchJob], parallel: int, after: str | None) -> None:
            raise ConfigError("invalid partition specified: nope")

    with pytest.raises(ConfigError, match="invalid partition"):
        cluster(results, Refusing()).submit(tasks())
    assert list((results.root / "launcher" / "batches").iterdir()) == []


def test_arrays_have_the_cluster_s_size(results: Results) -> None:
    queue = FakeQueue(largest=5)
    assert cluster(results, queue, runs_per_job=1, max_parallel=8).submit(tasks()) == 12
    assert [len(packs) for packs in queue.arrays.values()] == [5, 5, 2]
    assert queue.parallel == [2, 2, 2], "eight tasks at a time among three arrays"


def test_a_queue_that_is_full_takes_the_rest_later(results: Results) -> None:
    queue = FakeQueue(largest=5, room=6)
    first = cluster(results, queue, runs_per_job=1)
    assert first.submit(tasks()) == 5
    assert queue.submitted() == KEYS[:5]
    assert first.submit(tasks()) == 0 and queue.asked == 2, "nothing has ended: it is not even asked"
    name = next(iter(queue.arrays))
    assert queue.alive is not None
    queue.alive[name] = {3, 4}
    end(results, *KEYS[:3])
    assert first.submit(tasks()) == 4, "half an array has room, and another half"
    queue.room = 1000
    queue.alive[name] = set()
    end(results, *KEYS[3:5])
    assert first.submit(tasks()) == 3
    assert queue.submitted() == KEYS


def test_a_limit_below_the_size_of_an_array(results: Results) -> None:
    queue = FakeQueue(largest=1000, room=4)
    assert cluster(results, queue, runs_per_job=1).submit(tasks()) == 3
    assert queue.submitted() == KEYS[:3], "of 12, 6, 3 the first that there is room for"


def test_a_scheduler_that_does_not_answer(results: Results) -> None:
    """Nothing is known to be gone, so nothing is submitted twice."""
    queue = FakeQueue()
    cluster(results, queue).submit(tasks(KEYS[:6]))
    queue.alive = None
    assert cluster(results, queue).submit(tasks(KEYS[:6])) == 0


@pytest.mark.parametrize("taken", [True, False])
def test_a_scheduler_that_does_not_say_whether_it_took_the_job(results: Results, taken: bool) -> None:
    """If it did, the next command finds it by its note; if not, it submits again."""
    queue = FakeQueue()

    def no_answer() -> None:
        if not taken and queue.alive is not None:
            queue.alive.clear()
        raise SchedulerUnavailableError("SLURM does not answer")

    queue.after = no_answer
    with pytest.raises(SchedulerUnavailableError):
        cluster(results, queue).submit(tasks())
    queue.after = lambda: None
    assert cluster(results, queue).submit(tasks()) == (0 if taken else 12)


# Looking after -----------------------------------------------------------------------------------------------------


class Views(list[Snapshot]):
    """Keeps what was shown; ``then`` is done after each."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.then = then

    def show(self, snapshot: Snapshot) -> None:
        self.append(snapshot)
        self.then()


def test_follows_until_all_have_ended(results: Results) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=6)
    one.submit(tasks())
    (name,) = queue.arrays
    shown = Views()

    def work() -> None:
        queue.running = {name: {0, 1}}
        end(results, *KEYS[: 6 * len(shown)])
        if len(shown) == 1:
            end(results, KEYS[6], state="running")

    shown.then = work
    assert one.follow(tasks(), shown) == []
    assert [str(snapshot) for snapshot in shown] == [
        "0/12 runs ended: 12 waiting",
        "6/12 runs ended: 5 waiting, 1 running, 6 done",
        "12/12 runs ended: 12 done",
    ]
    assert len(queue.submitted()) == 12


def test_runs_of_waiting_tasks_are_looked_at_once(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server feels what looks at the folders of thousands of runs every few seconds."""
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=1)
    one.submit(tasks())
    (name,) = queue.arrays
    looked: list[str] = []
    status = RunFolder.status

    def counted(folder: RunFolder) -> Status | None:
        looked.append("/".join(folder.path.parts[-2:]))
        return status(folder)

    monkeypatch.setattr(RunFolder, "status", counted)
    rounds: list[list[str]] = []

    def work() -> None:
        rounds.append(sorted(set(looked)))
        looked.clear()
        queue.running = {name: {3}}
        if len(rounds) == 3:
            end(results, *KEYS)
            assert queue.alive is not None
            queue.alive.clear()

    one.follow(tasks(), Views(work))
    assert rounds[:3] == [sorted(KEYS), [KEYS[3]], [KEYS[3]]]


def test_what_killed_a_job_costs_so_many_tries(results: Results) -> None:
    """Submitted, and twice again; then it is reported."""
    queue = FakeQueue()
    queue.after = lambda: queue.alive.clear() if queue.alive is not None else None
    one = cluster(results, queue, retries=2)
    end(results, *KEYS[1:])
    one.submit(tasks())
    assert one.follow(tasks(), Views()) == [Lost(KEYS[0], RunState.MISSING, "its task never began")]
    assert queue.submitted() == [KEYS[0]] * 3


def test_follows_on_while_the_scheduler_does_not_answer(results: Results) -> None:
    queue = FakeQueue()
    calls: list[int] = []

    def answer_at_last() -> None:
        assert queue.alive is not None
        queue.alive.clear()
        calls.append(len(calls))
        if len(calls) in (2, 3):
            raise SchedulerUnavailableError("SLURM does not answer")
        if len(calls) == 4:
            end(results, *KEYS)

    queue.after = answer_at_last
    one = cluster(results, queue, retries=1)
    one.submit(tasks())
    assert one.follow(tasks(), Views()) == []
    assert len(calls) == 4, "a try without an answer is not counted"


def test_a_run_that_failed_was_tried_in_its_job(results: Results) -> None:
    queue = FakeQueue()
    queue.after = lambda: end(results, KEYS[0], state="failed")
    one = cluster(results, queue, retries=2)
    end(results, *KEYS[1:])
    one.submit(tasks())
    assert queue.alive is not None
    queue.alive.clear()
    assert one.follow(tasks(), Views()) == [Lost(KEYS[0], RunState.FAILED, "why")]
    assert queue.submitted() == [KEYS[0]]
    # A new command is a new beginning.
    assert cluster(results, queue).submit(tasks()) == 1


def test_what_a_user_cancelled_is_not_submitted_again(results: Results) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=6, retries=2)
    one.submit(tasks())

    def cancel() -> None:
        queued = queue.tasks()
        assert queued is not None
        hit, others = one.log.cancel(queued, {KEYS[0], KEYS[1]})
        if hit:
            assert others == 4, "the other runs of the first task"
        queue.cancel(hit)
        queue.running = {name: {1} for name in queue.arrays}
        end(results, *KEYS[6:])

    lost = one.follow(tasks(), Views(cancel))
    assert [run.key for run in lost if "cancelled" in run.why] == KEYS[:6]
    assert queue.submitted() == KEYS
    # A new command is a new beginning, and what was cancelled stays so in the older note only.
    assert cluster(results, queue).submit(tasks()) == 6


@pytest.mark.parametrize(
    ("result", "ending", "why"),
    [
        (
            ("error", "Traceback ...\nRuntimeError: other versions: torch 1.0"),
            ("FAILED", 1),
            r"other versions: torch",
        ),
        (None, ("OUT_OF_MEMORY", 0), r"its task 7_0 ended as OUT_OF_MEMORY \(exit code 0\)"),
        (None, ("", None), r"its task 7_0 ended;"),
    ],
)
def test_why_a_task_did_not_carry_out_its_runs(
    results: Results, result: tuple[str, str] | None, ending: tuple[str, int | None], why: str
) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, retries=0, runs_per_job=6)
    end(results, *KEYS[1:])
    one.submit(tasks())
    (name,) = queue.arrays
    folder = results.root / "launcher" / "jobs" / name
    folder.mkdir(parents=True)
    (folder / "7_0_0_log.out").write_text("")
    queue.endings = {"7_0": ending}
    if result is not None:
        (folder / "7_0_0_result.pkl").write_bytes(pickle.dumps(result))
    assert queue.alive is not None
    queue.alive.clear()
    (lost,) = one.follow(tasks(), Views())
    assert lost.state == "missing" and re.search(why, lost.why) and lost.why.endswith("7_0_0_log.out")


@pytest.mark.parametrize(
    ("index", "names", "log"),
    [
        (1, ["7_0_0_log.out", "7_1_0_log.out", "7_11_0_log.out"], "7_1_0_log.out"),
        (2, ["7_0_0_log.out", "7_1_0_log.out"], None),  # not begun: the log of another task is none of its
        (0, ["8_0_log.out"], "8_0_log.out"),  # alone in its batch
    ],
)
def test_the_log_of_a_task(tmp_path: Path, index: int, names: list[str], log: str | None) -> None:
    (tmp_path / "batch").mkdir()
    for name in names:
        (tmp_path / "batch" / name).touch()
    found = task_log(tmp_path, Place(Batch("batch", ()), index))
    assert (found and found.name) == log


# The job that is asked first ---------------------------------------------------------------------------------------


def found(results: Results, name: str, message: str) -> None:
    (results.root / "launcher" / "probes" / f"{name}.json").write_text(json.dumps({"message": message}))


def test_everything_waits_for_the_probe_and_it_is_asked_once(results: Results) -> None:
    queue = FakeQueue()
    assert cluster(results, queue, probe=True).submit(tasks(KEYS[:3])) == 3
    (name,) = (name for name in queue.alive or () if "probe" in name)
    assert queue.waits_for == [f"{name}_0"]
    # Another launcher waits for the same one.
    assert cluster(results, queue, probe=True).submit(tasks(KEYS[3:6])) == 3
    assert queue.waits_for == [f"{name}_0"] * 2 and len(queue.probes) == 1
    found(results, name, "")
    assert cluster(results, queue, probe=True).submit(tasks(KEYS[6:9])) == 3
    assert queue.waits_for[2] is None and len(queue.probes) == 1
    # Other nodes, another question.
    assert cluster(results, queue, probe=True, partition="other").submit(tasks(KEYS[9:])) == 3
    assert len(queue.probes) == 2 and queue.waits_for[3] not in (None, f"{name}_0")


def test_a_queue_that_has_no_room_for_the_probe(results: Results) -> None:
    queue = FakeQueue()
    room = queue.submit_preflight

    def none_left(name: str, script: str) -> str:
        raise QueueFullError

    queue.submit_preflight = none_left  # type: ignore[method-assign]
    one = cluster(results, queue, probe=True)
    assert one.submit(tasks()) == 0 and not queue.arrays
    queue.submit_preflight = room  # type: ignore[method-assign]
    assert one.submit(tasks()) == 12


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        (
            "it has other versions: torch 1.0",
            93,
            r"cannot carry out the runs: it has other versions: torch 1\.0",
        ),
        (None, 90, r"does not see the results folder .*/results\. Set results="),
        (None, 91, r"does not see this checkout"),
        (None, 92, r"does not see .*python.*\.venv"),
        (None, 7, r"exit code 7; see .*\.log"),
        (None, None, r"without a result"),
    ],
)
def test_a_probe_that_does_not_pass(
    results: Results, word: str | None, code: int | None, message: str
) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, probe=True)
    one.submit(tasks())
    assert queue.alive is not None
    (name,) = (name for name in queue.alive if "probe" in name)

    def fails() -> None:
        assert queue.alive is not None
        queue.alive.pop(name, None)
        queue.endings = {f"{name}_0": ("FAILED", code)}
        if word is not None:
            found(results, name, word)

    with pytest.raises(ConfigError, match=message):
        one.follow(tasks(), Views(fails))
    assert not any(queue.alive.values()), "what waited for it is cancelled"
    # The next command asks again.
    assert cluster(results, queue, probe=True).submit(tasks()) == 12 and len(queue.probes) == 2


def asked(tmp_path: Path, **other: Any) -> tuple[int, str | None]:
    """Exit code of the job's script, and what it noted."""
    probe = replace(PreflightCheck.of(tmp_path / "results", "here", 0), **other)
    probe.prepare()
    done = subprocess.run(["bash"], input=probe.script([]), text=True, check=False)
    return done.returncode, probe.message()


def test_what_the_probe_finds(tmp_path: Path) -> None:
    assert asked(tmp_path) == (0, "")
    here = PreflightCheck.of(tmp_path, "here", 0).environment
    code, message = asked(tmp_path, environment={**here, "torch": "1.0.0"})
    assert code == 93 and message is not None and "(submitted with 1.0.0)" in message
    code, message = asked(tmp_path, sources="other")
    assert code == 93 and message is not None and "the files differ" in message
    assert asked(tmp_path, root="/nowhere") == (91, None)
    assert asked(tmp_path, python="/nowhere/python") == (92, None)


def test_a_folder_that_the_node_does_not_see(tmp_path: Path) -> None:
    probe = PreflightCheck.of(tmp_path / "elsewhere", "here", 0)
    script = probe.script([]).replace("sleep 1", "true")
    assert subprocess.run(["bash"], input=script, text=True, check=False).returncode == 90


# Time --------------------------------------------------------------------------------------------------------------


def test_a_time_shorter_than_from_one_checkpoint_to_the_next() -> None:
    """Ten minutes less 2 x 60 s are 480 s; a tenth of 5,000 s takes 500."""
    settings = SlurmSettings.of({"time": 10, "signal_delay": 60, "grace": 60})
    seconds = {"long": 5000.0, "short": 100.0, "unknown": None}
    check_time(settings, {"short": 1.0, "unknown": 1.0}, seconds.get)
    with pytest.raises(
        ConfigError, match=r"time: got 10; expected at least 11 .*long took 500 s.*checkpoint_every"
    ):
        check_time(settings, {"long": 0.1, "short": 1.0}, seconds.get)


# Settings ----------------------------------------------------------------------------------------------------------


def test_the_file_has_the_settings_and_their_defaults() -> None:
    plain = yaml.safe_load((CONF / "launcher" / "slurm.yaml").read_text())
    assert SlurmSettings.of(plain) == SlurmSettings()
    assert set(plain) == set(SlurmSettings.model_fields)


@pytest.mark.parametrize("name", [name for name in group_names("launcher") if name.startswith("slurm")])
def test_files_for_kinds_of_clusters(name: str) -> None:
    """Each holds what differs, is valid, and begins with a comment on what it is for."""
    path = CONF / "launcher" / f"{name}.yaml"
    assert path.read_text().startswith("# ")
    chosen = SlurmSettings.of(group_settings("launcher", name, {"time": "90"}))
    assert chosen.time == 90
    for key, value in yaml.safe_load(path.read_text()).items():
        if key != "time" and not isinstance(value, list):
            assert getattr(chosen, key) == value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partion": "gpu"}, r"launcher\.partion: .*'partition'"),
        ({"time": 0}, r"launcher\.time: got 0"),
        ({"gpu_gb_per_run": 4}, r"launcher\.gpu_gb_per_run: got 4.*gpus_per_job.*cpus_per_job"),
        ({"time": 3}, r"launcher\.time: got 3.*signal_delay.*grace"),
    ],
)
def test_settings_that_are_not_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SlurmSettings.of(values)


def test_gpus_are_asked_for_in_one_way() -> None:
    assert SlurmSettings.of({"gpus_per_job": 2}).place == {"gpus_per_node": 2}
    assert SlurmSettings.of({"gpus_per_job": 2, "slurm": {"gres": "gpu:a100:2"}}).place == {}


def test_no_cluster_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sbatch.*launcher=local"):
        SlurmQueue(SlurmSettings(), tmp_path)
