"""The page of methods: up to date, and complete."""

from pathlib import Path
from typing import Any

from benchmark.cli.document import PAGE, algorithms
from benchmark.config.compose import group_names


def test_every_configured_method_is_in_the_table() -> None:
    found = {one.name: one for one in algorithms()}
    named = {name for one in found.values() for name in one.configured}
    assert named == {*group_names("method"), *group_names("selection")} - {"auto"}
    title = "[Stochastic Controlled Averaging for Federated Learning](https://arxiv.org/abs/1910.06378)"
    change = "Control variates against client drift."
    assert found["SCAFFOLD"] == ("SCAFFOLD", title, "methods/scaffold.py", change, ("scaffold",))
    assert found["FedAdam, FedYogi, FedAdagrad"].configured == ("fedadagrad", "fedadam", "fedyogi")


def test_the_page_is_up_to_date_and_check_notices_a_change(cli: Any, tmp_path: Path) -> None:
    assert cli("document", "check").code == 0, "run: python -m benchmark document"
    assert "missing; write it with" in cli("document", "check", "out=page.md").err
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("| SCAFFOLD |", "| Scaffold |"))
    code, _, err = cli("document", "check", f"out={page}")
    assert code == 1 and "out of date" in err
    assert cli("document", f"out={page}").code == 0
    assert page.read_text() == PAGE.read_text()
