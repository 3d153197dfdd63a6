"""What is submitted to a cluster, and what is not: against a queue that does as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.errors import ConfigError
from benchmark.runs.config import CONF
from benchmark.runs.launch import Task
from benchmark.runs.pack import Pack
from benchmark.runs.slurm import Away, Cluster, Full, Slurm, SlurmSettings, packed
from benchmark.runs.store import Results, Status

KEYS = [f"method-{m}/seed{s}" for m in range(4) for s in range(3)]


def tasks(keys: Sequence[str] = KEYS) -> list[Task]:
    return [Task(key, 1, {}) for key in keys]


class FakeQueue:
    """Arrays by name, with those of their tasks that wait or run."""

    def __init__(self, largest: int = 1000, room: int = 1000) -> None:
        self.largest, self.room = largest, room
        self.arrays: dict[str, list[list[str]]] = {}
        self.alive: dict[str, set[int]] | None = {}
        self.parallel: list[int] = []
        self.packs: list[Pack] = []
        self.after: Callable[[], None] = lambda: None

    def submit(self, name: str, packs: Sequence[Pack], parallel: int) -> None:
        if len(self.arrays) >= self.room:
            raise Full
        assert self.alive is not None
        self.arrays[name] = [[task.key for task in pack.tasks] for pack in packs]
        self.alive[name] = set(range(len(packs)))
        self.parallel.append(parallel)
        self.packs += packs
        self.after()

    def living(self) -> dict[str, set[int]] | None:
        return (
            None if self.alive is None else {name: set(found) for name, found in self.alive.items() if found}
        )

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
        folder.write_status(Status(state, 1, 1, "why", seconds=seconds))


def cluster(results: Results, queue: FakeQueue, **settings: Any) -> Cluster:
    return Cluster(results, queue, SlurmSettings.of({"poll": 0.01, **settings}), "module:work")


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
    packs = packed(tasks(), lambda task: 100.0, SlurmSettings.of({"time": 10, **settings}))
    assert [len(pack) for pack in packs] == sizes
    assert [task.key for pack in packs for task in pack] == KEYS


def test_a_run_longer_than_the_time_has_a_task_of_its_own() -> None:
    """It is queued again until it is done."""
    seconds = {KEYS[0]: 10.0, KEYS[1]: 9000.0, KEYS[2]: 10.0}
    packs = packed(tasks(KEYS[:3]), lambda task: seconds[task.key], SlurmSettings.of({"time": 10}))
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
        def submit(self, name: str, packs: Sequence[Pack], parallel: int) -> None:
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
    queue = FakeQueue(largest=5, room=1)
    first = cluster(results, queue, runs_per_job=1)
    assert first.submit(tasks()) == 5
    assert queue.submitted() == KEYS[:5]
    queue.room = 1000
    assert first.submit(tasks()) == 7
    assert queue.submitted() == KEYS


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
        raise Away("SLURM does not answer")

    queue.after = no_answer
    with pytest.raises(Away):
        cluster(results, queue).submit(tasks())
    queue.after = lambda: None
    assert cluster(results, queue).submit(tasks()) == (0 if taken else 12)


# Looking after -----------------------------------------------------------------------------------------------------


def test_follows_until_all_have_ended(results: Results) -> None:
    queue = FakeQueue()
    one = cluster(results, queue, runs_per_job=6)
    one.submit(tasks())
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        done = 6 * len(said)
        end(results, *KEYS[:done])

    assert one.follow(tasks(), say) == []
    assert [line.split(" runs")[0] for line in said] == ["0/12", "6/12", "12/12"]
    assert len(queue.submitted()) == 12


def test_what_killed_a_job_costs_so_many_tries(results: Results) -> None:
    """Submitted, and twice again; then it is reported."""
    queue = FakeQueue()
    queue.after = lambda: queue.alive.clear() if queue.alive is not None else None
    one = cluster(results, queue, retries=2)
    end(results, *KEYS[1:])
    one.submit(tasks())
    assert one.follow(tasks(), lambda line: None) == [KEYS[0]]
    assert queue.submitted() == [KEYS[0]] * 3


def test_follows_on_while_the_scheduler_does_not_answer(results: Results) -> None:
    queue = FakeQueue()
    calls: list[int] = []

    def answer_at_last() -> None:
        assert queue.alive is not None
        queue.alive.clear()
        calls.append(len(calls))
        if len(calls) in (2, 3):
            raise Away("SLURM does not answer")
        if len(calls) == 4:
            end(results, *KEYS)

    queue.after = answer_at_last
    one = cluster(results, queue, retries=1)
    one.submit(tasks())
    assert one.follow(tasks(), lambda line: None) == []
    assert len(calls) == 4, "a try without an answer is not counted"


def test_a_run_that_failed_was_tried_in_its_job(results: Results) -> None:
    queue = FakeQueue()
    queue.after = lambda: end(results, KEYS[0], state="failed")
    one = cluster(results, queue, retries=2)
    end(results, *KEYS[1:])
    one.submit(tasks())
    assert queue.alive is not None
    queue.alive.clear()
    assert one.follow(tasks(), lambda line: None) == [KEYS[0]]
    assert queue.submitted() == [KEYS[0]]
    # A new command is a new beginning.
    assert cluster(results, queue).submit(tasks()) == 1


# Settings ----------------------------------------------------------------------------------------------------------


def test_the_file_has_the_settings_and_their_defaults() -> None:
    plain = yaml.safe_load((CONF / "launcher" / "slurm.yaml").read_text())
    assert SlurmSettings.of(plain) == SlurmSettings()
    assert set(plain) == set(SlurmSettings.model_fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partion": "gpu"}, r"launcher\.partion: came 'gpu'; .*Did you mean 'partition'\?"),
        ({"time": 0}, r"launcher\.time: came 0; .*conf/launcher/slurm\.yaml"),
        ({"time": 3}, r"launcher\.time: came 3 minutes, of which runs have 180 s .*nothing is left for work"),
    ],
)
def test_settings_that_are_not_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SlurmSettings.of(values)


def test_no_cluster_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no `sbatch` on this machine.*login node.*launcher=local"):
        Slurm(SlurmSettings(), tmp_path)
