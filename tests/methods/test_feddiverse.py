"""FedDiverse: the estimate at the clients, the triples, the known and the N^k variant."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import Recorder, federation, mlp, problem_of, run, same, with_rules
from torch import Tensor, nn

from benchmark.engine.federation import FederatedRun
from benchmark.engine.records import Cost
from benchmark.engine.state import FederationState, Problem
from benchmark.models.networks import Net
from methods.core.build import build
from methods.core.contexts import Batch, Phase, State
from methods.core.errors import MethodError
from methods.core.rules import ClientPool, ClientProbe, ClientRule, Selection
from methods.selection.feddiverse import ATTRIBUTE, FedDiverse
from methods.selection.feddiverse_nk import evening_weights
from methods.shared.triplets import Balanced, Gce, dht, gce

GOLDEN = Path(__file__).parents[1] / "golden"
TRIPLETS = np.load(GOLDEN / "feddiverse_triplets.npz", allow_pickle=False)
GCE = np.load(GOLDEN / "gce_loss.npz", allow_pickle=False)

USUAL: dict[str, Any] = {"T0": 1, "tau_b": 50, "tau_a": 10, "q": 0.3}


def rule(**values: Any) -> FedDiverse:
    return FedDiverse(**(USUAL | values))


def perceptron(classes: int = 2) -> Net:
    """The model of the golden baselines, always with the same first values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return mlp(classes=classes)


# Triplets and losses against the golden files -------------------------------------------------------------------


