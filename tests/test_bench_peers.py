"""The comparison with other frameworks, as far as it needs none of them."""

import importlib
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmark.cli.overrides import configurations
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


@pytest.fixture
def script(load: Callable[[str], Any]) -> SimpleNamespace:
    """The script's own file."""
    return SimpleNamespace(**runpy.run_path(str(FOLDER / "__main__.py")))


def test_job_has_the_same_bits_each_time(load: Callable[[str], Any], tmp_path: Path) -> None:
    job = load("job")
    words = [word for word in job.SETTINGS if word.split("=")[0] not in ("dataset", "partition.clients")]
    for name in ("a", "b"):
        job.make(tmp_path / f"{name}.npz", [*words, *FAKE])
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_bare_loop_and_fedtables_have_the_same_weights_after_each_round(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, bare = load("job"), load("bare")
    words = [*job.SETTINGS, *FAKE]
    job.make(tmp_path / "job.npz", words)
    monkeypatch.setenv("BENCH_PEERS_JOB", str(tmp_path / "job.npz"))
    (config,) = configurations(words, many=False)
    run = build_run(config, load_data(config))
    written = job.load()
    net, state = written.network(), run.initial_state()
    for t in range(2):
        state, report = run.run_round(state)
        bare.train_round(written, net, t)
        run.model.w.data.copy_(state.w)
        assert report.clients == tuple(written.cohorts[t])
        for ours, theirs in zip(run.model.net.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def planted(script: SimpleNamespace, accuracy: float = 0.9) -> dict[Any, list[dict[str, Any]]]:
    """Three reports of each case; seconds grow with the case, and with the repeat."""
    return {
        case: [
            {"version": f"{case[0].file} 1.0", "seconds": i + r, "cpu_seconds": 2 * (i + r), "outside": 5.0,
             "memory": 1234.5, "accuracy": accuracy if (i, r) == (4, 1) else 0.9}
            for r in (9, 1, 3)
        ]
        for i, case in enumerate(script.CASES)
    }  # fmt: skip


def test_table_has_medians_without_the_first_repeat(script: SimpleNamespace) -> None:
    text = script.section(planted(script), {script.OURS: [8.0, 9.0, 20.0]}, "2 cores")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert (
        rows[1]
        == "| bare loop | 1 process | 2.00 (1.00 to 3.00) | 4.00 (2.00 to 6.00) | 1.00 | 5.0 | 1,234 | 90.00% |"
    )
    # CPU-seconds of FedTables 2 x (1 + 1) and 2 x (1 + 3), of the bare loop 2 x 1 and 2 x 3: ratios 2 and 4/3.
    assert rows[2].startswith("| FedTables | 1 process | 3.00 (2.00 to 4.00) | 6.00 (4.00 to 8.00) | 1.67 |")
    assert "| pfl-research | 2 processes |" in text and "| Flower | 2 Ray actors |" in text
    assert "| FedTables | 9.0 (8.0 to 20.0) |" in text
    assert "on 2 cores; bare 1.0, pfl_research 1.0, flower 1.0; median of 2 interleaved" in text


@pytest.mark.parametrize("accuracy", [0.9051, 0.8949, float("nan")])
def test_no_table_where_accuracies_differ(script: SimpleNamespace, accuracy: float) -> None:
    with pytest.raises(SystemExit, match=r"no comparison.*'Flower, 1': "):
        script.section(planted(script, accuracy), {}, "2 cores")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# Page\n\nText\n", "# Page\n\nText\n\n{}new\n"),
        ("# Page\n\n{}old\n\nold\n\n## Next\n\nText\n", "# Page\n\n{}new\n\n## Next\n\nText\n"),
    ],
)
def test_section_is_replaced_and_nothing_else(script: SimpleNamespace, page: str, expected: str) -> None:
    title = f"{script.TITLE}\n\n"
    assert script.put(f"{title}new\n", page.format(title)) == expected.format(title)


@pytest.mark.parametrize("peer", ["flower", "pfl_research"])
def test_peers_have_the_projects_torch(peer: str) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    (pin,) = re.findall(r"^torch==\S+$", (FOLDER / f"{peer}.txt").read_text(), re.MULTILINE)
    assert f"{pin} " in lock
