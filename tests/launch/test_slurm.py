"""What is submitted to a cluster, and what is not: against a queue that does as it is told."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_queue import KEYS, FakeQueue, cluster, end, tasks

from benchmark.errors import ConfigError
from benchmark.launch.slurm import preflight
from benchmark.launch.slurm.queue import SchedulerUnavailableError
from benchmark.launch.slurm.submission_log import Place, task_log
from benchmark.launch.tasks import Outcome
from benchmark.runs.status import RunState, Status
from benchmark.runs.store import ResultsFolder, RunFolder


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results").open()


def test_times_are_those_of_other_seeds(results: ResultsFolder) -> None:
    """Two minutes for method 0, the setting's ten for the others: 84 minutes hold 2 x 2 + 8 x 10, not one more."""
    end(results, KEYS[0], seconds=120.0)
    queue = FakeQueue()
    assert cluster(results, queue).submit(tasks()) == 11
    (packs,) = queue.arrays.values()
    assert [len(pack) for pack in packs] == [10, 1]


# What is submitted -------------------------------------------------------------------------------------------------


def test_what_neither_ended_nor_lives(results: ResultsFolder) -> None:
    end(results, KEYS[0])
    end(results, KEYS[1], state="diverged")
    end(results, KEYS[2], state="failed")
    queue = FakeQueue()
    with results.run(KEYS[3]).lease():
        assert cluster(results, queue).submit(tasks()) == 9
    assert queue.submitted() == [KEYS[2], *KEYS[4:]]
    # Another launcher, or the same command once more: all that was submitted lives.
    assert cluster(results, queue).submit(tasks(KEYS[4:])) == 0
    assert cluster(results, queue).submit(tasks()) == 1 and queue.submitted()[-1] == KEYS[3]


def test_a_task_that_is_gone_is_submitted_again(results: ResultsFolder) -> None:
    queue = FakeQueue()
    assert cluster(results, queue, runs_per_job=6).submit(tasks()) == 12
    (name,) = queue.arrays
    queue.alive[name] = {1}  # the first six runs: killed, cancelled, its node lost
    end(results, KEYS[0])
    assert cluster(results, queue).submit(tasks()) == 5
    assert queue.submitted()[12:] == KEYS[1:6]


def test_a_queue_that_is_full_takes_the_rest_later(results: ResultsFolder) -> None:
    queue = FakeQueue(largest=5, room=6)
    first = cluster(results, queue, runs_per_job=1, max_parallel=8)
    assert first.submit(tasks()) == 5
    assert queue.submitted() == KEYS[:5]
    assert queue.parallel == [2], "eight tasks at a time among three arrays"
    assert first.submit(tasks()) == 0 and queue.asked == 2, "nothing has ended: it is not even asked"
    (name,) = queue.arrays
    queue.alive[name] = {3, 4}
    end(results, *KEYS[:3])
    assert first.submit(tasks()) == 4, "half an array has room, and another half"
    queue.room = 1000
    assert first.submit(tasks()) == 0, "nothing has ended"
    queue.alive[name] = set()
    end(results, *KEYS[3:5])
    assert first.submit(tasks()) == 3
    assert queue.submitted() == KEYS


def test_a_scheduler_that_does_not_answer(results: ResultsFolder) -> None:
    """Nothing is known to be gone, so nothing is submitted twice."""
    queue = FakeQueue()
    cluster(results, queue).submit(tasks(KEYS[:6]))
    queue.answers = False
    assert cluster(results, queue).submit(tasks(KEYS[:6])) == 0


@pytest.mark.parametrize(
    ("error", "taken", "notes"),
    [
        (KeyboardInterrupt, True, 1),
        (KeyboardInterrupt, False, 1),
        (SchedulerUnavailableError, True, 1),
        (SchedulerUnavailableError, False, 1),
        (ConfigError, False, 0),  # it refuses the settings
    ],
)
def test_cut_submissions(results: ResultsFolder, error: type[BaseException], taken: bool, notes: int) -> None:
    """If the scheduler took the jobs, the next command finds them by the note; if not, it submits again."""
    queue = FakeQueue()

    def cut_off() -> None:
        if not taken:
            queue.alive.clear()
        raise error

    queue.after = cut_off
    with pytest.raises(error):
        cluster(results, queue).submit(tasks())
    assert len(list((results.root / "launcher" / "batches").iterdir())) == notes
    queue.after = lambda: None
    assert cluster(results, queue).submit(tasks()) == (0 if taken else 12)


# Looking after -----------------------------------------------------------------------------------------------------


def test_follows_until_all_have_ended(results: ResultsFolder) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=6)
    one.submit(tasks())
    (name,) = queue.arrays
    shown: list[Counter[str]] = []

    def work(states: Mapping[str, RunState], waiting_for: str) -> None:
        shown.append(Counter(states.values()))
        queue.running = {name: {0, 1}}
        end(results, *KEYS[: 6 * len(shown)])
        if len(shown) == 1:
            end(results, KEYS[6], state="running")

    assert one.follow(tasks(), work) == []
    assert shown == [{"waiting": 12}, {"waiting": 5, "running": 1, "done": 6}, {"done": 12}]
    assert len(queue.submitted()) == 12


