"""Bugs of a right layer inside somebody else's program: other axes, adapters, checkpoints, caches, half precision.

:Taught in: split_and_merge, output_projection, positions, pruning_heads, counting_cost, cache_and_sharing,
    across_machines, overwrite.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(39)


X = torch.randn(6, 2, 8, generator=RANDOM)  # (token, batch, channel)
W = torch.randn(8, 8, generator=RANDOM) / 8**0.5
A, B = torch.randn(8, 2, generator=RANDOM), torch.randn(2, 8, generator=RANDOM)


def distances_in_the_type_of_the_scores(n, dtype):
    """Make the distances of all pairs of positions, in the type of the scores."""
    positions = torch.arange(n, dtype=dtype)
    return (positions[:, None] - positions).abs()


def distances_in_whole_numbers(n, dtype):
    """Make the distances of all pairs of positions in whole numbers, and convert them at the end."""
    positions = torch.arange(n)
    return (positions[:, None] - positions).abs().to(dtype)


def neighbors_are_one_step_apart(distances):
    """Each token is one step from the token before it, however long the sequence is."""
    return bool((distances(600, torch.bfloat16).diagonal(-1) == 1).all())


def attend_over_the_second_axis(x):
    """Attend within x (token, batch, channel), as code does that expects the batch first."""
    return F.scaled_dot_product_attention(x, x, x)


def attend_over_the_first_axis(x):
    """Attend within x (token, batch, channel)."""
    x = x.transpose(0, 1)
    return F.scaled_dot_product_attention(x, x, x).transpose(0, 1)


def sequences_are_apart(attend):
    """One sequence of a batch must not change when another one does."""
    other = X.clone()
    other[:, 1] += 1
    return torch.allclose(attend(X)[:, 0], attend(other)[:, 0])


class WithAdapter(nn.Module):
    """A projection with a low-rank adapter (LoRA)."""

    def __init__(self, b):
        super().__init__()
        self.base = nn.Linear(8, 8, bias=False)
        self.base.weight, self.b = nn.Parameter(W), b

    @property
    def weight(self):
        """The weight of the base, so that old code goes on working."""
        return self.base.weight

    def forward(self, x):
        """Project, and add what the adapter has learned."""
        return self.base(x) + x @ A @ self.b


def head_from_the_weight(projection, x, rows):
    """Compute one head's queries from its rows of the weight."""
    return x @ projection.weight[rows].T


def head_from_the_call(projection, x, rows):
    """Compute one head's queries by calling the projection."""
    return projection(x)[..., rows]


def the_adapter_takes_part(queries):
    """An adapter that is not zero must change the queries of a head."""
    rows = slice(0, 4)
    return not torch.allclose(queries(WithAdapter(B), X, rows), queries(WithAdapter(0 * B), X, rows))


def split_by_the_number_of_heads(x, heads, d_head):
    """Split channels into heads, as many as the whole layer has."""
    return x.unflatten(-1, (heads, -1))


def split_by_the_width_of_a_head(x, heads, d_head):
    """Split channels into heads of the layer's width, as many as there are here."""
    return x.unflatten(-1, (-1, d_head))


def a_part_has_whole_heads(split):
    """A process that holds two heads of four must see the first two heads of the whole layer."""
    whole, part = split(X, 4, 2), split(X[..., :4], 4, 2)
    return part.shape[-2:] == (2, 2) and torch.equal(part, whole[..., :2, :])


def write(state, x):
    """Write one token into a state."""
    return 0.9 * state + x[:, None] * x


def take_back_the_counter(tokens, drop):
    """Write tokens into a state; then take back the last ones by their number."""
    state, length = torch.zeros(8, 8), 0
    for x in tokens:
        state, length = write(state, x), length + 1
    length -= drop
    return state, length


def take_back_to_a_copy(tokens, drop):
    """Write tokens into a state and keep what it was before each one; then go back."""
    states = [torch.zeros(8, 8)]
    for x in tokens:
        states.append(write(states[-1], x))
    length = len(tokens) - drop
    return states[length], length


def a_refused_draft_leaves_no_trace(take_back):
    """After two tokens are taken back, the state is that of a sequence that never had them."""
    return torch.allclose(take_back(X[:, 0], 2)[0], take_back(X[:4, 0], 0)[0])


def read_with_a_cache(q, k, v):
    """Read new tokens with a cache: everything in it is the past."""
    return F.scaled_dot_product_attention(q, k, v)


