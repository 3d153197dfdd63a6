"""``python -m benchmark verify``: compare what lies in a results folder with what was written."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from benchmark.cli.launching import SHOWN, in_words, plans_of
from benchmark.cli.options import parse
from benchmark.config.schema import RunConfig
from benchmark.errors import StorageError
from benchmark.experiments.plan import unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.runs.index import RunIndex
from benchmark.runs.status import RunState
from benchmark.runs.store import DamagedError, ResultsFolder

THREADS = 16
"""Runs that are read at a time: a file server answers slowly, but many requests at once."""


class VerifyOptions(TableQuery):
    """Options of the command."""

    repair: bool = Field(
        False,
        description="move the folders of damaged runs to set_aside in the results folder, and remove what killed "
        "processes left in the others",
    )
    full: bool = Field(False, description="draw the partitions of all runs again, and compare them as well")


class FolderCheck(NamedTuple):
    """What was found in the folder of a run: its state, what is wrong, and files that killed processes left."""

    state: RunState
    problem: str = ""
    left: Sequence[Path] = ()


def main(words: Sequence[str]) -> int:
    """Check the runs of the selected tables or, if none is selected, of all; exit code 1 if any is damaged."""
    options = parse(words, "verify", VerifyOptions)
    results = ResultsFolder(options.results, options.stale).existing()
    planned = (
        unique_runs([cells for _, cells in plans_of(options)]) if options.selects else results.run_keys()
    )
    keys = sorted(results.there(planned))
    index = RunIndex(results)
    index.refresh(keys)
    with ThreadPoolExecutor(THREADS) as pool:
        folders = dict(zip(keys, pool.map(partial(check, index), keys), strict=True))
    if options.full:
        folders |= dict(_other_partitions(index, [key for key in keys if index.has_ended(key)]))
    bad = {key: folder for key, folder in folders.items() if folder.problem}
    damaged = [key for key in bad if bad[key].state is RunState.DAMAGED]
    left = [path for folder in folders.values() for path in folder.left]
    for folder in list(bad.values())[:SHOWN]:
        print(folder.problem)
    if len(bad) > SHOWN:
        print(f"and {len(bad) - SHOWN} more")
    if options.repair:
        for key in damaged:
            print(f"{key} is now in {results.set_aside(key)}")
            del folders[key]
        for path in left:
            path.unlink(missing_ok=True)
    print(f"{len(folders)} runs: {in_words(Counter(folder.state for folder in folders.values())) or 'none'}")
    if left:
        print(
            f"{len(left)} files of killed processes {'removed' if options.repair else f'left, {left[0]} say'}"
        )
    if options.repair and damaged:
        print("Give the commands that made these runs again: they carry them out.")
    elif damaged or left:
        print(f"set the damaged runs aside with: {options.command('verify --repair')}")
    return int(len(bad) > (len(damaged) if options.repair else 0))


def check(index: RunIndex, key: str) -> FolderCheck:
    """What was found in the folder of a run, all of whose files are read."""
    folder = index.results.run(key)
    try:
        status = folder.verify()
        if folder.checkpoint_path.exists():
            from benchmark.runs import checkpoint  # with it torch

            checkpoint.read(folder.checkpoint_path)
        left = folder.leftovers() if status is not None and status.ended else []
    except StorageError as error:
        return FolderCheck(
            RunState.DAMAGED if isinstance(error, DamagedError) else RunState.FAILED, str(error)
        )
    return FolderCheck(index.state(key), "", left)


def _other_partitions(index: RunIndex, keys: Sequence[str]) -> Iterator[tuple[str, FolderCheck]]:
    """The runs whose partition is not the one that their configurations give today."""
    from benchmark.runs.data import load_data

    @cache
    def digest(plain: str) -> str:
        return load_data(RunConfig.model_validate_json(plain)).partition.digest

    for key in keys:
        status, config = index.status(key), index.results.run(key).read_config()
        # Runs of other methods have the same clients.
        plain = config.model_copy(update={"method": {}, "selection": {"name": "uniform"}})
        if status is not None and status.partition and digest(plain.model_dump_json()) != status.partition:
            problem = f"{index.results.run(key).path}: its partition is not the one that is drawn again"
            yield key, FolderCheck(RunState.DAMAGED, problem)
