"""Command line: ``python -m benchmark COMMAND ...``. A user's mistake is one message and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

USAGE = """usage: python -m benchmark COMMAND ...

  run [key=value ...] [-m]         one experiment, or a sweep with -m (Hydra; run --help lists all groups and keys)
  table [paper=..] [table=..] [preset=quick|small|paper] [seeds=N] [launcher=local|inline|slurm] [rows=..] [columns=..]
                                   run what is missing and write the tables
  tune method=.. [name=..] [preset=..] [rows=..] [columns=..] [seeds=N] [validation=0.1] [share=column|row]
                                   grid search on a validation split; table runs take the chosen values
  figure [paper=..] [figure=..] [name=..] [preset=..] [seeds=N]
                                   run what is missing and draw the papers' figures
  analyse NAME [key=value ...]     an analysis of a paper (analyse without a name lists them)
  fidelity [check | effects [preset=..] [ids=..] [seeds=N]]
                                   docs/fidelity.md: where paper, code and text disagree, and what a switch changes
  document [check]                 docs/methods.md: the table of methods, from their files
  track [paper=..] [table=..] [name=..] [preset=..] [seeds=N] [results=..] [tracking.KEY=VALUE]
                                   send to W&B what is not sent yet of runs, tables and figures (docs/wandb.md)
  plan [paper=..] [table=..] [preset=..] [timing=on|off]
                                   what tables ask for: runs, hours on this device, disk, data that are missing
  status [paper=..] [table=..] [preset=..] [--watch]
                                   runs done, running, waiting, failed, diverged, missing per table
  logs RUN [lines=40|all] [--follow]
                                   what a run said, and the job that carried it out
  retry --failed [paper=..] [table=..] [preset=..] [launcher=..]
                                   carry out the failed runs again
  cancel [paper=..] [table=..] [preset=..] [--all]
                                   end what waits or runs on a cluster
  list [methods|datasets|partitions|selections|tables|figures|analyses|models|rules]
  data list | prepare NAME [OPTION=..] | check NAME [OPTION=..] [out=FILE.png]
                                   data sets: what there is, prepare one, count its images (spawrious breeds=4)
  partition show [dataset=..] [partition=..] [key=value ...] [seed=..] [kind=bubble|bars] [out=FILE.png]
  bench                             speed and memory beside a bare PyTorch loop
"""


HELP = {"-h", "--help", "help"}

COMMANDS = {
    "run": "run.main",
    "table": "table.table",
    "tune": "tune.main",
    "figure": "figure.main",
    "analyse": "analyse.main",
    "fidelity": "fidelity.main",
    "document": "document.main",
    "plan": "plan.main",
    "status": "jobs.status",
    "logs": "jobs.logs",
    "retry": "jobs.retry",
    "cancel": "jobs.cancel",
    "track": "track.main",
    "list": "inspect.listing",
    "data": "inspect.data",
    "partition": "inspect.partition",
    "bench": "bench.main",
}
"""Module of ``benchmark.cli`` and function; imported when used: each command pays only for what it needs."""


def _command(name: str) -> Callable[[Sequence[str]], int]:
    module, function = COMMANDS[name].split(".")
    found: Callable[[Sequence[str]], int] = getattr(import_module(f"benchmark.cli.{module}"), function)
    return found


def main(words: Sequence[str]) -> int:
    """Run one command; exit code 0, 1 (a run failed), 2 (user's mistake) or 130 (stopped)."""
    if not words or words[0] in HELP or (words[0] != "run" and HELP & set(words)):
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] not in COMMANDS:
        from benchmark.errors import nearest

        print(
            f"error: no command {words[0]!r}.{nearest(words[0], COMMANDS)}\n{USAGE}", file=sys.stderr, end=""
        )
        return 2
    try:
        return _command(words[0])(words[1:])
    except ValueError as error:
        from benchmark.errors import UserError

        if not isinstance(error, UserError):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
