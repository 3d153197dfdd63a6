"""The pages of docs/reference: up to date, and complete."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from benchmark.cli import COMMANDS, method_pages
from benchmark.cli.document import FOLDER
from benchmark.cli.options import LaunchOptions, words_of
from benchmark.cli.reference import algorithms, options_of
from benchmark.config.compose import group_names
from benchmark.config.schema import RunConfig, declared_settings
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.spec import Column, Override, Row, TableSpec
from benchmark.experiments.tuning import SearchGrid
from benchmark.launch.settings import LocalSettings, SlurmSettings
from benchmark.papers.registry import ANALYSES
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
    """FedAdam minus FedAvg on FashionMNIST, by seed: 3.400, 4.036 and 3.440 (results/leaderboard/2026-11-26f).

    The mean is 3.625 and the standard deviation 0.356, so with t = 4.303 the interval is 3.625 ± 0.885. With tuned
    values they are 4.612, 1.500 and 6.488: 4.200 ± 6.259. The critical difference of 39 methods on one data set is
    3.876 sqrt(39 x 40 / 6) = 62.5; on five it is 62.5 / sqrt(5) = 27.9.

    SCAFFOLD's ranks by mean, in the order of the columns, are 38.5, 38.5, 39, 3 and 5, on average 24.8. With tuned
    values they are 39, 28, 39, 12 and 17: 27.0. A row with a run that diverged comes last, and ties share.
    """
    scaffold, adam, bn = (
        (FOLDER / "methods" / f"{name}.md").read_text() for name in ("scaffold", "fedopt", "fedbn")
    )
    line = "| default | FedAdam | FMNIST P10C2 | 76.81 ± 0.34 | 73.19 ± 0.16 | +3.63 [+2.74, +4.51] | above |"
    assert line in adam and "| +3.97 [-1.01, +8.94] | not resolved |" in adam
    tuned = "| tuned | FedAdam | FMNIST P10C2 | 76.52 ± 0.64 | 72.32 ± 2.81 | +4.20 [-2.06, +10.46] | not resolved |"
    assert (
        tuned in adam
        and "27.9 (default values, 39 methods, 5 data sets), 27.9 (tuned values, 39 methods, 5 data sets)."
        in adam
    )
    assert "| default | SCAFFOLD | FMNIST P10C2 |  | 73.19 ± 0.16 |  | 3 of 3 runs diverged |" in scaffold
    assert "version 2026-11-26f" in scaffold and "5 data sets)" in scaffold
    assert "| +0.00 [+0.00, +0.00] | equal in every run |" in bn and "| below |" not in bn
    interval = r"\[[\d.]+, [\d.]+\]"
    line = rf"\| SCAFFOLD \| 24.8 {interval} \| 27.0 {interval} \| [\d.]+ \| 2.00 \| 2.00 \| 1.00 \| 1.00 \|"
    assert re.search(line, scaffold)
    assert "fidelity.md#scaffold-scale" in scaffold and "fidelity.md#feddyn-alpha" not in scaffold


def test_the_page_of_a_method_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, version = method_pages.leaderboard()
    without = version.runs.query("not (track == 'tuned' and row == 'fedmr' and data == 'pacs')")
    monkeypatch.setattr(method_pages, "leaderboard", lambda: (spec, replace(version, runs=without)))
    pages = method_pages.pages()
    assert "Not measured with tuned values: PACS.\n" in pages["methods/fedmr.md"]
    assert "make leaderboard PRESET=small ARGS='methods=fedmr" in pages["methods/fedmr.md"]
    assert "with default values:" not in pages["methods/fedmr.md"]
    assert "Not measured" not in pages["methods/fedlc.md"]


def test_the_page_of_a_method_says_how_it_was_tuned() -> None:
    """FedLC's ranks by mean are 31, 29, 21, 25 and 17, on average 24.6; with tuned values 35, 32, 13, 14 and 14."""
    fedlc, fedmr = ((FOLDER / "methods" / f"{name}.md").read_text() for name in ("fedlc", "fedmr"))
    assert re.search(r"\| FedLC \| 24.6 \[[\d., ]+\] \| 21.6 \[", fedlc)
    assert "| `leaderboard_tuned`, small | `fedlc` | fmnist/p10c2 | lr 0.15, tau 0.3 | itself | 1 |" in fedlc
    assert "(fedmr.svg)" in fedmr
    assert "mu1 1e-06, mu2 0.001 | cifar100/p10c10 | 1 |" in fedmr
    assert "| `method=fedmr_lite10` | FedMR Lite-10: " in fedmr


def test_a_picture_has_a_panel_for_each_data_set_and_a_line_for_each_row() -> None:
    """With default values SCAFFOLD has diverged on two of the five data sets; tuned values are dashed, on all five."""
    text = (FOLDER / "methods" / "scaffold.svg").read_text()
    assert text.count("</g>") == 5 and text.count("<polyline") == (5 + 3) + 2 * 5
    assert text.count("stroke-dasharray") == 10
    assert text.index("FMNIST P10C2") < text.index("CIFAR-10 alpha 0.1") < text.index(">PACS<")
    assert max(file.stat().st_size for file in FOLDER.rglob("*.svg")) < 15_000


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in model.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        keys += leaves(field.annotation, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return keys


def test_every_option_has_a_meaning() -> None:
    kinds = [kind for name in COMMANDS if (kind := options_of(name)) is not None]
    assert len(kinds) > 10
    for kind in (*kinds, LaunchOptions, *(each.options for each in ANALYSES)):
        assert not [key for key, word in words_of(kind).items() if not word.meaning], kind


def test_commands_show_their_options() -> None:
    text = (FOLDER / "commands.md").read_text()
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    show = "| `show` | `measured`, `published`, `difference`, `both` | `both` | numbers in the table; "
    assert show in parts["table"] and "| `seeds` |" not in parts["table"]
    assert "[options that select tables](#options-that-select-tables) (without `tuned`)" in parts["tune"]
    assert "| `seeds` | integer > 0 | `1` | number of seeds |" in parts["tune"]
    assert "| `results` | FOLDER | `results` |" in parts["Options of several commands"]
    assert "-m, --multirun" in parts["run"] and "Groups:" not in parts["run"]
