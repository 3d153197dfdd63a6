"""FedRep: Exploiting Shared Representations for Personalized Federated Learning.

Collins, Hassani, Mokhtari, Shakkottai, ICML 2021, https://arxiv.org/abs/2102.07078

Algorithm 1: the body (representation) phi is shared, the head h_k stays at client k. A participant loads the global
body, trains its own head alone with the body frozen, then the body alone with the head frozen, and sends the body up;
the server takes the mean of the bodies. The authors' code weighs clients equally for images and by size for text
(``method.server.weights``), and after the last round trains every head once more, which is left out here.
"""

from pydantic import Field

from methods.core.contexts import ClientContext, Phase
from methods.core.rules import ClientRule, register
from methods.core.vectors import BODY, HEAD, NORM, OTHER_NORM


@register("client", "fedrep")
class FedRep(ClientRule):
    """Personal head, shared body, trained in turns.

    ``E_h``: local epochs on the head, then ``E_b`` epochs on the body with its normalisation layers (null: as the run).
    """

    personal = (HEAD,)
    owns_head = True
    needs = {"prediction": "personal"}

    E_h: int | None = Field(ge=1)
    E_b: int | None = Field(ge=1)

    def phases(self, ctx: ClientContext) -> tuple[Phase, ...]:
        """E_h epochs on h_k, then E_b epochs on phi; the frozen group does not move, nor does momentum pass over."""
        return (
            Phase(groups=(HEAD,), epochs=self.E_h),
            Phase(groups=(BODY, NORM, OTHER_NORM), epochs=self.E_b),
        )
