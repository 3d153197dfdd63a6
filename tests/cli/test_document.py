"""The pages of docs/reference: up to date, and complete."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

from benchmark.analyses.registry import ANALYSES
from benchmark.cli import COMMANDS, method_pages
from benchmark.cli.document import FOLDER
from benchmark.cli.options import LaunchOptions, words_of
from benchmark.cli.reference import algorithms, options_of
from benchmark.config.compose import group_names
from benchmark.config.schema import RunConfig, declared_settings
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.spec import Column, Override, Row, TableSpec
from benchmark.experiments.tuning import SearchGrid, TunedCell, TunedTable
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.tracking import TrackingSettings


def test_every_configured_method_is_in_the_table() -> None:
    found = {one.name: one for one in algorithms()}
    named = {file for one in found.values() for file in one.files}
    assert named == {*group_names("method"), *group_names("selection")} - {"auto"}
    title = "[Stochastic Controlled Averaging for Federated Learning](https://arxiv.org/abs/1910.06378)"
    change = "Control variates against client drift."
    assert found["SCAFFOLD"] == ("SCAFFOLD", title, "scaffold.py", change, ["scaffold"])
    assert found["FedAdam, FedYogi, FedAdagrad"].files == ["fedadagrad", "fedadam", "fedyogi"]


def test_the_pages_are_up_to_date_and_check_notices_a_change(cli: Any, tmp_path: Path) -> None:
    assert cli("document", "check").code == 0, "run: python -m benchmark document"
    assert "methods.md: missing; write it with" in cli("document", "check", "out=pages").err
    assert cli("document", f"out={tmp_path}").code == 0
    page = tmp_path / "methods.md"
    page.write_text(page.read_text().replace("| [SCAFFOLD](", "| [Scaffold]("))
    code, out, err = cli("document", "check", f"out={tmp_path}")
    assert code == 1 and err.count("out of date") == 1
    written = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.*")}
    assert written == {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*")}
    assert out.count("up to date") == len(written) - 1
    assert cli("document", f"out={tmp_path}").code == 0
    assert page.read_text() == (FOLDER / "methods.md").read_text()


@pytest.mark.parametrize("model", [RunConfig, LocalSettings, SlurmSettings, TrackingSettings])
def test_every_setting_has_a_meaning(model: type[BaseModel]) -> None:
    settings = [
        key
        for key in leaves(model)
        if key not in ("name", "method", "selection", "partition.name", "model.name")
    ]
    assert set(settings) <= {setting.key for setting in declared_settings(model)} and len(settings) > 3


def test_every_key_of_a_file_has_a_meaning() -> None:
    """But for the name, which is that of the file, and for what the program sets itself."""
    text = (FOLDER / "tables.md").read_text()
    for model in (TableSpec, Row, Column, Override, FigureSpec, SearchGrid):
        keys = {key for key in model.model_fields if f"| `{key}` |" not in text}
        assert keys <= {"name", "is_part"} and {setting.key for setting in declared_settings(model)}
        assert not re.search(r"\|  \|$", text, re.MULTILINE)
    assert (
        "| `seeds` | integer > 0, or a mapping | `3` | number of seeds, for all presets or by preset |"
        in text
    )
    assert text.count("```yaml") == 3 and "key: lam_0.1, label:" in text


def test_the_page_of_a_method_says_what_the_committed_leaderboard_does() -> None:
    """FedAdam minus FedAvg on FashionMNIST, by seed: 3.82, 4.276 and 3.572 (results/leaderboard/2026-11-23).

    The mean is 3.889 and the standard deviation 0.357, so with t = 4.303 the interval is 3.889 ± 0.887.
    """
    scaffold, adam, bn = (
        (FOLDER / "methods" / f"{name}.md").read_text() for name in ("scaffold", "fedopt", "fedbn")
    )
    line = "| default | FedAdam | FMNIST P10C2 | 76.74 ± 0.30 | 72.85 ± 0.12 | +3.89 [+3.00, +4.78] | above |"
    assert line in adam and "| +3.97 [-1.01, +8.94] | not resolved |" in adam
    assert "| default | SCAFFOLD | FMNIST P10C2 |  | 72.85 ± 0.12 |  | 3 of 3 runs diverged |" in scaffold
    assert "version 2026-11-23" in scaffold and "3 data sets)" in scaffold
    assert "| +0.00 [+0.00, +0.00] | equal in every run |" in bn and "| below |" not in bn
    assert "| SCAFFOLD | 18.0 [2.0, 26.5] |  | 1.00 | 2.00 | 2.00 | 1.00 | 1.00 | 32 |" in scaffold
    assert "fidelity.md#scaffold-scale" in scaffold and "fidelity.md#feddyn-alpha" not in scaffold


def test_the_page_of_a_method_says_what_is_missing() -> None:
    fedlc, fedmr = ((FOLDER / "methods" / f"{name}.md").read_text() for name in ("fedlc", "fedmr"))
    assert "make leaderboard PRESET=small ARGS='methods=fedlc'\n" in fedlc and ".svg" not in fedlc
    assert "Not measured with default values: CMNIST GSC, worst group; PACS.\n" in fedmr
    assert "(fedmr.svg)" in fedmr
    assert "mu1 1e-06, mu2 0.001 | cifar100/p10c10 | 1 |" in fedmr
    assert "| `method=fedmr_lite10` | FedMR Lite-10: " in fedmr


def test_a_picture_has_a_panel_for_each_data_set_and_a_line_for_each_row() -> None:
    """SCAFFOLD has diverged on two of the three data sets."""
    text = (FOLDER / "methods" / "scaffold.svg").read_text()
    assert text.count("</g>") == 3 and text.count("<polyline") == 3 + 1
    assert max(file.stat().st_size for file in FOLDER.rglob("*.svg")) < 15_000


def test_a_page_has_both_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tuned track: FedProx 72 and 74, FedAvg 70 and 71, so 2.5 ± 12.71 x 0.707 / 1.414; critical difference 1.39.

    q(2 methods) = 1.960, times sqrt(2 x 3 / (6 x 2 data sets)) = 0.707.
    """
    spec, version = method_pages.leaderboard()
    columns = ("fmnist/p10c2", "pacs")
    keys = [(row, data, seed) for row in ("fedavg", "fedprox") for data in columns for seed in (1, 2)]
    tuned = pd.DataFrame(keys, columns=["row", "data", "seed"]).assign(
        track="tuned", planned=2, outcome="done"
    )
    values = {"fedavg": [70.0, 71.0] * 2, "fedprox": [72.0, 74.0] * 2}
    tuned = tuned.assign(value=values["fedavg"] + values["fedprox"], difference=[0.0] * 4 + [2.0, 3.0] * 2)
    ranks = pd.DataFrame({"method": ["FedProx", "FedAvg"], "rank": [1.0, 2.0], "low": 1.0, "high": 2.0})
    curve = pd.DataFrame({"row": "fedprox", "column": "pacs", "round": [0, 4], "mean": [10.0, 74.0]})
    cell = TunedCell(
        method="fedprox", chosen={"train.lr": 0.1}, metric="accuracy", which_round="last", split=0.1, seeds=1,
        columns=("pacs",),
    )  # fmt: skip
    both = replace(
        version,
        runs=pd.concat([version.runs, tuned]),
        ranks=pd.concat([version.ranks, ranks.assign(track="tuned")]),
        curves=pd.concat([version.curves, curve.assign(track="tuned")]),
        tuned=TunedTable(table="leaderboard_tuned", preset="small", cells={"fedprox": {"pacs": cell}}),
    )
    monkeypatch.setattr(method_pages, "leaderboard", lambda: (spec, both))
    pages = method_pages.pages()
    page, picture = pages["methods/fedprox.md"], pages["methods/fedprox.svg"]
    assert (
        "| tuned | FedProx | PACS | 73.00 ± 1.41 | 70.50 ± 0.71 | +2.50 [-3.85, +8.85] | not resolved |"
        in page
    )
    assert re.search(r"\| FedProx \| [\d.]+ \[[\d., ]+\] \| 1.0 \[1.0, 2.0\] \| 0.97 \|", page)
    assert "3 data sets), 1.4 (tuned values, 2 methods, 2 data sets)." in page
    assert "Not measured with tuned values: CIFAR-10 alpha 0.1; CMNIST GSC, worst group; HAM10000.\n" in page
    assert "| `leaderboard_tuned`, small | `fedprox` | pacs | lr 0.1 | pacs | 1 |" in page
    assert picture.count("</g>") == 4 and picture.count("stroke-dasharray") == 1


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in model.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        keys += leaves(field.annotation, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return keys


def test_every_option_has_a_meaning() -> None:
    kinds = [kind for name in COMMANDS if (kind := options_of(name)) is not None]
    assert len(kinds) > 15
    for kind in (*kinds, LaunchOptions, *(each.options for each in ANALYSES)):
        assert not [key for key, word in words_of(kind).items() if not word.meaning], kind


def test_commands_show_their_options() -> None:
    text = (FOLDER / "commands.md").read_text()
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    show = "| `show` | `measured`, `published`, `difference`, `both` | `both` | numbers in the table; "
    assert show in parts["table"] and "| `seeds` |" not in parts["table"]
    assert "[options that select tables](#options-that-select-tables) (without `tuned`)" in parts["tune"]
    assert "| `seeds` | integer > 0 | `1` | number of seeds |" in parts["tune"]
    assert "| `lines` | NUMBER, `all` | `40` |" in parts["logs"]
    assert "| `results` | FOLDER | `results` |" in parts["Options of several commands"]
    assert "-m, --multirun" in parts["run"] and "Groups:" not in parts["run"]
