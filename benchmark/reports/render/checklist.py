"""The answers to a reproducibility checklist as Markdown."""

from collections.abc import Sequence

from benchmark.reports.checklist import Answer
from benchmark.reports.render.markdown import escape


def render(title: str, preset: str, answers: Sequence[Answer]) -> str:
    """The whole file: a section for each question, with the items of the checklists that ask it."""
    parts = [
        f"# Reproducibility checklist: {escape(title)}, preset {escape(preset)}",
        "Answers from finished runs. Items: NeurIPS paper checklist, and the responsible NLP checklist of ACL (ARR).",
    ]
    for number, answer in enumerate(answers, start=1):
        parts.append(f"## {number}. {escape(answer.question)}\n\n*{escape(answer.items)}*")
        if answer.command:
            parts.append(f"```\n{answer.command}\n```")
        parts.append("\n".join(f"- {escape(line)}" for line in answer.lines))
    return "\n\n".join(parts) + "\n"
