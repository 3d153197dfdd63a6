"""The command line: one file for each command."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """What a command does, and the words behind its name beside ``key=value``."""

    text: str
    words: str = ""


COMMANDS = {
    "run": Command("one run, or a sweep with -m"),
    "table": Command("carry out the missing runs of tables and write the tables"),
    "tune": Command("grid search on a validation split; runs of tables take the chosen values"),
    "figure": Command("carry out the missing runs of figures and draw the figures"),
    "show": Command("the configuration of a cell of a table, and the file and line that set each value"),
    "report": Command("all tables of the results folder as one page for the browser"),
    "checklist": Command(
        "answers to reproducibility checklists (NeurIPS, ACL) from the finished runs of tables"
    ),
    "analyse": Command("an analysis of a paper", "NAME"),
    "fidelity": Command(
        "docs/fidelity.md (where paper, code and text disagree), or the effects of its switches",
        "[check|effects]",
    ),
    "document": Command("the pages in docs/reference, made from the code", "[check]"),
    "track": Command("send to W&B what was not sent yet of runs, tables and figures"),
    "plan": Command("what tables need before they are made: runs, hours on this device, disk, missing data"),
    "runs": Command(
        "the runs of a results folder by any setting: method=fed* train.lr=0.1 state=failed",
        "[KEY=VALUE ...] [--delete]",
    ),
    "status": Command("how many runs are done, running, waiting, failed, diverged or missing", "[--watch]"),
    "verify": Command(
        "compare the files of runs with what was written, and set damaged runs aside", "[--repair]"
    ),
    "logs": Command("what a run said, and the job that carried it out", "RUN [--follow]"),
    "retry": Command("carry out the failed runs again", "--failed"),
    "cancel": Command("end what waits or runs on a cluster", "[--all]"),
    "export": Command(
        "the trained body of a run, as a file that other runs start from (model.start)", "RUN name=NAME"
    ),
    "list": Command(
        "what there is to choose from",
        "[methods|datasets|partitions|selections|tables|figures|analyses|models|rules]",
    ),
    "data": Command(
        "which data sets there are, prepare one, count its images", "list|prepare|check dataset=NAME"
    ),
    "partition": Command("the clients of a partition as text and as a picture", "show"),
    "doctor": Command(
        "whether this machine (launcher=slurm: a compute node) can do what you want, with remedies"
    ),
    "bench": Command(
        "speed and memory beside a bare PyTorch loop", "[speed|steps|kernels|memory|planning] | device=cuda"
    ),
}
"""The command NAME is the function ``main`` of ``benchmark.cli.NAME``, or that of its name in `JOBS`."""

JOBS = ("status", "logs", "retry", "cancel")
"""The commands of ``benchmark.cli.jobs``."""


def entry(name: str) -> Callable[[Sequence[str]], int]:
    """The function of the command ``name``: it takes the words behind the name and returns the exit code."""
    module = import_module(f"benchmark.cli.{'jobs' if name in JOBS else name}")
    function: Callable[[Sequence[str]], int] = getattr(module, name if name in JOBS else "main")
    return function
