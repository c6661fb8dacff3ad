"""Linear attention and Gated DeltaNet: a state of fixed size is written token by token, and read with a product.

The state T is a matrix of d × c numbers for each head, d the width of a key and c that of a value. Writing a token adds
kᵀ u to it, where u is the token's value (linear attention), or what the value adds to what the key reads already (the
delta rule). Reading is q T. The same numbers come out in three forms:

- *recurrent*: token after token, one state at a time;
- *parallel*: one matrix of weights (i, j), as softmax attention has it;
- *chunked*: parallel within chunks of some tokens, recurrent from chunk to chunk.

On a GPU the kernels of flash-linear-attention compute the same (``form="fla"``), where that library is installed.

:Taught in: overwrite.
"""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha.checks import check_flag, check_floating, check_is_tensor, check_tensor, check_whole, described
from mha.functional import devices
from mha.functional.entmax import asked

LONGEST = 1.01  # how long a key of length 1 may be, with what half precision rounds
CHANNEL_CHUNK = 16  # tokens of a chunk where every channel decays by itself: it needs d numbers for each pair of tokens


def positive_features(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Make numbers positive: x + 1 where x is positive, eˣ elsewhere. This is elu(x) + 1.

    :param x: of any shape; the same comes out.
    :Raises: TypeError where x is no tensor of floating-point numbers.
    :Source: Katharopoulos et al. 2020.
    :Differs from the released code: eˣ itself, where elu(x) + 1 rounds small numbers to 0.
    :Taught in: overwrite.
    """
    check_floating(x=x)
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def share_by_sum(scores: Float[Tensor, "*l i j"]) -> Float[Tensor, "*l i j"]:
    """Divide each row of positive scores by its sum; hidden ones, −inf, become 0, and a row of nothing stays zeros.

    :param scores: (…, i, j), positive, or −inf where they are hidden.
    :Shapes: returns (…, i, j).
    :Raises: TypeError where scores are no tensor of floating-point numbers.
    :Taught in: overwrite.
    """
    check_tensor(scores=scores)
    scores = scores.masked_fill(scores == -torch.inf, 0)
    return scores / _or_one(scores.sum(-1, keepdim=True))


def linear_attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j c"],
    is_token: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    state: Float[Tensor, "b h d e"] | None = None,
    form: str = "chunked",
    chunk: int | None = None,
) -> tuple[Float[Tensor, "b h i c"], Float[Tensor, "b h d e"]]:
    """Read with the weights φ(q)·φ(k), divided by their sum, where φ makes numbers positive.

    The sum is kept as one more channel of the values, which is 1 for every token.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, h, j, d).
    :param v: the values, (b, h, j, c).
    :param is_token: which tokens are written, (b, h, 1, j), of which b and h may be 1; all unless given.
    :param is_causal: whether each query reads only what was written up to its own token; False unless given.
    :param state: the state after the earlier tokens, (b, h, d, c + 1); zeros unless given.
    :param form: "recurrent", "chunked", "parallel" or "fla", which give the same numbers; "chunked" unless given.
    :param chunk: how many tokens a chunk has; unless given 64, and 256 on a GPU.
    :Shapes: returns the head output (b, h, i, c) and the new state.
    :Raises: ValueError or TypeError for shapes and types that do not fit, and for ``is_causal`` with i ≠ j; for "fla"
        ValueError where nothing is on a GPU, ModuleNotFoundError without the library.
    :Source: Katharopoulos et al. 2020.
    :Taught in: overwrite.
    """
    check_flag(is_causal=is_causal)
    check_table_inputs(q, k, v, state, form, chunk, extra=1)
    _check_is_token(is_token, k)
    if is_causal and q.shape[-2] != k.shape[-2]:
        raise ValueError(
            f"is_causal = True with q {tuple(q.shape)} and k {tuple(k.shape)}: each token writes and reads, so there "
            "must be as many queries as keys"
        )
    return read_linear(q, k, v, is_token, is_causal=is_causal, state=state, form=form, chunk=chunk)


def read_linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_token: Tensor | None = None,
    *,
    is_causal: bool,
    state: Tensor | None = None,
    form: str = "chunked",
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Do what :func:`linear_attention` does, without checking its arguments.

    :param q: the queries, (b, h, i, d).
    :param k: the keys, (b, h, j, d).
    :param v: the values, (b, h, j, c).
    :param is_token: which tokens are written, (b, h, 1, j), of which b and h may be 1; all unless given.
    :param is_causal: whether each query reads only what was written up to its own token.
    :param state: the state after the earlier tokens, (b, h, d, c + 1); zeros unless given.
    :param form: "recurrent", "chunked", "parallel" or "fla", which give the same numbers; "chunked" unless given.
    :param chunk: how many tokens a chunk has; unless given 64, and 256 on a GPU.
    """
    kind, (q, k, v, state) = v.dtype, _wide(q, k, v, state)
    q, k, ones = positive_features(q), positive_features(k), torch.ones_like(v[..., :1])
    v = torch.cat([v, ones], -1)
    if is_token is not None:
        k = k.masked_fill(~is_token.mT, 0)
    with _in_given_types(q):
        if is_causal and form == "fla":
            found, state = _linear_by_library(q, k, v[..., :-1], _start(k, v, state), kind)
        elif is_causal and form == "chunked" and devices.multiplies_in(kind, k):
            found, state = _in_half(_Tokens(q, k, v), _start(k, v, state), kind, chunk or devices.chunk_for(k))
        elif is_causal:
            found, state = _FORMS[form](_Tokens(q, k, v), _start(k, v, state), chunk or devices.chunk_for(k))
        else:
            state = _start(k, v, state) + k.mT @ v
            found = q @ state
    return (found[..., :-1] / _or_one(found[..., -1:])).to(kind), state