def test_waiting_runs_are_looked_at_once(results: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server feels what looks at the folders of thousands of runs every few seconds."""
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=1)
    end(results, *KEYS, state="interrupted")
    looked: list[str] = []
    status = RunFolder.status

    def counted(folder: RunFolder) -> Status | None:
        looked.append("/".join(folder.path.parts[-2:]))
        return status(folder)

    monkeypatch.setattr(RunFolder, "status", counted)
    one.submit(tasks())
    (name,) = queue.arrays
    rounds: list[list[str]] = []

    def work(*_: object) -> None:
        rounds.append(sorted(set(looked)))
        looked.clear()
        queue.running = {name: {3}}
        if len(rounds) == 3:
            end(results, *KEYS)
            queue.alive.clear()

    one.follow(tasks(), work)
    assert rounds[:3] == [sorted(KEYS), [KEYS[3]], [KEYS[3]]]


@pytest.mark.parametrize(
    ("state", "times", "why"),
    [
        (RunState.MISSING, 3, "its task never began"),
        (RunState.FAILED, 1, "why"),
    ],  # what failed was tried in its job
)
def test_tries_after_a_killed_job(results: ResultsFolder, state: RunState, times: int, why: str) -> None:
    """Submitted, and twice again; then it is reported. A new command is a new beginning."""
    queue = FakeQueue()

    def killed() -> None:
        queue.alive.clear()
        if state is RunState.FAILED:
            end(results, KEYS[0], state="failed")

    queue.after = killed
    one = cluster(results, queue, retries=2)
    end(results, *KEYS[1:])
    one.submit(tasks())
    assert one.follow(tasks(), print) == [Outcome(KEYS[0], state, why, 0.0)]
    assert queue.submitted() == [KEYS[0]] * times
    assert cluster(results, queue).submit(tasks()) == 1


def test_follows_on_while_the_scheduler_does_not_answer(results: ResultsFolder) -> None:
    queue = FakeQueue()
    calls: list[int] = []

    def answer_at_last() -> None:
        queue.alive.clear()
        calls.append(len(calls))
        if len(calls) in (2, 3):
            raise SchedulerUnavailableError("SLURM does not answer")
        if len(calls) == 4:
            end(results, *KEYS)

    queue.after = answer_at_last
    one = cluster(results, queue, retries=1)
    one.submit(tasks())
    assert one.follow(tasks(), print) == []
    assert len(calls) == 4, "a try without an answer is not counted"


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ("Traceback ...\nRuntimeError: 7\nsrun: error: task 0: Exited with exit code 1\n", "RuntimeError: 7"),
        ("slurmstepd: error: *** JOB 7 CANCELLED ***\n\n", "slurmstepd: error: *** JOB 7 CANCELLED ***"),
        ("", "its task ended"),
        (None, "its task ended"),
    ],
)
def test_why_a_task_did_not_carry_out_its_runs(results: ResultsFolder, errors: str | None, why: str) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, retries=0, runs_per_job=6)
    end(results, *KEYS[1:])
    one.submit(tasks())
    (name,) = queue.arrays
    log = results.root / "launcher" / "jobs" / name / "7_0_0_log.out"
    log.parent.mkdir(parents=True)
    log.touch()
    if errors is not None:
        log.with_suffix(".err").write_text(errors)
    queue.alive.clear()
    (lost,) = one.follow(tasks(), print)
    assert (lost.state, lost.message) == ("missing", f"{why}; log: {log}")


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
    found = task_log(tmp_path, Place("batch", index, False))
    assert (found and found.name) == log


# The job that is asked first ---------------------------------------------------------------------------------------


def test_everything_waits_for_the_probe_and_it_is_asked_once(results: ResultsFolder) -> None:
    queue = FakeQueue(room=0)
    first = cluster(results, queue, probe=True)
    assert first.submit(tasks(KEYS[:3])) == 0 and not queue.arrays, "there is no room for the probe"
    queue.room = 1000
    assert first.submit(tasks(KEYS[:3])) == 3
    (check,) = queue.probes
    assert queue.waits_for == [f"{check.name}_0"]
    # Another launcher waits for the same one.
    assert cluster(results, queue, probe=True).submit(tasks(KEYS[3:6])) == 3
    assert queue.waits_for == [f"{check.name}_0"] * 2 and len(queue.probes) == 1
    check()
    assert cluster(results, queue, probe=True).submit(tasks(KEYS[6:9])) == 3
    assert queue.waits_for[2] is None and len(queue.probes) == 1
    # Other nodes, another question.
    assert cluster(results, queue, probe=True, partition="other").submit(tasks(KEYS[9:])) == 3
    assert queue.waits_for[3] == f"{queue.probes[1].name}_0"


@pytest.mark.parametrize(
    ("settings", "node", "message"),
    [
        ({}, {"environment": {"torch": "1.0"}}, r"cannot carry out the runs: .*torch 1\.0 \(submitted with"),
        ({}, {"sources": "other"}, "the files differ"),
        ({"gpus_per_job": 512}, {}, "gpus_per_job asks for 512"),
        ({}, "crash", r"without a result; see .*_log\.err"),
        ({}, "lost", r"does not see the results folder .*/results.*Set results="),
    ],
)
def test_a_probe_that_does_not_pass(
    results: ResultsFolder,
    settings: dict[str, Any],
    node: dict[str, Any] | str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, probe=True, **settings)
    one.submit(tasks())
    (check,) = queue.probes

    def fails(*_: object) -> None:
        if not queue.alive.pop(check.name, None):
            return
        if node == "crash":
            log = queue.folder / check.name / f"{check.name}_0_0_log.err"
            log.parent.mkdir(parents=True)
            log.touch()
        elif isinstance(node, dict):
            with monkeypatch.context() as patch, pytest.raises(RuntimeError):
                for name, value in node.items():
                    patch.setattr(preflight, name, lambda value=value: value)
                check()

    with pytest.raises(ConfigError, match=message):
        one.follow(tasks(), fails)
    assert not any(queue.alive.values()), "what waited for it is cancelled"
    # The next command asks again.
    assert cluster(results, queue, probe=True).submit(tasks()) == 12 and len(queue.probes) == 2
