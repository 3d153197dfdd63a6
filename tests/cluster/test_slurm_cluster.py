"""Tables by a real SLURM, whatever happens to jobs, daemons and launchers: the bits of one piece on this machine.

All goes through the command line. The runs wait at a round while a file is there, so each is disturbed at work.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from desk import Desk
from one_node import CLIENTS, ROUNDS, SLURM, Node, answer
from processes import is_alive, parent, wait_until

pytestmark = pytest.mark.cluster


def logs(here: Desk) -> str:
    """What the tasks have written."""
    paths = sorted(here.folder.glob("results/launches/*/*"))
    return "\n".join(path.read_text() for path in paths if path.suffix in (".out", ".err", ".log"))


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def slurm(**settings: object) -> list[str]:
    """The words of `SLURM` with other settings."""
    given = {f"launcher.{key}": f"launcher.{key}={value}" for key, value in settings.items()}
    return [word for word in SLURM if word.partition("=")[0] not in given] + [*given.values()]


def begin(here: Desk, words: list[str]) -> tuple[Path, list[int]]:
    """Have both runs at work, each in a process of one task; the file that holds them, and the processes."""
    here.prepare(CLIENTS, rounds=ROUNDS, how="hold", round=6)
    hold = here.hold()
    here.table(*words)
    wait_until(lambda: len(here.at_work(6)) == 2, "both runs at work", 600)
    return hold, [pid for (pid,) in here.at_work(6).values()]


def assert_same(here: Desk, local: Desk) -> None:
    assert here.finished() == local.finished()
    assert here.csv() == local.csv()


def test_jobs_run_the_code_of_their_submission(cluster: Node, here: Desk, local: Desk) -> None:
    """Submitted by a command that leaves; followed by a second until Ctrl-C; done by then in spite of an edit."""
    here.prepare(CLIENTS, rounds=ROUNDS, how="hold", round=6)
    words = slurm(workers=1, slurm="{hold: true}")
    assert "2 tasks for 2 runs" in here.table(*words, "launcher.detach=true").wait()
    jobs = cluster.jobs(here.folder)
    assert len(jobs) == 2, "not more tasks than runs"

    second = here.table(*words)
    second.says("2 runs, 2 to do")
    second.process.send_signal(signal.SIGINT)
    assert "left alone: what was submitted goes on; `scancel --name " in second.wait(130)
    assert cluster.jobs(here.folder) == jobs and "tasks for" not in second.output

    here.edit()
    output = here.table(*words).wait(2)
    assert f"job {jobs[0].partition('_')[0]} carries out 2 of these runs with other code" in output
    answer("scontrol", "release", jobs[0].partition("_")[0])
    wait_until(lambda: not cluster.jobs(here.folder), "the end of the jobs", 600)
    here.edit("0.5 * w", "1.0 * w")
    assert "tasks for" not in here.table(*words).wait()
    assert_same(here, local)


def preempt(here: Desk, pids: list[int]) -> None:
    """A job of the partition with the right of way wants all of the node."""
    answer("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")


def end_of_time(here: Desk, pids: list[int]) -> None:
    """SLURM looks at times twice a minute, and tells 20 to 50 seconds before the end."""
    (job,) = Node().jobs(here.folder)
    answer("scontrol", "update", f"JobId={job}", "EndTime=now+50")


def requeue(here: Desk, pids: list[int]) -> None:
    """An administrator, say, has it begin again; nobody tells submitit."""
    (job,) = Node().jobs(here.folder)
    answer("scontrol", "requeue", job)


def lose_the_node(here: Desk, pids: list[int]) -> None:
    """slurmd and all processes of the task are gone at once; then the node is back."""
    slurmd, task = Node().daemon("slurmd"), parent(pids[0])
    send(signal.SIGKILL, [slurmd, parent(task), task, *pids])
    wait_until(lambda: not is_alive(slurmd), "the end of slurmd")
    Node().script("start")


@pytest.mark.parametrize(
    ("disturb", "said"),
    [
        (preempt, "preempted"),
        (end_of_time, "timed-out"),
        (requeue, "DUE TO JOB REQUEUE"),
        (lose_the_node, ""),
    ],
)
def test_a_job_is_disturbed(
    cluster: Node, here: Desk, local: Desk, disturb: Callable[[Desk, list[int]], None], said: str
) -> None:
    """Its runs go on from what they have saved: in the same job, or in another one."""
    # With at most ten minutes submitit takes every signal for the end of the time.
    times = slurm(time=5, signal_delay=20, grace=15)
    hold, pids = begin(here, times if disturb is end_of_time else slurm())
    disturb(here, pids)
    wait_until(lambda: said in logs(here), "the task is told", 600)
    if disturb is end_of_time:
        answer("scontrol", "update", f"JobId={cluster.jobs(here.folder)[0]}", "TimeLimit=5")
    hold.unlink()
    (command,) = here.commands
    command.wait()
    assert not any(map(is_alive, pids))
    assert_same(here, local)
    rounds = [len(here.at_work(0)[clients]) for clients in CLIENTS]
    if said in ("preempted", "timed-out"):
        assert rounds == [1, 1], "they have saved, and go on from there"


def test_no_round_in_the_time_of_a_task(cluster: Node, here: Desk) -> None:
    """It is not queued again for ever, by SLURM or by the command."""
    here.prepare((2,), how="hold")
    here.hold()
    command = here.table(*slurm(time=1, signal_delay=30, grace=1))
    output = command.wait(1)
    assert "the tasks ended, but no round did; logs: " in output and output.count("tasks for 1 runs") == 1
    assert "no run finished one round before the task's time was up (30 s)" in logs(here)


def test_a_partition_that_does_not_exist(cluster: Node, here: Desk) -> None:
    here.prepare((2,))
    output = here.table("launcher=slurm", "launcher.partition=middle").wait(2)
    assert "invalid partition specified: middle" in output and "Traceback" not in output
    assert not cluster.jobs(here.folder)


def test_a_task_that_sees_no_gpu_ends_at_once(cluster: Node, here: Desk) -> None:
    """The node says that it has one, and there is none; the same runs are carried out where none was asked for."""
    here.prepare(CLIENTS, rounds=1)
    output = here.table(*SLURM, "launcher.gpus_per_job=1").wait(1)
    (script,) = here.folder.glob("results/launches/*/*_submission.sh")
    assert "#SBATCH --gpus-per-node=1" in script.read_text()
    assert "launcher.gpus_per_job: this task asked for a GPU" in output and "Traceback" not in output
    assert not here.finished()
    here.table(*SLURM).wait()
    assert len(here.finished()) == len(CLIENTS)