def delta_rule(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n c"],
    beta: Float[Tensor, "b h n"] | None = None,
    log_decay: Float[Tensor, "b h n"] | Float[Tensor, "b h n d"] | None = None,
    *,
    erase: bool = True,
    negative_eigenvalues: bool = False,
    state: Float[Tensor, "b h d c"] | None = None,
    form: str = "chunked",
    chunk: int | None = None,
) -> tuple[Float[Tensor, "b h n c"], Float[Tensor, "b h d c"]]:
    """Overwrite what the key reads by the value, token after token, and read what is there then.

    T ← αT, then T ← T + β kᵀ(v − kT), then the output qT: the state decays, forgets what this key read, and learns the
    value. Without ``erase`` it is T ← αT + β kᵀv. With a decay for each channel of the key (KDA) α is one number for
    each row of T. Along a key of length 1 the state is multiplied by α(1 − β): a β above 1 turns its sign.

    :param q: the queries, (b, h, n, d).
    :param k: the keys, (b, h, n, d).
    :param v: the values, (b, h, n, c).
    :param beta: how much is overwritten, (b, h, n), between 0 and 1; 1 unless given.
    :param log_decay: the logarithm of α, (b, h, n), or (b, h, n, d) for one decay for each channel of the key, at most
        0; 0 unless given.
    :param erase: whether what the key reads is subtracted first; True unless given.
    :param negative_eigenvalues: whether ``beta`` may be as large as 2; False unless given.
    :param state: the state after the earlier tokens, (b, h, d, c); zeros unless given.
    :param form: "recurrent", "chunked", "parallel" or "fla", which give the same numbers; "chunked" unless given.
    :param chunk: how many tokens a chunk has; unless given 64, 256 on a GPU, and 16 with a decay for each channel.
    :Shapes: returns the head output (b, h, n, c) and the new state.
    :Raises: ValueError for keys longer than 1 where it erases, because they can make the state grow without bound; for
        ``beta`` or ``log_decay`` out of range or NaN; for another number of queries than of keys; ValueError or
        TypeError for shapes and types that do not fit; for "fla" ValueError where nothing is on a GPU, without
        ``erase`` or with a decay for each channel, TypeError for other numbers than torch.bfloat16 and torch.float16,
        ModuleNotFoundError without the library.
    :Source: Yang et al. 2024 for the delta rule in chunks, Yang et al. 2025 for the decay, Kimi Team 2025 for the decay
        of each channel, Grazzi et al. 2025 for β up to 2.
    :Differs from the released code: queries are not divided by √d; states are d × c; decays are added up between two
        tokens, never subtracted, so that nothing overflows.
    :Taught in: overwrite.
    """
    check_flag(erase=erase, negative_eigenvalues=negative_eigenvalues)
    check_table_inputs(q, k, v, state, form, chunk)
    _check_tokens(q, k, beta, log_decay, erase, negative_eigenvalues)
    return apply_delta_rule(q, k, v, beta, log_decay, erase=erase, state=state, form=form, chunk=chunk)


