"""Let a model generate: one token after the other, each chosen from the scores of the model for the next.

:Taught in: in_the_transformer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha.checks import LOOPS, check_no_nan, check_result, check_tensor, check_whole, checked, described

Choose = Callable[[Tensor], Tensor]


@checked
def greedy(logits: Float[Tensor, "b w"]) -> Int[Tensor, "b"]:
    """Choose the token with the highest score.

    :param logits: the scores of the next token, (b, vocabulary).
    :Shapes: returns (b,).
    :Raises: ValueError for NaN in the scores, and where there are none.
    :Taught in: in_the_transformer.
    """
    _check_logits(logits)
    return logits.argmax(-1)


def _check_logits(logits: Tensor) -> None:
    """Refuse scores among which there is nothing to choose."""
    check_tensor(2, logits=logits)
    if 0 in logits.shape:
        raise ValueError(f"logits has shape {tuple(logits.shape)}: there must be a sequence and a token to choose from")
    check_no_nan("logits", logits)


@checked
def sampling(generator: torch.Generator, *, temperature: float = 1.0, top_k: int | None = None) -> Choose:
    """Make a function that draws the next token at random, likely tokens more often.

    :param generator: where the random numbers come from.
    :param temperature: what scores are divided by; below 1 likely tokens become likelier still; 1 unless given.
    :param top_k: how many of the likeliest tokens can be drawn; all unless given.
    :Shapes: the function takes (b, vocabulary) and returns (b,).
    :Raises: ValueError for a temperature that is not positive, and for a ``top_k`` that is not between 1 and the number
        of tokens; by the function for NaN in the scores, and where the highest score of a row is infinite.
    :Taught in: in_the_transformer.
    """
    if top_k is not None:
        check_whole(top_k=top_k)
    if not temperature > 0:
        raise ValueError(
            f"temperature = {temperature}: it must be positive; to take the best token use mha.models.greedy"
        )

    def choose(logits: Float[Tensor, "b w"]) -> Int[Tensor, "b"]:
        _check_logits(logits)
        k = logits.shape[-1] if top_k is None else top_k
        if not 1 <= k <= logits.shape[-1]:
            raise ValueError(f"top_k = {k}: it must be between 1 and the number of tokens, {logits.shape[-1]}")
        best, tokens = logits.topk(k)
        if not logits.is_meta and not bool(best[:, 0].isfinite().all()):
            raise ValueError(
                f"logits of shape {tuple(logits.shape)} have a row whose highest score is infinite: it has no softmax"
            )
        drawn = torch.multinomial((best / temperature).softmax(-1), 1, generator=generator)
        return tokens.gather(-1, drawn)[:, 0]

    return choose


@checked
def unroll(
    next_logits: Callable[[Tensor], Tensor],
    tokens: Int[Tensor, "b n"],
    length: int,
    choose: Choose = greedy,
    stop: int | None = None,
) -> Int[Tensor, "b m"]:
    """Add tokens, one at a time; a sequence that has ended is padded with ``stop``.

    :param next_logits: a function from all tokens so far, (b, n), to the scores of the next, (b, vocabulary).
    :param tokens: token numbers to begin with, (b, n).
    :param length: at most so many tokens are added.
    :param choose: a function from scores (b, vocabulary) to token numbers (b,); :func:`greedy` unless given.
    :param stop: the number of the token that ends a sequence; once all have produced it the loop ends. None unless
        given.
    :Shapes: returns (b, n + length), or fewer columns.
    :Raises: ValueError for a length below 1, or a ``stop`` that is no token.
    :Taught in: in_the_transformer.
    """
    check_whole(1, LOOPS, length=length)
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(length):
        logits = next_logits(tokens)
        check_result("next_logits", logits, (len(tokens), -1))
        token = choose(logits)
        check_result("choose", token, (len(tokens),))
        if token.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"choose returned {described(token)}: it must return token numbers, torch.long")
        if stop is not None:
            if not 0 <= stop < logits.shape[-1]:
                raise ValueError(f"stop = {stop} is no token: there are {logits.shape[-1]}, numbered from 0")
            token = token.masked_fill(done, stop)
            done = done | (token == stop)
        tokens = torch.cat([tokens, token[:, None]], 1)
        if stop is not None and done.all():
            break
    return tokens


@checked
@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off for a while, and put the model back into its mode afterwards.

    :param model: any module of torch.
    """
    mode = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(mode)
