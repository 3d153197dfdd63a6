"""All parts of one number come from one code, one torch, one kind of machine and one data set."""

import errno
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from edited_code import Edit, edited  # noqa: F401
from tiny_runs import STATEFUL, bits, folder_of, status_of, tiny

from benchmark import digests, sources
from benchmark.config.schema import RunConfig
from benchmark.paths import ROOT
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data
from benchmark.runs.execute import execute
from benchmark.runs.index import RunIndex
from benchmark.runs.origin import origin_of
from benchmark.runs.status import RunState
from benchmark.runs.store import ResultsFolder
from partitions.core.partition import Partition

Patch = Callable[[pytest.MonkeyPatch], None]


def stop_after(config: RunConfig, rounds: int) -> None:
    """Carry a run out as far as this round."""
    reached = [0]
    outcome = execute(config, lambda round, *_: reached.append(round), lambda: reached[-1] >= rounds)
    assert outcome.state == "interrupted"


def go_on(config: RunConfig) -> tuple[int, str]:
    """Carry a run out to its end: (round from which it went on, message)."""
    rounds: list[int] = []
    outcome = execute(config, lambda round, *_: rounds.append(round))
    assert outcome.state == "done"
    return rounds[0], outcome.message


# What differs between the parts of a run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("methods/fedavgm.py", "code of methods/fedavgm.py"),
        ("methods/selection/round_robin.py", "code of methods/selection/round_robin.py"),
        ("partitions/iid.py", "code of partitions/iid.py"),
        *((f"benchmark/engine/{name}.py", "the engine") for name in ("training", "evaluation")),
        *((f"benchmark/runs/{name}.py", "the engine") for name in ("execute", "data")),
        *((f"{name}.py", "the engine") for name in ("partitions/core/base", "datasets/core/arrays")),
    ],
)
def test_edited_code_starts_a_run_again(
    halfway: RunConfig,
    calm: RunConfig,
    edited: Edit,  # noqa: F811
    path: str,
    said: str,
) -> None:
    edited(path, '"""\n\n', '"""\n\nimport this\n')
    begun, message = go_on(halfway)
    assert begun == 0 and f"these are others now: {said}. runtime.stale=keep would" in message
    assert bits(halfway) == bits(calm)
    assert status_of(halfway).engine == digests.engine()


SURROUNDINGS: Mapping[str, tuple[dict[str, Any], Patch]] = {
    "threads (1, now 2)": ({"threads": 2}, lambda patch: None),
    "torch (0.1, now ": ({}, lambda patch: None),
    "MKL_CBWR=COMPATIBLE)": ({}, lambda patch: patch.setenv("MKL_CBWR", "COMPATIBLE")),
    "ATEN_CPU_CAPABILITY=default)": ({}, lambda patch: patch.setenv("ATEN_CPU_CAPABILITY", "default")),
    "the partition": ({}, lambda patch: patch.setattr(Partition, "digest", "0" * 64)),
}


@pytest.mark.parametrize("said", SURROUNDINGS)
def test_other_surroundings_start_a_run_again_or_mark_it_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    with monkeypatch.context() as before:
        before.setattr(torch, "__version__", "0.1") if said.startswith("torch") else None
        for name in ("again", "kept"):
            stop_after(tiny(tmp_path / name, STATEFUL), 1)
    runtime, patch = SURROUNDINGS[said]
    patch(monkeypatch)
    begun, message = go_on(tiny(tmp_path / "again", STATEFUL, **runtime))
    assert begun == 0 and said in message
    assert status_of(tiny(tmp_path / "again", STATEFUL)).mixed == ""

    stop_after(tiny(tmp_path / "kept", STATEFUL, stale="keep", **runtime), 2)
    kept = tiny(tmp_path / "kept", STATEFUL, **runtime)
    assert go_on(kept) == (2, "")
    index = RunIndex(ResultsFolder(tmp_path / "kept"))
    assert index.state(kept.key) is RunState.DONE
    assert index.differs(kept.key).startswith("parts with other ") and said in index.differs(kept.key)


