"""Which worker gets which GPU."""

from typing import Any

import pytest

from benchmark.launch import local
from benchmark.launch.settings import LocalSettings


@pytest.mark.parametrize(
    ("gpus", "settings", "listed", "assigned"),
    [
        (0, {}, None, [None] * 8),  # one worker per core
        (0, {"threads": 3}, None, [None] * 2),
        (0, {"threads": 16}, None, [None]),
        (0, {"workers": 64, "devices": ["cpu"]}, None, [""] * 9),  # not more than runs
        (3, {}, None, ["0", "1", "2"]),
        (3, {"devices": ["cuda:2", "cuda:0"]}, None, ["2", "0"]),
        (3, {"devices": ["cuda"]}, None, ["0", "1", "2"]),  # device=cuda of a command
        (3, {"workers": 4, "devices": ["cuda:0", "cuda:1"]}, None, ["0", "1", "0", "1"]),
        (3, {"devices": ["cuda:1", "cuda:2"]}, "7,3,GPU-5", ["3", "GPU-5"]),
        (3, {"workers": 2, "devices": ["cpu"]}, "7,3,5", ["", ""]),
        (1, {}, "MIG-3333-aaaa", ["MIG-3333-aaaa"]),
    ],
)
def test_workers_and_their_devices(
    gpus: int, settings: Any, listed: str | None, assigned: list[str | None], monkeypatch: Any
) -> None:
    """Of nine runs on eight cores, by number of workers, threads and devices."""
    monkeypatch.setattr(local, "cuda_devices", lambda: gpus)
    monkeypatch.setattr(local, "usable_cores", lambda: 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert local.assign_devices(9, LocalSettings(**settings)) == assigned
