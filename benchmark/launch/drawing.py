"""The live view of a launch: the cells of tables filling up, and how far all runs are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.table import Table as TextTable
from rich.text import Text

from benchmark.launch.progress import Progress, is_over
from benchmark.runs.status import RunState

SIGNS = {
    RunState.DONE: ("■", "#", "green"),
    RunState.RUNNING: ("▸", ">", "yellow"),
    RunState.FAILED: ("✗", "x", "bold red"),
    RunState.DIVERGED: ("≈", "~", "magenta"),
    RunState.INTERRUPTED: ("‖", "=", "yellow"),
    RunState.WAITING: ("◦", "o", "cyan"),
    RunState.MISSING: ("·", ".", "dim"),
}
"""How a run is shown: by a sign, by one of ASCII where others cannot be printed, and in a style."""

GAP = 3
"""Columns of the terminal between two tables."""


@dataclass(frozen=True)
class Grid:
    """Runs laid out as the cells of a table.

    ``rows`` and ``columns`` are labels by key; ``cells`` are the runs of (row, column), as the keys of a dict.
    """

    name: str
    rows: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    cells: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, None]:
        """All runs, without duplicates."""
        return {key: None for cell in self.cells.values() for key in cell}


class Drawing:
    """Draws itself anew on every refresh, in as much detail as the terminal has room for."""

    def __init__(self, progress: Progress, grids: Sequence[Grid]) -> None:
        self._progress = progress
        self._grids = [grid for grid in grids if grid.runs]
        self._ascii = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The cells of all tables if there is room, with or without headings, else a line per table; then all runs."""
        self._ascii = options.ascii_only
        room = console.height - 4
        for with_heads in (True, False):
            lines = self._cells(options.max_width, with_heads)
            if lines is not None and len(lines) <= room:
                yield from lines
                break
        else:
            yield from self._bars(options, room)
        yield from self._overall(options)

    def _cells(self, room: int, with_heads: bool) -> list[Text] | None:
        """The tables, side by side as far as they fit; None if one is too wide."""
        shelves: list[list[list[Text]]] = []
        left = 0
        for grid in self._grids:
            block = self._block(grid, with_heads)
            width = max(line.cell_len for line in block)
            if width > room:
                return None
            if not shelves or width > left:
                shelves.append([])
                left = room
            shelves[-1].append([_padded(line, width) for line in block])
            left -= width + GAP
        return [line for shelf in shelves for line in _side_by_side(shelf)]

    def _block(self, grid: Grid, with_heads: bool) -> list[Text]:
        """The lines of a table, with one sign for each run of a cell."""
        states = self._progress.states
        rows = [[Text(label) for label in ("", *grid.rows.values())]]
        for column, label in grid.columns.items():
            cells = [[states[key] for key in grid.cells.get((row, column), ())] for row in grid.rows]
            head = Text(label if with_heads else "", "dim")
            rows.append([head, *(Text.assemble(*map(self._sign, cell)) for cell in cells)])
        number = sum(is_over(states[key]) for key in grid.runs)
        lines = [Text.assemble((grid.name, "bold"), f" {number}/{len(grid.runs)}")]
        widths = [max(text.cell_len for text in column) for column in rows]
        for place in range(0 if with_heads else 1, len(rows[0])):
            padded = [_padded(column[place], width) for column, width in zip(rows, widths, strict=True)]
            lines.append(Text(" ").join(padded))
        return [*lines, Text()]

    def _sign(self, state: RunState) -> tuple[str, str]:
        sign, plain, style = SIGNS.get(state, SIGNS[RunState.MISSING])
        return (plain if self._ascii else sign), style

    def _bars(self, options: ConsoleOptions, room: int) -> Iterator[RenderableType]:
        """A line for each table; the ones that are done give way if there are too many."""
        states = self._progress.states
        ended = {grid.name: sum(is_over(states[key]) for key in grid.runs) for grid in self._grids}
        shown = self._grids
        if len(shown) > room:
            shown = sorted(shown, key=lambda grid: ended[grid.name] == len(grid.runs))[: max(0, room - 1)]
        rows = []
        for grid in shown:
            number, total = ended[grid.name], len(grid.runs)
            failed = sum(states[key] is RunState.FAILED for key in grid.runs)
            words = f"{number}/{total}" + (f", {failed} failed" if failed else "")
            rows.append((Text(grid.name), ProgressBar(total, number, width=options.max_width // 3), words))
        yield _lines_of(rows)
        if len(shown) < len(self._grids):
            yield Text(f"and {len(self._grids) - len(shown)} more tables", "dim", no_wrap=True)

    def _overall(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        progress = self._progress
        bar = ProgressBar(1.0, progress.share, width=options.max_width // 4)
        yield _lines_of([(bar, ", ".join(progress.words()))])
        counts = progress.counts
        parts = [
            Text.assemble(self._sign(state), f" {counts[state]} {progress.name_of(state)}")
            for state in SIGNS
            if counts[state]
        ]
        yield Text("  ", no_wrap=True).join(parts)
        seeds = progress.seeds_over()
        if len(seeds) > 1:  # ``1 of 3 seeds complete, seed 1: 52/260``
            open_ = {seed: over for seed, over in seeds.items() if not all(over)}
            text = f"{len(seeds) - len(open_)} of {len(seeds)} seeds complete"
            for seed, over in list(open_.items())[:1]:
                text += f", seed {seed}: {sum(over)}/{len(over)}"
            yield Text(text, "dim", no_wrap=True)


def _lines_of(rows: Sequence[tuple[RenderableType, ...]]) -> TextTable:
    view = TextTable.grid(*(Column(no_wrap=True) for _ in rows[0]), padding=(0, 2, 0, 0))
    for row in rows:
        view.add_row(*row)
    return view


def _padded(text: Text, width: int) -> Text:
    text.pad_right(width - text.cell_len)
    return text


def _side_by_side(blocks: Sequence[list[Text]]) -> Iterator[Text]:
    """The lines of blocks from left to right; shorter blocks are filled up."""
    height = max(map(len, blocks))
    for place in range(height):
        yield Text(" " * GAP).join(
            block[place] if place < len(block) else Text(" " * block[0].cell_len) for block in blocks
        )
