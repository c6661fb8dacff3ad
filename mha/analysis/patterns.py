"""Rules of where a head might look: for each query, which keys would be right.

Every function returns a boolean tensor, True at the right keys; a query may have none, one or several. Except for
:func:`offset`, a right key is never after its query, so the rules suit a language model.

:Taught in: reading_heads.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mha.checks import check_whole, checked, described


def check_tokens(tokens: Tensor) -> None:
    """Refuse what is no batch of token numbers."""
    if 0 in tokens.shape or tokens.dtype == torch.uint8 or int(tokens.min()) < 0:
        raise ValueError(
            f"tokens are {described(tokens)}: give (batch, sequence) of torch.long, not empty, none negative"
        )


@checked
def offset(n: int, steps: int, *, keys: int | None = None) -> Bool[Tensor, "i j"]:
    """Look a fixed number of steps away.

    :param n: how many queries there are.
    :param steps: how far away the right key is: 0 is the token itself, −1 the previous one, 1 the next.
    :param keys: how many keys there are; n unless given. With more than n the last query is at the last key.
    :Taught in: reading_heads.
    """
    keys = n if keys is None else keys
    check_whole(n=n, keys=keys)
    return torch.arange(n)[:, None] + (keys - n) + steps == torch.arange(keys)


@checked
def first(n: int) -> Bool[Tensor, "i j"]:
    """Attend to the first token, from everywhere but itself.

    :param n: how many tokens there are.
    :Taught in: reading_heads.
    """
    check_whole(n=n)
    targets = torch.zeros(n, n, dtype=torch.bool)
    targets[1:, 0] = True
    return targets


@checked
def induction(tokens: Int[Tensor, "b n"]) -> Bool[Tensor, "b n n"]:
    """Attend to the token that followed an earlier occurrence of this token: after A B … A, at B.

    :param tokens: token numbers, (b, n).
    :Source: Olsson et al. 2022, section "Induction heads".
    :Taught in: reading_heads.
    """
    check_tokens(tokens)
    after = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    after[:, :, 1:] = tokens[:, :, None] == tokens[:, None, :-1]
    return after & torch.ones_like(after[0]).tril()


@checked
def same(tokens: Int[Tensor, "b n"]) -> Bool[Tensor, "b n n"]:
    """Attend to earlier occurrences of the same token.

    :param tokens: token numbers, (b, n).
    :Taught in: reading_heads.
    """
    check_tokens(tokens)
    return (tokens[:, :, None] == tokens[:, None]) & torch.ones(*tokens.shape[1:] * 2, dtype=torch.bool).tril(-1)


@checked
def separator(tokens: Int[Tensor, "b n"], marks: Sequence[int]) -> Bool[Tensor, "b n n"]:
    """Attend to a separator, up to this token: a head that has nothing to do often rests there.

    :param tokens: token numbers, (b, n).
    :param marks: the numbers of the tokens that separate.
    :Source: Clark et al. 2019, section 3.2.
    :Taught in: reading_heads.
    """
    check_tokens(tokens)
    check_whole(None, **{f"marks[{n}]": mark for n, mark in enumerate(marks)})
    is_mark = torch.isin(tokens, torch.tensor(list(marks)))
    return is_mark[:, None] & torch.ones(*tokens.shape[1:] * 2, dtype=torch.bool).tril()


@checked
def rarest(tokens: Int[Tensor, "b n"], counts: Int[Tensor, "w"]) -> Bool[Tensor, "b n n"]:
    """Attend to the rarest token up to this one; several if equally rare.

    The first token has no choice and so no target.

    :param tokens: token numbers, (b, n).
    :param counts: how often each token of the vocabulary occurs, (vocabulary,).
    :Source: Voita et al. 2019, section 5.2.3; it looks at the whole sentence.
    :Taught in: reading_heads.
    """
    check_tokens(tokens)
    if counts.numel() <= int(tokens.max()) or int(counts.min()) < 0:
        raise ValueError(
            f"counts {described(counts)}: give one for each of the tokens 0 to {int(tokens.max())}, none negative"
        )
    frequency = counts[tokens]
    past = torch.ones(*tokens.shape[1:] * 2, dtype=torch.bool).tril()
    found = (frequency[:, None] == frequency.cummin(1).values[:, :, None]) & past
    found[:, 0] = False
    return found


@checked
def matching(tokens: Int[Tensor, "b n"], pairs: Mapping[int, int], *, nested: bool = False) -> Bool[Tensor, "b n n"]:
    """Look from each closing bracket at the bracket that it closes.

    A bracket that closes nothing, or the wrong kind, has no target.

    :param tokens: token numbers, (b, n).
    :param pairs: the closing token of each opening one.
    :param nested: whether only brackets with others inside count; all do unless given.
    :Raises: ValueError where a token both opens and closes.
    :Taught in: reading_heads.
    """
    return _brackets(tokens, pairs, nested)[0]


@checked
def still_open(tokens: Int[Tensor, "b n"], pairs: Mapping[int, int], *, nested: bool = False) -> Bool[Tensor, "b n n"]:
    """Attend from each token to the innermost bracket that is still open after it: the one that must close next.

    :param tokens: token numbers, (b, n).
    :param pairs: the closing token of each opening one.
    :param nested: whether only tokens count for which the last opener is the wrong one, because its bracket is closed.
    :Raises: ValueError where a token both opens and closes.
    :Taught in: reading_heads.
    """
    return _brackets(tokens, pairs, nested)[1]


def _brackets(tokens: Tensor, pairs: Mapping[int, int], nested: bool) -> tuple[Tensor, Tensor]:
    """Walk through each sequence with the stack of open brackets."""
    check_tokens(tokens)
    if set(pairs) & set(pairs.values()):
        raise ValueError(f"pairs {dict(pairs)}: a token cannot both open and close")
    closes, waits = torch.zeros(2, *tokens.shape, tokens.shape[1], dtype=torch.bool)
    for b, line in enumerate(tokens.tolist()):
        waiting, last = [], -1  # positions of openers; the position of the last opener
        for i, token in enumerate(line):
            if token in pairs:
                waiting.append(i)
                last = i
            elif token in pairs.values() and waiting:
                start = waiting.pop()
                closes[b, i, start] = pairs[line[start]] == token and (not nested or last != start)
            if waiting:
                waits[b, i, waiting[-1]] = not nested or last != waiting[-1]
    return closes, waits
