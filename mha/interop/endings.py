"""What modules of ``transformers`` do after attention, which stays theirs when a layer of ours takes the place.

:Taught in: in_the_transformer.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from mha.checks import checked
from mha.interop.structure import shape_of


class Ending(nn.Module):
    """What BERT and its kin do after attention: dropout, the sum with the input, and a norm.

    Without a norm it is dropout alone; without dropout it is nothing.
    """

    @checked
    def __init__(self, dropout: nn.Module | None = None, norm: nn.Module | None = None) -> None:
        """Keep the modules, which stay those of the model.

        :param dropout: their module, or None.
        :param norm: their module, or None.
        """
        super().__init__()
        self.dropout, self.norm = dropout, norm

    def forward(self, said_by_heads: Tensor, x: Tensor) -> Tensor:
        """Finish what the heads say about the tokens.

        :param said_by_heads: the output of attention, (b, n, d_model).
        :param x: its input, (b, n, d_model).
        """
        if self.dropout is not None:
            said_by_heads = self.dropout(said_by_heads)
        return said_by_heads if self.norm is None else self.norm(said_by_heads + x)


ENDINGS: dict[str, Callable[[Any], Ending]] = {
    "AlbertAttention": lambda module: Ending(module.output_dropout, module.LayerNorm),
    "BertAttention": lambda module: Ending(module.output.dropout, module.output.LayerNorm),
    "GPT2Attention": lambda module: Ending(module.resid_dropout),
}


@checked
def ending_of(module: nn.Module) -> Ending:
    """Return what a module does after attention.

    :param module: an attention of a model of ``transformers``.
    """
    if type(module).__name__ in ENDINGS:
        return ENDINGS[type(module).__name__](module)
    return ENDINGS["BertAttention"](module) if shape_of(module) == "bert" else Ending()
