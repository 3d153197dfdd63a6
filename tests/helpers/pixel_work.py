"""A work function for the tests of augmented runs; workers import this file as a module of its own."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor

from benchmark.config.schema import RunConfig
from benchmark.runs.build import build_run
from benchmark.runs.data import load_data


def pixels(payload: dict[str, Any], progress: Any, stop: Any) -> tuple[str, str]:
    """Digests of all that clients of a run see in two rounds, by "round client"; the payload says in which order."""
    config = RunConfig.model_validate(payload["run"])
    run = build_run(config, load_data(config))
    transform, train = run.clients.trainer.transform, run.clients.trainer.run
    seen: dict[str, Any] = {}

    def trained(*words: Any, round: int, client: int, **more: Any) -> Any:
        digest = seen[f"{round} {client}"] = hashlib.sha256()

        def watched(images: Tensor) -> Tensor:
            x = transform(images)
            digest.update(x.contiguous().numpy().tobytes())
            return x

        run.clients.trainer.transform = watched
        return train(*words, round=round, client=client, **more)

    # Nothing is learnt from them: what they are does not depend on the model.
    run.clients.trainer._step_function = lambda *_: lambda x, y, index: (torch.zeros(()), False)  # type: ignore[method-assign]
    run.clients.trainer.run = trained  # type: ignore[method-assign]
    run._select = lambda state, cost: (tuple(payload["clients"]), state.selection)  # type: ignore[method-assign]
    run.step(run.step(run.initial_state())[0])
    return "done", json.dumps({key: digest.hexdigest() for key, digest in seen.items()})
