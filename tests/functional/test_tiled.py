"""Attention in tiles gives what the fused kernel and the formula give."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, error

import mha
from mha.functional import tiled_attention


@st.composite
def situations(draw):
    """Sizes, a tile, and a mask that may leave rows with nothing to look at."""
    b, h, i, j, d, c = (draw(st.integers(1, most)) for most in (2, 2, 6, 6, 3, 3))
    q, k, v = torch.randn(b, h, i, d), torch.randn(b, h, j, d), torch.randn(b, h, j, c)
    seed = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    shape = draw(st.sampled_from([(i, j), (b, 1, 1, j), (b, h, i, j), (1, h, i, 1)]))
    mask = torch.rand(shape, generator=seed) < 0.5 if draw(st.booleans()) else None
    return (q, k, v, mask), {"is_causal": draw(st.booleans()), "tile": draw(st.integers(1, 8))}


@given(situations())
def test_tiles_give_what_the_whole_gives(situation):
    inputs, how = situation
    right = mha.attend(*inputs, is_causal=how["is_causal"], explicit=True)
    assert error(tiled_attention(*inputs, **how), right) < LIMIT


@pytest.mark.parametrize("tile", [1, 5, 16, 33, 64])
@pytest.mark.parametrize("is_causal", [False, True])
def test_tiles_give_what_the_fused_kernel_gives(is_causal, tile):
    q, k, v = (torch.randn(2, 3, 33, 8, requires_grad=True) for _ in range(3))
    right = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    found = tiled_attention(q, k, v, is_causal=is_causal, tile=tile)
    assert error(found, right) < LIMIT
    pull = torch.randn_like(right)
    found, right = (torch.autograd.grad(y, (q, k, v), pull) for y in (found, right))
    assert error(found, right) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_a_query_with_nothing_to_look_at_reads_zeros_and_passes_no_nan_back(dtype):
    q, k, v = (torch.randn(1, 2, 5, 4).to(dtype).requires_grad_() for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril(-2)
    y = tiled_attention(q, k, v, mask, tile=2)
    assert y[:, :, :2].abs().max() == 0
    y.float().square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_huge_scores_do_not_overflow():
    q, k, v = (1000 * torch.randn(1, 1, 9, 4) for _ in range(3))
    assert error(tiled_attention(q, k, v, tile=2), F.scaled_dot_product_attention(q, k, v)) < LIMIT


def test_no_tensor_of_all_weights_is_made():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            self.most = max(self.most, getattr(result, "numel", lambda: 0)())
            return result

    q, k, v = (torch.randn(1, 1, 64, 4) for _ in range(3))
    with Largest() as tiles:
        tiled_attention(q, k, v, tile=8)
    with Largest() as whole:
        mha.attend(q, k, v, explicit=True)
    assert tiles.most == 64 * 8
    assert whole.most == 64 * 64


def test_bad_input_is_refused(reader):
    q = torch.randn(1, 1, 3, 4)
    with pytest.raises(ValueError, match="tile = 0: it must be at least 1"):
        tiled_attention(q, q, q, tile=0)
    with pytest.raises(ValueError, match="query can only be compared"):
        tiled_attention(q, torch.randn(1, 1, 3, 5), q)
    with pytest.raises(TypeError, match="may look"):
        tiled_attention(q, q, q, torch.zeros(3, 3))
