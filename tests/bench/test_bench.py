"""What `make bench` counts, and that the suite of a device runs."""

import re
from typing import Any

import pytest
import torch
from command_line import cli  # noqa: F401
from torch import nn

from benchmark.bench.speed import fitting_runs, flop_share, time_shares


@pytest.mark.parametrize(
    ("used", "total", "cores", "runs"),
    [
        (1_000, 10_000, 16, 9),  # a tenth stays free
        (1_001, 10_000, 16, 8),
        (1_000, 10_000, 4, 4),  # one core each
        (20_000, 10_000, 16, 1),
    ],
)
def test_runs_that_fit(used: int, total: int, cores: int, runs: int) -> None:
    assert fitting_runs(used, total, cores) == runs


def test_share_of_the_fastest_product() -> None:
    """A layer from 5 to 3 numbers, 4 samples: 2 * 4 * 5 * 3 FLOPs forward, as many for the weight's gradient.

    The inputs have no gradient, and the bias is no product: 240 FLOPs, in 2 s, beside 480 FLOP/s.
    """
    layer = nn.Linear(5, 3)
    assert flop_share(lambda: layer(torch.ones(4, 5)).sum().backward(), 2.0, 480.0) == 0.25


def test_time_is_shared_out() -> None:
    """Operations on the longest vector are the optimizer's; those on shorter ones are not."""
    matrix, model, bias = torch.ones(8, 8), torch.ones(100), torch.ones(8)
    shares = time_shares(lambda: (model.add_(model, alpha=0.1), bias.add_(bias)))
    assert set(shares) == {"optimizer", "other operations", "Python and autograd"}
    assert sum(shares.values()) == pytest.approx(1)
    assert "products" in time_shares(lambda: bias.add_(torch.mm(matrix, matrix)[0]))


def test_suite_of_a_device(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("benchmark.bench.speed.usable_cores", lambda: 2)
    code, out, err = cli("bench", "device=cpu", "size=mini")
    assert (code, err) == (0, "")
    assert f"2 cores, one thread per run, torch {torch.__version__}\n" in out
    pairs = re.findall(r"^  (\d) x (.*?) {2,}[\d,]+ samples/s", out, re.MULTILINE)
    one, two = ([(runs, name) for name in ("bare loop", "FedTables run")] for runs in "12")
    assert pairs == [*one * 4, *two], "two number formats, each with and without CUDA graphs"
    whole = r"side by side +2 rounds of 4 clients +[\d.]+ s +[\d,]+ samples/s"
    workload = rf"^(\S.*): .*\n  one by one .*\n  CUDA graphs .*\n  {whole}"
    assert re.findall(workload, out, re.MULTILINE) == ["Small CNN", "pfl-research", "BlazeFL"]