def test_another_processor_is_only_noted(halfway: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.loads((folder_of(halfway).path / "meta.json").read_text())["processor"]
    monkeypatch.setattr("benchmark.runs.origin.processor", lambda: "Abacus 1")
    assert go_on(halfway) == (1, "")
    assert status_of(halfway).processor == f"{first}; Abacus 1"
    assert json.loads((folder_of(halfway).path / "meta.json").read_text())["processor"] == "Abacus 1"


def test_the_processor_of_a_gpu_is_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of `show=difference` are formed within one type of processor."""
    config = tiny(tmp_path)
    data = load_data(config)
    run = build_run(config, data)
    elsewhere = SimpleNamespace(
        problem=SimpleNamespace(images=SimpleNamespace(device=torch.device("cuda:1"))), method=run.method
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Abacus {device.index}")
    found = origin_of(config, data, elsewhere)  # type: ignore[arg-type]
    assert (found["device"], found["processor"]) == ("cuda Abacus 1", "Abacus 1")


@pytest.mark.parametrize(
    "path", ["benchmark/runs/execute.py", "benchmark/runs/data.py", "methods/core/rules.py"]
)
def test_what_a_finished_run_executed_is_compared(
    calm: RunConfig,
    edited: Edit,  # noqa: F811
    path: str,
) -> None:
    edited(path, "\nfrom ", "\nimport this\nfrom ")
    index = RunIndex(ResultsFolder(Path(calm.paths.results)))
    assert (index.state(calm.key), index.differs(calm.key)) == ("done", "another version of the engine")


# What cannot be read is not damaged --------------------------------------------------------------------------------

REFUSALS = [
    OSError(errno.EIO, os.strerror(errno.EIO)),
    OSError(errno.ESTALE, os.strerror(errno.ESTALE)),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
]


@pytest.mark.parametrize("error", REFUSALS, ids=["EIO", "ESTALE", "memory", "torch's memory"])
@pytest.mark.parametrize("call", ["torch.load", "pathlib.Path.read_text"], ids=["checkpoint", "config.yaml"])
def test_a_file_that_cannot_be_read_now_stays_as_it_is(
    halfway: RunConfig, calm: RunConfig, monkeypatch: pytest.MonkeyPatch, error: Exception, call: str
) -> None:
    folder = folder_of(halfway)
    kept = {name: (folder.path / name).read_bytes() for name in ("checkpoint.pt", "config.yaml")}

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        with pytest.raises((ValueError, MemoryError, RuntimeError)):
            execute(halfway)
    assert {name: (folder.path / name).read_bytes() for name in kept} == kept
    assert not list(folder.path.glob("*damaged*"))
    assert not Path(halfway.paths.results, "set_aside").exists()
    assert go_on(halfway) == (1, "")
    assert bits(halfway) == bits(calm)


# Provenance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "dirty"), [("", False), ("methods/fedavgm.py", True)])
def test_a_file_that_is_not_in_the_commit_makes_a_run_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, dirty: bool
) -> None:
    config = tiny(tmp_path, STATEFUL)
    places = ("benchmark", "datasets", "methods", "partitions")
    names = [sources.name_of(path) for place in places for path in (ROOT / place).rglob("*.py")]
    committed = {
        name: digests._git_digest(sources.content(name) or b"", {}) for name in names if name != missing
    }
    monkeypatch.setattr(digests, "_committed", lambda root: ("c0ffee", committed))
    execute(config)
    folder = folder_of(config).path
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["commit"], meta["dirty"], meta["uncommitted"]) == ("c0ffee", dirty, [missing] * dirty)
    with zipfile.ZipFile(folder / "code.zip") as archive:
        assert archive.read("methods/fedavgm.py") == sources.content("methods/fedavgm.py")
        assert {"methods/selection/round_robin.py", "partitions/iid.py"} <= set(archive.namelist())
