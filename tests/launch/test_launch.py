"""Workers pull: every run is carried out once, one that fails costs itself only, and all can be stopped."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, desk
from processes import descendants, is_alive, wait_until
from tiny_runs import FORKS, tiny

from benchmark.launch.work import Plan, read_plan, work
from benchmark.runs.folder import ResultsFolder

pytestmark = pytest.mark.slow

RUNS, WORKERS = (int(os.environ.get(name, number)) for name, number in (("RUNS", 200), ("WORKERS", 3)))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as it:
        yield it


def plan_of(results: Path, runs: int) -> Plan:
    """Runs of milliseconds."""
    short = {"dataset": {"options": {"train_size": 16, "test_size": 8}}}
    short |= {"partition": {"clients": 2}, "train": {"rounds": 1}}
    return Plan(id="one", root=results, runs=tuple(tiny(results, short, seed=seed) for seed in range(runs)))


def pull(path: Path, offset: int) -> None:
    """What a worker does; each run that it begins is a line of a file."""
    plan = read_plan(path)
    with path.with_name(f"begun-{offset}").open("a") as stream:

        def told(line: str) -> None:
            if line.startswith("begins "):
                print(line.split()[1], file=stream, flush=True)

        work(plan, lambda: False, offset, told)


# Every run once ----------------------------------------------------------------------------------------------------


def test_several_workers_carry_out_every_run_once(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, RUNS)
    plan.write()
    workers = [FORKS.Process(target=pull, args=(plan.path, place)) for place in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    begun = [path.read_text().split() for path in plan.path.parent.glob("begun-*")]
    assert Counter(key for keys in begun for key in keys) == dict.fromkeys(plan.keys, 1)
    assert len(begun) == WORKERS and all(begun), "all took part"
    assert ResultsFolder(tmp_path).finished(plan.keys) == set(plan.keys)
    assert not list(tmp_path.glob("runs/*/.seed*")), "neither claims nor attempts are left"


def test_failures_cost_their_runs_only(here: Desk) -> None:
    """Of 42 runs one raises an error, and the process of one is killed each time."""
    here.prepare(range(2, 44), rounds=1, how="raise", at=5)
    here.edit('if self.how == "kill"', "if view.num_clients == 9")
    here.edit("self.clients in (0, view.num_clients)", "view.num_clients in (5, 9)")
    here.edit('if self.how == "raise"', "if view.num_clients == 5")
    output = here.table("launcher.grace=5").wait(1)
    begun = {clients: len(pids) for clients, pids in here.at_work(0).items()}
    assert begun == dict.fromkeys(range(2, 44), 1) | {9: 3}
    assert "42/42 runs in " in output and "40 done, 2 failed" in output
    assert output.count("ArithmeticError: two and two are five (in Fragile.apply, methods/fragile.py:") == 1
    assert output.count("3 processes died over it") == 1
    assert "toy: 40 done, 2 failed; " in output


# Two commands ------------------------------------------------------------------------------------------------------


def test_two_launches_with_different_code(here: Desk) -> None:
    """The second carries out what the first has not; neither replaces what the other has made."""
    here.prepare((2, 3, 4, 5), how="hold", round=1)
    hold = here.hold()
    first = here.table()
    wait_until(lambda: len(here.at_work(1)) == 2, "two runs at work")
    here.edit()
    second = here.table()
    wait_until(lambda: len(here.at_work(1)) == 4, "the other two at work for the second command")
    hold.unlink()
    outputs = [command.wait(1) for command in (first, second)]
    for output in outputs:
        assert output.count("failed      ") == 2
        assert (
            output.count(": another command has carried it out in another way (code of methods/fragile.py")
            == 1
        )
        assert output.count(": for the same reason\n") == 1
    assert {len(pids) for pids in here.at_work(0).values()} == {1}
    assert "carried out again" not in outputs[0] + outputs[1]
    assert here.table().wait().count("carried out again: ") == 2, (
        "the next command replaces what is not its own"
    )


# Stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launcher", "number"),
    [("local", signal.SIGINT), ("local", signal.SIGHUP), ("inline", signal.SIGTERM)],
)
def test_a_signal_to_the_group_saves_all_runs(here: Desk, launcher: str, number: int) -> None:
    """The last line is the command that goes on, and it does."""
    here.prepare((2, 3, 4), how="slow", rounds=150)
    hold = here.hold()
    words = ("launcher=inline",) if launcher == "inline" else ()
    command = here.table(*words)
    at_work = 1 if launcher == "inline" else 2
    wait_until(lambda: len(here.at_work(2)) == at_work, "runs at work")
    pids = descendants(command.process.pid)
    os.killpg(command.process.pid, number)
    if launcher == "local":
        command.says(f"stopping on {signal.Signals(number).name}: runs save their state")
    output = command.wait(130)
    hold.unlink()
    *_, last = output.splitlines()
    assert last.startswith("stopped: 0 of 3 runs have ended. This goes on: ") and "table name=toy" in last
    assert "0/3 runs in " in output and "3 not ended" in output
    assert not any(map(is_alive, pids))
    here.table("launcher=inline").wait()
    assert len(here.finished()) == 3
    # Nobody began again: rounds that were saved are not repeated.
    assert {len(pids) for pids in here.at_work(0).values()} == {1}


def test_a_command_that_is_stopped_after_a_failure_is_stopped(here: Desk) -> None:
    here.prepare((2, 3), how="slow", rounds=150)
    here.edit('if self.how == "raise"', "if view.num_clients == 2")
    here.hold()
    command = here.table()
    command.says("failed      ")
    wait_until(lambda: len(here.at_work(1)) == 1, "a run at work")
    os.killpg(command.process.pid, signal.SIGINT)
    assert "stopped: 0 of 2 runs have ended. This goes on: " in command.wait(130)


def test_workers_save_and_end_after_their_launcher_was_killed(here: Desk) -> None:
    here.prepare((2, 3), how="slow", rounds=150)
    here.hold()
    command = here.table("launcher.grace=60")
    wait_until(lambda: len(here.at_work(1)) == 2, "two runs at work")
    pids = descendants(command.process.pid)
    command.process.kill()
    command.process.wait()
    wait_until(lambda: not any(map(is_alive, pids)), "the end of the workers")
    assert len(list(here.folder.glob("results/runs/*/.seed0-*/checkpoint.pt"))) == 2


def test_the_environment_of_a_worker_is_its_own(here: Desk) -> None:
    """Cores and GPU; the code is that of the snapshot, whose digest the result has."""
    here.prepare((2,), rounds=1)
    line = (
        'Path(os.environ["TOY"], "seen").write_text(repr([os.environ[name] for name in NAMES] + [__file__]))'
    )
    here.edit("return 1.0 * w", f"{line}\n        return 1.0 * w")
    here.edit("\n\n@reg", '\nNAMES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")\n\n\n@reg')
    here.table("threads=3", "device=cpu", CUDA_VISIBLE_DEVICES="7").wait()
    device, threads, file = json.loads((here.folder / "seen").read_text().replace("'", '"'))
    (key,) = here.finished()
    result = here.results.run(key).result()
    assert result is not None and result.origin["threads"] == 3
    snapshot = here.folder / "results" / "code" / result.made["code"]
    assert (device, threads, file) == ("", "3", str(snapshot / "0/methods/fragile.py"))
