"""What the final project asks to be proved, and its layer beside another library's."""

import pytest
import torch
from oracle import LIMIT, error

import mha
from mha.analysis import leaks
from mha.course.exercises.final_project import Differential, _differential

B, N, D_MODEL, HEADS = 2, 5, 12, 3
D = D_MODEL // (2 * HEADS)


def layer(number=2):
    made = Differential(D_MODEL, HEADS, number)
    with torch.no_grad():
        for weight in made.parameters():
            weight += 0.5 * torch.randn_like(weight)
    return made


def words():
    return torch.randn(B, N, D_MODEL)


def test_without_the_second_map_and_the_norm_it_is_plain_attention_with_twice_as_many_heads():
    made, x, mask = layer(), words(), mha.causal_mask(N)
    plain = mha.MultiHeadAttention(D_MODEL, 2 * HEADS, bias=False)
    with torch.no_grad():
        for name in ("W_q", "W_k"):  # head h of the project is heads 2h and 2h + 1 of the plain layer: they look alike
            first_map = getattr(made, name).weight[: D_MODEL // 2].unflatten(0, (HEADS, D))
            getattr(plain, name).weight.copy_(first_map.repeat_interleave(2, 0).flatten(0, 1))
        plain.W_v.weight.copy_(made.W_v.weight)
        plain.W_o.weight.copy_(made.W_o.weight)
    q, k = (mha.split_heads(getattr(made, name)(x).chunk(2, -1)[0], HEADS) for name in ("W_q", "W_k"))
    read = _differential(q, k, q, k, mha.split_heads(made.W_v(x), HEADS), 0.0, mask)
    assert error(made.W_o(mha.merge_heads(read)), plain(x, mask=mask)) < LIMIT


def test_it_is_that_of_another_library():
    modeling = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    made, x = layer(number=3), words()
    config = modeling.DiffLlamaConfig(
        hidden_size=D_MODEL, num_attention_heads=2 * HEADS, num_key_value_heads=2 * HEADS, rms_norm_eps=1e-5
    )
    config._attn_implementation = "eager"
    theirs = modeling.DiffLlamaAttention(config, layer_idx=2).double()  # they count from 0
    assert theirs.lambda_init == pytest.approx(made.start)
    made.norm.weight.data.fill_(1.0)  # theirs has no gain
    one_by_one = made.W_v.weight.unflatten(0, (HEADS, 2, D)).transpose(0, 1)  # first halves of all heads, second halves
    theirs.load_state_dict(
        {
            "q_proj.weight": made.W_q.weight,
            "k_proj.weight": made.W_k.weight,
            "v_proj.weight": one_by_one.reshape(D_MODEL, D_MODEL),
            "o_proj.weight": made.W_o.weight,
            **{name: getattr(made, name) for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
        }
    )
    unturned = torch.ones(B, N, D), torch.zeros(B, N, D)
    hidden = torch.zeros(N, N).masked_fill(~mha.causal_mask(N), -torch.inf).expand(B, 1, N, N)
    found = theirs(x, unturned, hidden)[0]
    assert error(made(x, mha.causal_mask(N)), found) < 1e-6  # λ and their softmax are made in float32


def test_it_sees_no_future_and_reads_zeros_where_nothing_is_to_be_seen():
    made, x = layer(), words()
    assert not leaks(lambda x: made(x, mha.causal_mask(N)), x)
    nothing = mha.causal_mask(N) & (torch.arange(N) > 0)[:, None]
    y = made(x.requires_grad_(), nothing)
    assert y[:, 0].abs().max() == 0
    y.square().sum().backward()
    assert all(w.grad.isfinite().all() for w in (x, *made.parameters()))


def test_the_first_word_does_not_depend_on_lambda():
    made, x = layer(), 10 * words()  # large words: what stands under the root of the norm does not count
    for name in ("lambda_q1", "lambda_k1"):
        getattr(made, name).data.fill_(0.1)
    made.lambda_q2.data.zero_()  # λ is its start and a little more: below 1, where the read would change its sign
    before = made(x, mha.causal_mask(N)).detach()
    made.lambda_q1.data += 0.5
    after = made(x, mha.causal_mask(N)).detach()
    assert error(after[:, 0], before[:, 0]) < 1e-3
    assert error(after[:, 1:], before[:, 1:]) > 1e-2


def test_its_weights_are_those_of_a_plain_layer_and_six_rows_more():
    assert sum(p.numel() for p in layer().parameters()) == 4 * D_MODEL**2 + 6 * D
