"""The settings that the words of ``run`` describe, in Hydra's override grammar.

``GROUP=NAME`` chooses a file of ``conf/GROUP``, ``KEY=VALUE`` sets a key, ``+KEY=VALUE`` adds it, ``~KEY`` removes it.
``dataset.options.KEY=VALUE`` sets any option that the data set has, and ``results=FOLDER`` is ``paths.results=FOLDER``.
With ``-m`` the values ``a,b``, ``range(0,3)`` and ``glob(fed*)`` are swept, and every combination is one configuration.
Hydra parses the words. `benchmark.config.compose` composes the files, as for tables, so that both give equal runs.
"""

from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from benchmark.config.compose import group_names
from benchmark.errors import ConfigError, wrong


class _Files:
    """Tells Hydra's ``glob()`` which files a group has."""

    def get_group_options(self, group: str, results_filter: object = None) -> list[str]:
        """Names of the files."""
        return group_names(group)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """The settings of one run: key, with ``+`` or ``~`` as written -> value. Several values of a key are an error."""
    return {key: value for key, (value,) in axes_of(words, many=False).items()}


def axes_of(words: Sequence[str], many: bool = True) -> dict[str, list[Any]]:
    """The settings of a sweep: key, with ``+`` or ``~`` as written -> its values. The last word of a key counts.

    `ConfigError` for a word that is not in the grammar, or several values where not ``many`` are allowed.
    """
    return {
        override.get_key_element(): _values(override, many) for override in (_parsed(word) for word in words)
    }


def _parsed(word: str) -> Override:
    try:
        (override,) = OverridesParser.create(_Files()).parse_overrides([word])  # type: ignore[arg-type]
    except HydraException as error:
        expected = "KEY=VALUE; a value with special characters is written in quotes, KEY=\"'VALUE'\""
        raise ConfigError(wrong("run", word, expected)) from error
    if override.package is not None:
        raise ConfigError(wrong("run", word, f"{override.key_or_group}=VALUE, without a package"))
    if "${" in word:
        raise ConfigError(wrong("run", word, "a value, and no reference to another"))
    return override


def _values(override: Override, many: bool) -> list[Any]:
    """The values of a sweep, or the one value."""
    key, word = override.get_key_element(), override.input_line
    if not override.is_sweep_override():
        return [override.value()]
    if not override.is_discrete_sweep():
        raise ConfigError(wrong(key, word, "a list of values: a,b,c or range(0,3)"))
    texts = list(override.sweep_string_iterator())
    if not many:
        values = ",".join(texts)
        raise ConfigError(
            wrong(key, values, f"one value; with -m there is one run for each. A list is written [{values}]")
        )
    if not texts:
        raise ConfigError(wrong(key, word, "a pattern that fits a name", known=group_names(key)))
    return [_parsed(f"{key}={text}").value() for text in texts]
