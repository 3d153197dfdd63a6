"""The comparison with other frameworks, as far as it needs none of them."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from benchmark.bench import peers
from benchmark.cli.overrides import configuration
from benchmark.errors import UserError
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scripts" / "bench_peers"
FAKE = ["dataset=fake", "+dataset.options.train_size=600", "partition.clients=8", "train.clients_per_round=3"]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a file of the folder; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {path.stem for path in FOLDER.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


def test_job_has_the_same_numbers_each_time(load: Callable[[str], Any], tmp_path: Path) -> None:
    ours = load("ours")
    words = [word for word in ours.SETTINGS if word.split("=")[0] not in ("dataset", "partition.clients")]
    for name in ("a", "b"):
        ours.make(tmp_path / name, [*words, *FAKE])
    one, two = (torch.load(tmp_path / name) for name in ("a", "b"))
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_bare_loop_and_fedtables_have_the_same_weights_after_each_round(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, bare, ours = map(load, ("job", "bare", "ours"))
    words = [*ours.SETTINGS, *FAKE]
    ours.make(tmp_path / "job.pt", words)
    monkeypatch.setenv("BENCH_PEERS_JOB", str(tmp_path / "job.pt"))
    config = configuration(words)
    run = build_run(config, load_data(config))
    written = job.load()
    net, state = written.network(), run.initial_state()
    for t in range(2):
        state, report = run.run_round(state)
        bare.train_round(written, net, t)
        run.model.w.data.copy_(state.w)
        assert report.clients == tuple(written.cohorts[t].tolist())
        for ours, theirs in zip(run.model.net.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def planted(accuracy: float = 0.9) -> pd.DataFrame:
    """Three reports of each peer; seconds grow with the peer, and with the repeat. The first repeat is not timed."""
    return pd.DataFrame(
        {"framework": peer.name, "cores": peer.cores, "repeat": repeat, "version": f"{peer.file} 1.0",
         "seconds": i + seconds, "cpu_seconds": 2 * (i + seconds), "outside": 5.0, "memory": 1234.5 / (1 + repeat),
         "accuracy": accuracy if (i, repeat) == (4, 1) else 0.9}
        for i, peer in enumerate(peers.PEERS) for repeat, seconds in enumerate((9, 1, 3))
    )  # fmt: skip


def test_table_has_medians_without_the_first_repeat() -> None:
    found = peers.summary(planted()).set_index(["framework", "cores"])
    assert found.loc[("bare loop", 1)].tolist() == [
        "2.00 (1.00 to 3.00)", "4.00 (2.00 to 6.00)", 1.0, 5.0, "1,234", "90.00% to 90.00%", "bare 1.0",
    ]  # fmt: skip
    # CPU-seconds of FedTables 2 x (1 + 1) and 2 x (1 + 3), of the bare loop 2 x 1 and 2 x 3: ratios 2 and 4/3.
    assert found.loc[("FedTables", 1), "CPU, times the bare loop's"] == (2 + 4 / 3) / 2
    assert list(found.index) == [(peer.name, peer.cores) for peer in peers.PEERS]


@pytest.mark.parametrize("accuracy", [0.9051, 0.8949, float("nan")])
def test_no_table_where_accuracies_differ(accuracy: float) -> None:
    with pytest.raises(UserError, match=r"accuracies differ.*'Flower', 1\): "):
        peers.summary(planted(accuracy))


@pytest.mark.parametrize("peer", ["flower", "pfl_research"])
def test_peers_have_the_projects_torch(peer: str) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (pin,) = re.findall(r"^torch==\S+$", (FOLDER / f"{peer}.txt").read_text(), re.MULTILINE)
    assert f"{pin} " in lock
