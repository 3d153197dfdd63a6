"""``python -m benchmark verify``: compare what lies in a results folder with what was written."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from benchmark.cli.launching import SHOWN, in_words, plans_of
from benchmark.cli.options import parse
from benchmark.errors import StorageError
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.runs import code
from benchmark.runs.status import RunState
from benchmark.runs.store import Results

THREADS = 16
"""Runs that are read at a time: a file server answers slowly, but many requests at once."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(TableQuery):
    """Options of the command.

    Attributes:
        repair: Move the folders of damaged runs to ``set_aside`` in the results folder.
    """

    repair: bool = False


def main(words: Sequence[str]) -> int:
    """Check the runs of the selected tables or, if none is selected, of all; exit code 1 if any is damaged."""
    options = parse(words, "verify", VerifyOptions)
    results = Results(options.results).existing()
    planned = (
        unique_runs([cells for _, cells in plans_of(options)]) if options.selects else results.run_keys()
    )
    keys = sorted(results.there(planned))
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(keys, pool.map(partial(check, results), keys), strict=True))
    bad = {key: problem for key, (state, problem) in found.items() if state is RunState.DAMAGED}
    for key in bad if options.repair else ():
        print(f"{key} is now in {results.set_aside(key)}")
    for problem in list(bad.values())[:SHOWN] if not options.repair else ():
        print(problem)
    if len(bad) > SHOWN:
        print(f"and {len(bad) - SHOWN} more")
    print(f"{len(found)} runs: {in_words(Counter(state for state, _ in found.values())) or 'none'}")
    if options.repair and bad:
        print("Give the commands that made these runs again: they carry them out.")
    elif bad:
        print(f"set the damaged runs aside with: {options.command('verify --repair')}")
    return int(bool(bad) and not options.repair)


def check(results: Results, key: str) -> tuple[RunState, str]:
    """The state of a run, all of whose files are read, and what is wrong with it."""
    folder = results.run(key)
    try:
        status = folder.verify()
        if folder.checkpoint_path.exists():
            from benchmark.runs import checkpoint  # with it torch

            checkpoint.read(folder.checkpoint_path)
    except StorageError as error:
        return RunState.DAMAGED, str(error)
    if status is None or status.state in (RunState.INTERRUPTED, RunState.RUNNING):
        return RunState.MISSING, ""
    return RunState.STALE if code.changed(status) else status.state, ""
