"""A smaller cache: numbers of few bits, and the choice of keys that stay."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha.functional import attention_weights, heaviest_keys, round_to_bits


def by_hand(row, bits):
    """One group in plain Python."""
    low, high = min(row), max(row)
    step = (high - low) / (2**bits - 1)
    return [low + step * round((x - low) / step) if step else low for x in row]


@given(bits=st.integers(1, 8), along=st.sampled_from([-1, -2, 1, 2, 3]), seed=st.integers(0, 99))
def test_each_group_is_rounded_by_hand(bits, along, seed):
    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found, last = round_to_bits(x, bits, along=along), x.movedim(along, -1)
    right = torch.tensor([by_hand(row, bits) for row in last.flatten(0, -2).tolist()], dtype=torch.float64)
    assert torch.allclose(found.movedim(along, -1).flatten(0, -2), right, atol=1e-12)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_it_is_torch_s_rounding_with_a_range_for_each_channel(bits):
    torch.manual_seed(0)
    x, most = 3 * torch.randn(6, 50) + 1, 2**bits - 1
    low = x.amin(1)
    step = (x.amax(1) - low) / most
    right = torch.fake_quantize_per_channel_affine(x, step.float(), (-low / step).float(), 0, 0, most)
    found = round_to_bits(x, bits)
    half_way = ((x - low[:, None]) / step[:, None] % 1 - 0.5).abs() < 1e-4  # there the last digit decides
    assert torch.allclose(found[~half_way], right[~half_way], atol=1e-5)
    assert half_way.sum() < 3


def test_groups_have_a_range_of_their_own():
    x = torch.tensor([[0.0, 1.0, 0.4, 100.0, 300.0, 180.0]])
    assert torch.allclose(round_to_bits(x, 1, group=3), torch.tensor([[0.0, 1.0, 0.0, 100.0, 300.0, 100.0]]))
    assert torch.allclose(round_to_bits(x, 1), torch.tensor([[0.0, 0.0, 0.0, 0.0, 300.0, 300.0]]))
    apart = torch.cat([round_to_bits(part, 2) for part in x.split(3, 1)], 1)
    assert torch.equal(round_to_bits(x, 2, group=3), apart)
    assert torch.equal(round_to_bits(x.mT, 2, along=0, group=3), apart.mT)


@given(bits=st.integers(1, 16), seed=st.integers(0, 99))
def test_the_error_is_at_most_half_a_step_and_rounding_twice_changes_nothing(bits, seed):
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    once = round_to_bits(x, bits)
    step = (x.amax(-1) - x.amin(-1)) / (2**bits - 1)
    assert ((once - x).abs().amax(-1) <= step / 2 + 1e-12).all()
    assert torch.allclose(round_to_bits(once, bits), once, atol=1e-12)
    assert all(len(row.unique()) <= 2**bits for row in once)


def test_equal_numbers_stay_as_they_are():
    assert torch.equal(round_to_bits(torch.full((2, 3), 0.1), 2), torch.full((2, 3), 0.1))


def test_what_cannot_be_rounded_is_refused(reader):
    x = torch.ones(2, 6)
    with pytest.raises(ValueError, match="bits = 0: it must be at least 1"):
        round_to_bits(x, 0)
    with pytest.raises(ValueError, match="bits = 17: it must be at most 16"):
        round_to_bits(x, 17)
    with pytest.raises(ValueError, match=r"along = 2: x \(2, 6\) has axes -2 to 1"):
        round_to_bits(x, 2, along=2)
    with pytest.raises(ValueError, match="group = 4: axis -1 has 6 numbers, which groups of 4 do not fill"):
        round_to_bits(x, 2, group=4)
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        round_to_bits(torch.tensor([1.0, torch.inf]), 2)


def weights(h=4, i=7, j=7, seed=0):
    q, k = torch.randn(2, 2, h, max(i, j), 8, generator=torch.Generator().manual_seed(seed))
    return attention_weights(q[:, :, :i], k[:, :, :j])


@given(kept=st.integers(1, 7), queries=st.integers(1, 7), kv_heads=st.sampled_from([1, 2, 4]), seed=st.integers(0, 9))
def test_the_heaviest_keys_are_found_by_sorting(kept, queries, kv_heads, seed):
    p = weights(seed=seed)
    found = heaviest_keys(p, kept, queries=queries, kv_heads=kv_heads)
    assert found.shape == (2, kv_heads, 7)
    for b in range(2):
        for g in range(kv_heads):
            heads = range(g * 4 // kv_heads, (g + 1) * 4 // kv_heads)
            sums = [sum(p[b, h, i, j].item() for h in heads for i in range(7 - queries, 7)) for j in range(7)]
            best = sorted(range(7), key=lambda j: -sums[j])[:kept]
            assert found[b, g].nonzero().flatten().tolist() == sorted(best)


def test_a_smoothed_choice_keeps_neighbors():
    p = torch.zeros(1, 1, 1, 8)
    p[..., 4], p[..., 0] = 0.7, 0.3
    assert heaviest_keys(p, 3, smooth=3)[0, 0].nonzero().flatten().tolist() == [3, 4, 5]
    assert heaviest_keys(p, 2)[0, 0].nonzero().flatten().tolist() == [0, 4]


def test_a_choice_that_cannot_be_made_is_refused(reader):
    p = weights()
    with pytest.raises(ValueError, match=r"kept = 8: weights \(2, 4, 7, 7\) are of 7 keys"):
        heaviest_keys(p, 8)
    with pytest.raises(ValueError, match="queries = 0: it must be at least 1"):
        heaviest_keys(p, 3, queries=0)
    with pytest.raises(ValueError, match=r"queries = 8: weights \(2, 4, 7, 7\) are of 7 queries"):
        heaviest_keys(p, 3, queries=8)
    with pytest.raises(ValueError, match="holds NaN"):
        heaviest_keys(p.where(p > 0.5, torch.nan), 3)
    with pytest.raises(ValueError, match="kv_heads = 3: 4 heads cannot be shared out among 3"):
        heaviest_keys(p, 3, kv_heads=3)
    with pytest.raises(ValueError, match="smooth = 2: give an odd number"):
        heaviest_keys(p, 3, smooth=2)
