"""What finished runs answer of the checklists that conferences ask authors to fill in: NeurIPS's, and ACL's (ARR).

Questions are in our own words; the items of the checklists are named beside them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError, StorageError
from benchmark.experiments import estimate
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.spec import TableSpec
from benchmark.experiments.tuning import TunedCell, TunedTable
from benchmark.reports.collect import validation_value
from benchmark.reports.notes import full_label, notes_of, short_name, shown_value
from benchmark.reports.results import TableResults
from benchmark.reports.statistics import summarise
from benchmark.runs.index import RunIndex
from benchmark.runs.store import read_json
from datasets.core import registry


class Answer(NamedTuple):
    """One question, the items of the checklists that ask it, and what is to be said. ``command``: printed as it is."""

    question: str
    items: str
    lines: Sequence[str]
    command: str = ""


OUTSIDE = (
    "Claims, limitations, theory (NeurIPS 1 to 3; ARR A1): in the paper.",
    "Ethics, risks, societal impact, safeguards (NeurIPS 9 to 11; ARR A2): in the paper.",
    "Intended use, personal data and documentation of the data sets (ARR B3 to B5): on the owners' pages named above.",
    "New assets (NeurIPS 13): in the documentation of what you release.",
    "Participants, review boards, annotators (NeurIPS 14, 15; ARR D): in the paper. FedTables collects no data.",
    "Use of language models or assistants (NeurIPS 16; ARR E): in the paper.",
)
"""What no run can answer, and where to answer it."""


class Checklist:
    """The answers for one table. ``command`` repeats its runs elsewhere, ``rest`` carries out the missing ones."""

    def __init__(
        self, results: TableResults, cells: Cells, index: RunIndex, tuned: TunedTable, command: str, rest: str
    ) -> None:
        self.results, self.cells, self.index, self.tuned = results, cells, index, tuned
        self.command, self.rest = command, rest
        self.spec: TableSpec = results.spec
        self.notes = {note.heading: note.lines for note in notes_of(results)}
        self.planned = unique_runs([cells])
        self.ended = {key: run for key, run in self.planned.items() if index.has_ended(key)}

    @cached_property
    def metas(self) -> dict[str, Mapping[str, Any]]:
        """What each ended run noted of its machine and code; empty where its file cannot be read."""
        return {key: self._json(self.index.results.run(key).path / "meta.json") for key in self.ended}

    @cached_property
    def blocks(self) -> dict[str, estimate.RunBlock]:
        """Sizes of the data of each configuration, as far as they are known."""
        return {block.run.hash: block for block in estimate.blocks(self.spec.name, list(self.ended.values()))}

    def answers(self) -> list[Answer]:
        """All answers, in the order of the page."""
        return [
            Answer("Which runs is this about?", "NeurIPS 4; ARR C3", self._runs()),
            Answer(
                "How are the results repeated, and by which code were they made?",
                "NeurIPS 4, 5; ARR C4",
                self._code(),
                self.command,
            ),
            Answer("On which machines, with which software?", "NeurIPS 8; ARR C1", self._machines()),
            Answer("How long did it take?", "NeurIPS 8; ARR C1", self._time()),
            Answer("How many parameters does the model have?", "ARR C1", self._parameters()),
            Answer("How was training set up?", "NeurIPS 6; ARR C2", self._training()),
            Answer("How were hyper-parameters chosen?", "NeurIPS 6; ARR C2", self._search()),
            Answer("What are the scores on validation data?", "ARR C2", self._validation()),
            Answer("What do numbers, error bars and marks mean?", "NeurIPS 7; ARR C3", self._statistics()),
            Answer("How large are training, validation and test data?", "NeurIPS 6; ARR B6", self._splits()),
            Answer("How were the data prepared?", "NeurIPS 6; ARR C4", self._preprocessing()),
            Answer("Under which licences are data and code?", "NeurIPS 12; ARR B1, B2", self._licences()),
            Answer("What can runs not answer?", "the other items", OUTSIDE),
        ]

    # What was run ------------------------------------------------------------------------------------------------

    def _runs(self) -> list[str]:
        seeds = sorted({run.seed for run in self.planned.values()})
        states = Counter(self.index.state(key) for key in self.planned)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        lines = [f"{_number(len(self.planned))}: {counts}. Seeds: {', '.join(map(str, seeds))}."]
        rest = [f"The missing runs are carried out by: {self.rest}"] * (len(self.ended) < len(self.planned))
        return [*lines, *(f"Gaps: {line}" for line in self.notes["Gaps"]), *rest]

    def _code(self) -> list[str]:
        made = [
            f"commit {meta.get('commit') or 'unknown'}" + ", files differed from it" * bool(meta.get("dirty"))
            for meta in self.metas.values()
        ]
        return [
            "The command repeats the runs in an empty results folder.",
            *_counted(made),
            *self.notes.get("Code", ()),
        ]

    def _machines(self) -> list[str]:
        machines = [
            f"{meta.get('device', 'device not noted')}, {meta.get('threads', '?')} thread(s) per run, "
            f"host {meta.get('host', 'not noted')}"
            for meta in self.metas.values()
        ]
        versions = [
            ", ".join(f"{name} {meta.get(name, 'not noted')}" for name in ("python", "torch", "numpy"))
            for meta in self.metas.values()
        ]
        return [
            *_counted(machines),
            *_counted(versions),
            "Memory is not noted by runs: state it in the paper.",
        ]

    def _time(self) -> list[str]:
        lines = []
        for row in self.spec.rows:
            mine = unique_runs([{key: cell for key, cell in self.cells.items() if key[0] == row.key}])
            spent = [self._seconds(key) for key in mine if key in self.ended]
            if spent:
                each = _range(round(seconds, 1) for seconds in spent)
                lines.append(f"{row.label}: {_number(len(spent))} of {each} s, {_hours(sum(spent))} together")
        searched = [run.removeprefix("runs/") for cell in self._searches().values() for run in _trials(cell)]
        there = [key for key in dict.fromkeys(searched) if self.index.has_ended(key)]
        lines.append(
            f"All {_number(len(self.ended))}: {_hours(sum(map(self._seconds, self.ended)))} one after another; "
            "several may have shared a machine."
        )
        if searched:
            spent_there = _hours(sum(map(self._seconds, there)))
            absent = len(set(searched)) - len(there)
            lacking = f"; {absent} of its runs are not in this results folder" * bool(absent)
            lines.append(f"Search for hyper-parameters: {_number(len(there))}, {spent_there}{lacking}.")
        return [*lines, "Runs that failed, were discarded or belong to other tables are not counted."]

    def _parameters(self) -> list[str]:
        found: dict[str, list[str]] = {}
        for run in {run.hash: run for run in self.ended.values()}.values():
            block = self.blocks.get(run.hash)
            number = "unknown until the data are there" if block is None else f"{_parameters(block):,}"
            found.setdefault(f"{run.model.name}: {number}", []).append(self._data(run))
        counts = [f"{text} ({', '.join(dict.fromkeys(data))})" for text, data in found.items()]
        return [*counts, "Without heads that a method adds for itself."]

    def _training(self) -> list[str]:
        values: dict[str, dict[str, None]] = {}
        for run in self.ended.values():
            for name, value in run.train.model_dump(mode="json").items():
                if value is not None:
                    text = json.dumps(value) if isinstance(value, dict) else shown_value(value)
                    values.setdefault(name, {})[text] = None
        same = [f"{name} {next(iter(texts))}" for name, texts in values.items() if len(texts) == 1]
        several = [f"{name}: {', '.join(texts)}, by cell" for name, texts in values.items() if len(texts) > 1]
        return [
            f"In all runs: {', '.join(same)}.",
            *several,
            "The file config.yaml of each run has all settings.",
        ]

    # Choices and statistics --------------------------------------------------------------------------------------

    def _searches(self) -> dict[tuple[str, str], TunedCell]:
        """The searches whose values the runs of this table took."""
        cells = {(row, col): cell for row, found in self.tuned.cells.items() for col, cell in found.items()}
        return {key: cell for key, cell in cells.items() if key in self.results.chosen}

    def _search(self) -> list[str]:
        metric, lines = self.spec.metric_format, list(self.notes["Hyper-parameters"])
        rows = {row for row, _ in self.results.chosen}
        if rows:
            kept = ", ".join(row.label for row in self.spec.rows if row.key not in rows)
            lines.append(
                f"Rows without a tuned value, with those of conf/method and of the table: {kept or 'none'}"
            )
        for (row, column), cell in self._searches().items():
            where = f"{self.spec.row(row).label}, {full_label(self.spec.column(column))}"
            if not cell.grid:
                lines.append(f"{where}: the values of the row's other columns")
                continue
            tried = {key: dict.fromkeys(point.values[key] for point in cell.grid) for key in cell.chosen}
            bounds = "; ".join(
                f"{short_name(key)} in {', '.join(map(shown_value, values))}" for key, values in tried.items()
            )
            chosen = ", ".join(
                f"{short_name(key)} {shown_value(value)}" for key, value in cell.chosen.items()
            )
            held = next((point.validation for point in cell.grid if point.values == cell.chosen), None)
            score = "not noted" if held is None else f"{held * metric.scale:.2f} {metric.unit}"
            lines.append(
                f"{where}: {bounds}; {len(cell.grid)} trials of {cell.seeds} seed(s); chosen {chosen}, validation "
                f"{cell.metric} {score} ({cell.which_round})"
            )
        return lines

    def _validation(self) -> list[str]:
        lines, metric = [], self.spec.metric_format
        for (row, column), cell in self.cells.items():
            held = [run for run in cell.runs if run.key in self.ended and run.evaluation.validation]
            try:
                found = [validation_value(self.spec, run.preset, run.key, self.index) for run in held]
            except (ConfigError, StorageError) as error:
                lines.append(str(error))
                continue
            if values := [value * metric.scale for value in found if value is not None]:
                scores = summarise(values)
                spread = "" if scores.std is None else f" ± {scores.std:.2f}"
                where = f"{self.spec.row(row).label}, {full_label(self.spec.column(column))}"
                lines.append(f"{where}: {scores.mean:.2f}{spread} {metric.unit} (n = {scores.n})")
        return lines or ["None: the runs of this table held out no validation data."]

    def _statistics(self) -> list[str]:
        drawn = any(run.partition.seed is None for run in self.ended.values())
        tested = drawn and any(run.dataset.rest == "test" for run in self.ended.values())
        varies = ["initial weights", *["the split among clients"] * drawn, *["the test data"] * tested]
        which = self.spec.round(self.results.preset).phrase
        return [
            f"Metric: {self.spec.metric} ({self.spec.metric_format.label.lower()}), {which}.",
            f"Mean ± sample standard deviation (divisor n - 1) over {self.results.num_seeds} seeds.",
            f"Between seeds differ: {', '.join(varies)}, who takes part, the order of batches.",
            *self.notes["Legend"],
        ]

    # Data --------------------------------------------------------------------------------------------------------

    def _splits(self) -> list[str]:
        found: dict[str, list[tuple[int, ...]]] = {}
        unknown: dict[str, None] = {}
        for key, run in self.ended.items():
            name = str(self.metas[key].get("partition", ""))
            stored = (
                self._json(self.index.results.root / "partitions" / name / "statistics.json") if name else {}
            )
            where = f"{self._data(run)}, {run.partition.name}"
            if not stored or run.hash not in self.blocks:
                unknown[where] = None
                continue
            sizes, share = stored["sizes"], run.evaluation.validation
            held = sum(min(int(share * size), size - 1) for size in sizes)
            left = stored["num_samples"] - sum(sizes)
            test = estimate.test_samples(run, self.blocks[run.hash].facts, left)
            found.setdefault(where, []).append((sum(sizes) - held, held, test, len(sizes)))
        lines = []
        for where, counts in found.items():
            given, validation, tested, clients = (_range(numbers) for numbers in zip(*counts, strict=True))
            lines.append(
                f"{where}: {given} training, {validation} validation, {tested} test; {clients} clients"
            )
        lines += [f"{where}: not noted (no stored partition, or data of unknown size)" for where in unknown]
        return [*lines, "A sample that several clients hold counts once for each."]

    def _preprocessing(self) -> list[str]:
        lines: dict[str, None] = {}
        for key, run in self.ended.items():
            noted, wanted = str(self.metas[key].get("note", "")), run.dataset
            cut = [f"{count} {part} samples per class" for part, count in
                   (("training", wanted.train_per_class), ("test", wanted.test_per_class)) if count]  # fmt: skip
            texts = [f"augmentation {run.train.augment}", *cut, *filter(None, [noted])]
            lines[f"{self._data(run)}: {'; '.join(texts)}"] = None
        return ["Images are divided by 255 and normalised by the mean and deviation of each channel.", *lines,
                *self.notes["Preset"]]  # fmt: skip

    def _licences(self) -> list[str]:
        used = dict.fromkeys(run.dataset.name for run in self.ended.values())
        known = [f"{name}: {registry.get(name).licence or 'not known; ask its owner'}" for name in used]
        return [*known, "FedTables: Apache-2.0. Check the owners' pages before you publish; cite the owners."]

    def _data(self, run: RunConfig) -> str:
        original = run.dataset.options.get("stands_for")
        return f"{run.dataset.name} for {original}" if original else run.dataset.name

    def _seconds(self, key: str) -> float:
        status = self.index.status(key)
        return status.seconds if status else 0.0

    def _json(self, path: Any) -> Mapping[str, Any]:
        try:
            return read_json(path) or {}
        except StorageError:
            return {}


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{text} ({_number(count)})" for text, count in Counter(texts).most_common()]


def _number(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _range(numbers: Iterable[float]) -> str:
    low, *_, high = sorted([*(found := list(numbers)), *found])
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 3600 else f"{seconds / 3600:,.2f} h"


def _trials(cell: TunedCell) -> list[str]:
    return [run for point in cell.grid for run in point.runs]


def _parameters(block: estimate.RunBlock) -> int:
    """Number of parameters of a run's network, on images as it sees them."""
    import torch

    from benchmark.models.networks import build_net
    from benchmark.transforms.augmentation import augmentation

    run, facts = block.run, block.facts
    images = torch.zeros(1, facts.channels, facts.size, facts.size, dtype=torch.uint8)
    augment = augmentation(run.train.augment, facts.channels)
    if augment is not None and augment.evaluation is not None:
        images = augment.evaluation(images)
    own = {key: value for key, value in run.model.parameters.items() if key not in ("pretrained", "start")}
    channels, height, width = images.shape[1:]
    net = build_net(run.model.name, facts.classes, (channels, height, width), own, 0)
    return sum(parameter.numel() for parameter in net.parameters())
