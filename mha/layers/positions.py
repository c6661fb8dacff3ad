"""Positions that act inside a layer: they compare the position of the query with the position of the key.

:Taught in: positions.
"""

from collections.abc import Callable, Hashable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mha.checks import check_like_weights, check_tensor, check_whole, checked, described
from mha.functional import devices
from mha.functional.masks import past_mask


class _Kept:
    """Tensors that depend on nothing but lengths and types, made once and used again; the oldest ones are forgotten.

    They belong to the process, not to a layer: nothing of them is stored, copied or pickled with one. A graph that is
    compiled, traced or exported makes its own, and so do transforms of functions and modes that see every operation.
    """

    def __init__(self, most: int) -> None:
        self._most, self._found = most, dict[Hashable, tuple[Tensor, ...]]()

    def get(self, key: Hashable, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        if not _can_keep():
            return make()
        found = self._found.pop(key, None)
        if found is None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return make()  # its memory belongs to the graph
        if found is None:
            with torch.inference_mode(False), torch.no_grad():
                found = make()
        self._found[key] = found
        while len(self._found) > self._most:
            self._found.pop(next(iter(self._found)), None)
        return found


def _can_keep() -> bool:
    """Say whether what is made now holds numbers, and may be used in another call."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return _get_current_dispatch_mode() is None and peek_interpreter_stack() is None


WAVES = _Kept(8)  # of rotary positions: two tables of all positions up to a power of two
LONGEST = 2**17  # positions: waves of later ones are made at every call
SINES = _Kept(4)  # of sinusoidal positions, likewise
SLOPES = _Kept(32)
BIASES = _Kept(4)
LARGEST = 2**28  # bytes of a bias, or of sinusoidal waves, that are kept


@checked
def one_hot_positions(n: int) -> Float[Tensor, "n n"]:
    """Mark each position with a one-hot vector, a 1 in a channel of its own: the first code that comes to mind.

    :param n: how many positions, at least 1.
    :Shapes: (n, n); concatenate it to the tokens.
    :Raises: ValueError where n is below 1.
    :Taught in: why_attention.
    """
    check_whole(n=n)
    return torch.eye(n)


@checked
def sinusoidal_positions(n: int, d_model: int, *, base: float = 10000.0) -> Float[Tensor, "n d_model"]:
    """Mark each position with waves of many lengths: sines in even channels, cosines in odd ones.

    :param n: how many positions, at least 1.
    :param d_model: the width of a token, an even number.
    :param base: 2π times it is nearly the longest wavelength, in positions; 10000 unless given.
    :Shapes: (n, d_model); add it to the tokens. Channels 2c and 2c+1 have wavelength 2π · base^(2c/d_model) positions.
    :Raises: ValueError where n is below 1, or d_model is not a positive even number.
    :Source: Vaswani et al. 2017, section 3.5.
    :Taught in: why_attention, positions.
    """
    check_whole(n=n)
    return _waves(torch.arange(n, device="cpu"), d_model, base).to(
        torch.get_default_device(), torch.get_default_dtype()
    )


def _waves(positions: Tensor, d_model: int, base: float) -> Tensor:
    """Make the waves of positions, (n,) or (b, n)."""
    check_whole(d_model=d_model)
    check_base(base)
    if d_model % 2:
        raise ValueError(f"d_model = {d_model}: sines and cosines come in pairs, so it must be even")
    device = positions.device if positions.is_cuda else torch.device("cpu")  # some other devices have no float64
    rates = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device=device) / d_model)
    angles = positions.to(device, torch.float64)[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def positions_of(x: Tensor, start: int | Tensor) -> Tensor:
    """Return the positions of tokens, (n,) or (b, n); refuse numbers that are none.

    Positions on a GPU are not looked at: that would wait for it.

    :param x: the tokens, (b, n, d_model).
    :param start: the position of the first one, or the positions of all, (b, n), where b may be 1.
    """
    if not isinstance(start, Tensor):
        check_whole(0, start=start)
        return torch.arange(start, start + x.shape[1], device=devices.exactly(x))
    if start.dtype not in (torch.int64, torch.int32) or start.ndim != 2 or start.shape[0] not in (1, x.shape[0]):
        raise ValueError(f"start = {described(start)}: give whole positions (b, n) = {tuple(x.shape[:2])}")
    if start.shape[1] != x.shape[1] or start.is_meta or (devices.reads_free(start) and int(start.min()) < 0):
        raise ValueError(f"start = {described(start)}: give one position from 0 on for each of {x.shape[1]} tokens")
    return start


def _room_for(end: int) -> int:
    """Return a power of two that is at least ``end``: a table for so many positions serves many lengths."""
    return max(256, 2 ** (end - 1).bit_length())


def _brought(waves: Tensor, x: Tensor) -> Tensor:
    """Bring waves to the device and type of the tokens; a GPU takes them when it gets there, and nobody waits."""
    return waves.to(x.device, x.dtype, non_blocking=x.is_cuda)


class SinusoidalPositions(nn.Module):
    """Add the waves of :func:`sinusoidal_positions` to the tokens; there is nothing to learn and no longest sequence.

    :Shapes: x (b, n, d_model) gives (b, n, d_model); d_model must be even.
    :Raises: ValueError where d_model is odd.
    :Source: Vaswani et al. 2017, section 3.5.
    :Taught in: in_the_transformer, positions.
    """

    def forward(self, x: Float[Tensor, "b n m"], start: int | Tensor = 0) -> Float[Tensor, "b n m"]:
        """Add the vectors of positions ``start`` to ``start + n - 1``, or of the positions given.

        :param x: the tokens; their width is even.
        :param start: the position of the first one, or the positions of all, (b, n); 0 unless given.
        """
        check_tensor(3, x=x)
        n, width = x.shape[1:]

        def made(positions: Tensor) -> Tensor:
            return _brought(_waves(positions, width, 10000.0), x)

        positions = positions_of(x, start)
        if isinstance(start, Tensor) or not _can_keep() or x.is_meta:
            return x + made(positions)
        longest = _room_for(start + n)
        if longest * width * x.element_size() > LARGEST:
            return x + made(positions)
        key = width, longest, x.device, x.dtype
        (waves,) = SINES.get(key, lambda: (made(torch.arange(longest, device="cpu")),))
        return x + waves[start : start + n]


class LearnedPositions(nn.Module):
    """Mark each position with a vector that is learned like any other parameter, and add it to the tokens.

    :Costs: longest · d_model parameters.
    :Shapes: x (b, n, d_model) gives (b, n, d_model), for n up to ``longest``.
    :Raises: ValueError for a sequence longer than ``longest``: a position that was never learned has no vector; and for
        tokens of another width.
    :Source: Gehring et al. 2017, section 3.1; Devlin et al. 2019.
    :Taught in: why_attention, positions.
    """

    @checked
    def __init__(self, longest: int, d_model: int) -> None:
        """Make a table of vectors, for positions 0 to ``longest - 1``.

        :param longest: how many positions have a vector.
        :param d_model: the width of a token.
        """
        super().__init__()
        check_whole(longest=longest, d_model=d_model)
        self.table = nn.Parameter(0.02 * torch.randn(longest, d_model))

    def forward(self, x: Float[Tensor, "b n m"], start: int | Tensor = 0) -> Float[Tensor, "b n m"]:
        """Add the vectors of positions ``start`` to ``start + n - 1``, or of the positions given.

        :param x: the tokens, at most ``longest``.
        :param start: the position of the first one, or the positions of all, (b, n); 0 unless given.
        """
        check_tensor(3, x=x)
        given = isinstance(start, Tensor)
        if not given:
            check_whole(None, start=start)
        positions = positions_of(x, start if given else max(start, 0))
        low, end = (0, 0) if given else (start, start + x.shape[1])
        if given and devices.reads_free(positions):  # a GPU stops the program at a position that was never learned
            end = int(positions.max()) + 1
        check_like_weights("x", x, self.table)
        if x.shape[-1] != self.table.shape[1]:
            raise ValueError(f"tokens {tuple(x.shape)} do not have width {self.table.shape[1]}, as the positions do")
        if low < 0 or end > len(self.table):
            wrong = low if low < 0 else end - 1
            raise ValueError(f"position {wrong} was asked for, but only 0 to {len(self.table) - 1} were learned")
        if given and devices.is_card(self.table):
            return x + F.embedding(positions.to(self.table.device), self.table)
        return x + (self.table[positions.to(self.table.device)] if given else self.table[start:end])


def check_base(base: float) -> None:
    """Refuse what no power can be taken of."""
    if base <= 0:
        raise ValueError(f"base = {base}: it must be positive")


LAYOUTS = ("half", "interleaved")


class RelativePositions(nn.Module):
    """What a layer asks of its ``positions``: rotate queries and keys, or change scores. This one does neither.

    A layer calls :meth:`rotate` on its queries and on its keys, after they are split into heads and before a cache
    stores them. Where ``bias`` is a method, it is called on the scores, before the mask. Where the same class has a
    method ``_added``, ``bias`` does no more than add what it returns, and a GPU's fused kernel takes that as a mask.

    :Taught in: positions.
    """

    bias: Callable[[Tensor], Tensor] | None = None
    across = False  # whether keys may be of another sequence than queries

    @property
    def only_adds(self) -> bool:
        """Whether ``bias`` does no more than add what ``_added`` returns: a class that has changed it says so anew."""
        changed_by = next(kind for kind in type(self).__mro__ if "bias" in vars(kind))
        return "_added" in vars(changed_by) and "bias" not in vars(self)

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Mark queries or keys at positions ``start`` to ``start + n - 1``.

        :param x: queries or keys.
        :param start: the position of the first one; 0 unless given.
        """
        return x

    def take_heads(self, chosen: list[int], heads: int) -> "RelativePositions":
        """Return the positions of the ``chosen`` ones of so many heads: the same, unless each head has its own.

        :param chosen: the numbers of the heads that stay.
        :param heads: how many there are now.
        """
        return self


class RotaryPositions(RelativePositions):
    """Rotate each query and key by angles that grow with its position (RoPE): a score depends on their distance.

    The channels of a head are taken in pairs, and pair c of position n is rotated by n · base^(−2c/d). With the
    layout "half" channel c is paired with c + d/2, with "interleaved" 2c with 2c + 1; :func:`mha.interop.relayout`
    moves the parameters of a layer from one to the other.

    :Changes: queries and keys; never values.
    :Costs: no parameters, about 6·n·d FLOPs for each head.
    :Shapes: x (b, h, n, d) gives (b, h, n, d); d must be even.
    :Raises: ValueError for an odd d, for an unknown layout, for a base that is not positive.
    :Source: Su et al. 2021, section 3.2.
    :Differs from the released code: angles are computed in float64; Llama's code computes them in float32, which
        ``precision=torch.float32`` repeats.
    :Taught in: positions.
    """

    @checked
    def __init__(self, base: float = 10000.0, layout: str = "half", *, precision: torch.dtype = torch.float64) -> None:
        """Choose the waves, the pairs, and the precision of the angles.

        :param base: 2π times it is nearly the longest wavelength, in positions; 10000 unless given.
        :param layout: "half" or "interleaved": which channels make a pair.
        :param precision: of the angles, torch.float64 or torch.float32; the first unless given.
        """
        super().__init__()
        if layout not in LAYOUTS:
            raise ValueError(f"layout = {layout!r}: it is one of {LAYOUTS}")
        check_base(base)
        if precision not in (torch.float32, torch.float64):
            raise ValueError(f"precision = {precision}: it is torch.float64 or torch.float32")
        self.base, self.layout, self.precision = base, layout, precision

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Rotate every pair of channels by the angle of its position."""
        check_tensor(4, x=x)
        check_whole(0, start=start)
        cos, sin = self._waves(x, start)
        half = self.layout == "half"
        a, b = x.chunk(2, -1) if half else (x[..., 0::2], x[..., 1::2])
        a, b = a * cos - b * sin, b * cos + a * sin
        return torch.cat([a, b], -1) if half else torch.stack([a, b], -1).flatten(-2)

    def _waves(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        n, d = x.shape[-2:]
        if d % 2:
            raise ValueError(f"heads of width {d} cannot be cut into pairs: rotary positions need an even width")

        def made(first: int, end: int) -> tuple[Tensor, Tensor]:
            device = devices.exactly(x)
            rates = 1.0 / (self.base ** (torch.arange(0, d, 2, dtype=self.precision, device=device) / d))
            angles = torch.arange(first, end, dtype=self.precision, device=device)[:, None] * rates
            return _brought(angles.cos(), x), _brought(angles.sin(), x)

        if not _can_keep() or x.is_meta or start + n > LONGEST:
            return made(start, start + n)
        longest = _room_for(start + n)
        key = d, self.base, self.precision, longest, x.device, x.dtype
        cos, sin = WAVES.get(key, lambda: made(0, longest))
        return cos[start : start + n], sin[start : start + n]

    def extra_repr(self) -> str:
        """Show the settings when the layer is printed."""
        return f"base={self.base}, layout={self.layout!r}"


class LinearBias(RelativePositions):
    """Lower each score in proportion to the distance of query and key (ALiBi); each head has a slope of its own.

    :Changes: the scores, by −slope · distance, before the mask. Head number 1, 2, …, h has slope 2^(−8·number/h).
    :Costs: no parameters; on a CPU the explicit formula runs, on a GPU the fused kernel takes the bias as a mask.
    :Shapes: scores (b, h, i, j); the queries are the last i of the j positions, as they are with a cache.
    :Raises: ValueError for slopes of another number of heads.
    :Source: Press et al. 2022, section 3.
    :Differs from the released code: the same formula for every h; theirs mixes two series where h is no power of 2.
        Without a causal mask the distance counts in both directions.
    :Taught in: positions.
    """

    steep: Tensor | None

    @checked
    def __init__(self, steep: Float[Tensor, "h"] | None = None) -> None:
        """Take the slopes.

        :param steep: slopes, one for each head; those of :func:`slopes` unless given.
        """
        super().__init__()
        self.register_buffer("steep", steep)  # so that slopes are stored with a layer that lost some heads

    @checked
    def take_heads(self, chosen: list[int], heads: int) -> "LinearBias":
        """Let each chosen head keep its slope."""
        steep = slopes(heads) if self.steep is None else self.steep
        if not set(chosen) <= set(range(len(steep))):
            raise ValueError(
                f"chosen = {described(chosen)} of {len(steep)} heads: give numbers from 0 to {len(steep) - 1}"
            )
        return LinearBias(steep[list(chosen)])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LinearBias":
        """Let the slopes move with the layer, but never to fewer bits."""
        exact = self.steep
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if exact is not None and self.steep is not None:
            self.steep = exact.to(self.steep.device)
        return self

    def bias(self, scores: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
        """Take slope · distance from every score.

        :param scores: before the mask; the queries are the last i of the j positions.
        """
        h, i, j = scores.shape[1:]
        self._check_heads(h)
        wide = torch.promote_types(scores.dtype, torch.float32)
        return (scores - self._lowering(h, i, j, scores.device, wide)).to(scores.dtype)

    def _check_heads(self, h: int) -> None:
        if self.steep is not None and len(self.steep) != h:
            raise ValueError(f"{len(self.steep)} slopes were given for {h} heads: give one for each, or none")

    def _lowering(self, h: int, i: int, j: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return slope · distance, (h, i, j)."""
        places = torch.arange(j, device=device)
        distance = (places[j - i :, None] - places).abs()  # whole: bfloat16 knows no whole numbers from 257 on
        return self._slopes(h, device, dtype)[:, None, None] * distance

    def _slopes(self, h: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        if self.steep is not None:
            return self.steep.to(device, dtype)

        def made() -> tuple[Tensor]:
            numbers = torch.arange(1, h + 1, dtype=torch.float64, device="cpu")
            return ((2.0 ** (-8.0 * numbers / h)).to(device, dtype, non_blocking=device.type == "cuda"),)

        return made()[0] if device.type == "meta" else SLOPES.get((h, device, dtype), made)[0]

    def _added(self, q: Tensor, j: int, *, is_causal: bool) -> Tensor:
        """Return what is added to the scores, (1, h, i, j) in the type of the queries: −slope · distance.

        With as many queries as keys it is kept for the next call, unless it is large.

        :param q: the queries, (b, h, i, d), the last i of the j positions.
        :param j: how many keys there are.
        :param is_causal: whether −inf hides what comes after a query.
        """
        h, i = q.shape[1:3]
        self._check_heads(h)

        def made() -> tuple[Tensor]:
            lowering = self._lowering(h, i, j, q.device, torch.promote_types(q.dtype, torch.float32))
            bias = lowering.neg().to(q.dtype)
            return (bias.masked_fill(~past_mask(i, j, q.device), -torch.inf)[None] if is_causal else bias[None],)

        if not _can_keep() or self.steep is not None or i != j or h * i * j * q.element_size() > LARGEST:
            return made()[0]
        return BIASES.get((h, i, is_causal, q.device, q.dtype), made)[0]


@checked
def slopes(heads: int) -> Float[Tensor, "h"]:
    """Return how steeply :class:`LinearBias` falls in each head: steep in the first, almost flat in the last.

    :param heads: how many heads there are, at least 1.
    :Shapes: (heads,).
    :Raises: ValueError for fewer than one head.
    :Taught in: positions.
    """
    check_whole(heads=heads)
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