@pytest.mark.parametrize("case", [*(f"m{i}" for i in range(11)), *(f"e{i}" for i in range(6))])
def test_triplets_are_the_golden_ones(case: str) -> None:
    counts, expected = TRIPLETS[f"{case}_counts"], TRIPLETS[f"{case}_triplet"]
    np.testing.assert_allclose(dht(counts), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(dht(np.stack([counts, counts * 7])), [expected] * 2, rtol=0, atol=1e-10)


def test_triplets_without_samples_are_zero_and_one_row_is_refused() -> None:
    assert dht(np.zeros((2, 3, 2))).tolist() == [[0, 0, 0]] * 2
    with pytest.raises(ValueError, match="at least 2 classes and 2 attributes"):
        dht(np.ones((4, 1)))


@pytest.mark.parametrize("tag", ["q1em6", "q0p1", "q0p3", "q0p5", "q0p7", "q0p9", "q1"])
@pytest.mark.parametrize("case", range(3))
def test_generalised_cross_entropy_is_the_golden_one(case: int, tag: str) -> None:
    """Value and gradient, the gradient through autograd. One p_y is 3e-8."""
    q = dict(zip(GCE["q_tags"].tolist(), GCE["q_values"].tolist(), strict=True))[tag]
    logits = torch.from_numpy(GCE[f"c{case}_logits"]).requires_grad_()
    y = torch.from_numpy(GCE[f"c{case}_labels"])
    batch = Batch(logits, y, logits, logits, torch.zeros(()), torch.arange(len(y)))
    loss = Gce(q=q).loss(None, batch)  # type: ignore[arg-type]
    assert loss.ce_weight == 0
    assert isinstance(loss.extra, Tensor)
    loss.extra.backward()
    np.testing.assert_allclose(loss.extra.detach(), GCE[f"c{case}_{tag}_loss_paper"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(logits.grad, GCE[f"c{case}_{tag}_grad_paper"], rtol=0, atol=1e-10)


def test_generalised_cross_entropy_of_a_hopeless_sample_is_finite() -> None:
    """p_y underflows in float32: the loss is 1/q, its gradient 0."""
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = gce(logits, torch.tensor([1]), 0.3)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(1 / 0.3, rel=1e-6)
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-20


# Triples --------------------------------------------------------------------------------------------------------


def table6(published: Path, setting: str) -> np.ndarray:
    """True matrices [K, C, 2] of the paper's Table 6."""
    with (published / "feddiverse_table6.csv").open() as stream:
        lines = [line for line in csv.DictReader(stream) if line["setting"] == setting]
    return np.concatenate(
        [
            np.tile(
                np.array([[int(cell) for cell in row.split()] for row in line["matrix"].split(";")]),
                (int(line["n_clients"]), 1, 1),
            )
            for line in lines
        ]
    )


def simulated(triplets: np.ndarray, chooser: FedDiverse, rounds: int = 400) -> np.ndarray:
    """How often each client is chosen [rounds, K], 9 per round; the first round is 1, as with T0 = 1."""
    taken = np.zeros((rounds, len(triplets)))
    for t in range(rounds):
        ids = chooser.triples(triplets, 9, t + 1, np.random.default_rng([5, t]))
        assert len(ids) == len(set(ids)) == 9
        taken[t, ids] = 1
    return taken


def shares(taken: np.ndarray, triplets: np.ndarray) -> np.ndarray:
    """Share of clients whose largest value is CI, AI, SC."""
    kind = np.round(triplets, 2).argmax(1)
    return np.array([taken[:, kind == i].sum() for i in range(3)]) / taken.sum()


@pytest.mark.parametrize("setting", ["spawrious_gsc", "spawrious_gci", "spawrious4"])
def test_each_kind_of_client_gets_a_third(published: Path, setting: str) -> None:
    """Appendix F, Figs. 5, 6, 8: near 33.3 % each. 12 rounds of every 400 would already be 1 % off."""
    triplets = dht(table6(published, setting))
    np.testing.assert_allclose(shares(simulated(triplets, rule()), triplets), 1 / 3, rtol=0, atol=0.005)


def test_the_three_class_imbalanced_clients_of_waterbirds_are_in_every_round(published: Path) -> None:
    """Appendix F, Fig. 9. With the printed signed product one of them is in about one round of nine only."""
    triplets = dht(table6(published, "waterbirds_dist"))
    imbalanced = np.round(triplets, 2).argmax(1) == 0
    assert imbalanced.sum() == 3
    assert (simulated(triplets, rule())[:, imbalanced] == 1).all()
    signed = simulated(triplets, rule(third="signed"))[:, imbalanced].mean(0)
    assert 0.05 < signed.min() < 0.17
    assert np.sort(signed)[1:].min() > 0.95


def unit_by_hand(triplets: np.ndarray, how: str) -> np.ndarray:
    unit = np.zeros_like(triplets)
    for k in range(len(triplets)):
        if how == "l1":
            values = [float(v) for v in triplets[k]]
            norm = sum(values)
        else:
            values = [float(triplets[k, i]) / sum(triplets[:, i]) for i in range(3)]
            norm = sum(v * v for v in values) ** 0.5
        unit[k] = [v / norm for v in values]
    return unit


def triple_product(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    return float(np.linalg.det(np.stack([a, b, c])))  # <a x b, c>


@pytest.mark.parametrize("normalise", ["l1", "rows_l2"])
@pytest.mark.parametrize("third", ["absolute", "signed"])
def test_second_and_third_are_what_algorithm_5_says(normalise: str, third: str) -> None:
    """Random triplets (no ties): every second is the least aligned, every third the most orthogonal of those left."""
    rng = np.random.default_rng(0)
    triplets = rng.uniform(0.05, 1, (17, 3))
    unit = unit_by_hand(triplets, normalise)
    chooser = rule(normalise=normalise, third=third)
    for t in range(20):
        ids = chooser.triples(triplets, 11, t, np.random.default_rng(t))
        assert len(ids) == len(set(ids)) == 11
        for at in range(0, 11, 3):
            triple, left = ids[at : at + 3], set(range(17)) - set(ids[: at + 1])
            if len(triple) > 1:
                assert triple[1] == min(left, key=lambda k: unit[triple[0]] @ unit[k])
            if len(triple) > 2:
                left -= {triple[1]}
                product = {k: triple_product(unit[triple[0]], unit[triple[1]], unit[k]) for k in left}
                best = max(left, key=lambda k: abs(product[k]) if third == "absolute" else product[k])
                assert triple[2] == best


def test_the_first_of_a_triple_rotates_over_dimensions() -> None:
    """Clients 0-2 have CI only, 3-5 AI only, 6-8 SC only: (t + j) mod 3 in the order SC, CI, AI."""
    triplets = np.repeat(np.eye(3), 3, axis=0)
    for t in range(6):
        ids = rule().triples(triplets, 9, t, np.random.default_rng(t))
        kinds = ["CI AI SC".split()[k // 3] for k in ids]
        assert kinds[::3] == ["SC CI AI".split()[(t + j) % 3] for j in range(3)]
        assert all(len(set(kinds[at : at + 3])) == 3 for at in (0, 3, 6))
    starts = [
        rule(start="random").triples(triplets, 1, 0, np.random.default_rng(t))[0] // 3 for t in range(300)
    ]
    np.testing.assert_allclose(np.bincount(starts) / 300, 1 / 3, rtol=0, atol=0.1)


def test_the_first_is_drawn_in_proportion_to_its_value_among_those_left() -> None:
    """t = 0 starts with SC = (.1, .3, .6, 0): each client's share of first places, and 0 never comes."""
    triplets = np.array([[0, 0, 0.1], [0, 0, 0.3], [0, 0, 0.6], [1, 0, 0]])
    first = [rule().triples(triplets, 1, 0, np.random.default_rng(s))[0] for s in range(2000)]
    np.testing.assert_allclose(np.bincount(first, minlength=4) / 2000, [0.1, 0.3, 0.6, 0], rtol=0, atol=0.03)


@pytest.mark.parametrize("kappa", [1, 2, 3, 4, 5, 7, 8])
def test_any_number_of_clients(kappa: int) -> None:
    """Cut in the last triple; whole triples in the authors' form, as far as clients are left."""
    triplets = np.random.default_rng(1).uniform(size=(8, 3))
    ids = rule().triples(triplets, kappa, 0, np.random.default_rng(0))
    assert len(ids) == len(set(ids)) == kappa
    whole = rule(last="whole").triples(triplets, kappa, 0, np.random.default_rng(0))
    assert len(whole) == len(set(whole)) == min(-(-kappa // 3) * 3, 8)
    assert whole[:kappa] == ids


def test_without_any_heterogeneity_all_clients_are_equally_likely() -> None:
    for triplets in (np.zeros((6, 3)), np.full((6, 3), 0.2)):  # equal triplets are collinear: no NaN
        counts = np.zeros(6)
        for s in range(900):
            counts[rule().triples(triplets, 4, s, np.random.default_rng(s))] += 1
        np.testing.assert_allclose(counts / 900, 4 / 6, rtol=0, atol=0.05)
    for variant in ("paper", "reference"):
        ids = rule(variant=variant).triples(np.zeros((5, 3)), 3, 0, np.random.default_rng(0))
        assert len(set(ids)) == 3


# The set-up by hand: rate 0, so that every model keeps its first values ----------------------------------------------


class Asked(Selection):
    """Everybody; notes the matrix that ``rule`` estimates at each client in round 0."""

    key: ClassVar[str] = "asked"
    rule: Any
    matrices: Any

    def heads(self, *args: Any) -> dict[str, nn.Module]:
        return self.rule.heads(*args)

    def choose(
        self, round: int, kappa: int, clients: ClientPool, state: State, rng: np.random.Generator
    ) -> Any:
        def note(probe: ClientProbe) -> np.ndarray:
            self.matrices.append(self.rule.matrix(probe).tolist())
            return np.zeros(1)

        clients.ask(range(clients.num_clients), note)
        return [], state


def line(classes: int) -> Net:
    """z = (x, 1); logits v z."""
    net = Net(nn.Linear(1, 2), nn.Linear(2, classes, bias=False), 2).double()
    with torch.no_grad():
        net.body.weight.copy_(torch.tensor([[1.0], [0.0]]))
        net.body.bias.copy_(torch.tensor([0.0, 1.0]))
    return net


def estimated(
    net: Net,
    clients: Sequence[tuple[list[float], list[int]]],
    classes: int,
    heads: dict[str, Any],
    **values: Any,
) -> list[Any]:
    """N~^k of each client at rate 0, from heads with the given values (rows of weights on x, and of the bias)."""
    xs = [np.array(x, dtype=float)[:, None] for x, _ in clients]
    asked = Asked(rule=rule(**values), matrices=[])
    problem = problem_of(xs, [np.array(y, dtype=np.int64) for _, y in clients], classes)
    model = federation(problem, with_rules(selection=asked), net, lr=0.0, batch_size=4)
    for key, (weight, bias) in heads.items():
        vector = [[w, 0.0] for w in weight]
        model.heads[key] = torch.tensor([*np.ravel(vector), *bias])  # type: ignore[index]
    model.step(model.initial_state())
    return asked.matrices


def two_class_line() -> Net:
    """Predicts class 1 for x > 0."""
    net = line(2)
    with torch.no_grad():
        net.classifier.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    return net


TELLS_AT_2 = {ATTRIBUTE: ([0.0, 1.0], [0.0, -2.0])}
"""The attribute head answers 1 for x > 2."""


def test_matrix_of_two_classes_by_hand() -> None:
    """Class 0 at -1 -1 -1 3: three right, one wrong; class 1 at -1 -1 1 3 5: three right, two wrong: gaps 2 and 1.

    So class 1 is the pivot: row (3, 2). Class 0's samples go by the head: only 3 is above 2: row (3, 1).
    """
    client = ([-1, -1, -1, 3, -1, -1, 1, 3, 5], [0] * 4 + [1] * 5)
    assert estimated(two_class_line(), [client], 2, TELLS_AT_2) == [[[3, 1], [3, 2]]]
    # The authors' form takes the first class: its row is (3, 1), and class 1 has 3 and 5 above 2.
    assert estimated(two_class_line(), [client], 2, TELLS_AT_2, pivot="first") == [[[3, 1], [3, 2]]]
    other = ([-1, -1, -1, 3, -1, -1, 1, 1, 5], client[1])
    assert estimated(two_class_line(), [other], 2, TELLS_AT_2) == [[[3, 1], [3, 2]]]
    assert estimated(two_class_line(), [other], 2, TELLS_AT_2, pivot="first") == [[[3, 1], [4, 1]]]


def test_ties_go_to_the_lowest_class_and_empty_classes_are_no_pivot() -> None:
    """Both classes have gap 0: class 0 is the pivot, and the head splits class 1 at 2: -1 1 | 3 5 -> not (2, 2)."""
    client = ([-1, 1, -1, 1, 3, 5], [0, 0, 1, 1, 1, 1])
    even = ([-1, 1, -1, -1, 3, 1], [0, 0, 1, 1, 1, 1])
    found = estimated(two_class_line(), [even, client], 2, TELLS_AT_2)
    assert found[0] == [[1, 1], [3, 1]]
    assert found[1] == [[1, 1], [2, 2]]  # gaps 0 and 2
    # Class 0 has no samples: its gap 0 does not count.
    assert estimated(two_class_line(), [([-1, 1, 1], [1, 1, 1])], 2, TELLS_AT_2) == [[[0, 0], [2, 1]]]


@pytest.mark.parametrize(("sign", "column"), [(1, 0), (-1, 1)])
def test_one_group_only_means_one_attribute(sign: int, column: int) -> None:
    """All right (or all wrong) in the pivot class: everybody is of the majority (minority), AI = 1 and SC = 0."""
    xs, ys = [-sign * 1.0, -sign * 5.0, sign * 1.0, sign * 3.0, sign * 5.0, sign * 5.0], [0, 0, 1, 1, 1, 1]
    (found,) = estimated(two_class_line(), [(xs, ys)], 2, TELLS_AT_2)
    assert np.array(found)[:, column].tolist() == [2, 4]
    assert np.array(found).sum() == 6
    assert dht(np.array(found))[1:].tolist() == [1, 0]


def test_one_class_client() -> None:
    (found,) = estimated(two_class_line(), [([1.0, 1.0, -1.0], [1, 1, 1])], 2, TELLS_AT_2)
    triplet = dht(np.array(found))
    assert (found, triplet[0], triplet[2]) == ([[0, 0], [2, 1]], 1, 0)


def test_a_client_without_samples_has_the_triplet_zero() -> None:
    found = estimated(two_class_line(), [([1.0], [1]), ([], [])], 2, TELLS_AT_2)
    assert found[1] == [[0, 0], [0, 0]]
    three = estimated(line(3), [([1.0], [1]), ([], [])], 3, TELLS_AT_2 | CLASSES)
    assert three[1] == [[0, 0]] * 3


CLASSES = {
    "feddiverse/class0": ([0.0, -1.0], [0.0, -1.0]),  # "mine" for x < -1
    "feddiverse/class1": ([0.0, 1.0], [0.0, 0.0]),  # "mine" for x > 0
    "feddiverse/class2": ([0.0, 1.0], [0.0, -4.0]),  # "mine" for x > 4
}


def test_matrix_of_three_classes_by_hand() -> None:
    """Only the answers of class y's own classifier on its own samples count.

    Class 0 at -2 -2 -2 3: 3 right, 1 wrong, gap 2. Class 1 at 1 1 3 -1: gap 2. Class 2 at 5 5 1: gap 1, the pivot.
    The head puts 3 above 2: class 0 (3, 1), class 1 (3, 1).
    """
    client = ([-2, -2, -2, 3, 1, 1, 3, -1, 5, 5, 1], [0] * 4 + [1] * 4 + [2] * 3)
    assert estimated(line(3), [client], 3, TELLS_AT_2 | CLASSES) == [[[3, 1], [3, 1], [2, 1]]]
    first = estimated(line(3), [client], 3, TELLS_AT_2 | CLASSES, pivot="first")
    assert first == [[[3, 1], [3, 1], [1, 2]]]


class Shifted:
    """A probe of three classes whose biased model of class c moves features by ``shifts[c]``: x + shift.

    One-vs-rest classifiers say "mine" where the moved x is above 0; the attribute head answers 1 above 10.
    """

    client, num_classes, body_size = 0, 3, 1
    w = torch.zeros(1)

    def __init__(self, xs: list[float], ys: list[int], shifts: list[float]) -> None:
        self.shifts = shifts
        x, y = torch.tensor(xs), torch.tensor(ys)
        self.data = SimpleNamespace(y=y, batches=lambda: iter([(x[:2], y[:2]), (x[2:], y[2:])]))
        self.heads = dict.fromkeys([ATTRIBUTE, *(f"feddiverse/class{c}" for c in range(3))], torch.zeros(1))

    def train(
        self, rules: Any, phase: Phase, purpose: str, w: Any = None, head: Any = None, labels: Any = None
    ) -> Tensor:
        if purpose == "feddiverse/attribute":
            assert phase.groups == ("head",)
            assert float(w[0]) == self.shifts[0]  # the biased body of the pivot class, class 0
            return torch.cat([w[:1], torch.tensor([10.0])])
        return torch.tensor([self.shifts[int(purpose[-1])], 0.0])

    def model(self, w: Tensor, head: Any = None) -> Any:
        def logits(x: Tensor) -> Tensor:
            z = x + w[0]
            return torch.stack([torch.zeros_like(z), z - head.vector[0]], dim=1)

        return SimpleNamespace(logits=logits)


@pytest.mark.parametrize(
    ("values", "last"), [({}, [2, 0]), ({"body": "own"}, [0, 2]), ({"variant": "reference"}, [0, 2])]
)
def test_whose_features_the_attribute_head_reads(values: dict, last: list[int]) -> None:
    """Class 0 is the pivot (one right, one wrong). Class 2 at 5, 6 is above 10 only under its own shift of 9."""
    probe: Any = Shifted([1.0, -1.0, 1.0, 1.0, 5.0, 6.0], [0, 0, 1, 1, 2, 2], [0.5, 0.0, 9.0])
    assert rule(**values).matrix(probe).tolist() == [[1, 1], [2, 0], last]


# The set-up as training -----------------------------------------------------------------------------------------


def steps_of(balanced: bool, **values: Any) -> tuple[Recorder, FederatedRun, Problem]:
    """All batches of the set-up at one client with 7 + 3 samples, by adding a recorder to the set-up's rules."""
    recorder = Recorder.new()

    class Recording(FedDiverse):
        key: ClassVar[str] = "recording"

        def _rules(self, *rules: ClientRule) -> list[ClientRule]:
            return [*super()._rules(*rules), recorder]

    chooser = Recording(**(USUAL | {"setup_sampling": "balanced" if balanced else "uniform"} | values))
    # Class 1 (x = 1, 2, 3) is right for 1, 2 and wrong for -3 under a model that says 1 for x > 0.
    x = np.array([-1, -2, -3, -4, -5, -6, -7, 1, 2, -3.0])[:, None]
    problem = problem_of([x], [np.array([0] * 7 + [1] * 3)], 2)
    model = federation(
        problem, with_rules(selection=chooser), two_class_line(), lr=1e-9, batch_size=4, rounds=2
    )
    return recorder, model, problem


@pytest.mark.parametrize(("extra", "tau_b", "tau_a"), [(None, 5, 4), (True, 6, 5)])
def test_numbers_of_steps_and_samples(extra: bool | None, tau_b: int, tau_a: int) -> None:
    """Epochs of 10 samples are batches of 4, 4, 2; the head's epochs are the 3 samples of the pivot class."""
    recorder, model, _ = steps_of(False, tau_b=5, tau_a=4, extra_step=extra)
    run(model)
    batches = [(x.ravel().tolist(), y.tolist()) for _, _, x, y, _ in recorder.batches]
    assert len(batches) == tau_b + tau_a
    assert [len(y) for _, y in batches[:5]] == [4, 4, 2, 4, 4]
    # uniform: every sample once before any comes again, with its own label
    seen = [v for xs, _ in batches[:3] for v in xs]
    assert sorted(seen) == [-7, -6, -5, -4, -3, -3, -2, -1, 1, 2]
    for xs, ys in batches[tau_b:]:
        # 0 is the majority (right), 1 the minority (wrong) of the pivot class
        assert sorted(zip(xs, ys, strict=True)) == [(-3, 1), (1, 0), (2, 0)]


def test_balanced_weights_by_hand() -> None:
    class Data:
        y = torch.tensor([2, 0, 2, 2])

    class Ctx:
        data = Data()

    assert Balanced().sample_weights(Ctx()).tolist() == [1 / 3, 1, 1 / 3, 1 / 3]  # type: ignore[arg-type]


def test_a_probe_leaves_out_samples_with_a_negative_label() -> None:
    """And rules see the labels that are trained on."""
    recorder, seen = Recorder.new(), []

    class Look(ClientRule):
        key: ClassVar[str] = "look"

        def begin(self, ctx: Any) -> State:
            seen.append((ctx.data.y.tolist(), ctx.n))
            return {}

    class Ask(Selection):
        key: ClassVar[str] = "ask"

        def choose(self, round: int, kappa: int, clients: ClientPool, state: State, rng: Any) -> Any:
            def question(probe: ClientProbe) -> np.ndarray:
                labels = torch.tensor([1, -1, 0, -1])
                probe.train([Look(), recorder], Phase(epochs=1), "ask", labels=labels)
                assert probe.data.y.tolist() == [0, 0, 1, 1]
                return np.zeros(1)

            clients.ask([0], question)
            return [], state

    x = np.array([10, 11, 12, 13.0])[:, None]
    model = federation(
        problem_of([x], [np.array([0, 0, 1, 1])], 2), with_rules(selection=Ask()), two_class_line(), lr=0.0
    )
    model.step(model.initial_state())
    assert seen == [([1, 0], 2)]
    ((_, _, xs, ys, _),) = recorder.batches
    assert (xs.ravel().tolist(), ys.tolist()) == ([10, 12], [1, 0])


def spurious(matrices: Sequence[Any], seed: int = 0, noise: float = 1.0) -> tuple[Problem, np.ndarray]:
    """Clients with these class x attribute counts: the attribute is easy to see, the class is noisy; and the counts."""
    rng = np.random.default_rng(seed)
    xs, ys, attributes = [], [], []
    counts = np.array(matrices)
    for matrix in counts:
        y, a = (np.repeat(values.ravel(), matrix.ravel()) for values in np.indices(matrix.shape))
        x = rng.normal(0, noise, (len(y), 6))
        x[:, 0] += np.where(a == 1, 4.0, -4.0)
        x[np.arange(len(y)), 1 + y] += 1.0
        order = rng.permutation(len(y))
        xs.append(x[order])
        ys.append(y[order])
        attributes.append(a[order])
    return problem_of(xs, ys, counts.shape[1], np.concatenate(attributes)), counts


def up_to_a_swap(found: np.ndarray, truth: np.ndarray) -> float:
    """Share of samples in wrong cells; the two attributes have no names."""
    wrong = [np.abs(found[:, order] - truth).sum() / 2 for order in ([0, 1], [1, 0])]
    return float(min(wrong) / truth.sum())


TWO = [[[90, 10], [10, 90]], [[10, 90], [90, 10]], [[80, 20], [30, 70]]]
THREE = [[[60, 6], [6, 60], [60, 6]], [[6, 60], [60, 6], [6, 60]]]


@pytest.mark.parametrize("matrices", [TWO, THREE])
def test_the_estimate_finds_the_minority_groups(matrices: list) -> None:
    """Where the attribute is easier to see than the class, the biased model errs on the minority of each class.

    A matrix that ignores the attribute has 10 % to 25 % of the samples in wrong cells.
    """
    problem, counts = spurious(matrices)
    asked = Asked(rule=rule(), matrices=[])
    model = federation(
        problem, with_rules(selection=asked), perceptron(counts.shape[1]), lr=0.1, batch_size=28, order=None
    )
    model.step(model.initial_state())
    found = [np.array(matrix) for matrix in asked.matrices]
    assert max(up_to_a_swap(m, truth) for m, truth in zip(found, counts, strict=True)) < 0.05
    assert all(m.sum(1).tolist() == truth.sum(1).tolist() for m, truth in zip(found, counts, strict=True))


# Rounds ---------------------------------------------------------------------------------------------------------

FEDAVGM = {"server": {"optimizer": {"name": "momentum", "beta": 0.5, "lr": 1.0}}}


def small(
    selection: Selection,
    *rules: ClientRule,
    kappa: int = 3,
    rounds: int = 4,
    config: Any = None,
    **options: Any,
) -> FederatedRun:
    """Six clients, of 2 x 2 counts, some with fewer samples than a batch."""
    matrices = [
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    ]  # fmt: skip
    problem, _ = spurious(matrices)
    method = with_rules(*rules, selection=selection, config=config)
    options = {"lr": 0.1, "batch_size": 8, "momentum": 0.9, "order": None} | options
    return federation(problem, method, perceptron(), rounds=rounds, clients_per_round=kappa, **options)


def reports(model: FederatedRun) -> tuple[list[FederationState], list[Any]]:
    states, found = [model.initial_state()], []
    for _ in range(model.schedule.rounds):
        state, report = model.step(states[-1])
        states.append(state)
        found.append(report)
    return states, found


def test_rounds_of_the_paper() -> None:
    """T0 plain rounds with everybody, then one set-up with three numbers per client, then kappa clients."""
    states, found = reports(small(rule(T0=2), config=FEDAVGM))
    assert [len(r.clients) for r in found] == [6, 6, 3, 3]
    assert [r.cost.scalars_up for r in found] == [0, 0, 18, 0]
    assert all((r.cost.forward > 0) == (r.cost.trained > 0) == (r.round == 2) for r in found)
    assert [float(s.optimizer["v"].norm()) > 0 for s in states] == [False, False, False, True, True]
    assert ["triplets" in s.selection for s in states] == [False, False, False, True, True]
    assert np.shape(states[-1].selection["triplets"]) == (6, 3)
    assert states[3].selection == states[4].selection


def test_rounds_of_the_authors_code() -> None:
    """Triplets of the initial model; the server's momentum is on in the pre-training round."""
    states, found = reports(small(rule(variant="reference"), config=FEDAVGM, rounds=2))
    assert [len(r.clients) for r in found] == [6, 3]
    assert [r.cost.scalars_up for r in found] == [18, 0]
    assert float(states[1].optimizer["v"].norm()) > 0
    paper_at_start = reports(small(rule(estimate="first_round"), config=FEDAVGM, rounds=1))[0]
    assert float(paper_at_start[1].optimizer["v"].norm()) == 0
    assert "triplets" in paper_at_start[1].selection


def test_cost_of_the_set_up() -> None:
    """Trained: at most (tau_b + tau_a) batches per client. Forward: at most twice over the data."""
    _, found = reports(small(rule(), rounds=2))
    sizes = [20, 20, 20, 5, 7, 20]
    cost = found[1].cost
    assert cost.trained <= sum(60 * min(8, n) for n in sizes)
    # 50 steps of the biased model: epochs of 20 are 8 + 8 + 4, of 5 and 7 one batch
    biased = sum(50 * n if n < 8 else 16 * 20 + 8 + 8 for n in sizes)
    assert biased < cost.trained
    assert sum(sizes) < cost.forward <= 2 * sum(sizes)


def test_everybody_is_fedavg_bit_for_bit() -> None:
    """kappa = K: the set-up leaves no trace in model, buffers and client states."""
    diverse = run(small(rule(), kappa=6))
    plain = run(small(build({}).selection, kappa=6))
    for a, b in zip(diverse, plain, strict=True):
        assert torch.equal(a.w, b.w)
        assert torch.equal(a.buffers, b.buffers)
    for variant in ("paper", "reference"):
        for s in run(small(rule(variant=variant), kappa=6)):
            assert torch.isfinite(s.w).all()


@pytest.mark.parametrize("name", ["feddiverse", "feddiverse_known", "feddiverse_nk", "reference"])
def test_stop_and_go_on(name: str) -> None:
    choosers: dict[str, Callable[[], Selection]] = {
        "feddiverse": rule,
        "reference": lambda: rule(variant="reference"),
        "feddiverse_known": lambda: rule(triplets="known"),
        "feddiverse_nk": lambda: build({}, {"name": "feddiverse_nk", "T0": 1}).selection,
    }
    through = run(small(choosers[name](), config=FEDAVGM))
    for k in (1, 2):
        stored = io.BytesIO()
        torch.save(through[k].to_dict(), stored)
        stored.seek(0)
        state = FederationState(**torch.load(stored, weights_only=False))
        resumed = run(small(choosers[name](), config=FEDAVGM), state, rounds=4 - k)
        assert same(resumed[-1], through[-1])


def test_one_client() -> None:
    problem, _ = spurious([[[9, 1], [1, 9]]])
    for selection in (
        rule(),
        rule(variant="reference"),
        rule(triplets="known"),
        build({}, {"name": "feddiverse_nk", "T0": 1}).selection,
    ):
        model = federation(problem, with_rules(selection=selection), perceptron(), lr=0.1, order=None)
        assert [r.clients for r in reports(model)[1]] == [(0,)] * 3


# Known triplets, N^k, measures --------------------------------------------------------------------------------------


def test_known_triplets_are_those_of_the_counts() -> None:
    states, found = reports(small(rule(triplets="known"), rounds=2))
    counts = [
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    ]  # fmt: skip
    np.testing.assert_allclose(states[-1].selection["triplets"], dht(np.array(counts)), rtol=0, atol=1e-15)
    assert [r.cost for r in found] == [Cost(), Cost(scalars_up=18)]


def test_measures_are_the_distance_to_the_truth_and_no_upload() -> None:
    model = small(rule(), rounds=2)
    states, found = reports(model)
    assert found[1].cost.scalars_up == 3 * 6
    truth = [[*dht(np.array(m))] for m in (
        [[9, 1], [1, 9]], [[9, 9], [1, 1]], [[9, 1], [9, 1]], [[2, 1], [0, 2]], [[0, 0], [5, 2]], [[1, 9], [9, 1]],
    )]  # fmt: skip
    away = [
        sum((a - b) ** 2 for a, b in zip(mine, theirs, strict=True)) ** 0.5
        for mine, theirs in zip(states[2].selection["triplets"], truth, strict=True)
    ]
    assert max(away) > 0.05
    records = {(r.split, r.metric): r.value for r in model.evaluate(states[2])}
    assert records["selection", "dht_error"] == pytest.approx(sum(away) / 6, abs=1e-12)
    assert records["selection", "dht_error_max"] == pytest.approx(max(away), abs=1e-12)
    assert model.evaluate(states[1]) == []


def test_the_estimate_needs_no_attributes() -> None:
    problem, _ = spurious(TWO)
    problem = problem_of(
        [problem.images.numpy()[c] for c in problem.clients],
        [problem.labels.numpy()[c] for c in problem.clients],
        2,
    )
    states, _ = reports(federation(problem, with_rules(selection=rule()), perceptron(), lr=0.1, order=None))
    assert np.shape(states[-1].selection["triplets"]) == (3, 3)
    assert rule().measures(states[-1].selection) == {}


def test_evening_weights_by_hand() -> None:
    """[[3,1],[1,3]] and [[1,3],[3,1]]: half and half, variance 0."""
    np.testing.assert_allclose(evening_weights(np.array([[3, 1, 1, 3], [1, 3, 3, 1]])), [0.5, 0.5], atol=1e-9)
    # (3,1) and (1,2), centred (1,-1) and (-.5,.5): om (1/3, 2/3).
    np.testing.assert_allclose(evening_weights(np.array([[3, 1], [1, 2]])), [1 / 3, 2 / 3], atol=1e-8)
    # Equal clients share.
    np.testing.assert_allclose(
        evening_weights(np.array([[3, 1], [1, 3], [3, 1], [3, 1]])), [1 / 6, 1 / 2, 1 / 6, 1 / 6], atol=1e-9
    )
    # +-1 and +-2 off the mean: many ways to 0, the most even one is taken.
    np.testing.assert_allclose(evening_weights(np.array([[3, 1], [1, 3], [4, 0], [0, 4]])), 0.25, atol=1e-6)
    # All lean the same way: the flattest alone.
    np.testing.assert_allclose(evening_weights(np.array([[5, 1], [3, 1], [9, 1]])), [0, 1, 0], atol=1e-12)
    assert evening_weights(np.array([[7, 1]])).tolist() == [1]


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("setting", ["spawrious_gai", "waterbirds_dist", "spawrious4", "spawrious_gci100"])
def test_evening_weights_are_optimal(published: Path, setting: str, scale: int) -> None:
    """On the simplex om is the minimum iff no client's derivative is below om'(derivative)."""
    counts = scale * table6(published, setting).reshape(-1, table6(published, setting)[0].size).astype(float)
    om = evening_weights(counts)
    assert (om >= 0).all()
    assert om.sum() == pytest.approx(1, abs=1e-12)
    dv = counts - counts.mean(1, keepdims=True)
    derivative = dv @ (om @ dv) / counts.shape[1] + 1e-9 * om
    scale_of_q = np.abs(dv @ dv.T).max() / counts.shape[1]
    assert derivative.min() > om @ derivative - 1e-10 * scale_of_q


def test_nk_draws_with_these_probabilities_and_counts_its_upload() -> None:
    """(3,1), (1,3), (3,1): om 1/4, 1/2, 1/4. One client per round; every client sends C A = 4 numbers, once."""
    problem, _ = spurious([[[3, 1], [1, 3]], [[1, 3], [3, 1]], [[3, 1], [1, 3]]])
    chooser = build({}, {"name": "feddiverse_nk", "T0": 2}).selection
    model = federation(
        problem,
        with_rules(selection=chooser),
        perceptron(),
        lr=0.1,
        clients_per_round=1,
        rounds=3,
        order=None,
    )
    states, found = reports(model)
    assert [len(r.clients) for r in found] == [3, 3, 1]
    assert [r.cost for r in found] == [Cost(), Cost(), Cost(scalars_up=12)]
    np.testing.assert_allclose(states[-1].selection["om"], [0.25, 0.5, 0.25], rtol=0, atol=1e-9)
    picks = np.zeros(3)
    for s in range(1000):
        ids, _ = chooser.choose(2, 1, _Three(), states[-1].selection, np.random.default_rng(s))
        picks[list(ids)] += 1
    np.testing.assert_allclose(picks / 1000, [0.25, 0.5, 0.25], rtol=0, atol=0.05)


class _Three:
    """Three clients that must not be asked again."""

    num_clients = 3


def test_nk_can_always_draw_enough_clients() -> None:
    """om = (0, 1, 0) has one client; with the floor of 1e-6 the others can be drawn too."""
    chooser = build({}, {"name": "feddiverse_nk", "T0": 1}).selection
    for kappa in (1, 2, 3):
        ids, _ = chooser.choose(1, kappa, _Three(), {"om": [0.0, 1.0, 0.0]}, np.random.default_rng(0))  # type: ignore[arg-type]
        assert len(set(ids)) == kappa
        assert 1 in ids


# What is refused ------------------------------------------------------------------------------------------------


def test_rules_that_own_the_head_are_refused() -> None:
    class Owner(ClientRule):
        key: ClassVar[str] = "owner"
        owns_head: ClassVar[bool] = True

    for name, values in (("feddiverse", USUAL), ("feddiverse_nk", {"T0": 1})):
        selection = build({}, {"name": name, **values}).selection
        with pytest.raises(MethodError, match=f"{name} .* owner decides what the head is"):
            with_rules(Owner(), selection=selection).check()


def test_known_needs_attributes() -> None:
    problem = problem_of([np.zeros((4, 6))], [np.array([0, 1, 0, 1])], 2)
    for selection in (rule(triplets="known"), build({}, {"name": "feddiverse_nk", "T0": 1}).selection):
        with pytest.raises(MethodError, match=r"has none.*dataset"):
            federation(problem, with_rules(selection=selection), perceptron()).initial_state()
    single = problem_of([np.zeros((4, 6))], [np.array([0, 1, 0, 1])], 2, np.zeros(4, dtype=np.int64))
    with pytest.raises(MethodError, match="a single one"):
        federation(single, with_rules(selection=rule(triplets="known")), perceptron()).initial_state()


def test_one_class_is_refused() -> None:
    problem = problem_of([np.zeros((4, 6))], [np.zeros(4, dtype=np.int64)], 1)
    with pytest.raises(MethodError, match="2 classes; got 1"):
        federation(problem, with_rules(selection=rule()), perceptron(1))
