"""``python -m benchmark retry --failed``: carry out the failed runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from benchmark.cli.launching import launcher_lock, run_missing, run_settings
from benchmark.cli.options import LaunchOptions, parse
from benchmark.cli.planning import plans_of
from benchmark.cli.status import other_runs
from benchmark.cli.tracking import start, tracked_runs
from benchmark.config.compose import resolve
from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments.plan import check, unique_runs
from benchmark.experiments.selection import TableQuery
from benchmark.launch.overview import SHOWN_STATES, RunOverview
from benchmark.runs.status import RunState
from benchmark.runs.store import Results


@dataclass(frozen=True, kw_only=True)
class RetryOptions(TableQuery, LaunchOptions):
    """Options of the command."""

    failed: bool = False


def main(words: Sequence[str]) -> int:
    """Carry out the failed runs of the selected tables, or of all runs; exit code as of ``table``."""
    options = parse(words, "retry", RetryOptions)
    if not options.failed:
        raise ConfigError(
            "retry: say --failed. Missing and interrupted runs are carried out by `table`; diverged ones would "
            "diverge again."
        )
    plans = plans_of(options, options)
    results = Results(options.results).open()
    overview = RunOverview(results)
    runs = unique_runs([cells for _, cells in plans])
    others = other_runs(options, results, plans)
    overview.refresh([*runs, *others])
    failed = {key: run for key, run in runs.items() if overview.state(key) is RunState.FAILED}
    failed |= {
        key: _configuration(results, key, options) for key in others if overview.state(key) is RunState.FAILED
    }
    if not failed:
        print(f"none of {len(runs) + len(others)} runs has failed")
        return 0

    def check_all() -> None:
        for spec, cells in plans:
            check(spec, cells)

    with start(options, results.root, plans), launcher_lock(options, results):
        code = run_missing(options, overview.index, failed, check_all, tracked_runs(plans))
    after = Counter(overview.state(key) for key in failed)
    print(
        f"{len(failed)} runs tried again: " + ", ".join(f"{after[s]} {s}" for s in SHOWN_STATES if after[s])
    )
    return code


def _configuration(results: Results, key: str, options: RetryOptions) -> RunConfig:
    """The configuration of a run that no table plans, from its folder."""
    plain = yaml.safe_load((results.run(key).path / "config.yaml").read_text())
    del plain["hash"]
    return resolve({**plain, **run_settings(options.results, options)})
