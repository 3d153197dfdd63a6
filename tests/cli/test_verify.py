"""``verify``: what was changed behind the back of the benchmark is named, set aside and made again; nothing else is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from tiny_runs import STATEFUL, STATELESS, bits, folder_of, tiny

from benchmark import digests
from benchmark.config.schema import RunConfig
from benchmark.runs.execute import execute


@pytest.fixture
def runs(cli: Cli) -> list[RunConfig]:
    """Three that are done, and one that was stopped after its first round."""
    done = [tiny(Path("results"), STATELESS, seed=seed) for seed in range(3)]
    for config in done:
        execute(config)
    asked = iter([False] * 3 + [True] * 100)
    stopped = tiny(Path("results"), STATEFUL)
    assert execute(stopped, stop=lambda: next(asked))[0] == "interrupted"
    return [*done, stopped]


def test_damage_is_named_set_aside_and_made_again(runs: list[RunConfig], cli: Cli) -> None:
    assert cli("verify") == (0, "4 runs: 3 done, 1 missing\n", "")
    good, edited, copied, stopped = runs
    expected = [bits(config) for config in runs[:3]]
    path = folder_of(edited).result_path
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9'))
    shutil.rmtree(folder_of(copied).path)
    shutil.copytree(folder_of(good).path, folder_of(copied).path)
    checkpoint = folder_of(stopped).checkpoint_path
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])

    code, said, _ = cli("verify")
    assert code == 1 and "4 runs: 1 done, 3 damaged" in said and "python -m benchmark verify --repair" in said
    for name in (f"{edited.key}/status.json", f"{copied.key}/status.json", f"{stopped.key}/checkpoint.pt"):
        assert f"{Path.cwd()}/results/runs/{name}: damaged" in said

    code, said, _ = cli("verify", "--repair")
    assert code == 0
    aside = {f"{path.parent.name}/{path.name}": path for path in Path("results/set_aside").glob("*/*/*")}
    assert sorted(aside) == sorted(config.key for config in (edited, copied, stopped))
    assert str(aside[edited.key]) in said
    assert cli("verify").code == 0
    assert [execute(config)[0] for config in runs] == ["done"] * 4
    assert [bits(config) for config in runs[:3]] == expected
    assert cli("verify") == (0, "4 runs: 4 done\n", "")


def test_only_what_is_asked_for(runs: list[RunConfig], cli: Cli) -> None:
    path = folder_of(runs[0]).result_path
    path.write_text(json.dumps(json.loads(path.read_text()) | {"final": {}}))
    assert cli("verify", "name=fedmr_table1") == (0, "0 runs: none\n", "")
    assert cli("verify", "results=nowhere").code == 0
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("command", ["status", "verify", "report"])
def test_a_folder_that_is_no_results_folder(refusal: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "letter.txt").touch()
    refusal(
        [command, f"results={tmp_path}"],
        "results: got .*; expected a results folder; it has 'letter.txt'",
    )
    assert len(list(tmp_path.iterdir())) == 1


def test_partitions_are_drawn_again(runs: list[RunConfig], cli: Cli) -> None:
    folder = folder_of(runs[0])
    content = json.loads(folder.result_path.read_text()) | {"partition": "0" * 64}
    del content["digest"]
    folder.result_path.write_text(json.dumps(content | {"digest": digests.of(content)}))
    assert cli("verify").code == 0
    code, out, _ = cli("verify", "--full")
    assert code == 1 and "seed0: its partition is not the one that is drawn again" in out


def test_what_killed_processes_left_is_removed(runs: list[RunConfig], cli: Cli) -> None:
    names = ("records.1.jsonl", "checkpoint.pt", ".status.json.1.a.tmp")
    left = [folder_of(runs[0]).path / name for name in names]
    for path in left:
        path.write_bytes((folder_of(runs[3]).checkpoint_path).read_bytes())
    assert "3 files of killed processes left" in cli("verify").out
    assert cli("verify", "--repair").code == 0
    assert not any(path.exists() for path in left) and folder_of(runs[3]).checkpoint_path.exists()