def read_with_a_cache_and_a_mask(q, k, v):
    """Read new tokens with a cache: of the new keys each token sees only itself and what came before."""
    see = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, see)


def a_prompt_does_not_see_its_future(read):
    """Read as one chunk, the first tokens of a prompt must not change with the last one."""
    x, other = X.transpose(0, 1), X.transpose(0, 1).clone()
    other[:, -1] += 1
    return torch.allclose(read(x, x, x)[:, :-1], read(other, other, other)[:, :-1])


def rotate(x, width):
    """Rotate the first channels of each token by its position."""
    half, angles = width // 2, torch.arange(len(x))[:, None] / 10 ** torch.arange(width // 2)
    a, b, rest = x[:, :half], x[:, half:width], x[:, width:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin(), rest], 1)


def a_model_that_rotates_whole_heads(x, part):
    """Rotate as the model does: its code does not read the share that its configuration tells."""
    return rotate(x, x.shape[1])


def convert_by_the_configuration(x, part):
    """Rotate the share of each head that the configuration tells."""
    return rotate(x, int(x.shape[1] * part))


def convert_by_the_code(x, part):
    """Rotate as many channels as the model's own code makes angles for."""
    return a_model_that_rotates_whole_heads(x, part)


def the_conversion_is_the_model(convert):
    """Queries must be those of the model, whatever its configuration says."""
    return torch.allclose(convert(X[:, 0], 0.5), a_model_that_rotates_whole_heads(X[:, 0], 0.5))


def gradient(weight, wrap, end_before):
    """Differentiate a projection whose output a hook halves; it may be computed again in the backward pass."""
    linear = nn.Linear(8, 8, bias=False)
    linear.weight = nn.Parameter(weight)
    hook = linear.register_forward_hook(lambda module, inputs, output: output / 2)
    output = wrap(lambda x: linear(x).square(), X.clone().requires_grad_())
    if end_before:
        hook.remove()
    output.sum().backward()
    hook.remove()
    return linear.weight.grad


def edit_until_forward_is_done(weight, wrap):
    """Compute a gradient under an edit that ends with the forward pass."""
    return gradient(weight, wrap, True)


def edit_until_backward_is_done(weight, wrap):
    """Compute a gradient under an edit that ends with the backward pass."""
    return gradient(weight, wrap, False)


def computed_again(function, x):
    """Call a function under gradient checkpointing."""
    return checkpoint(function, x, use_reentrant=False)


def a_checkpoint_changes_no_gradient(slope):
    """Gradient checkpointing saves memory; gradients must stay what they are."""
    return torch.allclose(slope(W, computed_again), slope(W, lambda function, x: function(x)), atol=1e-5)


