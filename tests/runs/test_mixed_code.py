"""All parts of one number come from one code, one torch, one kind of machine and one data set."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from edited_code import Edit, edited  # noqa: F401
from tiny_runs import STATEFUL, bits, carry_out, folder_of, index_of, interrupted, result_of, tiny

from benchmark import code
from benchmark.config.schema import RunConfig
from partitions.core.partition import Partition

Patch = Callable[[pytest.MonkeyPatch], None]


def go_on(config: RunConfig) -> tuple[int, str]:
    """Carry a run out to its end: (round from which it went on, message)."""
    rounds: list[int] = []
    outcome = carry_out(config, lambda round, *_: rounds.append(round))
    assert outcome.state == "done"
    return rounds[0], outcome.message


# What differs between the parts of a run ---------------------------------------------------------------------------

OWN = (
    *("methods/fedavgm.py", "methods/selection/round_robin.py", "partitions/iid.py"),
    "datasets/standin/fake.py",
)
"""Files of the run of `halfway`."""


@pytest.mark.parametrize("path", ["methods/fedavgm.py", "partitions/iid.py", "benchmark/engine/training.py"])
def test_edited_code_starts_a_run_again_or_marks_it(
    tmp_path: Path,
    halfway: RunConfig,
    calm: RunConfig,
    edited: Edit,  # noqa: F811
    path: str,
) -> None:
    kept = interrupted(tmp_path / "kept", stale="keep")
    said = f"code of {path}" if path in OWN else "the engine"
    edited(path, "\nfrom ", "\n# a comment\nfrom ")
    assert not index_of(calm).differs(calm.key), "a comment changes nothing"
    edited(path, "\nfrom ", "\nimport this\nfrom ")
    begun, message = go_on(halfway)
    assert begun == 0 and f"these are others now: {said}" in message
    assert "runtime.stale=keep would" in message
    assert message in (folder_of(halfway).path / "log.txt").read_text()
    assert bits(halfway) == bits(calm)
    assert result_of(halfway).origin["engine"] == code.engine_digest() and not result_of(halfway).parts

    assert go_on(kept) == (1, "")
    assert result_of(kept).parts.startswith(said)
    assert index_of(kept).state(kept.key) == "done"
    assert index_of(kept).differs(kept.key).startswith(f"parts with other {said}")


@pytest.mark.slow
def test_edited_code_carries_a_finished_run_out_again_once(
    calm: RunConfig,
    edited: Edit,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = bits(calm)
    edited("methods/core/rules.py", "\nfrom ", "\nimport this\nfrom ")
    assert (index_of(calm).state(calm.key), index_of(calm).differs(calm.key)) == ("done", "the engine")
    for path in OWN:
        edited(path, "\nfrom ", "\nimport this\nfrom ")
        assert index_of(calm).state(calm.key) == "differs"
        assert f"code of {path}" in index_of(calm).why(calm.key)
        keep = calm.model_copy(update={"runtime": calm.runtime.model_copy(update={"stale": "keep"})})
        assert index_of(keep).state(keep.key) == "done"
        assert go_on_or_read(keep) == [] and go_on_or_read(calm) == [0, 1, 2, 3] and go_on_or_read(calm) == []
        assert bits(calm) == before
    moved = [line for line in capsys.readouterr().out.splitlines() if line.startswith("carried out again: ")]
    places = [folder_of(calm).path.with_name(f".seed0.old-{number}") for number in range(1, len(OWN) + 1)]
    for line, place, path in zip(moved, places, OWN, strict=True):
        assert f"code of {path}" in line and str(place) in line
        assert (place / "records.jsonl").read_bytes() == before[0]


def go_on_or_read(config: RunConfig) -> list[int]:
    """The rounds that are carried out."""
    rounds: list[int] = []
    assert carry_out(config, lambda round, *_: rounds.append(round)).state == "done"
    return rounds


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
        interrupted(tmp_path / "again")
        interrupted(tmp_path / "kept")
    runtime, patch = SURROUNDINGS[said]
    patch(monkeypatch)
    begun, message = go_on(tiny(tmp_path / "again", STATEFUL, **runtime))
    assert begun == 0 and said in message
    assert not result_of(tiny(tmp_path / "again", STATEFUL)).parts

    kept = tiny(tmp_path / "kept", STATEFUL, stale="keep", **runtime)
    reached: list[int] = []
    carry_out(kept, lambda round, *_: reached.append(round), lambda: reached[-1] == 2)
    kept = tiny(tmp_path / "kept", STATEFUL, **runtime)
    assert go_on(kept) == (2, "")
    assert index_of(kept).state(kept.key) == "done"
    assert said in index_of(kept).differs(kept.key)


def test_another_torch_or_number_of_threads_leaves_a_finished_run(
    calm: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "9.9")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    other = calm.model_copy(update={"runtime": calm.runtime.model_copy(update={"threads": 2})})
    assert go_on_or_read(other) == []
