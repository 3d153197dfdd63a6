"""The command line: one file for each command."""

from collections.abc import Callable, Sequence
from importlib import import_module

COMMANDS = {
    "run": "one run, or a sweep with -m",
    "table": "carry out the missing runs of tables and write the tables",
    "tune": "grid search on a validation split; runs of tables take the chosen values",
    "figure": "carry out the missing runs of figures and draw the figures",
    "report": "all tables of the results folder as one page for the browser",
    "checklist": "answers to reproducibility checklists (NeurIPS, ACL) from the finished runs of tables",
    "analyse": "NAME: an analysis of a paper (without a name: which there are)",
    "fidelity": "[check|effects] docs/fidelity.md: where paper, code and text disagree, and what a switch changes",
    "document": "[check] docs/reference: the pages that are made from the code",
    "track": "send to W&B what was not sent yet of runs, tables and figures (docs/how-to/wandb.md)",
    "plan": "what tables need before they are made: runs, hours on this device, disk, missing data",
    "status": "[--watch] how many runs are done, running, waiting, failed, diverged or missing",
    "verify": "[--repair] compare the files of runs with what was written, and set damaged runs aside",
    "logs": "RUN [--follow] what a run said, and the job that carried it out",
    "retry": "--failed: carry out the failed runs again",
    "cancel": "[--all] end what waits or runs on a cluster",
    "export": "RUN name=NAME: the trained body of a run, as a file that other runs start from (model.start)",
    "list": "[methods|datasets|partitions|selections|tables|figures|analyses|models|rules]",
    "data": "list | prepare NAME | check NAME: which data sets there are, prepare one, count its images",
    "partition": "show: the clients of a partition as text and as a picture",
    "doctor": "whether this machine (launcher=slurm: a compute node) can do what you want, with remedies",
    "bench": "[speed|steps|kernels|memory|planning] | device=cuda: speed and memory beside a bare PyTorch loop",
}
"""What each command does. It is the function ``main`` of ``benchmark.cli.COMMAND``, or that of its name in `JOBS`."""

JOBS = ("status", "logs", "retry", "cancel")
"""The commands of ``benchmark.cli.jobs``."""


def entry(name: str) -> Callable[[Sequence[str]], int]:
    """The function of the command ``name``: it takes the words behind the name and returns the exit code."""
    module = import_module(f"benchmark.cli.{'jobs' if name in JOBS else name}")
    function: Callable[[Sequence[str]], int] = getattr(module, name if name in JOBS else "main")
    return function
