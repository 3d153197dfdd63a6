"""What a rule does where a paper and its authors' code differ."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from methods.core.rules import Rule


class VariantRule(Rule):
    """A rule whose paper and authors' code differ.

    The default of a field is what the paper says. ``reference`` lists what the authors' code does instead. A field that
    is null takes the value of the ``variant``, so that each difference can be chosen alone.
    """

    reference: ClassVar[Mapping[str, Any]] = {}
    variant: Literal["paper", "reference"] = "paper"

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in values.items() if not (value is None and key in cls.reference)}
        chosen = cls.reference if given.get("variant") == "reference" else {}
        return {**chosen, **given}
