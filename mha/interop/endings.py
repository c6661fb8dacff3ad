"""What modules of ``transformers`` do after attention, which stays theirs when a layer of ours takes the place.

:Taught in: in_the_transformer.
"""

from torch import Tensor, nn

from mha.checks import checked


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


DROPPED = ("resid_dropout", "residual_dropout", "hidden_dropout", "output_dropout", "out_drop", "proj_drop")


@checked
def ending_of(module: nn.Module) -> Ending:
    """Return what a module does after attention.

    :param module: an attention of a model of ``transformers``.
    """
    output = getattr(module, "output", None)
    place = output if isinstance(getattr(output, "LayerNorm", None), nn.Module) else module
    norm = getattr(place, "LayerNorm", None)
    dropout = next((one for name in DROPPED if (one := getattr(module, name, None))), None)
    if isinstance(dropout, float):
        dropout = nn.Dropout(dropout).train(module.training)
    if isinstance(norm, nn.Module) and not isinstance(dropout, nn.Module):
        dropout = getattr(place, "dropout", None)
    return Ending(dropout if isinstance(dropout, nn.Module) else None, norm if isinstance(norm, nn.Module) else None)