def apply_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    log_decay: Tensor | None,
    *,
    erase: bool,
    state: Tensor | None = None,
    form: str = "chunked",
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Do what :func:`delta_rule` does, without checking its arguments.

    :param q: the queries, (b, h, n, d).
    :param k: the keys, (b, h, n, d).
    :param v: the values, (b, h, n, c).
    :param beta: how much is overwritten, (b, h, n); None is 1.
    :param log_decay: the logarithm of α, (b, h, n) or (b, h, n, d); None is 0.
    :param erase: whether what the key reads is subtracted first.
    :param state: the state after the earlier tokens, (b, h, d, c); zeros unless given.
    :param form: "recurrent", "chunked", "parallel" or "fla", which give the same numbers; "chunked" unless given.
    :param chunk: how many tokens a chunk has; unless given 64, 256 on a GPU, and 16 with a decay for each channel.
    """
    kind, (q, k, v, beta, log_decay, state) = v.dtype, _wide(q, k, v, beta, log_decay, state)
    tokens, state = _Tokens(q, k, v, beta, log_decay, erase), _start(k, v, state)
    if chunk is None:
        chunk = CHANNEL_CHUNK if tokens.by_channel else devices.chunk_for(k)
    with _in_given_types(q):
        if form == "fla":
            found, state = _delta_by_library(tokens, state, kind)
        else:
            found, state = _FORMS[form](tokens, state, chunk)
    return found.to(kind), state


def delta_weights(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    beta: Float[Tensor, "b h n"] | None = None,
    log_decay: Float[Tensor, "b h n"] | Float[Tensor, "b h n d"] | None = None,
    *,
    erase: bool = True,
    negative_eigenvalues: bool = False,
    scores: Float[Tensor, "b h n n"] | None = None,
) -> Float[Tensor, "b h n n"]:
    """Say how much of each value is in each output: the output of :func:`delta_rule` is these weights times the values.

    They may be negative, and a row does not sum to 1.

    :param q: the queries, (b, h, n, d).
    :param k: the keys, (b, h, n, d).
    :param beta: how much is overwritten, (b, h, n), between 0 and 1; 1 unless given.
    :param log_decay: the logarithm of α, (b, h, n), or (b, h, n, d) for one decay for each channel of the key, at most
        0; 0 unless given.
    :param erase: whether what the key reads is subtracted first; True unless given.
    :param negative_eigenvalues: whether ``beta`` may be as large as 2; False unless given.
    :param scores: (b, h, n, n), in the place of q kᵀ; q kᵀ unless given. With a decay for each channel they are in the
        place of q kᵀ with the decays between the two tokens, see :func:`decayed_scores`.
    :Shapes: returns the weights (b, h, n, n).
    :Raises: as :func:`delta_rule`.
    :Taught in: overwrite.
    """
    check_flag(erase=erase, negative_eigenvalues=negative_eigenvalues)
    check_table_inputs(q, k, k, None, "parallel", None)
    _check_tokens(q, k, beta, log_decay, erase, negative_eigenvalues)
    if scores is not None:
        _check_scores(scores, q)
    return make_delta_weights(q, k, beta, log_decay, erase=erase, scores=scores)


def make_delta_weights(
    q: Tensor, k: Tensor, beta: Tensor | None, log_decay: Tensor | None, *, erase: bool, scores: Tensor | None = None
) -> Tensor:
    """Do what :func:`delta_weights` does, without checking its arguments.

    :param q: the queries, (b, h, n, d).
    :param k: the keys, (b, h, n, d).
    :param beta: how much is overwritten, (b, h, n); None is 1.
    :param log_decay: the logarithm of α, (b, h, n) or (b, h, n, d); None is 0.
    :param erase: whether what the key reads is subtracted first.
    :param scores: (b, h, n, n), in the place of q kᵀ; q kᵀ unless given.
    """
    q, k, beta, log_decay, scores = _wide(q, k, beta, log_decay, scores)
    with _in_given_types(q):
        return _Table.of(_Tokens(q, k, k, beta, log_decay, erase), scores).weights()


def decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Multiply queries with what the decays between two tokens leave of each channel of a key, without checks.

    :param q: the queries, (b, h, n, d).
    :param k: the keys, (b, h, n, d).
    :param log_decay: the logarithms of the decays, (b, h, n, d).
    """
    q, k, log_decay = _wide(q, k, log_decay)
    with _in_given_types(q):
        return _Table.of(_Tokens(q, k, k, None, log_decay)).reads


