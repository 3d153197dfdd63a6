"""Report files and functions that are too long: what `make check` runs.

Blank lines, comments and docstrings of a function do not count.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("benchmark", "datasets", "methods", "partitions", "scripts", "tests")
LINES_PER_FILE = 400
LINES_OF_CODE_PER_FUNCTION = 40


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, source: list[str]) -> int:
    """Count the lines of a function that hold code, its decorators left out."""
    numbers = set(range(function.lineno, (function.end_lineno or 0) + 1))
    if ast.get_docstring(function) is not None:
        numbers -= set(range(function.body[0].lineno, (function.body[0].end_lineno or 0) + 1))
    return sum(1 for n in numbers if source[n - 1].strip() and not source[n - 1].lstrip().startswith("#"))


def too_long(path: Path) -> Iterator[str]:
    """Yield a message for the file and for each of its functions that exceeds its limit."""
    text = path.read_text()
    source = text.splitlines()
    name = path.relative_to(ROOT)
    if len(source) > LINES_PER_FILE:
        yield f"{name}: {len(source)} lines; expected at most {LINES_PER_FILE}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = code_lines(node, source)
            if length > LINES_OF_CODE_PER_FUNCTION:
                expected = f"expected at most {LINES_OF_CODE_PER_FUNCTION}"
                yield f"{name}:{node.lineno}: {node.name} has {length} lines of code; {expected}"


if __name__ == "__main__":
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    sys.exit("\n".join(message for path in paths for message in too_long(path)) or 0)
