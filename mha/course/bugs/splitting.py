"""Bugs of splitting heads, merging them, and of the matrices around them.

:Taught in: why_many_heads, split_and_merge, output_projection, cache_and_sharing, across_machines.
"""

import copy

import torch
from torch import nn

from mha.course.bugs.exhibit import Exhibit

X = torch.arange(24.0).view(1, 6, 4)  # 6 tokens of 4 channels


HEADS = torch.arange(24.0).view(1, 2, 6, 2)  # 2 heads of width 2


def cut_by_view(x, heads):
    """Split the heads with view alone."""
    b, n, m = x.shape
    return x.view(b, heads, n, m // heads)


def cut_by_view_and_transpose(x, heads):
    """Split the channels of each token, then bring the heads to the front."""
    b, n, m = x.shape
    return x.view(b, n, heads, m // heads).transpose(1, 2)


def shuffled_tokens_stay_tokens(cut):
    """Shuffle the tokens: each head must hold the same tokens, shuffled in the same way."""
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    return torch.equal(cut(X[:, order], 2), cut(X, 2)[:, :, order])


def join_by_reshape(heads):
    """Put the heads side by side without moving the token axis back."""
    b, h, n, d = heads.shape
    return heads.reshape(b, n, h * d)


def join_by_transpose(heads):
    """Move the token axis back, then put the heads side by side."""
    b, h, n, d = heads.shape
    return heads.transpose(1, 2).reshape(b, n, h * d)


def a_row_holds_one_token(join):
    """Fill each head output with the index of its token: a merged row must hold one number only."""
    indices = torch.arange(6.0).view(1, 1, 6, 1).expand(1, 2, 6, 2)
    return bool((join(indices) == torch.arange(6.0)[None, :, None]).all())


def project_after_the_cut(x, w, heads):
    """Give each head a part of the token's channels, and project that part."""
    parts = zip(x.chunk(heads, -1), w.chunk(heads, 1), strict=True)
    return torch.stack([part @ columns[: part.shape[-1]] for part, columns in parts], 1)


def project_before_the_cut(x, w, heads):
    """Give each head all channels: project first, then split."""
    return cut_by_view_and_transpose(x @ w, heads)


def every_head_sees_every_channel(project):
    """Change one channel of all tokens: every head must notice."""
    w = torch.linspace(-1, 2, 16).view(4, 4)
    changed = X + torch.tensor([0.0, 0.0, 0.0, 1.0])
    return bool((project(changed, w, 2) != project(X, w, 2)).flatten(2).any(-1).all())


def copies_of_one(width):
    """Make the four matrices of a layer by copying one."""
    one = nn.Linear(width, width)
    return [copy.deepcopy(one) for _ in range(4)]


def four_of_their_own(width):
    """Make the four matrices of a layer one by one."""
    return [nn.Linear(width, width) for _ in range(4)]


def no_two_are_initialized_alike(make):
    """No two of the matrices may be initialized with the same numbers."""
    weights = [linear.weight for linear in make(4)]
    return not any(torch.equal(weights[i], weights[j]) for i in range(4) for j in range(i))


def heads_in_a_list(heads):
    """Keep the heads of a layer in a Python list."""
    layer = nn.Module()
    layer.heads = [nn.Linear(4, 2) for _ in range(heads)]
    return layer


def heads_in_a_module_list(heads):
    """Keep the heads of a layer in a ModuleList, where the layer can find them."""
    layer = nn.Module()
    layer.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(heads))
    return layer


def every_head_can_be_trained(make):
    """Count the parameters that an optimizer would get."""
    return sum(p.numel() for p in make(3).parameters()) == 3 * (4 * 2 + 2)


def keys_tiled(k, group):
    """Repeat shared keys for the query heads: all of them, then all of them again."""
    return k.repeat(1, group, 1, 1)


def keys_interleaved(k, group):
    """Repeat shared keys for the query heads: each as often as it has query heads."""
    return k.repeat_interleave(group, 1)


def neighbors_share_a_key(repeat):
    """Of 4 query heads with 2 KV heads, 0 and 1 share the first KV head, 2 and 3 the second."""
    k = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    return repeat(k, 2).flatten().tolist() == [0, 0, 1, 1]


def bias_on_every_process(parts, blocks, bias):
    """Add up what the processes computed, each with the bias."""
    return sum(part @ block + bias for part, block in zip(parts, blocks, strict=True))


def bias_once(parts, blocks, bias):
    """Add up what the processes computed, then add the bias."""
    return sum(part @ block for part, block in zip(parts, blocks, strict=True)) + bias


def two_processes_equal_one(add_up):
    """Two processes must give what one process gives."""
    w, bias, x = torch.linspace(-1, 1, 16).view(4, 4), torch.ones(4), X[0]
    return torch.allclose(add_up(x.chunk(2, 1), w.chunk(2), bias), x @ w + bias)


SPLITTING = (
    Exhibit(
        "Heads split with view alone",
        "The loss falls, but the model stays bad at anything that needs a precise look-up.",
        "Nobody, for years: shapes fit, sequences of a batch stay apart, and easy tasks are solved.",
        cut_by_view,
        cut_by_view_and_transpose,
        shuffled_tokens_stay_tokens,
        lambda f: f(X, 2).shape == (1, 2, 6, 2),
        ("jadore801120/attention-is-all-you-need-pytorch#7", "reczoo/FuxiCTR#30"),
        "split_and_merge#a-bug-from-the-wild-view-without-transpose",
    ),
    Exhibit(
        "Heads merged without the transpose back",
        "The loss falls, and the model even solves a copying task.",
        "A reader who compares the output with a loop over heads.",
        join_by_reshape,
        join_by_transpose,
        a_row_holds_one_token,
        lambda f: f(HEADS).shape == (1, 6, 4),
        ("jsbaan/transformer-from-scratch#6", "649453932/Chinese-Text-Classification-Pytorch#53"),
        "split_and_merge#a-bug-from-the-wild-view-without-transpose",
    ),
    Exhibit(
        "The input is split, and not its projection",
        "The layer has fewer parameters than it should, and more heads make it worse.",
        "People who count the parameters.",
        project_after_the_cut,
        project_before_the_cut,
        every_head_sees_every_channel,
        lambda f: f(X, torch.ones(4, 4), 2).shape == (1, 2, 6, 2),
        ("MarcoMeter/episodic-transformer-memory-ppo#22",),
        "one_wide_layer#which-channels-does-a-head-read",
    ),
    Exhibit(
        "Four copies of one matrix",
        "Before any training, every token attends to itself.",
        "People who plot the attention weights of an untrained layer.",
        copies_of_one,
        four_of_their_own,
        no_two_are_initialized_alike,
        lambda f: [tuple(linear.weight.shape) for linear in f(4)] == [(4, 4)] * 4,
        ("harvardnlp/annotated-transformer#9", "pytorch/pytorch#86274"),
        "why_many_heads#a-bug-from-the-wild-heads-that-start-as-copies",
    ),
    Exhibit(
        "Heads in a plain list",
        "The loss does not move, or the optimizer says that its list of parameters is empty.",
        "The optimizer, if nothing else in the model can be trained; otherwise nobody.",
        heads_in_a_list,
        heads_in_a_module_list,
        every_head_can_be_trained,
        lambda f: len(f(3).heads) == 3 and f(3).heads[0](X).shape == (1, 6, 2),
        ("pytorch/pytorch#666", "pytorch/pytorch#715"),
        "why_many_heads#a-bug-from-the-wild-heads-that-start-as-copies",
    ),
    Exhibit(
        "Shared KV heads repeated in the wrong order",
        "A converted model generates fluent nonsense, although every parameter was loaded.",
        "People who compare the converted model with the program that its parameters came from.",
        keys_tiled,
        keys_interleaved,
        neighbors_share_a_key,
        lambda f: f(torch.zeros(1, 2, 3, 4), 2).shape == (1, 4, 3, 4),
        ("onnx/onnx#7274", "ekzhang/jax-js#180"),
        "cache_and_sharing",
    ),
    Exhibit(
        "The bias is added by every process",
        "The model works on one device and gets worse with each additional one.",
        "People who compare one process with two.",
        bias_on_every_process,
        bias_once,
        two_processes_equal_one,
        lambda f: f(X[0].chunk(2, 1), torch.ones(4, 4).chunk(2), torch.ones(4)).shape == (6, 4),
        ("huggingface/text-generation-inference#1036", "awslabs/slapo#10"),
        "across_machines",
    ),
)
