"""What no function can take: tensors that are not dense, counts without an end, sizes without memory, other widths."""

import sys

import pytest
import torch

import mha
from mha import checks, layers, models
from mha.functional import delta_rule, group_heads, masks, positive_features
from mha.interop import SeqFirst
from mha.models import greedy
from mha.systems.roofline import measure_seconds

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR tensor support")

ROWS = [(3, 16), (5, 16)]
LAYOUTS = {
    "coo": lambda x: x.to_sparse(),
    "hybrid": lambda x: x.to_sparse(1),
    "csr": lambda x: x.to_sparse_csr(),
    "mkldnn": lambda x: x.to_mkldnn() if x.is_floating_point() else x.to_sparse(),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1, :2]]),
}
TAKE = {  # a call with a tensor in the place of a dense one, its name in the error, and the dense one
    "attend": (lambda x: mha.attend(x, x, x), "q", torch.randn(2, 4, 3, 4)),
    "weights": (lambda x: mha.attention_weights(x, x), "q", torch.randn(2, 4, 3, 4)),
    "split": (lambda x: mha.split_heads(x, 4), "x", torch.randn(2, 3, 16)),
    "merge": (mha.merge_heads, "heads", torch.randn(2, 4, 3, 4)),
    "features": (positive_features, "x", torch.randn(2, 3, 16)),
    "delta rule": (lambda x: delta_rule(x, x, x), "q", torch.randn(2, 4, 3, 4)),
    "query": (lambda x: mha.MultiHeadAttention(16, 4).to(x.dtype)(x), "query", torch.randn(2, 3, 16)),
    "sink": (lambda x: mha.SinkAttention(16, 4).to(x.dtype)(x), "query", torch.randn(2, 3, 16)),
    "one head": (lambda x: mha.SelfAttention(16).to(x.dtype)(x), "query", torch.randn(2, 3, 16)),
    "mask": (
        lambda x: mha.MultiHeadAttention(16, 4)(torch.randn(2, 3, 16), mask=x),
        "mask",
        torch.ones(3, 3, dtype=torch.bool),
    ),
    "mask of attend": (
        lambda x: mha.attend(*torch.randn(3, 2, 4, 3, 4), mask=x),
        "mask",
        torch.ones(3, 3, dtype=torch.bool),
    ),
    "combine": (lambda x: masks.combine(x, x), "mask", torch.ones(3, 3, dtype=torch.bool)),
    "block": (lambda x: models.EncoderLayer(16, 4).to(x.dtype)(x), "x", torch.randn(2, 3, 16)),
    "tokens": (models.LanguageModel(9, 16, 4), "tokens", torch.ones(2, 3, dtype=torch.long)),
    "logits": (greedy, "logits", torch.randn(2, 9)),
    "rotary": (mha.RotaryPositions().rotate, "x", torch.randn(2, 4, 3, 4)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TAKE)
def test_tensors_that_are_not_dense_are_refused_by_name_with_the_way_out(reader, name, layout):
    call, argument, x = TAKE[name]
    if layout == "csr" and x.ndim != 2:
        pytest.skip("torch makes these of matrices only, or of batches with equally many entries")
    with pytest.raises((TypeError, ValueError), match=rf"{argument} is .*(to_dense|to_padded_tensor)"):
        call(LAYOUTS[layout](x))


def ragged(*shapes):
    return torch.nested.nested_tensor([torch.randn(s) for s in shapes], layout=torch.jagged)


CANNOT = {
    "weights": lambda x: mha.attention_weights(split(x), split(x)),
    "explicit": lambda x: mha.attend(split(x), split(x), split(x), explicit=True),
    "causal": lambda x: mha.attend(split(x), split(x), split(x), is_causal=True),
    "edited": lambda x: mha.attend(split(x), split(x), split(x), edit_scores=lambda s: s),
    "delta rule": lambda x: delta_rule(split(x), split(x), split(x)),
    "sink": lambda x: mha.SinkAttention(16, 4)(x),
    "merged": lambda x: mha.MergedAttention(16, 4)(x, x),
    "one head": lambda x: mha.SelfAttention(16)(x),
    "latent": lambda x: mha.LatentAttention(16, 4, 8)(torch.randn(2, 3, 16), x),
    "beside a dense key": lambda x: mha.MultiHeadAttention(16, 4)(x, torch.randn(2, 4, 16)),
    "beside a dense query": lambda x: mha.MultiHeadAttention(16, 4)(torch.randn(2, 4, 16), x),
    "seq first": lambda x: SeqFirst(mha.MultiHeadAttention(16, 4))(x),
    "sinusoids": lambda x: layers.SinusoidalPositions()(x),
    "tokens": lambda x: models.LanguageModel(9, 16, 4)(x[..., 0].abs().long()),
}


def split(x):
    return mha.split_heads(x, 4)


@pytest.mark.parametrize("name", CANNOT)
def test_nested_tensors_are_refused_where_torch_has_no_kernel(reader, name):
    with pytest.raises(ValueError, match=r"is a nested tensor.*to_padded_tensor.*padding_mask"):
        CANNOT[name](ragged(*ROWS))


def test_nested_tensors_are_read_where_torch_has_a_kernel(reader):
    x, layer, block = ragged(*ROWS), mha.MultiHeadAttention(16, 4), models.EncoderLayer(16, 4).eval()
    for read in (layer, block, lambda x: mha.merge_heads(mha.attend(split(x), split(x), split(x)))):
        for found, row in zip(read(x).unbind(), x.unbind(), strict=True):
            torch.testing.assert_close(found, read(row[None])[0])


@pytest.mark.parametrize("number", [10**9, 10**12, sys.maxsize])
def test_counts_of_loops_without_an_end_are_refused(reader, number):
    for name, call in {
        "starts": lambda: group_heads(torch.eye(4), 2, starts=number),
        "layers": lambda: layers.overlap_schedule(number),
        "length": lambda: models.unroll(lambda t: torch.zeros(1, 9), torch.zeros(1, 1, dtype=torch.long), number),
        "rounds": lambda: measure_seconds([int], number),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} = {number}: it must be at most \d+"):
            call()
    model = models.EncoderDecoder(9, 9, 16, 4)
    for call in (
        lambda: models.LanguageModel(9, 16, 4).generate(torch.ones(1, 2, dtype=torch.long), number),
        lambda: model.generate(torch.ones(1, 2, dtype=torch.long), number, start=0),
    ):
        with pytest.raises(ValueError, match=f"length = {number}: it must be at most"):
            call()


@pytest.mark.parametrize("number", [10**12, sys.maxsize])
def test_sizes_that_no_memory_holds_are_named(reader, number):
    for name, call in {
        "d_model": lambda: mha.MultiHeadAttention(number, 1),
        "d_head": lambda: mha.GroupedAttention(16, 4, 2, d_head=number),
        "vocab_size": lambda: models.LanguageModel(number, 16, 4),
        "n": lambda: layers.one_hot_positions(number),
        "i": lambda: mha.causal_mask(number),
        "j": lambda: mha.sliding_window(3, 2, number),
        "lengths": lambda: mha.padding_mask([number]),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} = {number}.*no memory for so much"):
            call()
    layer, x = mha.MultiHeadAttention(16, 4), torch.randn(2, 3, 16)
    with torch.no_grad(), pytest.raises(ValueError, match=f"capacity = {number}.*no memory"):
        layer(x, cache=layer.new_cache(number), is_causal=True)


def test_an_error_of_memory_that_no_size_explains_stays_what_it_is():
    @checks.checked
    def fail(n: int, error: object) -> None:
        raise error

    for error in (MemoryError("small"), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        with pytest.raises(type(error)):
            fail(3, error)
    with pytest.raises(RuntimeError, match="other"):
        fail(10**9, RuntimeError("other"))


def test_heads_are_aligned_on_tokens_of_the_layers_width_only(reader):
    layer = mha.MultiHeadAttention(16, 4)
    for shape, message in (
        ((2, 9, 5), r"x of shape \(2, 9, 5\) has 5 channels, but this layer was built for 16"),
        ((2, 0, 16), r"x has shape \(2, 0, 16\): an empty"),
    ):
        with pytest.raises(ValueError, match=message):
            layers.align_heads(layer, torch.randn(shape), 2)
    with pytest.raises(TypeError, match=r"x has dtype torch\.float32, but the weights have torch\.float64"):
        layers.align_heads(layer, torch.randn(2, 9, 16).float(), 2)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_heads_of_unknown_likeness_are_not_grouped(reader, bad):
    alike = torch.eye(4)
    alike[1, 2] = bad
    with pytest.raises(ValueError, match=r"alike of shape \(4, 4\) holds NaN or infinity"):
        group_heads(alike, 2)
