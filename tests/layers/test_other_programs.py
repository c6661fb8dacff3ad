"""What other people's programs do to a layer: adapters, pruning, quantization, compilers, checkpoints, copies, plans.

Each case is a public report, or its neighbor: the layer gives the right numbers, or refuses by name with the way out.
"""

import copy
import pickle

import pytest
import torch
import torch.nn.utils.prune
from registry import LAYERS
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import mha
from mha.analysis import mask_heads, prune_heads
from mha.analysis.circuits import ov_circuit, qk_circuit
from mha.interop import ReleasedAttention, SeqFirst, relayout
from mha.layers import LatentCache, StateCache, align_heads, compress
from mha.layers.projections import as_linear, check_own_weights
from mha.models import LanguageModel, depth_scaled_init

FOUR = ("W_q", "W_k", "W_v", "W_o")


class WithLoRA(nn.Module):
    """An adapter as people write it: no weight and no in_features of its own."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.A = nn.Parameter(torch.randn(linear.in_features, 4) / 4)
        self.B = nn.Parameter(torch.randn(4, linear.out_features) / 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.linear(x) + self.dropout(x @ self.A) @ self.B


def adapted(layer):
    for name in FOUR:
        setattr(layer, name, WithLoRA(getattr(layer, name)))
    return layer


def normed(layer):
    for name in FOUR:
        weight_norm(getattr(layer, name))
    return layer


def pruned(layer):
    for name in FOUR:
        torch.nn.utils.prune.l1_unstructured(getattr(layer, name), "weight", amount=0.5)
    return layer


changed = pytest.mark.parametrize("change", [adapted, normed, pruned])


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made(kind=mha.MultiHeadAttention, change=lambda layer: layer, **how):
    return change(kind(16, 4, **how)).eval()


def near(x, y):
    return float((x - y).detach().abs().max()) < 1e-10


@changed
def test_an_adapter_takes_part_in_everything_that_is_made_from_the_layer(change):
    layer, x = made(change=change), torch.randn(2, 5, 16)
    y = layer(x)
    keep = torch.tensor([1.0, 0, 1, 0])[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        right = layer(x)
    assert near(layer.take_heads([0, 2])(x), right)
    with mha.watch(layer, "heads") as seen:
        layer(x)
    assert near(layer.contributions(seen.heads).sum(1) + as_linear(layer.W_o, "W_o").bias, y)
    for kind in (mha.GroupedAttention, mha.SinkAttention, mha.GatedAttention, mha.LatentAttention):
        assert near(kind.from_plain(layer)(x), y), kind
    assert near(align_heads(layer, torch.randn(2, 8, 16), 2).layer(x), y)
    assert near(compress(layer, 16)(x), y)
    theirs = mha.interop.to_torch(layer)
    assert near(theirs(x, x, x, need_weights=False)[0], y)
    assert layer.cost(1, 4).parameters == made().cost(1, 4).parameters


@changed
def test_circuits_are_those_of_what_the_layer_computes(change):
    layer, x = made(change=change), torch.randn(1, 5, 16)
    bias = [as_linear(getattr(layer, name), name).bias for name in FOUR]
    with mha.watch(layer) as seen:
        layer(x)
    assert float(bias[0].detach().abs().max()) > 0
    q = as_linear(layer.W_q, "W_q").weight.unflatten(0, (4, 4))
    k = as_linear(layer.W_k, "W_k").weight.unflatten(0, (4, 4))
    assert near(qk_circuit(layer), q.mT @ k / 2)
    change_of_weights = torch.einsum("bhij,hmn,bjn->bim", seen.weights, ov_circuit(layer), x)
    without = as_linear(layer.W_o, "W_o").weight @ bias[2] + bias[3]
    assert near(change_of_weights + without, layer(x))


@changed
def test_what_would_be_lost_is_not_written(change):
    layer = made(change=change, positions=mha.RotaryPositions())
    if change is adapted:
        with pytest.raises(ValueError, match="need RotaryPositions"):
            relayout(layer, "interleaved")
        return
    with pytest.raises(ValueError, match=r"W_q is computed anew at every call.*remove_parametrizations.*prune\.remove"):
        relayout(layer, "interleaved")
    model = LanguageModel(9, 16, 4)
    change(model.decoder[0].attention)
    with pytest.raises(ValueError, match=r"attention\.W_q is computed anew"):
        depth_scaled_init(model.decoder)


def test_a_module_that_is_no_linear_map_is_refused_by_name():
    layer = made().float()
    layer.W_v = nn.Sequential(layer.W_v, nn.GELU())
    layer(torch.randn(1, 3, 16, dtype=torch.float32))  # it computes what it is told
    with pytest.raises(ValueError, match=r"W_v is a Sequential, which is no linear map.*merge_and_unload"):
        layer.take_heads([0])
    with pytest.raises(ValueError, match="W_q is a NormedLinear"):
        qk_circuit(ReleasedAttention(16, 4, 2, norm_eps=1e-6))


def test_an_adapter_asks_in_evaluation_mode_and_leaves_the_mode_alone():
    layer = adapted(mha.MultiHeadAttention(16, 4)).train()
    layer.W_q.dropout.eval()
    found = as_linear(layer.W_q, "W_q").weight
    assert near(found, layer.W_q.linear.weight + (layer.W_q.A @ layer.W_q.B).T)
    assert layer.W_q.training
    assert not layer.W_q.dropout.training


def test_what_was_frozen_stays_frozen():
    layer = made().requires_grad_(False)
    layer.W_o.requires_grad_(True)
    for new in (mha.SinkAttention.from_plain(layer), layer.take_heads([0, 1])):
        assert not new.W_q.weight.requires_grad
        assert new.W_o.weight.requires_grad


@pytest.fixture
def processor():
    """Torch quantizes modules while they are called only on a processor: elsewhere such a test is skipped by name."""
    if (device := torch.get_default_device()).type != "cpu":
        pytest.skip(f"torch has dynamic quantization for a processor only, not for {device}")


@pytest.mark.usefixtures("processor")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per")
def test_a_quantized_layer_computes_and_is_not_taken_for_a_plain_one(reader):
    layer = mha.MultiHeadAttention(16, 4, dtype=torch.float32).eval()
    small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(layer), {nn.Linear})
    x = torch.randn(1, 4, 16, dtype=torch.float32)
    assert float((small(x) - layer(x)).detach().abs().max()) < 0.1
    with pytest.raises(ValueError, match="W_q is a Linear, which is no linear map"):
        small.take_heads([0, 1])


@pytest.mark.usefixtures("processor")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per")
def test_a_quantized_model_and_a_quantized_router_compute(reader):
    torch.set_default_dtype(torch.float32)
    routed, x = mha.RoutedAttention(16, 4, 1, 2).eval(), torch.randn(1, 4, 16)
    model, tokens = LanguageModel(9, 16, 4).eval(), torch.randint(0, 9, (1, 5))
    for one, given in ((routed, x), (model, tokens)):
        small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(one), {nn.Linear})
        assert 0 < float((small(given) - one(given)).detach().abs().max()) < 0.1


def test_an_adapter_of_a_router_takes_part():
    layer, x = mha.RoutedAttention(16, 4, 1, 2, gates="paper").eval(), torch.randn(1, 4, 16)
    for name in ("W_s", "W_r", "W_h"):
        setattr(layer.router, name, WithLoRA(getattr(layer.router, name)).eval())
    with mha.watch(layer, "probabilities") as seen:
        layer(x)
    assert near(seen.probabilities, layer.router.W_r(x).mT.softmax(1))


def test_an_adapter_of_the_feed_forward_part_takes_part():
    model, tokens = LanguageModel(9, 16, 4).eval(), torch.randint(0, 9, (1, 5))
    part = model.decoder[0].feed_forward
    right = copy.deepcopy(model)
    part.widen, part.narrow = WithLoRA(part.widen).eval(), WithLoRA(part.narrow).eval()
    for name in ("widen", "narrow"):
        setattr(right.decoder[0].feed_forward, name, as_linear(getattr(part, name), name))
    assert near(model(tokens), right(tokens))


# ---- parameters that come and go


def offloaded(module):
    """As accelerate does it: parameters are on the meta device, and a forward in the place of their module's brings
    them for each call.
    """
    for part in list(module.modules()):
        if part._parameters and not isinstance(part, mha.layers.ComposableAttention):
            _offload(part, {name: w.data for name, w in part._parameters.items() if w is not None}, part.forward)
    return module


def _offload(part, kept, forward):
    def away():
        part._parameters.update({name: nn.Parameter(w.to("meta")) for name, w in kept.items()})

    def bring(*args, **how):
        part._parameters.update({name: nn.Parameter(w.clone()) for name, w in kept.items()})
        y = forward(*args, **how)
        away()
        return y

    away()
    part.forward = bring


@pytest.mark.parametrize("entry", [e for e in LAYERS if "composed" not in e.name], ids=lambda e: e.name)
@torch.no_grad()
def test_an_offloaded_layer_computes_and_reads_on_from_a_cache(entry):
    layer = entry.build().eval()
    away, x = offloaded(copy.deepcopy(layer)), entry.words(5)
    if entry.alone or entry.needs_is_causal:
        right = layer(x, is_causal=True)
        assert near(away(x, is_causal=True), right)
    else:
        memory = entry.memory(layer)
        assert near(away(x, *memory), layer(x, *memory))
    if entry.caches and entry.alone:
        cache = away.new_cache(9)
        found = [away(one, is_causal=True, cache=cache) for one in x.split([3, 1, 1], 1)]
        assert near(torch.cat(found, 1), right)


@torch.no_grad()
def test_an_offloaded_model_computes_and_its_heads_can_be_taken():
    model, tokens = LanguageModel(9, 16, 4).eval(), torch.randint(0, 9, (1, 5))
    away, x = offloaded(copy.deepcopy(model)), torch.randn(1, 4, 16)
    assert near(away(tokens), model(tokens))
    assert torch.equal(away.generate(tokens, 3), model.generate(tokens, 3))
    some, right = (one.decoder[0].attention.take_heads([1, 3]) for one in (away, model))
    assert near(some(x), right(x))
    with pytest.raises(ValueError, match=r"forward of this SinkAttention was replaced.*remove_hook_from_module"):
        offloaded(mha.SinkAttention(16, 4)).take_heads([1, 3])


def test_a_forward_put_in_the_place_of_a_projections_own_takes_part():
    layer, x = made(), torch.randn(1, 4, 16)
    more, own = torch.randn(16, 16), layer.W_v.forward
    layer.W_v.forward = lambda x: own(x) + x @ more
    assert near(mha.GroupedAttention.from_plain(layer)(x), layer(x))


def test_a_layer_that_blocks_share_is_pruned_in_all_of_them():
    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.second = made()
            self.blocks = nn.ModuleList([self.first])

        def forward(self, x):
            return self.blocks[0](self.second(self.first(x)))

    model, x = Shares(), torch.randn(1, 4, 16)
    with mask_heads(model, {"first": [0, 2]}):
        right = model(x)
    small = prune_heads(model, {"first": [0, 2]})
    assert near(small(x), right)
    assert small.first is small.second is small.blocks[0]
    assert model.second.heads == 4


def asked(entry, layer, n):
    """What a layer is called with at length n: its own tokens where it can read them, else a memory."""
    x = entry.words(n)
    memory = () if entry.alone else (torch.randn(len(x), n, w) for w in (layer.W_k.in_features, layer.W_v.in_features))
    return (x[:, :1] if "feedback" in entry.name else x, *memory)


without_keywords = pytest.mark.parametrize(
    "entry", [e for e in LAYERS if not e.needs_is_causal], ids=lambda entry: entry.name
)


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore:Converting a tensor", "ignore::torch.jit.TracerWarning")
@without_keywords
@torch.no_grad()
def test_a_traced_layer_computes_the_same_at_every_length(entry, reader):
    layer = entry.build().eval()
    traced = torch.jit.trace(layer, asked(entry, layer, 5))
    for n in (5, 7):
        given = asked(entry, layer, n)
        assert near(traced(*given), layer(*given))


@without_keywords
@torch.no_grad()
def test_an_average_of_equal_layers_and_a_pickled_one_are_the_layer(entry):
    layer = entry.build().eval()
    given = asked(entry, layer, 4)
    right, average = layer(*given), torch.optim.swa_utils.AveragedModel(layer, use_buffers=True)
    for _ in range(2):
        average.update_parameters(layer)
    assert near(average.eval()(*given), right)
    assert near(pickle.loads(pickle.dumps(layer))(*given), right)
    state = dict(layer.named_parameters()) | dict(layer.named_buffers())
    assert near(torch.func.functional_call(layer, state, given), right)


@pytest.mark.parametrize("kind", ["talking", "composed", "gated", "collaborative", "linear", "overlapping"])
def test_no_circuit_is_given_where_no_matrix_says_what_a_head_does(kind):
    from mha.layers import CollaborativeAttention, ComposableAttention, LinearAttention, OverlappingAttention

    layer = {
        "talking": lambda: mha.layers.TalkingAttention(16, 4),
        "composed": lambda: ComposableAttention(16, 4),
        "gated": lambda: mha.GatedAttention(16, 4),
        "collaborative": lambda: CollaborativeAttention(16, 4),
        "linear": lambda: LinearAttention(16, 4),
        "overlapping": lambda: OverlappingAttention(16, 4),
    }[kind]()
    with pytest.raises(ValueError, match=r"ov_circuit of \w+: .*so no one matrix.*mha\.watch"):
        ov_circuit(layer)
    if kind == "gated":
        assert qk_circuit(layer).shape == (4, 16, 16)
    else:
        with pytest.raises(ValueError, match=r"qk_circuit of \w+: .*so no one matrix"):
            qk_circuit(layer)


# ---- hooks


def test_an_edit_that_never_ran_says_so():
    layer = made()
    never = pytest.raises(RuntimeError, match=r"edit of heads never ran.*compile it inside the with")
    with never, mha.edit(layer, heads=lambda z: 0 * z):
        pass
    with pytest.raises(RuntimeError, match="nothing was seen"), mha.watch(layer):
        pass
    with pytest.raises(KeyError), mha.edit(layer, heads=lambda z: z):
        raise KeyError("an error of one's own stays")


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_model_that_does_not_see_an_edit_is_noticed(reader):
    layer, x = made(), torch.randn(1, 4, 16)
    fast = torch.compile(layer, backend="eager")
    whole = fast(x)
    with pytest.raises(RuntimeError, match="never ran"), mha.edit(layer, heads=lambda z: 0 * z):
        assert near(fast(x), whole)
    torch.compiler.reset()
    with mha.edit(layer, heads=lambda z: 0 * z):
        assert not near(fast(x), whole)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [False, True])
def test_an_edit_that_ends_before_its_checkpoint_is_computed_again_is_refused(reentrant):
    layer, x = made(), torch.randn(2, 4, 16, requires_grad=True)
    with mha.edit(layer, heads=lambda z: z * 0.5):
        layer(x).square().sum().backward()
    right = layer.W_q.weight.grad.clone()
    layer.zero_grad()
    with mha.edit(layer, heads=lambda z: z * 0.5):
        checkpoint(layer, x, use_reentrant=reentrant).square().sum().backward()
    assert near(layer.W_q.weight.grad, right)
    late = pytest.raises(RuntimeError, match=r"gradient checkpointing.*Call backward\(\) inside the with")
    with late, mha.edit(layer, heads=lambda z: z * 0.5):
        checkpoint(layer, x, use_reentrant=reentrant)
    with torch.no_grad(), mha.edit(layer, heads=lambda z: z * 0.5):  # nothing comes after it
        checkpoint(layer, x.detach(), use_reentrant=reentrant)


def test_a_copy_made_inside_an_edit_is_not_edited():
    layer, x = made(), torch.randn(1, 4, 16)
    with mha.edit(layer, heads=lambda z: 0 * z):
        other, edited = copy.deepcopy(layer), layer(x)
    assert near(other(x), layer(x))
    assert not near(edited, layer(x))


# ---- numbers


@pytest.mark.parametrize(("dtype", "n", "most"), [(torch.bfloat16, 600, 0.01), (torch.float16, 3000, 0.002)])
@pytest.mark.parametrize("steep", [False, True])
def test_linear_bias_counts_in_whole_numbers(dtype, n, most, steep):
    positions = mha.LinearBias(torch.tensor([0.3, 0.1, 0.03, 0.01]) if steep else None)
    layer = mha.MultiHeadAttention(32, 4, positions=positions).eval()
    small = copy.deepcopy(layer).to(dtype)
    layer.load_state_dict({name: w.double() for name, w in small.state_dict().items()})
    x = torch.randn(1, n, 32).to(dtype)
    with torch.no_grad():
        exact = layer(x.double(), is_causal=True)
        error = (small(x, is_causal=True).double() - exact).norm() / exact.norm()
    assert float(error) < most


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_padding_in_front_does_not_move_the_tokens(positions):
    how = {} if positions == "sinusoidal" else {"positions": lambda: mha.layers.LearnedPositions(20, 16)}
    model = LanguageModel(9, 16, 4, layers=2, **how).eval()
    short, long = torch.randint(1, 9, (1, 4)), torch.randint(1, 9, (1, 7))
    batch = torch.cat([torch.cat([torch.zeros(1, 3, dtype=torch.long), short], 1), long])
    with torch.no_grad():
        found = model(batch, cache=model.decoder.new_cache(16, padding=[3, 0]))
        assert near(found[:1, 3:], model(short))
        assert near(found[1:], model(long))
        cache, steps = model.decoder.new_cache(16, padding=[3, 0]), []
        for one in batch.split([4, 1, 2], 1):
            steps.append(model(one, cache=cache))
        assert near(torch.cat(steps, 1)[:1, 3:], model(short))
    together = model.generate(batch, 5, padding=[3, 0])
    assert torch.equal(together[:1, 3:], model.generate(short, 5))
    assert torch.equal(together[1:], model.generate(long, 5))
    with pytest.raises(ValueError, match=r"padding = \[3, 0\], cached = False"):
        model.generate(batch, 5, padding=[3, 0], cached=False)


def test_packed_sequences_say_their_positions(reader):
    model = LanguageModel(9, 16, 4).eval()
    one, two = torch.randint(0, 9, (1, 3)), torch.randint(0, 9, (1, 4))
    mask = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4)).bool()
    at = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    found = model(torch.cat([one, two], 1), mask, position_ids=at)
    assert near(found[:, :3], model(one))
    assert near(found[:, 3:], model(two))
    for wrong in (at[0], at.double(), at - 1, at[:, :5]):
        with pytest.raises(ValueError, match=r"(position_ids|start) = .*give .*position"):
            model(torch.cat([one, two], 1), position_ids=wrong)


# ---- one sequence in two tensors, caches, transforms


@pytest.mark.parametrize(
    "layer",
    [
        lambda: made(),
        lambda: made(positions=mha.RotaryPositions()),
        lambda: mha.LatentAttention(16, 4, 8).eval(),
        lambda: mha.DeltaAttention(16, 4).eval(),
    ],
    ids=["plain", "rotary", "latent", "delta"],
)
def test_the_same_sequence_given_three_times_is_one_sequence(layer):
    layer, x, norm = layer(), torch.randn(7, 2, 16), nn.LayerNorm(16)
    right = layer(x.transpose(0, 1), is_causal=True).transpose(0, 1)
    assert near(SeqFirst(layer)(x, x, x, is_causal=True), right)
    x = x.transpose(0, 1)
    assert near(layer(norm(x), norm(x), norm(x), is_causal=True), layer(norm(x), is_causal=True))
    with pytest.raises(ValueError, match="another"):
        layer(x, x + 1, x + 1, is_causal=True)


@pytest.mark.parametrize("cache", [LatentCache, StateCache])
@pytest.mark.parametrize("kind", [mha.MultiHeadAttention, mha.GatedAttention, mha.SinkAttention])
def test_a_cache_that_keeps_something_else_is_refused(cache, kind):
    with pytest.raises(ValueError, match=rf"{cache.__name__}, which keeps .*{kind.__name__} goes on from keys and val"):
        made(kind)(torch.randn(1, 3, 16), cache=cache(9), is_causal=True)


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore:There is a performance drop")
def test_forward_mode_and_vmap_of_per_sample_gradients():
    from torch.func import functional_call, grad, jacfwd, jacrev, vmap

    layer, x = mha.MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    assert near(jacfwd(layer)(x), jacrev(layer)(x))
    delta = mha.DeltaAttention(8, 2)
    inputs = torch.randn(3, 4, 8)

    def loss(parameters, x):
        return functional_call(delta, parameters, (x[None],), {"is_causal": True}).square().sum()

    parameters = dict(delta.named_parameters())
    found = vmap(grad(loss), (None, 0))(parameters, inputs)
    for n, one in enumerate(inputs):
        right = grad(loss)(parameters, one)
        assert all(near(found[name][n], right[name]) for name in right)


@pytest.mark.parametrize("way", ["watched", "formula"])
def test_second_derivatives_have_a_way(way):
    layer, x = made(), torch.randn(1, 3, 16, requires_grad=True)
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with mha.watch(layer, "weights") if way == "watched" else math:
        (slope,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
    assert float(x.grad.abs().max()) > 0


@torch.no_grad()
def test_an_exported_causal_layer_takes_every_batch_and_length(reader):
    layer, free = made(), torch.export.Dim.DYNAMIC
    shapes = {"query": {0: free, 1: free}, "is_causal": None}
    program = torch.export.export(layer, (torch.randn(2, 6, 16),), {"is_causal": True}, dynamic_shapes=shapes).module()
    for b, n in ((1, 1), (3, 1), (1, 7), (2, 70)):
        x = torch.randn(b, n, 16)
        assert near(program(x, is_causal=True), layer(x, is_causal=True))


def test_a_cut_layer_that_counts_all_heads_is_refused():
    layer = made()
    for name in FOUR[:3]:  # what a parallel plan does: this process computes two heads of four
        linear = getattr(layer, name)
        linear.weight, linear.bias = nn.Parameter(linear.weight[:8]), nn.Parameter(linear.bias[:8])
    with pytest.raises(ValueError, match=r"heads make 8 channels, but W_o takes 16.*shard_heads"):
        layer(torch.randn(1, 3, 16))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_read_or_refused(reader):
    rows = [torch.randn(3, 16), torch.randn(5, 16)]
    nested, layer = torch.nested.nested_tensor(rows, layout=torch.jagged), made()
    for found, one in zip(layer(nested).unbind(), rows, strict=True):
        assert near(found, layer(one[None])[0])
    for call in (
        lambda: layer(nested, is_causal=True),
        lambda: made(positions=mha.RotaryPositions())(nested),
        lambda: mha.GroupedAttention(16, 4, 2)(nested),
        lambda: mha.LinearAttention(16, 4)(nested),
    ):
        with pytest.raises(ValueError, match=r"query is a nested tensor.*to_padded_tensor.*padding_mask"):
            call()


def test_numbers_of_a_tokenizer_are_named_as_what_they_are():
    from mha.functional.masks import from_additive

    with pytest.raises(ValueError, match=r"this one holds 0 and 1: use mask\.bool\(\)"):
        from_additive(torch.tensor([[1.0, 1, 0], [1, 0, 0]]))


def test_only_own_weights_may_be_written():
    check_own_weights(made())
    with pytest.raises(ValueError, match="W_q is computed anew"):
        check_own_weights(pruned(made()))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mha.MultiHeadAttention(16, num_heads=4), r"has no keyword num_heads \(here: heads\)"),
        (lambda: mha.MultiHeadAttention(embed_dim=16, heads=4), r"embed_dim \(here: d_model\)"),
        (lambda: mha.MultiHeadAttention(16, 4, batch_first=True), "batch always comes first.*SeqFirst"),
        (lambda: mha.GroupedAttention(16, 4, num_key_value_heads=2), r"num_key_value_heads \(here: kv_heads"),
        (lambda: mha.MultiHeadAttention(16, 4, qkv_bias=False), 'qkv_bias .*bias="o"'),
        (lambda: made()(torch.randn(1, 3, 16), need_weights=True), r"MultiHeadAttention has no .*mha\.watch\(layer"),
        (lambda: made()(torch.randn(1, 3, 16), attn_mask=None), "attn_mask .*True = may look.*from_hidden"),
        (lambda: made()(torch.randn(1, 3, 16), use_causal_mask=True), "is_causal=True"),
        (lambda: mha.LinearAttention(16, 4)(torch.randn(1, 3, 16), past_key_values=None), "new_cache"),
    ],
)
def test_keywords_of_other_libraries_lead_to_ours(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_a_keyword_that_nobody_has_is_pythons_own_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'is_casual'"):
        made()(torch.randn(1, 3, 16), is_casual=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropuot'"):
        mha.MultiHeadAttention(16, 4, dropuot=0.1)
