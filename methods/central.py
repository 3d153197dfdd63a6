"""Central training: the data of all clients in one place, the upper anchor of a table.

No paper: one model takes as many steps in a round as a client takes on average, on batches from the samples of all
clients. This is what the data allow with the steps of one client and without federation.
"""

from methods.core.rules import ClientRule, register


@register("client", "central")
class Central(ClientRule):
    """One client that has all samples."""

    pools_data = True