# ---- the three forms


class _Tokens(NamedTuple):
    """What some tokens ask, hold and write; ``beta`` and ``log_decay`` are None where they would be 1 and 0."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor | None = None
    log_decay: Tensor | None = None
    erase: bool = False

    @property
    def by_channel(self) -> bool:
        """Whether every channel of a key has a decay of its own."""
        return self.log_decay is not None and self.log_decay.ndim == self.k.ndim

    def cut(self, size: int) -> "_Tokens":
        """Cut the tokens into chunks, (b, h, chunks, size, …); tokens that write nothing pad the last one."""
        short = -self.q.shape[2] % size

        def chunks(x: Tensor, *after: int) -> Tensor:
            return F.pad(x, (*after, 0, short)).unflatten(2, (-1, size))  # type: ignore[no-any-return]

        beta, log_decay = (
            None if x is None else chunks(x, *[0, 0] * (x.ndim - 3)) for x in (self.beta, self.log_decay)
        )
        q, k, v = (chunks(x, 0, 0) for x in (self.q, self.k, self.v))
        return _Tokens(q, k, v, beta, log_decay, self.erase)


class _Table(NamedTuple):
    """What is known of a chunk before the state is: who reads whom, and what must be solved.

    ``reads`` (…, i, j) is q kᵀ and ``system`` β k kᵀ, both with the decay between the two tokens, and nothing above the
    diagonal; ``left`` (…, n, 1) is what decay leaves of the state at each token, ``last`` of each token at the end. If
    every channel decays by itself, both are (…, n, d).
    """

    tokens: _Tokens
    reads: Tensor
    system: Tensor | None
    left: Tensor | None
    last: Tensor | None

    @classmethod
    def of(cls, tokens: _Tokens, scores: Tensor | None = None) -> "_Table":
        """Multiply queries and keys with keys."""
        if tokens.by_channel:
            return cls._by_channel(tokens, scores)
        between = None if tokens.log_decay is None else _between(tokens.log_decay)

        def lower(x: Tensor) -> Tensor:
            return x.tril() if between is None else x * between

        reads = lower(tokens.q @ tokens.k.mT if scores is None else scores)
        system = lower(_times(tokens.beta, tokens.k) @ tokens.k.mT) if tokens.erase else None
        left = None if tokens.log_decay is None else tokens.log_decay.cumsum(-1).exp()[..., None]
        last = None if between is None else between[..., -1, :, None]
        return cls(tokens, reads, system, left, last)

    @classmethod
    def _by_channel(cls, tokens: _Tokens, scores: Tensor | None) -> "_Table":
        """Multiply queries and keys with what is left of each channel of the keys before them: one row at a time."""
        logs: Any = tokens.log_decay
        between = _between(logs.mT)  # (…, d, i, j)
        near = (tokens.k.mT[..., None, :] * between).movedim(-3, -2).contiguous()  # (…, i, d, j)

        def rows(x: Tensor) -> Tensor:
            return (x[..., None, :] @ near).squeeze(-2)

        reads = rows(tokens.q) if scores is None else scores.tril()
        system = rows(_times(tokens.beta, tokens.k)) if tokens.erase else None
        return cls(tokens, reads, system, logs.cumsum(-2).exp(), between[..., -1, :].mT.contiguous())

    def solve(self, wanted: Tensor) -> Tensor:
        """Find what is really written, when each token subtracts what the tokens before it wrote."""
        wanted = _times(self.tokens.beta, wanted)
        if self.system is None:
            return wanted
        return torch.linalg.solve_triangular(  # type: ignore[no-any-return]
            self.system, wanted, upper=False, unitriangular=True
        )

    def weights(self) -> Tensor:
        """Say how much of each value is in each output: ``reads``, times the inverse of the system, times β."""
        found = self.reads
        if self.system is not None:
            found = torch.linalg.solve_triangular(self.system, found, upper=False, left=False, unitriangular=True)
        return found if self.tokens.beta is None else found * self.tokens.beta[..., None, :]


def decay_between(log_decay: Float[Tensor, "*l n"]) -> Float[Tensor, "*l n n"]:
    """Say how much of token j is left when token i is read: the decays after j up to i, multiplied; 0 where j > i.

    Logarithms are added up between the two tokens and hidden *before* they are exponentiated. So nothing is subtracted,
    no exponent is above 0, and a decay of 0, whose logarithm is −inf, gives zeros.

    :param log_decay: the logarithm of what is left at each token, (…, n), at most 0.
    :Shapes: returns (…, n, n).
    :Raises: TypeError where ``log_decay`` is no tensor of floating-point numbers, ValueError where one is above 0.
    :Taught in: overwrite.
    """
    check_tensor(log_decay=log_decay)
    if log_decay.ndim < 1 or asked(~(log_decay <= 0).all(), otherwise=False):
        raise ValueError(
            f"log_decay of shape {tuple(log_decay.shape)} must have an axis of tokens and no number above 0: it is the "
            "logarithm of what is left, a share between 0 and 1"
        )
    return _between(log_decay)


def _between(log_decay: Tensor) -> Tensor:
    n = log_decay.shape[-1]
    square = torch.ones(n, n, dtype=torch.bool, device=log_decay.device)
    later = log_decay[..., None].expand(*log_decay.shape, n).masked_fill(~square.tril(-1), 0)
    return later.cumsum(-2).masked_fill(~square.tril(), -torch.inf).exp()


def _chunked(tokens: _Tokens, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Parallel within chunks, recurrent from chunk to chunk."""
    n = tokens.q.shape[2]
    if min(chunk, n) == 1:
        return _recurrent(tokens, state)
    table = _Table.of(tokens.cut(min(chunk, n)))
    if devices.sums_states(state) and table.system is table.left is tokens.beta is None:
        return _summed(table, state, n)
    q, k, v = table.tokens.q, table.tokens.k, table.tokens.v
    asking = _times(table.left, q)
    if tokens.erase:
        written, known = table.solve(torch.cat([v, _times(table.left, k)], -1)).split([v.shape[-1], k.shape[-1]], -1)
    else:
        written, known = table.solve(v), None
    writing, found = _times(table.last, k).mT, []
    for one in range(q.shape[2]):
        new = written[:, :, one] if known is None else written[:, :, one] - known[:, :, one] @ state
        found.append(asking[:, :, one] @ state + table.reads[:, :, one] @ new)
        kept = state if table.left is None else table.left[:, :, one, -1:].mT * state
        state = kept + writing[:, :, one] @ new
    return torch.cat(found, 2)[:, :, :n], state


