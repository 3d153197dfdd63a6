"""Tables by a real SLURM, whatever happens to jobs, daemons and launchers: the same bits, every run done once.

All goes through the command line. What is expected are the runs that the local launcher does in one piece.
"""

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from one_node import (
    CHECKPOINT,
    COLUMNS,
    LONG_ROWS,
    MIDDLE,
    NODE,
    ROOT,
    ROUNDS,
    ROWS,
    SLURM,
    TABLE,
    Desk,
    Node,
    Session,
    answer,
    send,
    sessions,
    status,
)
from processes import is_alive, parent, wait_until

pytestmark = pytest.mark.cluster

ONE_GO = [Session(0, ROUNDS, "done")]


def assert_same(here: Desk, reference: Desk, number: int = len(LONG_ROWS), submitted: int = 1) -> None:
    """So many runs, all done and submitted so often, in the bits of ``reference``."""
    assert set(here.submissions().values()) == {submitted}
    runs = here.runs()
    assert len(runs) == number
    for key, path in runs.items():
        found, expected = status(path), status(reference.runs()[key])
        assert found["state"] == expected["state"] == "done", key
        assert found["model_sha256"] == expected["model_sha256"], key
        assert found["final"] == expected["final"], key
        records = [(folder / "records.jsonl").read_bytes() for folder in (path, reference.runs()[key])]
        assert records[0] and records[0] == records[1], key


def assert_went_on(history: Sequence[Session]) -> None:
    """Stopped at work, a run goes on in another process: where the one before saved, or else from a checkpoint."""
    assert len(history) >= 2 and history[0].first == 0
    assert (history[-1].ending, history[-1].last) == ("done", ROUNDS)
    for before, after in pairwise(history):
        assert before.first <= after.first and 0 < after.first < ROUNDS
        if before.ending is None:
            assert after.first % CHECKPOINT == 0
        else:
            assert (before.ending, before.last) == ("interrupted", after.first)


def assert_all_went_on(here: Desk, undisturbed: Desk, submitted: int = 1) -> None:
    """Both long runs were disturbed, and came to the same end."""
    assert_same(here, undisturbed, submitted=submitted)
    for history in here.histories():
        assert_went_on(history)


def only_job(cluster: Node, here: Desk) -> str:
    """The number of the one job of a desk."""
    (job,) = cluster.jobs(here.folder)
    return job


def test_a_whole_table(cluster: Node, here: Desk, local: Desk) -> None:
    """Submitted by one process, which leaves; followed by a second, until Ctrl-C; made by a third."""
    column = (f"columns={COLUMNS[0]}", "launcher.runs_per_job=1", "launcher.slurm={hold: true}")
    first = here.table(*column, *SLURM, "launcher.detach=true").wait()
    assert f"{len(ROWS)} of {len(ROWS)} runs submitted" in first
    jobs = cluster.jobs(here.folder)
    assert len(jobs) == len(ROWS), "each run is a task of the array"

    second = here.table(*column, *SLURM)
    wait_until(lambda: f"0/{len(ROWS)} runs, " in second.output, "the second process to follow")
    second.process.send_signal(signal.SIGINT)
    assert "left alone" in second.wait(130)
    assert f"0 of {len(ROWS)} runs submitted" in second.output
    assert cluster.jobs(here.folder) == jobs

    answer("scontrol", "release", jobs[0].partition("_")[0])
    third = here.table("launcher.runs_per_job=6", *SLURM).wait()
    number = len(ROWS) * len(COLUMNS)
    assert f"{number - len(ROWS)} of {number} runs submitted" in third
    assert f"fedld_table1: {number} done" in third
    assert_same(here, local, number)
    assert [len(history) for history in here.histories()] == [1] * number
    for suffix in ("csv", "tex", "md"):
        path = Path("results", "tables", "quick", f"fedld_table1_part.{suffix}")
        assert (here.folder / path).read_bytes() == (local.folder / path).read_bytes(), suffix


def test_the_doctor_sees_a_node(cluster: Node, here: Desk) -> None:
    """Its checks run in a job, and its lines come back."""
    output = here.give("doctor", *NODE, "paper=fedld", "preset=quick").wait()
    assert re.search(r"^SLURM +ok ", output, re.MULTILINE), output
    assert re.search(r"^node +ok ", output, re.MULTILINE), output
    assert not list((here.results / "launcher" / "probes").iterdir())


def test_two_launchers_at_once(cluster: Node, here: Desk, local: Desk) -> None:
    """One of them submits; the jobs track their runs."""
    words = (f"columns={COLUMNS[1]}", "launcher.runs_per_job=2", "tracking=wandb", "tracking.mode=offline")
    commands = [here.table(*words, *SLURM, WANDB_MODE="offline") for _ in range(2)]
    outputs = [command.wait() for command in commands]
    said = sorted(re.findall(rf"(\d) of {len(ROWS)} runs submitted", "".join(outputs)))
    assert said == ["0", str(len(ROWS))]
    assert_same(here, local, len(ROWS))
    assert [len(history) for history in here.histories()] == [1] * len(ROWS)
    assert here.job_logs().count(" begins ") == len(ROWS)
    for path in here.runs().values():
        note = json.loads((path / "wandb.json").read_bytes())
        assert note["destination"].startswith("offline") and note["sent"].startswith("done ")
    assert len(list(here.results.glob("wandb/offline-run-*/*.wandb"))) >= len(ROWS)


