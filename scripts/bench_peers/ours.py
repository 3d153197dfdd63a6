"""FedTables: what ``python -m benchmark run`` does, with the run's folder, records and checkpoints.

``python ours.py sweep`` carries out four runs on two workers, through the local launcher.
"""

import sys
import tempfile
from pathlib import Path

from job import SETTINGS, Clock

from benchmark.cli.overrides import configurations
from benchmark.cli.run import main as run
from benchmark.runs.execute import execute
from benchmark.runs.store import Results


def one(results: str) -> int:
    """Carry out the job, and report."""
    clock = Clock()
    words = [*SETTINGS, f"paths.results={results}"]
    (config,) = configurations(words, many=False)
    execute(config, progress=lambda done, rounds: clock.tick() if done else None)
    status = Results(Path(results)).run(config.key).status()
    clock.report("this checkout", status.final["test"]["accuracy"] if status else 0.0)
    return 0


def sweep(results: str) -> int:
    """Carry out the job with four learning rates."""
    return run(["-m", *SETTINGS, "train.lr=0.02,0.021,0.022,0.023", "workers=2", f"paths.results={results}"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(sweep(folder) if sys.argv[1:] == ["sweep"] else one(folder))
