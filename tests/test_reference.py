"""The oracle itself: against numbers worked out by hand, against torch, and where nothing is installed."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, Dual, error
from torch import nn

from mha import reference
from mha.reference import EXAMPLE

sizes = st.integers(1, 5)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_small_numbers_come_out_as_on_paper():
    assert reference.dot([1, 2, 3], [4, 5, 6]) == 32
    assert reference.transpose([[1, 2, 3], [4, 5, 6]]) == [[1, 4], [2, 5], [3, 6]]
    assert reference.matmul([[1, 2]], [[3, 4], [5, 6]]) == [[13, 16]]
    assert reference.softmax([math.log(1), math.log(3)]) == pytest.approx([0.25, 0.75], abs=1e-15)
    assert reference.attention_scores([[3, 4]], [[4, 3], [0, 1]])[0] == pytest.approx([24 / 2**0.5, 4 / 2**0.5])
    assert reference.attention_scores([[3, 4]], [[4, 3]], scale=1) == [[24]]
    assert reference.attention_weights([[0]], [[1], [2]]) == [[0.5, 0.5]]
    assert reference.attention([[0]], [[1], [2]], [[2, 4], [6, 0]]) == [[4, 2]]
    assert reference.causal_mask(3) == [[True, False, False], [True, True, False], [True, True, True]]


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=8))
def test_softmax_is_that_of_torch_and_never_overflows(row):
    found = torch.tensor(reference.softmax(row))
    assert error(found, torch.tensor(row).softmax(0)) < LIMIT
    assert error(torch.tensor(reference.softmax([x + 1e4 for x in row])).sum(), torch.tensor(1.0)) < LIMIT


def test_softmax_of_nothing_to_choose_from_is_zeros():
    assert reference.softmax([-math.inf] * 3) == [0, 0, 0]
    assert reference.softmax([-math.inf, 5.0]) == [0, 1]


@given(sizes, sizes, sizes, sizes, st.booleans())
def test_attention_is_that_of_torch(i, j, d, c, masked):
    q, k, v = rows(i, d, seed=1), rows(j, d, seed=2), rows(j, c, seed=3)
    mask = (rows(i, j, seed=4) < 0.5) if masked else None
    if masked:
        mask[:, 0] = True  # torch's kernels disagree about empty rows, so every query may look at something
    found = torch.tensor(
        reference.attention(q.tolist(), k.tolist(), v.tolist(), None if mask is None else mask.tolist())
    )
    assert error(found, F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]) < LIMIT


@given(sizes, sizes, st.integers(1, 3), sizes, st.sampled_from(["self", "cross", "causal"]))
def test_several_heads_are_those_of_torch_with_copied_weights(i, j, h, d, kind):
    m, j = h * d, i if kind != "cross" else j
    theirs = nn.MultiheadAttention(m, h, bias=False, batch_first=True)
    x, memory = rows(i, m, seed=5), rows(j, m, seed=6)
    w_q, w_k, w_v = (w.T.tolist() for w in theirs.in_proj_weight.detach().chunk(3))
    mask = reference.causal_mask(i) if kind == "causal" else None
    key = memory if kind == "cross" else x
    found = reference.multi_head_attention(
        x.tolist(), w_q, w_k, w_v, theirs.out_proj.weight.T.tolist(), h, key.tolist() if kind == "cross" else None, mask
    )
    right = theirs(x[None], key[None], key[None], attn_mask=None if mask is None else ~torch.tensor(mask))[0][0]
    assert error(torch.tensor(found), right.detach()) < LIMIT


def test_vectors_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="length 2 with one of length 3: they must be equally long"):
        reference.dot([1, 2], [1, 2, 3])


def test_the_running_example_fits_together():
    words, width = len(EXAMPLE["words"]), len(EXAMPLE["channels"])
    assert [len(EXAMPLE["x"]), *map(len, EXAMPLE["x"])] == [words] + [width] * words
    for name in ("w_q", "w_k", "w_v", "w_o"):
        assert [len(EXAMPLE[name]), *map(len, EXAMPLE[name])] == [width] * (width + 1)
    assert len(EXAMPLE["money"]) == width == EXAMPLE["heads"] * 2
    weights = {name: EXAMPLE[name] for name in ("w_q", "w_k", "w_v", "w_o", "heads")}
    river = reference.multi_head_attention(EXAMPLE["x"], **weights)
    money = [EXAMPLE["x"][0], EXAMPLE["money"], EXAMPLE["x"][2]]
    assert river[2] != reference.multi_head_attention(money, **weights)[2]  # "bank" reads another neighbor


def test_the_slopes_of_the_test_numbers_are_those_of_the_formulas():
    x = Dual(3.0, 1.0)
    assert ((x * x - 2 * x + 1) / x).value == pytest.approx(4 / 3)
    assert ((x * x - 2 * x + 1) / x).slope == pytest.approx(1 - 1 / 9)


ALONE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"mha", *sys.stdlib_module_names}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Nothing())
import runpy
oracle = runpy.run_path(sys.argv[1])
print(oracle["attention"]([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0]]))
"""


def test_the_oracle_runs_where_neither_torch_nor_numpy_is_installed():
    told = subprocess.run([sys.executable, "-c", ALONE, reference.__file__], capture_output=True, text=True, check=True)
    assert told.stdout == "[[1.0]]\n"