def test_a_job_goes_first(cluster: Node, here: Desk, local: Desk) -> None:
    """All that is submitted with it waits for it; what has passed is not asked again."""
    words = ("rows=fedavg,fedpac", *NODE)
    here.table(f"columns={COLUMNS[0]}", *words, "launcher.detach=true").wait()
    here.table(f"columns={COLUMNS[0]}", *words).wait()
    (note,) = (here.results / "launcher" / "probes").glob("*.found")
    begun = [(path / "config.yaml").stat().st_mtime for path in here.runs().values()]
    assert len(begun) == 2 and min(begun) > note.stat().st_mtime
    before = note.read_bytes()
    here.table(f"columns={COLUMNS[0]},{COLUMNS[1]}", *words).wait()
    assert note.read_bytes() == before
    assert_same(here, local, 4)


def test_a_folder_that_the_node_does_not_see(cluster: Node, here: Desk) -> None:
    """This process has a file system of its own over it."""
    hidden = here.folder / "hidden"
    hidden.mkdir(parents=True)
    words = ["table", TABLE, "seeds=1", "rows=fedavg", f"columns={COLUMNS[0]}", *NODE]
    line = f"mount -t tmpfs none {hidden} && cd {hidden} && exec {sys.executable} -m benchmark {shlex.join(words)}"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", line],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("error: ") == 1
    assert f"it does not see the results folder {hidden}/results" in done.stderr
    assert not cluster.jobs(here.folder)


def test_a_user_looks_and_cancels(cluster: Node, here: Desk, undisturbed: Desk) -> None:
    """What is cancelled saves its state and is not submitted again by who follows it; a new command goes on with it."""
    launcher = here.long("launcher.workers=2", *SLURM)
    workers = here.stop_at_work()
    words = (TABLE, "seeds=1", "tuned=tuned", f"rows={','.join(LONG_ROWS)}", f"columns={COLUMNS[0]}")
    assert "2 runs: 2 running; SLURM: 1 tasks running, 0 waiting" in here.give("status", *words).wait()
    assert "1 tasks cancelled" in here.give("cancel", *words).wait()
    send(signal.SIGCONT, workers)
    output = launcher.wait(1)
    assert output.count("its task was cancelled") == 2
    assert here.histories()[0][-1].ending == "interrupted"
    here.long("launcher.workers=2", *SLURM).wait()
    assert_all_went_on(here, undisturbed, submitted=2)


def preempt(cluster: Node, here: Desk) -> None:
    """A job of the partition with the right of way wants all of the node."""
    answer("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")


def requeue(cluster: Node, here: Desk) -> None:
    """An administrator, say, has it begin again; nobody tells submitit."""
    answer("scontrol", "requeue", only_job(cluster, here))


def cancel(cluster: Node, here: Desk) -> None:
    answer("scancel", only_job(cluster, here))


@pytest.mark.parametrize(
    ("disturb", "submitted", "said"),
    [(preempt, 1, "stopping    SIGUSR2"), (requeue, 1, "DUE TO JOB REQUEUE"), (cancel, 2, "CANCELLED")],
)
def test_a_job_is_disturbed(
    cluster: Node,
    here: Desk,
    undisturbed: Desk,
    disturb: Callable[[Node, Desk], None],
    submitted: int,
    said: str,
) -> None:
    """Its runs go on from what they have saved: in the same job, or in another one that is submitted."""
    launcher = here.long("launcher.workers=2", *SLURM)
    before = here.stop_at_work()
    disturb(cluster, here)
    wait_until(lambda: said in here.job_logs(), "the job to be told")
    send(signal.SIGCONT, before)
    launcher.wait()
    assert not any(map(is_alive, before))
    assert_all_went_on(here, undisturbed, submitted)


def test_slurmd_and_all_workers_are_killed(cluster: Node, here: Desk, undisturbed: Desk) -> None:
    """What slurmd has started goes on without it and replaces its workers; the next slurmd finds it."""
    launcher = here.long("launcher.workers=2", *SLURM)
    workers = here.stop_at_work()
    job, slurmd = only_job(cluster, here), cluster.daemon("slurmd")
    send(signal.SIGKILL, [slurmd, *workers])
    wait_until(lambda: not is_alive(slurmd), "the end of slurmd")
    wait_until(lambda: here.job_logs().count(" begins ") == 2 * len(LONG_ROWS), "two new beginnings")
    cluster.script("start")
    assert cluster.daemon("slurmd") != slurmd
    assert only_job(cluster, here) == job
    launcher.wait()
    assert_all_went_on(here, undisturbed)
    assert here.job_logs().count("its worker process died") == len(LONG_ROWS)


