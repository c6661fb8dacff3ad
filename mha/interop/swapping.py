"""Put a layer of ours into a model of ``transformers``, in the place of its own attention.

The place is called as before: with their masks, their angles and their cache. Our layer computes the attention; what
their module does after it (dropout, the sum with its input, a norm) stays theirs.

:Taught in: in_the_transformer.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_whole, checked, described
from mha.interop.hugging_face import PLANS, from_transformers, transformers_plan
from mha.interop.rotary import PartialRotary
from mha.layers.cache import LayerCache, Reader
from mha.layers.latent import LatentAttention
from mha.layers.multi_head import Heads
from mha.layers.positions import RotaryPositions

KERNELS = ("eager", "sdpa")
CHANGES = ("head_mask", "layer_head_mask", "position_bias", "alibi")  # arguments that change the numbers


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


class GivenAngles(RotaryPositions):
    """Rotary positions whose angles the model passes: cosines and sines of each token of each sequence."""

    @checked
    def __init__(self, cos: Tensor, sin: Tensor, layout: str) -> None:
        """Take the waves of one call.

        :param cos: cosines, (b, n, pairs).
        :param sin: sines, (b, n, pairs).
        :param layout: which channels are a pair, "half" or "interleaved".
        """
        super().__init__(layout=layout)
        self.waves = cos[:, None], sin[:, None]

    def rotate(self, x: Float[Tensor, "b h n d"], start: int = 0) -> Float[Tensor, "b h n d"]:
        """Rotate as many channels as there are angles for, the first ones.

        :param x: queries or keys, (b, h, n, d).
        :param start: without effect: the angles are given.
        """
        rotated = 2 * self.waves[0].shape[-1]
        return torch.cat([super().rotate(x[..., :rotated], start), x[..., rotated:]], -1)

    def _waves(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        cos, sin = self.waves
        return cos.to(x), sin.to(x)


@checked
@contextmanager
def turned_by(layer: Heads, angles: Any) -> Iterator[None]:
    """Let the model's angles replace the layer's own for one call.

    :param layer: a layer of ours; without rotary positions nothing changes.
    :param angles: a pair (cos, sin), (b, n, …) each, or complex numbers, (b, n, pairs); None changes nothing.
    """
    if angles is None or not isinstance(layer.positions, RotaryPositions):
        yield
        return
    own, pairs = layer.positions, place_for(layer)["rotated"] // 2
    if isinstance(angles, Tensor):  # DeepSeek-V2 passes complex numbers, one for each pair
        cos, sin = angles.real, angles.imag
    else:  # most list every angle twice, once for each half of a head; gpt-oss writes it once
        cos, sin = (wave[..., :pairs] for wave in angles)
    layer.positions = GivenAngles(cos, sin, own.layout)
    try:
        yield
    finally:
        layer.positions = own


class TheirCache(LayerCache):
    """Their cache, as a layer of ours asks for it: new keys and values go in, all of them come out.

    Its ``length`` stays 0, because angles come from the model. Gradients may pass, as they may in theirs.
    """

    @checked
    def __init__(self, cache: Any, number: int | None, *, cross: bool = False, first: int | None = None) -> None:
        """Speak for one layer of a cache.

        :param cache: a cache of ``transformers``.
        :param number: of the layer in it.
        :param cross: whether it keeps the keys and values of a memory.
        :param first: how many keys are returned, where the rest is empty memory; all unless given.
        """
        self.cache, self.number, self.cross, self.first = cache, number, cross, first
        self.widths: list[int] = []  # of what theirs keeps as keys and values, where ours keeps one row

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Leave the sizes to their cache and to the mask.

        :param layer: the layer of ours that is called.
        :param query: what asks, (b, i, d_model).
        :param key: what is new, (b, n, kdim).
        :param value: what is new, (b, n, vdim).
        :param mask: the mask of the call; it is returned as it is.
        """
        self.widths = [layer.d_latent, layer.d_rotary] if isinstance(layer, LatentAttention) else []
        return mask

    def holds(self, key: Tensor) -> bool:
        """Whether their cache has read this memory.

        :param key: the memory; theirs keeps only one, so it is not compared.
        """
        return self.cross and bool(self.cache.is_updated.get(self.number))

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the memory's keys and values."""
        found = self.cache.cross_attention_cache.layers[self.number]
        return found.keys, found.values

    def update(
        self, k: Float[Tensor, "b h n d"], v: Float[Tensor, "b g n c"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t c"]]:
        """Store what is new and return everything, oldest first.

        :param k: new keys, (b, h, n, d).
        :param v: new values, (b, g, n, c).
        """
        if self.cross:
            self.cache.is_updated[self.number] = True
            k, v = self.cache.cross_attention_cache.update(k, v, self.number)
            return k, v
        if self.widths:
            k = torch.cat(self.cache.update(*k.split(self.widths, -1), self.number), -1)[:, :, : self.first]
            return k, k[..., : self.widths[0]]
        k, v = self.cache.update(k, v, self.number)
        return k[:, :, : self.first], v[:, :, : self.first]


@checked
def check_can_cache(layer: Any) -> None:
    """Refuse a layer whose own cache holds something other than a key and a value for each token."""
    if type(layer).new_cache not in (Heads.new_cache, LatentAttention.new_cache):
        raise ValueError(
            f"{type(layer).__name__} keeps something other than keys and values between two calls, and their cache "
            "has no place for it: call the model with use_cache=False"
        )


class Swapped(nn.Module):
    """The place of one attention in a model of ``transformers``, where a layer of ours now computes.

    It takes and returns what the module took and returned whose place it has. The weights it returns (only the
    "eager" implementation does) are those before dropout.

    :Shapes: returns (b, n, d_model) and the weights (b, h, n, j) or None.
    :Raises: ValueError for a mask that is neither boolean nor 0 and very low, and for arguments that change scores.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, theirs: nn.Module, layer: Heads) -> None:
        """Take the place of a module.

        :param theirs: the attention module whose place it is.
        :param layer: the layer of ours that computes from now on.
        """
        nn.Module.__init__(self)  # next in line may be their class, which wants a configuration
        inside: Any = getattr(theirs, "self", theirs)  # BERT's heads are a module in its module
        self.layer, self.kind, self.sizes = layer, type(theirs).__name__, place_of(theirs)
        self.ending = ENDINGS.get(self.kind, lambda _module: Ending())(theirs)
        self.config: Any = inside.config
        self.number, self.is_causal = getattr(inside, "layer_idx", None), bool(getattr(inside, "is_causal", False))
        self.cross = bool(getattr(theirs, "is_cross_attention", False))
        self.names = inspect.signature(type(theirs).forward)

    def forward(self, *inputs: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        """Return what the replaced module returned.

        :param inputs: what their module takes: ``hidden_states`` (b, n, d_model) and others.
        :param named: the same by name, such as ``attention_mask`` (b, 1 or h, n, j), boolean or added.
        """
        bound = self.names.bind(self, *inputs, **named).arguments
        given = {**bound, **bound.pop("kwargs", {})}
        self.check(given)
        x = given["hidden_states"]
        memory = given.get("encoder_hidden_states") if self.cross else given.get("key_value_states")
        mask = visible_of(given.get("encoder_attention_mask" if self.cross else "attention_mask"))
        hides = given.get("is_causal")
        hides = self.is_causal if hides is None else bool(hides)
        future = hides and mask is None and x.shape[1] > 1 and self.config._attn_implementation == "sdpa"
        cache = self.their_cache(given.get("past_key_values"), memory is not None, x.shape[1] if future else None)
        seen: list[Tensor] = []
        with ExitStack() as stack:
            stack.enter_context(turned_by(self.layer, given.get("position_embeddings")))
            if self.config._attn_implementation == "eager":
                tap = self.layer.at_weights.register_forward_hook(lambda _m, _i, weights: seen.append(weights))
                stack.callback(tap.remove)
            read = self.layer(x, memory, mask=mask, is_causal=future, **({} if cache is None else {"cache": cache}))
        return self.ending(read, x), seen[0] if seen else None

    def check(self, given: dict[str, Any]) -> None:
        """Refuse what our layer cannot honor.

        :param given: the arguments of a call, by their names.
        """
        check_kernel(self.config)
        if changing := [name for name in CHANGES if given.get(name) is not None]:
            raise ValueError(f"{changing} change what the heads compute, and a swapped layer has no place for them")
        if self.cross and given.get("encoder_hidden_states") is None:
            raise ValueError("this is cross-attention, but encoder_hidden_states were not given")

    def their_cache(self, cache: Any, cross: bool, first: int | None) -> TheirCache | None:
        """Return the part of their cache that belongs here, as our layer wants it.

        :param cache: what the model gives, or None.
        :param cross: whether the layer attends to a memory.
        :param first: how many keys are returned; all where it is None.
        """
        both = hasattr(cache, "self_attention_cache")
        if cache is None or (cross and not both):
            return None
        check_can_cache(self.layer)
        return TheirCache(
            cache.self_attention_cache if both and not cross else cache, self.number, cross=cross, first=first
        )


@checked
def check_kernel(config: Any) -> None:
    """Refuse a model that computes attention by kernels whose masks are not tensors (b, h, i, j)."""
    if config._attn_implementation not in KERNELS:
        raise ValueError(
            f"the model's attn_implementation is {config._attn_implementation!r}, which passes no mask that a "
            f"layer of ours could read: load it with one of {KERNELS}, or call model.set_attn_implementation('sdpa')"
        )


@checked
def visible_of(mask: Tensor | None) -> Tensor | None:
    """Read a mask of theirs: boolean, or 0 where one may look and a very low number where not.

    :param mask: (b, h, i, j), or None.
    :Raises: ValueError for other axes than (b, h, i, j), and for numbers in between, which are a bias.
    """
    if mask is None:
        return None
    if mask.ndim != 4:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}: a swapped layer reads (b, h, i, j)")
    if mask.dtype == torch.bool:
        return mask
    visible = mask == 0
    if not bool((visible | (mask <= torch.finfo(mask.dtype).min / 2)).all()):
        raise ValueError(
            "attention_mask holds numbers between 0 and the lowest: they add a bias to the scores, which a swapped "
            "layer cannot tell from a mask. Give a boolean mask"
        )
    return visible


@checked
def place_of(theirs: nn.Module) -> dict[str, Any]:
    """Say what a layer must have to replace this one.

    :param theirs: an attention module of a class that is known here.
    """
    plan = transformers_plan(theirs)
    sizes = {name: plan.sizes[name] for name in ("d_model", "kdim", "vdim")}
    if "d_latent" in plan.sizes:  # keys and values come from the tokens, through the latent
        sizes |= {"kdim": sizes["d_model"], "vdim": sizes["d_model"]}
    weight = next(theirs.parameters())
    rotated = rotated_channels(plan.positions, plan.sizes.get("d_rotary", plan.sizes["d_head"]))
    return sizes | {"rotated": rotated, "dtype": weight.dtype, "device": weight.device}


@checked
def place_for(layer: Heads) -> dict[str, Any]:
    """Say the same of a layer of ours.

    :param layer: any layer with heads.
    """
    latent = isinstance(layer, LatentAttention)
    rotated = rotated_channels(layer.positions, layer.d_rotary if isinstance(layer, LatentAttention) else layer.d_head)
    widths = [layer.d_model] * 2 if latent else [layer.W_k.in_features, layer.W_v.in_features]
    sizes = {"d_model": layer.d_model, "kdim": widths[0], "vdim": widths[1], "rotated": rotated}
    return sizes | {"dtype": layer.W_o.weight.dtype, "device": layer.W_o.weight.device}


@checked
def rotated_channels(positions: nn.Module | None, width: int) -> int:
    """Count the channels of a head that positions rotate.

    :param positions: what acts inside the layer, or None.
    :param width: of a head.
    """
    if isinstance(positions, PartialRotary):
        return positions.rotated
    return width if isinstance(positions, RotaryPositions) else 0


WORDS = {
    "d_model": "the width of the tokens",
    "kdim": "the width of what keys are made of",
    "vdim": "the width of what values are made of",
    "rotated": "the channels of a head that rotary positions rotate",
    "dtype": "the type of the parameters",
    "device": "where the parameters are",
}


@checked
def swap(model: nn.Module, layer: int = 0, ours: Heads | None = None) -> Heads:
    """Put a layer of ours into a model of ``transformers``: the same logits, but now it can be watched and pruned.

    The model is changed in place, and our layer is returned. What may be done with it: ``mha.watch(model, "weights")``;
    another call with ``ours=old.take_heads([0, 3])``, which puts the smaller layer in the same place. Masks, angles and
    the cache come from the model, so padding and ``generate`` work.

    A query with nothing to attend to reads zeros here, and the mean of all values in their "eager" implementation. Such
    queries are padding, and nobody reads them.

    :param model: any model of ``transformers`` whose attention is known here.
    :param layer: its number among the model's attention layers, from 0; ALBERT, whose layers share parameters, has only
        one.
    :param ours: a layer of the sizes of the place; one with the parameters that are there unless given.
    :Raises: ValueError for a model without attention that is known here, a number that it does not have, a layer of
        other sizes, positions or types than the place, and a model whose ``attn_implementation`` is neither "eager" nor
        "sdpa". Then the model is as it was.
    :Taught in: in_the_transformer.
    """
    check_whole(None, layer=layer)
    places = attention_places(model)
    if not places:
        found = sorted({type(m).__name__ for m in model.modules() if "Attention" in type(m).__name__})
        raise ValueError(
            f"{type(model).__name__} has attention of class {found}, as modules inside it; known here are "
            f"{sorted(PLANS)}"
        )
    if not 0 <= layer < len(places):
        numbers = f"numbered 0 to {len(places) - 1}" if len(places) > 1 else "number 0"
        raise ValueError(f"layer = {layer}: {type(model).__name__} has {len(places)} attention layers, {numbers}")
    path, there = places[layer]
    if isinstance(there, Swapped):
        if ours is not None:
            check_fits(ours, there.sizes, there.kind)
            there.layer = ours.train(there.training)
        return there.layer
    check_kernel(getattr(there, "self", there).config)
    if ours is None:
        ours = from_transformers(there)
        ours.requires_grad_(any(weight.requires_grad for weight in there.parameters()))
    check_fits(ours, place_of(there), type(there).__name__)
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, collected(there, ours).train(there.training))
    return ours


@checked
def attention_places(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the attention modules inside a model, and their paths, in the model's order.

    :param model: any model of ``transformers``.
    """
    known = [(path, m) for path, m in model.named_modules() if path]
    return [(path, m) for path, m in known if isinstance(m, Swapped) or type(m).__name__ in PLANS]


@checked
def collected(theirs: nn.Module, ours: Heads) -> Swapped:
    """Make the place such that ``output_attentions=True`` finds it, which looks for a class and hangs a hook on it.

    :param theirs: the attention module whose place it is.
    :param ours: the layer of ours that computes there.
    """
    inside = getattr(theirs, "self", theirs)
    own = {"__init__": Swapped.__init__, "__doc__": Swapped.__doc__, "__module__": __name__}
    place = type("Swapped", (Swapped, type(inside)), own)(theirs, ours)
    for hook in inside._forward_hooks.values():
        if getattr(hook, "__module__", "").endswith("output_capturing"):
            place.register_forward_hook(hook)
    return place


@checked
def check_fits(ours: Heads, place: dict[str, Any], kind: str) -> None:
    """Refuse a layer that cannot be put in this place, and name every reason."""
    found = place_for(ours)
    wrong = [
        f"{name}, {WORDS[name]}: the layer has {found[name]}, the place {wanted}"
        for name, wanted in place.items()
        if found[name] != wanted
    ]
    if wrong:
        raise ValueError(
            f"{described(ours)} does not fit into the place of {kind}:\n  - "
            + "\n  - ".join(wrong)
            + "\nMake the layer with "
            "these sizes, or begin with swap(model, layer) and change the layer that it returns."
        )
