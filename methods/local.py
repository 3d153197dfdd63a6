"""Local training: every client alone, the lower anchor of a table.

No paper: each client goes on from its own last model, nothing is averaged, and its own model answers. Numbers are means
over clients of each one's model on the same test set. A federation that does not beat it is of no use to its clients.
"""

from methods.core.rules import ClientRule, register
from methods.core.vectors import BODY, HEAD, NORM, OTHER_NORM


@register("client", "local")
class Local(ClientRule):
    """All parameters and statistics stay at their client."""

    personal = (BODY, HEAD, NORM, OTHER_NORM)
    buffers = "local"
    needs = {"prediction": "personal"}
