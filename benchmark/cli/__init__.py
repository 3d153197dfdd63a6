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
    "analyse": Command("an analysis of a paper", "NAME"),
    "plan": Command("what tables need before they are made: runs, hours on this device, disk, missing data"),
    "runs": Command(
        "the runs of a results folder by any setting: method=fed* train.lr=0.1 state=failed",
        "[KEY=VALUE ...] [--delete]",
    ),
    "status": Command(
        "how many runs are done, running, failed, diverged or missing, and what waits on a cluster"
    ),
    "export": Command(
        "the trained body of a run, as a file that other runs start from (model.start); or runs to W&B",
        "RUN name=NAME | wandb",
    ),
    "list": Command(
        "what there is to choose from",
        "[methods|datasets|partitions|selections|tables|figures|analyses|models|rules]",
    ),
    "data": Command(
        "which data sets there are, prepare one, count its images", "list|prepare|check dataset=NAME"
    ),
    "partition": Command("the clients of a partition as text and as a picture", "show"),
}
"""The command NAME is the function ``main`` of ``benchmark.cli.NAME``."""

GONE = {
