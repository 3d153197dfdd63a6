"""What finished runs answer of the checklists that conferences ask authors to fill in: NeurIPS's, and ACL's (ARR).

``checklist.md.jinja`` has the questions, in our own words, and the items of the checklists that ask them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmark.config.schema import RunConfig
from benchmark.errors import ConfigError
from benchmark.experiments import estimate
from benchmark.experiments.plan import Cells, unique_runs
from benchmark.experiments.tuning import TunedCell, TunedTable
from benchmark.models.networks import build_net
from benchmark.reports.collect import commit_of, json_of, validation_value
from benchmark.reports.notes import cell_label, notes_of, short_name, shown_value
from benchmark.reports.render.markdown import escape
from benchmark.reports.results import TableResults, gathered
from benchmark.reports.statistics import summarise
from benchmark.runs.index import RunIndex
from benchmark.transforms.augmentation import augmentation
from datasets.core import registry
from datasets.core.base import Facts


@dataclass(frozen=True)
class Checklist:
    """The answers for one table. ``command`` repeats its runs elsewhere, ``rest`` carries out the missing ones."""

    results: TableResults
    cells: Cells
    index: RunIndex
    tuned: TunedTable
    command: str
    rest: str

    @cached_property
    def notes(self) -> dict[str, Sequence[str]]:
        """Heading -> lines of the notes under the table."""
        return {note.heading: note.lines for note in notes_of(self.results)}

    @cached_property
    def planned(self) -> dict[str, RunConfig]:
        """All runs of the table by key."""
        return unique_runs([self.cells])

    @cached_property
    def ended(self) -> dict[str, RunConfig]:
        """Those that have ended."""
        return {key: run for key, run in self.planned.items() if self.index.has_ended(key)}

    @cached_property
    def metas(self) -> dict[str, Mapping[str, Any]]:
        """What each ended run noted of its machine and code; empty where its file cannot be read."""
        return {key: json_of(self.index.results.run(key).path / "meta.json") for key in self.ended}

    @cached_property
    def facts(self) -> dict[str, Facts]:
        """Sizes of the data of each configuration, as far as they are known."""
        blocks = estimate.blocks(self.results.spec.name, list(self.ended.values()))
        return {block.run.hash: block.facts for block in blocks}

    def page(self) -> str:
        """The whole page as Markdown: a section for each question, with the items of the checklists that ask it."""
        environment = Environment(
            loader=PackageLoader("benchmark.reports", "."),
            trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined,
        )  # fmt: skip
        environment.filters["plain"] = escape
        return environment.get_template("checklist.md.jinja").render(checklist=self)

    # What was run ------------------------------------------------------------------------------------------------

    def runs(self) -> Iterator[str]:
        """States and seeds of the planned runs."""
        seeds = sorted({run.seed for run in self.planned.values()})
        states = Counter(self.index.state(key) for key in self.planned)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        yield f"{_number(len(self.planned))}: {counts}. Seeds: {', '.join(map(str, seeds))}."
        yield from (f"Gaps: {line}" for line in self.notes["Gaps"])
        if len(self.ended) < len(self.planned):
            yield f"The missing runs are carried out by: {self.rest}"

    def commits(self) -> list[str]:
        """Commits of the runs."""
        changed = ", files differed from it"
        return _counted(
            f"commit {commit_of(meta)}{changed * bool(meta.get('dirty'))}" for meta in self.metas.values()
        )

    def machines(self) -> list[str]:
        """Devices and versions."""
        devices = _counted(
            f"{meta.get('device', 'device not noted')}, {meta.get('threads', '?')} thread(s) per run, "
            f"host {meta.get('host', 'not noted')}"
            for meta in self.metas.values()
        )
        return devices + _counted(
            ", ".join(f"{name} {meta.get(name, 'not noted')}" for name in ("python", "torch", "numpy"))
            for meta in self.metas.values()
        )

    def time(self) -> Iterator[str]:
        """Seconds by row, of all runs, and of the searches."""
        for row in self.results.spec.rows:
            runs = unique_runs([{key: cell for key, cell in self.cells.items() if key[0] == row.key}])
            if spent := [self._seconds(key) for key in runs if key in self.ended]:
                one = _range([round(seconds, 1) for seconds in spent])
                yield f"{row.label}: {_number(len(spent))} of {one} s, {_hours(sum(spent))} together"
        total = _hours(sum(map(self._seconds, self.ended)))
        yield f"All {_number(len(self.ended))}: {total} one after another; several may have shared a machine."
        searches = self._searches().values()
        trials = dict.fromkeys(run for cell in searches for point in cell.grid for run in point.runs)
        there = [key for key in (run.removeprefix("runs/") for run in trials) if self.index.has_ended(key)]
        if trials:
            absent = len(trials) - len(there)
            lacking = f"; {absent} of its runs are not in this results folder" * bool(absent)
            spent_there = _hours(sum(map(self._seconds, there)))
            yield f"Search for hyper-parameters: {_number(len(there))}, {spent_there}{lacking}."

    def parameters(self) -> Iterator[str]:
        """Number of parameters of each model."""
        configurations = {run.hash: run for run in self.ended.values()}
        data: dict[str, list[str]] = gathered(
            (f"{run.model.name}: {self._num_parameters(run)}", _data(run)) for run in configurations.values()
        )
        yield from (f"{text} ({', '.join(dict.fromkeys(names))})" for text, names in data.items())

    def _num_parameters(self, run: RunConfig) -> str:
        """Number of parameters of a run's network, on images as it sees them."""
        facts = self.facts.get(run.hash)
        if facts is None:
            return "unknown until the data are there"
        images = torch.zeros(1, facts.channels, facts.size, facts.size, dtype=torch.uint8)
        augment = augmentation(run.train.augment, facts.channels)
        if augment is not None and augment.evaluation is not None:
            images = augment.evaluation(images)
        options = {
            key: value for key, value in run.model.parameters.items() if key not in ("pretrained", "start")
        }
        _, channels, height, width = images.shape
        net = build_net(run.model.name, facts.classes, (channels, height, width), options, 0)
        return f"{sum(parameter.numel() for parameter in net.parameters()):,}"

    def training(self) -> Iterator[str]:
        """Settings of the training."""
        texts: dict[str, list[str]] = gathered(
            (name, json.dumps(value) if isinstance(value, dict) else shown_value(value))
            for run in self.ended.values()
            for name, value in run.train.model_dump(mode="json").items()
            if value is not None
        )
        values = {name: list(dict.fromkeys(several)) for name, several in texts.items()}
        same = (f"{name} {several[0]}" for name, several in values.items() if len(several) == 1)
        yield f"In all runs: {', '.join(same)}."
        for name, several in values.items():
            if len(several) > 1:
                yield f"{name}: {', '.join(several)}, by cell"

    # Choices and statistics --------------------------------------------------------------------------------------

    def _searches(self) -> dict[tuple[str, str], TunedCell]:
        """The searches whose values the runs of this table took."""
        cells = {
            (row, col): cell for row, columns in self.tuned.cells.items() for col, cell in columns.items()
        }
        return {key: cell for key, cell in cells.items() if key in self.results.tuned}

    def search(self) -> Iterator[str]:
        """What was tuned, in which bounds."""
        if rows := {row for row, _ in self.results.tuned}:
            kept = ", ".join(row.label for row in self.results.spec.rows if row.key not in rows)
            yield f"Rows without tuned values, which take those of conf/method and of the table: {kept or 'none'}"
        for key, cell in self._searches().items():
            trials = self._trials(cell) if cell.grid else "the values of the row's other columns"
            yield f"{cell_label(self.results.spec, *key)}: {trials}"

    def _trials(self, cell: TunedCell) -> str:
        """What a search tried, chose and reached."""
        metric = self.results.spec.metric_format
        tried = {key: dict.fromkeys(point.values[key] for point in cell.grid) for key in cell.chosen}
        bounds = "; ".join(f"{short_name(key)} in {', '.join(map(shown_value, tried[key]))}" for key in tried)
        taken = ", ".join(f"{short_name(key)} {shown_value(value)}" for key, value in cell.chosen.items())
        held = next((point.validation for point in cell.grid if point.values == cell.chosen), None)
        score = "not noted" if held is None else f"{held * metric.scale:.2f} {metric.unit}"
        return (
            f"{bounds}; {len(cell.grid)} trials of {cell.seeds} seed(s); chosen {taken}, "
            f"validation {cell.metric} {score} ({cell.which_round})"
        )

    def validation(self) -> list[str]:
        """Mean scores on the validation splits."""
        lines, spec = [], self.results.spec
        for key, cell in self.cells.items():
            held = [run for run in cell.runs if run.key in self.ended and run.evaluation.validation]
            try:
                scores = [validation_value(spec, run.preset, run.key, self.index) for run in held]
            except ConfigError as error:  # StorageError is one
                lines.append(str(error))
                continue
            if values := [score * spec.metric_format.scale for score in scores if score is not None]:
                text = f"{summarise(values)} {spec.metric_format.unit} (n = {len(values)})"
                lines.append(f"{cell_label(spec, *key)}: {text}")
        return lines or ["None: the runs of this table held out no validation data."]

    def statistics(self) -> Iterator[str]:
        """What is averaged, and what differs between seeds."""
        spec = self.results.spec
        drawn = any(run.partition.seed is None for run in self.ended.values())
        tested = drawn and any(run.dataset.rest == "test" for run in self.ended.values())
        varies = ["initial weights", *["the split among clients"] * drawn, *["the test data"] * tested]
        which = spec.round(self.results.preset).phrase
        yield f"Metric: {spec.metric} ({spec.metric_format.label.lower()}), {which}."
        yield f"Mean ± sample standard deviation (divisor n - 1) over {self.results.num_seeds} seeds."
        yield f"Between seeds differ: {', '.join(varies)}, who takes part, the order of batches."

    # Data --------------------------------------------------------------------------------------------------------

    def splits(self) -> Iterator[str]:
        """Numbers of samples and clients."""
        sizes = gathered(
            (f"{_data(run)}, {run.partition.name}", self._sizes(key, run)) for key, run in self.ended.items()
        )
        for where, several in sizes.items():
            if counts := [numbers for numbers in several if numbers is not None]:
                train, validation, test, clients = (_range(numbers) for numbers in zip(*counts, strict=True))
                yield f"{where}: {train} training, {validation} validation, {test} test; {clients} clients"
        for where, several in sizes.items():
            if None in several:
                yield f"{where}: not noted (data of unknown size, or a run of an older version)"

    def _sizes(self, key: str, run: RunConfig) -> tuple[int, int, int, int] | None:
        """Samples for training, validation and test, and clients of an ended run; None if they are not noted."""
        noted, facts = self.metas[key].get("clients"), self.facts.get(run.hash)
        if noted is None or facts is None:
            return None
        unseen = self.metas[key].get("unseen", [])
        whole = [sum(counts) for counts in noted["counts"]]
        sizes = [size for k, size in enumerate(whole) if k not in unseen]
        held = sum(min(int(run.evaluation.validation * size), size - 1) for size in sizes)
        test = estimate.test_samples(run, facts, noted["num_samples"] - sum(whole))
        return sum(sizes) - held, held, test, len(sizes)

    def preprocessing(self) -> Iterable[str]:
        """What was done to the images of each data set."""
        lines = []
        for key, run in self.ended.items():
            cuts = {"training": run.dataset.train_per_class, "test": run.dataset.test_per_class}
            samples = [f"{count} {part} samples per class" for part, count in cuts.items() if count]
            texts = [f"augmentation {run.train.augment}", *samples, str(self.metas[key].get("note", ""))]
            lines.append(f"{_data(run)}: {'; '.join(filter(None, texts))}")
        return dict.fromkeys(lines)

    def licences(self) -> Iterator[str]:
        """Licences of the data sets."""
        for name in dict.fromkeys(run.dataset.name for run in self.ended.values()):
            yield f"{name}: {registry.get(name).licence or 'not known; ask its owner'}"

    def _seconds(self, key: str) -> float:
        status = self.index.status(key)
        return status.seconds if status else 0.0


def _data(run: RunConfig) -> str:
    original = run.dataset.options.get("stands_for")
    return f"{run.dataset.name} for {original}" if original else run.dataset.name


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{text} ({_number(count)})" for text, count in Counter(texts).most_common()]


def _number(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _range(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 3600 else f"{seconds / 3600:,.2f} h"