def test_slurm_loses_sight_of_a_job(cluster: Node, here: Desk, undisturbed: Desk) -> None:
    """Its processes, stopped without a parent, are hung up: they save their runs, beside the job that begins again."""
    launcher = here.long("launcher.workers=2", *SLURM)
    before = here.stop_at_work()
    watcher = parent(parent(before[0]))
    os.kill(watcher, signal.SIGKILL)
    wait_until(lambda: not is_alive(watcher), "the end of slurmstepd")
    answer("scontrol", "requeue", only_job(cluster, here))
    send(signal.SIGCONT, before)
    launcher.wait()
    assert_all_went_on(here, undisturbed)


def test_the_time_is_not_enough(cluster: Node, here: Desk, undisturbed: Desk) -> None:
    """Its end is brought near twice. SLURM looks at times twice a minute, and tells 20 to 50 seconds before the end."""
    times = ("launcher.signal_delay=20", "launcher.grace=10", "launcher.time=5", "launcher.runs_per_job=2")
    launcher = here.long("launcher.workers=2", *SLURM[:-1], *times)
    seen: list[int] = []
    for number in (1, 2):
        seen = here.stop_at_work(number * MIDDLE, besides=seen)
        job = f"JobId={only_job(cluster, here)}"
        answer("scontrol", "update", job, "EndTime=now+50")
        wait_until(lambda told=number: here.job_logs().count("stopping ") == told, "the end of the time")
        answer("scontrol", "update", job, "TimeLimit=5")
        send(signal.SIGCONT, seen)
    launcher.wait()
    assert_all_went_on(here, undisturbed)
    assert here.job_logs().count("this job is timed-out") >= 2
    for history in here.histories():
        assert [session.ending for session in history] == ["interrupted", "interrupted", "done"]


def deadly_sbatch(folder: Path, here: Desk, before: bool) -> str:
    """A PATH whose sbatch kills who calls it for the runs: before it submits, or behind it."""
    real = answer("which", "sbatch").strip()
    script = folder / "sbatch"
    notes = here.results / "launcher" / "batches"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!/bin/bash\nnoted=$(ls {notes}/*.json 2>/dev/null)\n"
        + ("" if before else f'{real} "$@" >{folder}/said || exit\n')
        + '[ -z "$noted" ] || { kill -KILL $PPID; exit; }\n'
        + (f'exec {real} "$@"\n' if before else f"cat {folder}/said\n")
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def test_a_launcher_dies_around_its_submission(cluster: Node, here: Desk, local: Desk) -> None:
    """With its note written: nothing was submitted, or jobs were whose content is not in its place.

    submitit gives such jobs a minute, cut short here. The next launcher follows them; then they are submitted again.
    """
    words = (f"columns={COLUMNS[2]}", "rows=fedavg,fedpac", *SLURM)
    behind, ahead = Desk(here.folder / "behind", here.commands), Desk(here.folder / "ahead", here.commands)
    behind.table(*words, PATH=deadly_sbatch(here.folder / "bin1", behind, before=False)).wait(-signal.SIGKILL)
    assert len(behind.submissions()) == 2
    later = behind.table(*words)
    wait_until(lambda: "/2 runs, " in later.output, "the next launcher to follow")
    cancel(cluster, behind)

    ahead.table(*words, PATH=deadly_sbatch(here.folder / "bin2", ahead, before=True)).wait(-signal.SIGKILL)
    assert not cluster.jobs(ahead.folder)
    assert len(ahead.submissions()) == 2
    assert "2 of 2 runs submitted" in ahead.table(*words).wait()
    assert_same(ahead, local, 2, submitted=2)

    assert "0 of 2 runs submitted" in later.wait()
    assert_same(behind, local, 2, submitted=2)
    for desk in (ahead, behind):
        assert [len(history) for history in desk.histories()] == [1, 1]


def test_what_slurm_does_not_take(cluster: Node, here: Desk) -> None:
    words = (f"columns={COLUMNS[0]}", "rows=fedavg", "launcher=slurm", "launcher.partition=middle")
    output = here.table(*words).wait(2)
    assert "invalid partition specified: middle" in output and "Traceback" not in output
    assert not cluster.jobs(here.folder)
    assert not here.submissions()


def test_without_accounting(cluster: Node, here: Desk, undisturbed: Desk) -> None:
    """Nobody knows what became of a job that was killed; the folders of its runs do."""
    assert not cluster.jobs(), "the cluster has work of others, which a restart would end"
    cluster.script("stop")
    try:
        cluster.script("start", SLURM_DEV_DB="0")
        assert subprocess.run(["sacct"], capture_output=True, check=False).returncode != 0
        launcher = here.long("launcher.runs_per_job=1", *SLURM)
        workers = here.stop_at_work()
        os.kill(parent(workers[0]), signal.SIGKILL)
        send(signal.SIGCONT, workers)
        launcher.wait()
    finally:
        cluster.script("stop")
        cluster.script("start")
    assert sorted(here.submissions().values()) == [1, 2]
    for key, path in here.runs().items():
        expected = undisturbed.runs()[key] / "records.jsonl"
        assert (path / "records.jsonl").read_bytes() == expected.read_bytes()
        if here.submissions()[key] == 1:
            assert sessions(path) == ONE_GO
        else:
            assert_went_on(sessions(path))
