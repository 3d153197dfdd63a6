"""Who takes part in a round, and that no random draw depends on another."""

from dataclasses import replace

import numpy as np
from federations import (
    CONF_MOMENTUM,
    Recorder,
    Turns,
    bn_dropout,
    class_run,
    classes,
    reported,
    run,
    same,
    with_rules,
)

from benchmark.engine import randomness
from benchmark.engine.state import Problem
from methods.core.method import Method

# Selection ------------------------------------------------------------------------------------------------------


def chosen(
    method: Method | dict, seed: int = 0, rounds: int = 12, problem: Problem | None = None
) -> list[tuple[int, ...]]:
    model_ = class_run(
        method, seed=seed, clients_per_round=3, problem=problem or classes((2,) * 10), epochs=1, rounds=rounds
    )
    return [report.clients for report in reported(model_)[1]]


def test_uniform_selection_is_the_same_for_all_methods() -> None:
    """It depends on (seed, round) alone: not on the method, nor on what the clients hold."""
    first = chosen({})
    assert all(
        list(ids) == sorted(set(ids)) and len(ids) == 3 and set(ids) <= set(range(10)) for ids in first
    )
    assert len(set(first)) > 6
    assert chosen({"client": {"fedprox": {"mu": 0.1}}, "server": {"optimizer": CONF_MOMENTUM}}) == first
    assert chosen({}, problem=classes((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), seed=5)) == first
    assert chosen({}, seed=1) != first
    model_ = class_run({}, clients_per_round=3, problem=classes((2,) * 10), epochs=1)
    assert model_.run_round(replace(model_.initial_state(), round=7))[1].clients == first[7]


def test_round_robin_gives_equal_turns() -> None:
    turns = np.zeros(10)
    orders = chosen({"selection": {"name": "round_robin"}}, rounds=20)
    for ids in orders:
        assert len(set(ids)) == 3
        turns[list(ids)] += 1
        assert turns.max() - turns.min() <= 1
    assert turns.tolist() == [6.0] * 10
    assert orders != chosen({"selection": {"name": "round_robin"}}, seed=1, rounds=20)


def test_first_round_may_be_full() -> None:
    """A schedule that wants more clients than there are has full rounds only."""
    full = class_run({}, clients_per_round=50)
    assert full.run_round(full.initial_state())[1].clients == (0, 1, 2, 3)
    model_ = class_run({}, clients_per_round=2)
    model_ = replace(model_, schedule=replace(model_.schedule, first_round_full=True))
    state, report = model_.run_round(model_.initial_state())
    assert report.clients == (0, 1, 2, 3)
    assert len(model_.run_round(state)[1].clients) == 2


# Randomness -----------------------------------------------------------------------------------------------------


def test_a_clients_round_does_not_depend_on_who_else_takes_part() -> None:
    ends = []
    for turns in (((0, 1, 2, 3),), ((2,),), ((2, 3),)):
        log = Recorder()
        run(class_run(with_rules(log, selection=Turns(turns=turns)), net=bn_dropout), rounds=1)
        ends.append(next(end for _, client, end in log.ends if client == 2))
    assert all(same(e.w, ends[0].w) and same(e.buffers, ends[0].buffers) for e in ends)


def test_seeds_and_purposes_are_independent() -> None:
    ids = ((), (1,), (1, 2), (2, 1), (0,), (0, 0))
    keys = [(1, "a"), (0, "b"), *((0, "a", *some) for some in ids)]
    first, again = (
        [tuple(randomness.generator(*key).integers(2**62, size=2)) for key in keys] for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == len(keys)
