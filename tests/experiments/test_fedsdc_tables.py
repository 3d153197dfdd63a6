"""The clients of FedSDC's tables: the same for all seeds, and alike in IID."""

from typing import Any

import numpy as np

from benchmark.experiments.tables import spec_called
from partitions.core.base import Population
from partitions.core.registry import make


def settings_of(name: str, column: str, preset: str = "paper") -> dict[str, Any]:
    settings = spec_called(name, "test").cell_settings("fedsdc", column, preset)
    assert settings is not None
    return settings


def test_fedsdc_has_one_allocation_of_clients_and_like_ones_in_iid() -> None:
    """Code: one file of clients, and Fig. 3 has one picture. Section 3.1, IID: identical label distribution.

    By hand: ten classes have 11,630 training images, whose remainders by 15 clients sum to 80, so 770 + 0 .. 10 each.
    """
    for name in ("fedsdc_table1", "fedsdc_table2"):
        for column in spec_called(name, "test").columns:
            cell = settings_of(name, column.key)
            assert cell["partition"]["seed"] == 0
            assert cell["evaluation"] == {"validation": 0.1, "every": 1}
    counts = [974, 2493, 1240, 971, 1136, 812, 909, 473, 1316, 1306]
    assert sum(counts) == 11_630 and sum(n % 15 for n in counts) == 80
    partition = settings_of("fedsdc_table1", "iid")["partition"]
    scheme = make(partition["name"], {key: partition[key] for key in ("clients", "classes_per_client")})
    labels = np.repeat(np.arange(10), counts)
    clients = scheme.draw(Population(labels, 10), np.random.default_rng(0))
    shares = np.array([np.bincount(labels[client], minlength=10) for client in clients])
    assert np.ptp(shares, axis=0).max() == 1
    assert {len(client) for client in clients} <= set(range(770, 781))
