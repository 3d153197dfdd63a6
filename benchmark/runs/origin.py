"""What the numbers of a run depend on beside its configuration, and what else is noted about their origin."""

import os
import platform
import socket
from typing import Any

import numpy as np
import torch

from benchmark import digests
from benchmark.config.schema import RunConfig
from benchmark.engine.federation import FederatedRun
from benchmark.runs.data import RunData
from benchmark.system import processor
from partitions.core.registry import get as get_scheme

LIMITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that limit the instructions which libraries use, and so change bits."""


def origin_of(config: RunConfig, data: RunData, run: FederatedRun) -> dict[str, Any]:
    """What the numbers of this process depend on beside the configuration, as a `Status` says it."""
    device, dataset = run.problem.images.device, data.dataset
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    rules = [type(rule) for rule in run.method.rules]
    return {
        "code": digests.own(*rules, get_scheme(config.partition.name)),
        "engine": digests.engine(),
        "data": dataset.fingerprint,
        "partition": data.partition.digest,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "dispatch": " ".join([torch.backends.cpu.get_cpu_capability(), *limits]),
        "device": f"{device.type} {gpu}".strip(),
        "processor": gpu or processor(),
        "prepared": str(dataset.folder),
        "builder": dict(dataset.code),
    }


def meta_of(config: RunConfig, data: RunData, origin: dict[str, Any]) -> dict[str, Any]:
    """The content of meta.json."""
    files = {*origin["code"], *origin["builder"], *digests.engine_files()}
    uncommitted = digests.not_committed(files)
    same = ("torch", "threads", "dispatch", "device", "processor")
    return {
        "commit": digests.commit(),
        "repositories": digests.commits(files),
        "dirty": bool(uncommitted),
        "uncommitted": sorted(uncommitted),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "host": socket.gethostname(),
        **{name: origin[name] for name in same},
        "preset": config.preset,
        "dataset": data.dataset.name,
        "fingerprint": data.dataset.fingerprint,
        "partition": data.partition.id,
        "clients": {
            "class_names": list(data.dataset.classes),
            "counts": data.partition.counts.tolist(),
            "num_samples": data.partition.num_samples,
        },
        "unseen": list(data.unseen),
        "note": data.dataset.note,
        "label": config.method.get("label", config.method.get("name", "")),
    }
