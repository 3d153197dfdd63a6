"""The pages of docs/reference: up to date, and complete."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from benchmark.analyses.registry import ANALYSES
from benchmark.cli import COMMANDS
from benchmark.cli.document import FOLDER
from benchmark.cli.options import LaunchOptions, words_of
from benchmark.cli.reference import algorithms, options_of
from benchmark.config.compose import group_names
from benchmark.config.schema import RunConfig, declared_settings
from benchmark.experiments.figures import FigureSpec
from benchmark.experiments.spec import Column, Override, Row, TableSpec
from benchmark.experiments.tuning import SearchGrid
from benchmark.launch.settings import LocalSettings
from benchmark.launch.slurm.settings import SlurmSettings
from benchmark.tracking import TrackingSettings


def test_every_configured_method_is_in_the_table() -> None:
    rows = {row[0]: row for row in algorithms()}
    named = {name for row in rows.values() for name in re.findall("`(.+?)`", row[4])}
    assert named == {*group_names("method"), *group_names("selection")} - {"auto"}
    title = "[Stochastic Controlled Averaging for Federated Learning](https://arxiv.org/abs/1910.06378)"
    change = "Control variates against client drift."
    assert rows["SCAFFOLD"] == ("SCAFFOLD", title, "`scaffold.py`", change, "`scaffold`")
    assert rows["FedAdam, FedYogi, FedAdagrad"][4] == "`fedadagrad`, `fedadam`, `fedyogi`"


def test_the_pages_are_up_to_date_and_check_notices_a_change(cli: Any, tmp_path: Path) -> None:
    assert cli("document", "check").code == 0, "run: python -m benchmark document"
    assert "methods.md: missing; write it with" in cli("document", "check", "out=pages").err
    assert cli("document", f"out={tmp_path}").code == 0
    page = tmp_path / "methods.md"
    page.write_text(page.read_text().replace("| SCAFFOLD |", "| Scaffold |"))
    code, out, err = cli("document", "check", f"out={tmp_path}")
    assert code == 1 and err.count("out of date") == 1 and out.count("up to date") == 5
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