def _summed(table: _Table, state: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Parallel within chunks and between them: where nothing is erased and nothing decays, states are sums."""
    q, k, v = table.tokens.q, table.tokens.k, table.tokens.v
    states = torch.cat([state[:, :, None], k.mT @ v], 2).cumsum(2)  # before each chunk, and after the last one
    found = q @ states[:, :, :-1] + table.reads @ v
    return found.flatten(2, 3)[:, :, :n], states[:, :, -1]


def _in_half(tokens: _Tokens, state: Tensor, kind: torch.dtype, chunk: int) -> tuple[Tensor, Tensor]:
    """Linear attention with products in 16 bits; what adds up over many tokens, states and sums of weights, is wide.

    :param tokens: features of queries and keys, (b, h, n, d), and values with the column of ones, in float32.
    """
    n = tokens.q.shape[2]
    cut = tokens.cut(min(chunk, n))
    q, k, v = cut.q.to(kind), cut.k.to(kind), cut.v[..., :-1].to(kind)
    written = torch.cat([(k.mT @ v).to(state), k.to(state).sum(-2)[..., None]], -1)
    states = torch.cat([state[:, :, None], written], 2).cumsum(2)  # before each chunk, and after the last one
    before, reads = states[:, :, :-1], (q @ k.mT).tril()
    found = (reads @ v).to(state) + (q @ before[..., :-1].to(kind)).to(state)
    sums = reads.to(state).sum(-1, keepdim=True) + q.to(state) @ before[..., -1:]
    return torch.cat([found, sums], -1).flatten(2, 3)[:, :, :n], states[:, :, -1]


def _parallel(tokens: _Tokens, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """One chunk for all tokens."""
    del chunk
    table = _Table.of(tokens)
    wanted = tokens.v - _times(table.left, tokens.k) @ state if tokens.erase else tokens.v
    new = table.solve(wanted)
    kept = state if table.left is None else table.left[:, :, -1:].mT * state
    return _times(table.left, tokens.q) @ state + table.reads @ new, kept + _times(table.last, tokens.k).mT @ new


def _recurrent(tokens: _Tokens, state: Tensor, chunk: int = 1) -> tuple[Tensor, Tensor]:
    """Write and read token after token, as the formula says it."""
    del chunk
    found = []
    for n in range(tokens.q.shape[2]):
        q, k, new = (x[:, :, n : n + 1] for x in tokens[:3])
        if tokens.log_decay is not None:
            log_decay = tokens.log_decay[:, :, n]
            state = (log_decay[..., None] if tokens.by_channel else log_decay[..., None, None]).exp() * state
        if tokens.erase:
            new = new - k @ state
        if tokens.beta is not None:
            new = tokens.beta[:, :, n, None, None] * new
        state = state + k.mT @ new
        found.append(q @ state)
    return torch.cat(found, 2), state


_FORMS: dict[str, Callable[[_Tokens, Tensor, int], tuple[Tensor, Tensor]]] = {
    "recurrent": _recurrent,
    "chunked": _chunked,
    "parallel": _parallel,
}


LIBRARY = "flash-linear-attention"
FORMS = (*_FORMS, "fla")
FADED = -50.0  # the logarithm of a decay that leaves nothing in float32; the library subtracts sums of them


def _kernel(module: str, name: str, q: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    """Find a kernel of flash-linear-attention; refuse where it cannot run."""
    if not devices.is_card(q):
        raise ValueError(f'form = "fla" with tensors on {q.device}: these kernels run on a GPU. Take form="chunked"')
    try:
        found = getattr(importlib.import_module(f"fla.ops.{module}"), name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f'form = "fla" needs the library {LIBRARY}, which cannot be loaded here ({error}): pip install {LIBRARY}, '
            'or take form="chunked"'
        ) from error
    return found  # type: ignore[no-any-return]


def _linear_by_library(q: Tensor, k: Tensor, v: Tensor, state: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Let the library read with features of queries and keys, (b, h, n, d); the sums of the weights are made here."""
    kernel = _kernel("linear_attn", "chunk_linear_attn", q)
    if kind == torch.float64:
        raise TypeError(f'form = "fla" with {kind}: these kernels compute in float32 at most. Take form="chunked"')
    given = {name: x.to(kind).transpose(1, 2).contiguous() for name, x in (("q", q), ("k", k), ("v", v))}
    before = state[..., :-1].contiguous()
    read, after = kernel(**given, scale=1.0, initial_state=before, output_final_state=True, normalize=False)
    q, k = (given[name].transpose(1, 2).to(q) for name in ("q", "k"))  # as the kernel saw them
    sums = k.cumsum(2) + state[..., -1][:, :, None]
    found = torch.cat([read.transpose(1, 2).to(q), (q * sums).sum(-1, keepdim=True)], -1)
    return found, torch.cat([after.to(state), sums[:, :, -1, :, None]], -1)


def _delta_by_library(tokens: _Tokens, state: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Let the library write and read, token after token: with a decay Gated DeltaNet, without one DeltaNet."""
    module = "delta_rule" if tokens.log_decay is None else "gated_delta_rule"
    kernel = _kernel(module, f"chunk_{module}", tokens.q)
    if not tokens.erase:
        raise ValueError('erase = False with form = "fla": these kernels always erase. Take form="chunked"')
    if tokens.by_channel:
        raise ValueError(
            'a decay for each channel with form = "fla": these kernels have one for each head. Take form="chunked"'
        )
    if kind not in (torch.bfloat16, torch.float16):
        raise TypeError(
            f'form = "fla" with {kind}: these kernels compute in half precision. Convert q, k and v to torch.bfloat16, '
            'or take form="chunked"'
        )
    beta = torch.ones_like(tokens.k[..., 0]) if tokens.beta is None else tokens.beta
    named = {"q": tokens.q, "k": tokens.k, "v": tokens.v, "beta": beta}
    given = {name: x.to(kind).transpose(1, 2).contiguous() for name, x in named.items()}
    if tokens.log_decay is not None:
        given["g"] = tokens.log_decay.float().clamp(min=FADED).transpose(1, 2).contiguous()
    read, after = kernel(**given, scale=1.0, initial_state=state.contiguous(), output_final_state=True)
    return read.transpose(1, 2), after.to(state)


def _times(factor: Tensor | None, x: Tensor) -> Tensor:
    """Multiply each token of x by its number; None is 1."""
    if factor is None:
        return x
    return (factor if factor.ndim == x.ndim else factor[..., None]) * x


def _in_given_types(x: Tensor) -> AbstractContextManager[Any]:
    """Let nobody change types inside; the meta device knows no other ones."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def _or_one(x: Tensor) -> Tensor:
    return x.masked_fill(x == 0, 1)


def _start(k: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state


def _wide(*tensors: Tensor | None) -> list[Any]:
    """Compute in float32 at least: a state adds up thousands of tokens."""
    return [None if x is None else x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


# ---- what does not fit


def check_table_inputs(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, form: str, chunk: int | None, *, extra: int = 0
) -> None:
    """Refuse queries, keys, values and a state that do not belong together."""
    check_tensor(4, q=q, k=k, v=v)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have different dtypes {q.dtype}, {k.dtype}, {v.dtype}: convert them to one")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v are on {q.device}, {k.device}, {v.device}: move them to one device")
    if not q.shape[:2] == k.shape[:2] == v.shape[:2] or q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2]:
        raise ValueError(f"q, k and v must have one batch, as many heads, keys as wide as queries: {shapes}")
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError(f"an empty sequence, batch or width cannot be read: {shapes}")
    check_form(form)
    if chunk is not None:
        check_whole(chunk=chunk)
    if state is not None:
        check_tensor(4, state=state)
        wanted = (*k.shape[:2], k.shape[3], v.shape[3] + extra)
        if tuple(state.shape) != wanted or state.device != k.device:
            raise ValueError(
                f"state has shape {tuple(state.shape)} on {state.device}, but for {shapes} it must be {wanted} on "
                f"{k.device}"
            )
        if state.dtype != torch.promote_types(k.dtype, torch.float32):
            raise TypeError(f"state has dtype {state.dtype}, but q, k and v have {k.dtype}: keep the one that came out")


def check_form(form: str) -> None:
    """Refuse what is no form."""
    if not isinstance(form, str) or form not in FORMS:
        raise (ValueError if isinstance(form, str) else TypeError)(
            f"form = {described(form)}: it is one of {list(FORMS)}"
        )


def _check_is_token(is_token: Tensor | None, k: Tensor) -> None:
    if is_token is None:
        return
    check_is_tensor("is_token", is_token)
    if is_token.dtype != torch.bool:
        raise TypeError(f"is_token has dtype {is_token.dtype}, but must be torch.bool with True = 'is a token'")
    b, h, j, _ = k.shape
    fits = (
        is_token.ndim == 4
        and is_token.shape[0] in (1, b)
        and is_token.shape[1] in (1, h)
        and is_token.shape[2:] == (1, j)
    )
    if not fits or is_token.device != k.device:
        raise ValueError(
            f"is_token has shape {tuple(is_token.shape)} on {is_token.device}, but must be ({b}, {h}, 1, {j}) on "
            f"{k.device}, of which the first two may be 1"
        )


def _check_tokens(
    q: Tensor, k: Tensor, beta: Tensor | None, log_decay: Tensor | None, erase: bool, negative_eigenvalues: bool
) -> None:
    """Refuse rates that are none, other numbers of queries, and keys with which the state could grow without bound."""
    if q.shape != k.shape:
        raise ValueError(
            f"q has shape {tuple(q.shape)}, but k {tuple(k.shape)}: each token writes and reads, so there must be as "
            "many queries as keys. To read without writing multiply with the state: q @ state"
        )
    for name, rate in (("beta", beta), ("log_decay", log_decay)):
        if rate is None:
            continue
        check_tensor(**{name: rate})
        _check_precision(name, rate, k)
        shapes = (k.shape[:3],) if name == "beta" else (k.shape[:3], k.shape)
        if rate.shape not in shapes or rate.device != k.device:
            raise ValueError(
                f"{name} has shape {tuple(rate.shape)} on {rate.device}, but must be "
                f"{' or '.join(str(tuple(one)) for one in shapes)} on {k.device}: one number for each token in each "
                "head" + (", or one for each channel of its key" if len(shapes) > 1 else "")
            )
    most = 2 if negative_eigenvalues else 1
    if beta is not None and asked(~((beta >= 0) & (beta <= most)).all(), otherwise=False):
        raise ValueError(
            f"beta of shape {tuple(beta.shape)} holds NaN, or numbers outside [0, {most}]: use "
            + (
                "2 * torch.sigmoid"
                if negative_eigenvalues
                else "torch.sigmoid, or negative_eigenvalues=True for β to 2"
            )
        )
    if log_decay is not None and asked(~(log_decay <= 0).all(), otherwise=False):
        raise ValueError(
            f"log_decay of shape {tuple(log_decay.shape)} holds NaN, or numbers above 0: it is the logarithm of what "
            "is left, a share between 0 and 1"
        )
    if erase:
        longest = k.detach().norm(dim=-1).max()
        if asked(longest > LONGEST, otherwise=False):
            raise ValueError(
                f"k of shape {tuple(k.shape)} has keys up to {float(longest):.3g} long: erasing along a key longer "
                "than 1 can make the state grow without bound. Use F.normalize(k, dim=-1)"
            )


def _check_scores(scores: Tensor, q: Tensor) -> None:
    check_tensor(4, scores=scores)
    _check_precision("scores", scores, q)
    wanted = (*q.shape[:3], q.shape[2])
    if tuple(scores.shape) != wanted or scores.device != q.device:
        raise ValueError(
            f"scores have shape {tuple(scores.shape)} on {scores.device}, but must be {wanted} on {q.device}"
        )


def _check_precision(name: str, x: Tensor, k: Tensor) -> None:
    """Refuse numbers that are more exact than what the state is computed in."""
    exact, wide = x.dtype, torch.promote_types(k.dtype, torch.float32)
    if torch.promote_types(exact, wide) != wide:
        raise TypeError(f"{name} has dtype {exact}, but q, k and v have {k.dtype}: use {name}.to({k.dtype})")
