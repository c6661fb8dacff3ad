"""Put a layer of ours into a model of ``transformers``, in the place of its own attention.

The place is called as before: with their masks, their angles and their cache. Our layer computes the attention; what
their module does after it (dropout, the sum with its input, a norm) stays theirs.

:Taught in: in_the_transformer.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_whole, checked, described
from mha.interop.deepseek import is_latent
from mha.interop.endings import ending_of
from mha.interop.hugging_face import PLANS, WAY_OUT, is_known, to_transformers, transformers_plan
from mha.interop.parts import inside_of
from mha.interop.plan import build, check_fit
from mha.interop.rotary import GivenBias, rotated_channels, turned_by
from mha.interop.structure import answers_of, pairwise, repeats_angles
from mha.layers.cache import LayerCache, Reader
from mha.layers.indexed import IndexedLatentAttention
from mha.layers.latent import LatentAttention
from mha.layers.multi_head import Heads
from mha.layers.projections import settled

KERNELS = ("eager", "sdpa")
HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
EAGER = SimpleNamespace(_attn_implementation="eager")  # of a module that knows no other kernel
OTHER_NAMES = {"mask": "attention_mask", "layer_past": "past_key_values"}  # theirs, and how most call it
READ = {
    "hidden_states", "attention_mask", "encoder_attention_mask", "key_value_states", "encoder_hidden_states",
    "position_embeddings", "position_ids", "cache_position", "past_key_values", *OTHER_NAMES,
}  # fmt: skip


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
        self.indexed = False  # whether theirs keeps index keys, too, which ours has in the place of values

    def admit(self, layer: Reader, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
        """Leave the sizes to their cache and to the mask.

        :param layer: the layer of ours that is called.
        :param query: what asks, (b, i, d_model).
        :param key: what is new, (b, n, kdim).
        :param value: what is new, (b, n, vdim).
        :param mask: the mask of the call; it is returned as it is.
        """
        self.widths = [layer.d_latent, layer.d_rotary] if isinstance(layer, LatentAttention) else []
        self.indexed = isinstance(layer, IndexedLatentAttention)
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
            if self.indexed:
                return k, self.cache.update_indexer(v[:, 0], self.number)[:, None, : self.first]
            return k, k[..., : self.widths[0]]
        k, v = self.cache.update(k, v, self.number)
        return k[:, :, : self.first], v[:, :, : self.first]


@checked
def check_can_cache(layer: Any) -> None:
    """Refuse a layer whose own cache holds something other than a key and a value for each token."""
    if type(layer).new_cache not in (Heads.new_cache, LatentAttention.new_cache, IndexedLatentAttention.new_cache):
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
        inside = inside_of(theirs)  # BERT's heads are a module in its module
        self.layer, self.kind, self.sizes = layer, type(theirs).__name__, place_of(theirs)
        self.replaced = (theirs,)  # in a tuple it is no part of this module: its parameters count no more
        self.ending = ending_of(theirs)
        with torch.device("cpu"):
            self.repeated = repeats_angles(theirs)
            self.answers = 2 if self.kind in PLANS or is_latent(theirs) else answers_of(theirs)
        self.config: Any = getattr(inside, "config", EAGER)
        self.relative_attention_bias = getattr(theirs, "relative_attention_bias", None)  # T5's stays a parameter
        self.number, self.is_causal = getattr(inside, "layer_idx", None), bool(getattr(inside, "is_causal", False))
        self.names = inspect.signature(type(theirs).forward)
        told = None if "encoder_hidden_states" in self.names.parameters else False
        self.cross: bool | None = getattr(theirs, "is_cross_attention", told)  # None: whenever a memory comes

    def forward(self, *inputs: Any, **named: Any) -> tuple[Any, ...] | Tensor:
        """Return what the replaced module returned.

        :param inputs: what their module takes: ``hidden_states`` (b, n, d_model) and others.
        :param named: the same by name, such as ``attention_mask`` (b, 1 or h, n, j), boolean or added.
        """
        bound = self.names.bind(self, *inputs, **named).arguments
        given = {**bound, **bound.pop("kwargs", {})}
        given |= {name: given[other] for other, name in OTHER_NAMES.items() if other in given}
        self.check(given)
        x = given["hidden_states"]
        memory = given.get("encoder_hidden_states") if self.cross is not False else given.get("key_value_states")
        mask = visible_of(given.get("encoder_attention_mask" if self.cross is True else "attention_mask"))
        hides = given.get("is_causal")
        hides = self.is_causal if hides is None else bool(hides)
        future = hides and mask is None and x.shape[1] > 1 and self.config._attn_implementation == "sdpa"
        cache = self.their_cache(given.get("past_key_values"), memory is not None, x.shape[1] if future else None)
        seen: list[Tensor] = []
        made: list[Tensor] = []
        with ExitStack() as stack:
            bias = self.bias_of(given, made)
            angles = pairwise(given.get("position_embeddings"), self.repeated)
            stack.enter_context(turned_by(self.layer, angles, bias))
            if self.config._attn_implementation == "eager":
                tap = self.layer.at_weights.register_forward_hook(lambda _m, _i, weights: seen.append(weights))
                stack.callback(tap.remove)
            read = self.layer(x, memory, mask=mask, is_causal=future, **({} if cache is None else {"cache": cache}))
        said, weights = self.ending(read, x), seen[0] if seen else None
        if self.makes_bias:
            return said, made[0] if made else bias, weights
        others = [given.get("past_key_values")] * (self.answers - 2)
        return (said, weights, *others) if self.answers else said

    @property
    def makes_bias(self) -> bool:
        """Whether the module hands the bias of its positions on to the next ones, as T5's do."""
        return hasattr(self.replaced[0], "compute_bias") and self.answers == 3

    def bias_of(self, given: dict[str, Any], made: list[Tensor]) -> Tensor | Callable[[int], Tensor] | None:
        """Return the bias of positions for a call: what came, or a function that makes T5's for so many keys.

        :param given: the arguments of the call, by their names.
        :param made: what the function makes is appended to it.
        """
        if given.get("position_bias") is not None or not self.makes_bias:
            return given.get("position_bias")
        theirs, x, cache = cast(Any, self.replaced[0]), given["hidden_states"], given.get("past_key_values")
        before = 0 if cache is None else int(cache.get_seq_length(self.number))

        def make(keys: int) -> Tensor:
            if self.relative_attention_bias is None:
                made.append(x.new_zeros(1, theirs.n_heads, x.shape[1], keys))
            else:
                made.append(theirs.compute_bias(x.shape[1], keys, device=x.device, past_seen_tokens=before))
            return made[0]

        return make

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Let the place be copied and saved with the module that it replaced: its class was made for that module."""
        return _made_again, (self.replaced[0], self.layer, self.training)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "save_pretrained":
            frame = frame.f_back
        if frame is not None:
            warnings.warn(
                f"{prefix.rstrip('.')} holds a layer of mha, whose parameters from_pretrained would not find: it would "
                "draw this attention at random. Call mha.interop.unswap(model) before save_pretrained",
                stacklevel=2,
            )
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def check(self, given: dict[str, Any]) -> None:
        """Refuse what our layer cannot honor.

        :param given: the arguments of a call, by their names.
        """
        check_kernel(self.config)
        read = READ | ({"position_bias"} if isinstance(self.layer.positions, GivenBias) else set())
        if changing := [name for name, x in given.items() if isinstance(x, Tensor) and name not in read]:
            raise ValueError(f"{changing} may change what the heads compute, and a swapped layer has no place for them")
        if given.get("cache") is not None:
            raise ValueError(
                f"cache = {described(given['cache'])}: generate_batch keeps keys and values in pages, which a swapped "
                "layer cannot read. Call generate, or mha.interop.unswap(model) first"
            )
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
    sizes |= {"rotated": rotated, "biased": isinstance(plan.positions, GivenBias)}
    return sizes | {"dtype": weight.dtype, "device": weight.device}


@checked
def place_for(layer: Heads) -> dict[str, Any]:
    """Say the same of a layer of ours.

    :param layer: any layer with heads.
    """
    latent = isinstance(layer, LatentAttention)
    rotated = rotated_channels(layer.positions, layer.d_rotary if isinstance(layer, LatentAttention) else layer.d_head)
    widths = [layer.d_model] * 2 if latent else [layer.W_k.in_features, layer.W_v.in_features]
    sizes = {"d_model": layer.d_model, "kdim": widths[0], "vdim": widths[1], "rotated": rotated}
    sizes["biased"] = isinstance(layer.positions, GivenBias)
    return sizes | {"dtype": layer.W_o.weight.dtype, "device": layer.W_o.weight.device}


WORDS = {
    "d_model": "the width of the tokens",
    "kdim": "the width of what keys are made of",
    "vdim": "the width of what values are made of",
    "rotated": "the channels of a head that rotary positions rotate",
    "biased": "whether the model's bias of positions is added to scores",
    "dtype": "the type of the parameters",
    "device": "where the parameters are",
}


@checked
def swap(model: nn.Module, layer: int = 0, ours: Heads | None = None) -> Heads:
    """Put a layer of ours into a model of ``transformers``: the same logits, but now it can be watched and pruned.

    The model is changed in place, and our layer is returned. What may be done with it: ``mha.watch(model, "weights")``;
    another call with ``ours=old.take_heads([0, 3])``, which puts the smaller layer in the same place. Masks, angles and
    the cache come from the model, so padding and ``generate`` work. Their module is kept, so that :func:`unswap` can
    give it back.

    Layers of linear attention are not replaced: :func:`mha.interop.from_transformers` reads them, one by one.

    A query with nothing to attend to reads zeros here, and the mean of all values in their "eager" implementation. Such
    queries are padding, and nobody reads them.

    :param model: any model of ``transformers`` whose attention is known here.
    :param layer: its number among the model's attention layers that are known here, from 0, over all its towers in
        their order; a number that is too large says which classes are left alone. ALBERT, whose layers share
        parameters, has only one layer.
    :param ours: a layer of the sizes of the place; one with the parameters that are there unless given.
    :Raises: ValueError for a model without attention that is known here, a number that it does not have, a layer of
        other sizes, positions or types than the place, and a model whose ``attn_implementation`` is neither "eager" nor
        "sdpa". Then the model is as it was.
    :Taught in: in_the_transformer.
    """
    check_whole(None, layer=layer)
    places = attention_places(model)
    if not places:
        raise ValueError(
            f"{type(model).__name__} has attention of class {left_alone(model)} as modules inside it, and none that is "
            f"known here. {WAY_OUT}"
        )
    if not 0 <= layer < len(places):
        numbers = f"numbered 0 to {len(places) - 1}" if len(places) > 1 else "number 0"
        others = f"; {', '.join(left)} are left alone" if (left := left_alone(model)) else ""
        raise ValueError(
            f"layer = {layer}: {type(model).__name__} has {len(places)} attention layers that are known here, {numbers}"
            f"{others}"
        )
    path, there = places[layer]
    if isinstance(there, Swapped):
        if ours is not None:
            check_fits(ours, there.sizes, there.kind)
            there.layer = ours.train(there.training)
        return there.layer
    check_kernel(getattr(inside_of(there), "config", EAGER))
    if ours is None:
        plan = transformers_plan(there)
        ours, learns = build(plan).train(there.training), any(weight.requires_grad for weight in there.parameters())
        for (
            part,
            weight,
        ) in ours.named_parameters():  # what is frozen there stays frozen; of joined matrices all or none
            theirs = plan.weights[part]
            weight.requires_grad_(theirs.requires_grad if isinstance(theirs, nn.Parameter) else learns)
    check_fits(ours, place_of(there), type(there).__name__)
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, collected(there, ours).train(there.training))
    return ours


@checked
def unswap(model: nn.Module) -> nn.Module:
    """Give a model its own attention modules back, with the parameters that our layers have now.

    Afterwards it can be saved with ``save_pretrained``, and no trace of ours is left.

    :param model: a model that :func:`swap` has changed; it is changed in place and returned.
    :Raises: ValueError where a layer of ours has other sizes than the module had, as after pruning: then the model is
        as it was.
    :Taught in: in_the_transformer.
    """
    places = {path: place for path, place in model.named_modules() if isinstance(place, Swapped)}
    for place in places.values():
        check_fit(settled(place.layer), transformers_plan(place.replaced[0]))
    for path, place in places.items():
        theirs = place.replaced[0].to(settled(place.layer).W_o.weight)  # the model may have moved since
        theirs = to_transformers(place.layer, theirs).train(place.training)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, theirs)
    return model


@checked
@contextmanager
def swapped(model: nn.Module, *layers: int) -> Iterator[list[Heads]]:
    """Swap some layers of a model, and give it its own modules back at the end.

    :param model: as in :func:`swap`; it must not have been swapped before.
    :param layers: their numbers; all unless given.
    :Taught in: in_the_transformer.
    """
    if any(isinstance(place, Swapped) for place in model.modules()):
        raise ValueError(f"{type(model).__name__} holds a swapped layer: call unswap(model) first")
    numbers = layers or tuple(range(len(attention_places(model))))
    try:
        yield [swap(model, number) for number in numbers]
    finally:
        unswap(model)


def _made_again(theirs: nn.Module, ours: Heads, training: bool) -> Swapped:
    return collected(theirs, ours).train(training)


@checked
def attention_places(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the attention modules inside a model, and their paths, in the model's order.

    :param model: any model of ``transformers``.
    """
    places: list[tuple[str, nn.Module]] = []
    for path, module in model.named_modules():
        within = places and path.startswith(f"{places[-1][0]}.")  # BERT's heads are a module in its module
        if path and not within and (isinstance(module, Swapped) or is_known(module)):
            places.append((path, module))
    return places


@checked
def left_alone(model: nn.Module) -> list[str]:
    """Name the classes of attention in a model that are not known here, such as those of another tower.

    :param model: any model of ``transformers``.
    """
    places = [path for path, _ in attention_places(model)]
    return sorted(
        {
            type(module).__name__
            for path, module in model.named_modules()
            if "Attention" in type(module).__name__ and not any(f"{path}.".startswith(f"{place}.") for place in places)
        }
    )


@checked
def collected(theirs: nn.Module, ours: Heads) -> Swapped:
    """Make the place such that ``output_attentions=True`` finds it, which looks for a class and hangs a hook on it.

    :param theirs: the attention module whose place it is.
    :param ours: the layer of ours that computes there.
    """
    inside = inside_of(theirs)
    own = {"__init__": Swapped.__init__, "__doc__": Swapped.__doc__, "__module__": __name__}
    place = type("Swapped", (Swapped, type(inside)), own)(theirs, ours)
    for hook in () if inside is theirs else inside._forward_hooks.values():
        if getattr(hook, "__module__", "").endswith("output_capturing"):
            place.register_forward_hook(hook)
    for hooks in HOOKS:  # who watches their module watches the place
        getattr(place, hooks).update(getattr(theirs, hooks))
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
