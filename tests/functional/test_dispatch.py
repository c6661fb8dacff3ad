"""Reading where a gate is open gives what reading everywhere and multiplying by the gate gives."""

import pytest
import torch
from oracle import LIMIT, error

import mha
from mha.functional.dispatch import PIECE, read_where

B, H, D, C = 2, 5, 3, 4


def tensors(i, j):
    q, k = torch.randn(B, H, i, D), torch.randn(B, H, j, D)
    return q, k, torch.randn(B, H, j, C)


def gates(i, *, uneven=False):
    """Head 0 works always, head 1 never, the others for some; one of them for far more queries than the rest."""
    shares = torch.tensor([1.0, 0.0, 0.4, 0.95 if uneven else 0.4, 0.02 if uneven else 0.4])
    made = torch.rand(B, H, i) * (torch.rand(B, H, i) < shares[:, None])
    made[:, 0] += 0.1
    return made


MASKS = {
    "no mask": lambda i, j: None,
    "one for all": lambda i, j: torch.rand(i, j) < 0.6,
    "of texts": lambda i, j: torch.rand(B, 1, 1, j) < 0.6,
    "of texts and queries": lambda i, j: torch.rand(B, 1, i, j) < 0.6,
    "of heads": lambda i, j: torch.rand(B, H, i, j) < 0.6,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize(("i", "j"), [(6, 6), (4, 9), (9, 4), (1, 7), (PIECE + 3, PIECE + 10)])
@pytest.mark.parametrize("uneven", [False, True], ids=["", "uneven"])
def test_only_open_gates_are_read_and_the_numbers_are_the_same(mask, is_causal, i, j, uneven):
    q, k, v = (x.requires_grad_() for x in tensors(i, j))
    shown, open_gates = MASKS[mask](i, j), gates(i, uneven=uneven)
    if is_causal and shown is None and i > j:
        with pytest.raises(ValueError, match=f"{i} queries and {j} keys"):
            read_where(open_gates, q, k, v, shown, is_causal=is_causal)
        return
    found = read_where(open_gates, q, k, v, shown, is_causal=is_causal)
    right = mha.attend(q, k, v, shown, is_causal=is_causal) * open_gates[..., None]
    assert error(found, right) < LIMIT
    weight = torch.randn_like(right)
    slopes = [torch.autograd.grad((y * weight).sum(), (q, k, v)) for y in (found, right)]
    assert error(*slopes) < LIMIT
    with torch.no_grad():
        assert error(read_where(open_gates, q, k, v, shown, is_causal=is_causal), right) < LIMIT
