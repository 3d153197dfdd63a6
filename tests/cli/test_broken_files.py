"""A file that is broken is named, and concerns only the commands that need it."""

import importlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import FAKE_RUN

import methods
from benchmark.paths import CONF, PACKAGES
from benchmark.registry import BrokenFile, broken_files, module_files
from methods.core.method import build
from methods.core.rules import registered

FINE = {"key": "fedavg", "label": "FedAvg", "method": "fedavg"}

# Files of methods -------------------------------------------------------------------------------------------------

MINE = """
from methods.core.rules import ClientRule, register
@register("client", "{name}")
class Mine(ClientRule):
    {body}
{end}
"""


def test_no_file_of_ours_is_broken() -> None:
    assert [broken_files(package) for package in PACKAGES.values()] == [{}] * len(PACKAGES)


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
        module_files.cache_clear()

    yield write
    sys.modules.pop("methods.mine", None)
    broken_files.cache_clear()
    module_files.cache_clear()


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
    assert "method.client: got" not in err and "?." not in err, "one sentence, about the file"
    mine = {"name": "fedavg", "client": {"mine": {}}}
    toy(rows=[{"key": "mine", "label": "Mine", "method": mine}, FINE])
    code, out, err = cli("table", "seeds=1", "launcher=inline")
    assert code == 1 and out.count("\nfailed ") == 2 and "Traceback" not in err
    assert out.count("methods/mine.py: ") == out.count(": for the same reason\n") == 1
    assert "toy_table1: 2 done, 2 failed" in out
    code, out, err = cli("list", "rules")
    assert code == 0 and " client: fedprox " in out and re.match(r"warning: \S+/methods/mine\.py: ", err), err


def test_a_file_that_works(file: Callable[..., None]) -> None:
    file()
    assert [rule.key for rule in build({"client": {"mine": {}}}).client] == ["mine"]


def test_two_rules_of_one_name_concern_those_who_ask_for_it(file: Callable[..., None]) -> None:
    file(name="fedprox")
    build({"client": {"moon": {"mu": 1.0, "T": 0.5}}})
    with pytest.raises(
        BrokenFile, match=r"'fedprox' is defined twice: in methods/fedprox\.py and .*/methods/mine\.py"
    ):
        build({"client": {"fedprox": {"mu": 0.1}}})


# Files of conf ----------------------------------------------------------------------------------------------------


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of conf/, which commands read instead."""
    folder = tmp_path / "copy"
    shutil.copytree(CONF, folder)
    monkeypatch.setattr("benchmark.config.compose.CONF", folder)
    monkeypatch.setattr("benchmark.paths.CONF_FOLDERS", [folder])
    return folder


@pytest.mark.parametrize(
    ("group", "content", "said"),
    [
        *((group, b"name: [", "cannot be read") for group in ("method", "dataset", "preset")),
        ("method", b"name: \xff", "cannot be read: 'utf-8'"),
        ("method", b"name: mine\nserver:\n  a: 1\n  a: 2", "line 4: the key 'a' is given twice"),
        ("selection", b"", "got nothing; expected a mapping"),
        ("method", b"name: fedavg", "name: got 'fedavg'; expected 'mine', the name of the file"),
        ("preset", b"preset: quick", "preset: got 'quick'; expected 'mine'"),
        ("partition", b"clients: 3", "name: got None; expected a name"),
        ("method", b"name: mine\ndefaults: 3", "defaults: got 3; expected a list"),
        ("method", b"name: mine\ndefaults: [mine]", "defaults: got 'mine'"),
        ("preset", b"preset: mine\ndefaults: [small]", r"defaults: got \['small'\]"),
    ],
)
def test_a_broken_file_of_conf(conf: Path, refusal: Any, group: str, content: bytes, said: str) -> None:
    path = conf / group / "mine.yaml"
    path.write_bytes(content)
    assert str(path) in refusal(["run", f"{group}=mine"], said)


def test_a_broken_file_of_conf_concerns_its_own_runs_only(conf: Path, cli: Any) -> None:
    groups = ("method", "dataset", "partition", "selection")
    for group in groups:
        (conf / group / "mine.yaml").write_bytes(b"name: [")
    assert cli("run", "--cfg", "job").code == 0
    for group in groups:
        code, out, _ = cli("list", f"{group}s")
        assert code == 0 and re.search(r"\│ mine +│ .*/mine\.yaml", out), out
    code, _, err = cli("status", "name=feddiverse_table3")
    assert code == 0 and err.count("warning: ") == err.count(str(conf / "method" / "mine.yaml")) == 1, err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("rows: [", "cannot be read"),
        ("", "got nothing; expected a mapping"),
        ({"rows": [FINE | {"method": "fedprx"}]}, "'fedprx'.* Did you mean 'fedprox'"),
    ],
)
def test_a_broken_table_stops_only_commands_that_need_it(
    cli: Any, toy: Any, refusal: Any, content: str | dict[str, Any], said: str
) -> None:
    toy(rows=[FINE])
    if isinstance(content, dict):
        whole = yaml.safe_load(Path("conf/table/toy_table1.yaml").read_text())
        content = yaml.safe_dump(whole | {"paper": "mine"} | content)
    Path("conf/table/mine_table1.yaml").write_text(content)
    for words in ("status", "plan", "table launcher=inline", "table name=toy_table1"):
        code, out, err = cli(*words.split(), "seeds=1")
        assert (code, "Traceback" in err) == (0, False) and "toy_table1" in out
        assert err.count("warning: ") == ("mine_table1" in err) == ("name=" not in words), err
    for words in ("status paper=mine", "plan name=mine_table1", "table table=1"):
        assert "mine_table1" in refusal(words.split(), said)


# Code of a data set or a partition, outside of a run ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("datasets/standin/fake", "data prepare"),
        ("partitions/iid", "data partition partition=iid partition.clients=2"),
    ],
)
def test_an_error_in_code_names_its_line(
    cli: Any, monkeypatch: pytest.MonkeyPatch, file: str, words: str
) -> None:
    monkeypatch.setattr(f"{file.replace('/', '.')}.np", None)
    code, out, err = cli(*words.split(), "dataset=fake")
    assert (code, err.count("error: "), "Traceback" in out + err) == (2, 1, False)
    assert re.search(rf"error: AttributeError: .* \(in \S+, {file}\.py:\d+: `.*np\.", err), err
