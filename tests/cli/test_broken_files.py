"""A file that is broken is named, and concerns only the commands that need it."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import FAKE_RUN

import methods
from benchmark.registry import broken_files
from methods.core.method import build
from methods.core.rules import MethodError, registered

FINE = {"key": "fedavg", "label": "FedAvg", "method": "fedavg"}

# Files of methods -------------------------------------------------------------------------------------------------

MINE = """
from methods.core.rules import ClientRule, register
@register("client", "{name}")
class Mine(ClientRule):
    {body}
{end}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``file(name=..., body=..., end=...)`` is methods/mine.py."""
    for registry in registered.values():
        registry.names()
        monkeypatch.setattr(registry, "found", dict(registry.found))
    folder = tmp_path / "methods"
    folder.mkdir()
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])

    def write(name: str = "mine", body: str = "pass", end: str = "") -> None:
        (folder / "mine.py").write_text(MINE.format(name=name, body=body, end=end))
        importlib.invalidate_caches()
        broken_files.cache_clear()

    yield write
    sys.modules.pop("methods.mine", None)
    broken_files.cache_clear()


BROKEN = [
    ({"body": "def loss(self"}, "SyntaxError: .*line 5"),
    ({"end": "import nothing_of_this_name"}, r"ModuleNotFoundError: .*'nothing_of_this_name' \(line 6\)"),
    ({"end": "1 / 0"}, r"ZeroDivisionError: .*\(line 6\)"),
    ({"body": "def losss(self): pass"}, r"Mine\.losss: .*'loss'"),
    ({"end": "register('clinet', 'other')"}, "'clinet'.*'client'"),
]


@pytest.mark.parametrize(("content", "said"), BROKEN)
def test_a_broken_file_concerns_its_own_runs_only(
    file: Callable[..., None], cli: Any, toy: Any, content: dict[str, str], said: str
) -> None:
    file(**content)
    assert cli(*FAKE_RUN, "method=fedprox").code == 0
    code, out, err = cli(*FAKE_RUN, "+method.client.mine={}")
    assert code == 2 and err.count("error: ") == 1 and "Traceback" not in out + err
    assert err.count("methods/mine.py: cannot be imported: ") == 1 and re.search(said, err, re.DOTALL), err
    mine = {"name": "fedavg", "client": {"mine": {}}}
    toy(rows=[{"key": "mine", "label": "Mine", "method": mine}, FINE])
    code, out, err = cli("table", "seeds=1", "launcher=inline")
    assert (
        code == 1 and err.count("failed: ") == err.count("methods/mine.py: ") == 2 and "Traceback" not in err
    )
    assert "toy_table1: 2 done, 2 failed" in out
    code, out, err = cli("list", "rules")
    assert code == 0 and " client: fedprox " in out and err.startswith("warning: methods/mine.py: "), err


def test_a_file_that_works(file: Callable[..., None]) -> None:
    file()
    assert [rule.key for rule in build({"client": {"mine": {}}}).client] == ["mine"]


def test_two_rules_of_one_name_concern_those_who_ask_for_it(file: Callable[..., None]) -> None:
    file(name="fedprox")
    build({"client": {"moon": {"mu": 1.0, "T": 0.5}}})
    with pytest.raises(
        MethodError, match=r"'fedprox' is defined twice: in methods/fedprox\.py and methods/mine\.py"
    ):
        build({"client": {"fedprox": {"mu": 0.1}}})