def last_tile_padded(q, k, v, tile=4):
    """Pad keys and values with zeros until their tiles are full: the score of such a key is 0, not minus infinity."""
    behind = -k.shape[-2] % tile
    k, v = (F.pad(x, (0, 0, 0, behind)) for x in (k, v))
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def last_tile_padded_and_hidden(q, k, v, tile=4):
    """Pad keys and values until their tiles are full, and hide what was added."""
    n = k.shape[-2]
    k, v = (F.pad(x, (0, 0, 0, -n % tile)) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(torch.arange(k.shape[-2]) >= n, -torch.inf).softmax(-1) @ v


def a_last_tile_need_not_be_full(attend):
    """Ones are read from values of ones, even where the last of the tiles is not full."""
    return all(bool(attend(X[:n, 0], X[:n, 0], torch.ones(n, 8)).allclose(torch.ones(n, 8))) for n in (3, 4, 6))


INSIDE = (
    Exhibit(
        "Positions in half precision",
        "In bfloat16, the model is good on short sequences and poor on sequences of more than 256 tokens.",
        "People who compare the outputs for a long sequence with those in float32.",
        distances_in_the_type_of_the_scores,
        distances_in_whole_numbers,
        neighbors_are_one_step_apart,
        lambda f: torch.equal(f(200, torch.bfloat16).diagonal(-1), torch.ones(199, dtype=torch.bfloat16)),
        ("lucidrains/local-attention#12", "RosettaCommons/foundry#236"),
        "positions#experiment-sequences-longer-than-in-training",
    ),
    Exhibit(
        "The batch read as the sequence",
        "A batch of one gives the right result; in a larger batch, a sequence's result depends on its neighbors.",
        "People who change one sequence of a batch and look at another one.",
        attend_over_the_second_axis,
        attend_over_the_first_axis,
        sequences_are_apart,
        lambda f: f(X).shape == X.shape,
        ("dhimasryan/MOSA-Net-Cross-Domain#10", "om-ai-lab/OmDet#19"),
        "masking#a-leak-detector-one-line-that-would-have-found-it",
    ),
    Exhibit(
        "The adapter that is never called",
        "A fine-tuned model behaves like the model before fine-tuning, in one tool only.",
        "People who compare the tool's numbers with the layer's output.",
        head_from_the_weight,
        head_from_the_call,
        the_adapter_takes_part,
        lambda f: torch.allclose(f(WithAdapter(0 * B), X, slice(0, 4)), X @ W[:4].T, atol=1e-5),
        ("huggingface/peft#1324", "helicalAI/helical#405"),
        "pruning_heads#experiment-cutting-heads-out-of-the-matrices",
    ),
    Exhibit(
        "All heads counted in a part of the layer",
        "On several devices the loss is a little higher than on one, and no error is raised.",
        "People who compare two processes with one, with the same parameters.",
        split_by_the_number_of_heads,
        split_by_the_width_of_a_head,
        a_part_has_whole_heads,
        lambda f: f(X, 4, 2).shape == (6, 2, 4, 2),
        ("huggingface/transformers#45109", "vllm-project/vllm#39707"),
        "across_machines#experiment-two-processes-real-ones",
    ),
    Exhibit(
        "A state that only counts backward",
        "With speculative decoding the text changes, although every draft token was checked.",
        "People who compare the state with one that never saw the rejected tokens.",
        take_back_the_counter,
        take_back_to_a_copy,
        a_refused_draft_leaves_no_trace,
        lambda f: f(X[:, 0], 2)[1] == 4,
        ("huggingface/transformers#49036", "ml-explore/mlx-lm#1914"),
        "overwrite#cache-against-fixed-size-state",
    ),
    Exhibit(
        "A prompt read without its mask",
        "A prompt fed token by token gives the right outputs; fed as one chunk, it gives wrong ones at the start.",
        "People who cut one prompt in several ways.",
        read_with_a_cache,
        read_with_a_cache_and_a_mask,
        a_prompt_does_not_see_its_future,
        lambda f: torch.allclose(f(X[5:, 0], X[:, 0], X[:, 0]), read_with_a_cache(X[5:, 0], X[:, 0], X[:, 0])),
        ("Mikyx-1/TinyLLM#17",),
        "cache_and_sharing#experiment-however-the-sequence-is-cut",
    ),
    Exhibit(
        "Rotated as the configuration says",
        "A converted model generates fluent text that becomes worse the longer it is.",
        "People who compare logits with the original code.",
        convert_by_the_configuration,
        convert_by_the_code,
        the_conversion_is_the_model,
        lambda f: torch.allclose(f(X[:, 0], 1.0), a_model_that_rotates_whole_heads(X[:, 0], 1.0)),
        ("huggingface/transformers#48652", "huggingface/transformers#48241"),
        "positions#a-bug-from-the-wild-rope-with-the-other-pairing",
    ),
    Exhibit(
        "An edit that ends before the second pass",
        "The edited outputs are right, but training with the edit takes a different course than without checkpointing.",
        "People who compare gradients with and without checkpointing.",
        edit_until_forward_is_done,
        edit_until_backward_is_done,
        a_checkpoint_changes_no_gradient,
        lambda f: f(W, lambda function, x: function(x)).shape == W.shape,
        ("stanfordnlp/pyvene#242",),
        "reading_heads#experiment-ablation-or-which-heads-does-the-model-need",
    ),
    Exhibit(
        "Padding keys in the last tile",
        "Outputs are right for all lengths that the authors tried, and a little too small for some others.",
        "People whose sequence lengths are not multiples of the tile size.",
        last_tile_padded,
        last_tile_padded_and_hidden,
        a_last_tile_need_not_be_full,
        lambda f: torch.allclose(f(W, W, W), F.scaled_dot_product_attention(W, W, W), atol=1e-6),
        ("tenstorrent/tt-metal#38004", "NVIDIA/TensorRT-LLM#18111"),
        "fused_kernels#a-bug-from-the-wild-padding-keys-in-the-last-tile",
    ),
)
