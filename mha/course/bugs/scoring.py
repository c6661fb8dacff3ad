"""Bugs of scores, scale and softmax.

:Taught in: why_attention, why_scale, output_projection, depth_and_norms.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(0)


Q, K, V = (torch.randn(2, 4, 50, 16, generator=RANDOM) for _ in range(3))  # 4 heads of width 16: the model is 64 wide


def divided_by_the_models_width(q, k):
    """Divide the scores by the square root of the model's width."""
    return q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5


def divided_by_the_heads_width(q, k):
    """Divide the scores by the square root of one head's width."""
    return q @ k.mT / q.shape[-1] ** 0.5


def multiplied_instead_of_divided(q, k):
    """Divide by a factor that is already the inverse."""
    return q @ k.mT / q.shape[-1] ** -0.5


def scores_have_deviation_one(scores):
    """Scores of independent numbers have a standard deviation of 1."""
    return bool((scores(Q, K).std() - 1).abs() < 0.1)


def divided_after_the_softmax(q, k):
    """Take the softmax of the scores, then divide."""
    return (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5


def divided_before_the_softmax(q, k):
    """Divide the scores, then take the softmax."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def over_the_queries(q, k):
    """Let the softmax run down the columns."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2)


def over_all_heads(q, k):
    """Let one softmax run over the keys of all heads together."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).transpose(1, 2).flatten(2)
    return scores.softmax(-1).unflatten(2, (q.shape[1], -1)).transpose(1, 2)


def rows_sum_to_one(weights):
    """The weights of one query sum to one over its keys, in each head."""
    return torch.allclose(weights(Q, K).sum(-1), torch.ones(2, 4, 50), atol=1e-5)


def slow_path_without_scale(q, k, v, fast):
    """Scale in the fast path, and forget the scale if there is no fast path."""
    scale = q.shape[-1] ** -0.5 if fast else 1.0
    return (q @ k.mT * scale).softmax(-1) @ v


def both_paths_with_scale(q, k, v, fast):
    """Scale in one line, whatever path runs."""
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


def both_paths_agree(attend):
    """Two paths of one program must give the same numbers."""
    return torch.allclose(attend(Q, K, V, True), attend(Q, K, V, False), atol=1e-5)


def joined_without_output_matrix(z, w_o):
    """Concatenate the head outputs and stop."""
    return z.transpose(1, 2).flatten(2)


def joined_with_relu(z, w_o):
    """Multiply the concatenated head outputs by the output matrix, and apply a ReLU."""
    return (z.transpose(1, 2).flatten(2) @ w_o).relu()


def joined_and_mixed(z, w_o):
    """Multiply the concatenated head outputs by the output matrix."""
    return z.transpose(1, 2).flatten(2) @ w_o


def one_value_reaches_every_channel(join):
    """Change one channel of the last head's output: all channels of the layer's output must change."""
    changed = Q.clone()
    changed[:, -1, :, -1] += 1
    w_o = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    return bool((join(changed, w_o) != join(Q, w_o)).all(0).any(0).all())


def minus_twice_gives_minus_twice(join):
    """The layer's output is linear in the head outputs: minus twice the one, minus twice the other."""
    w_o = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    return torch.allclose(join(-2 * Q, w_o), -2 * join(Q, w_o), atol=1e-4)


def weights_fit(f):
    """The shape of the weights is right, and none is negative."""
    return f(Q, K).shape == (2, 4, 50, 50) and bool((f(Q, K) >= 0).all())


def scores_fit(f):
    """The shape of the scores is right, and the best key of each query too."""
    return f(Q, K).shape == (2, 4, 50, 50) and torch.equal(f(Q, K).argmax(-1), (Q @ K.mT).argmax(-1))


def output_fits(f):
    """The shape of the output is right."""
    return f(Q, torch.eye(64)).shape == (2, 50, 64)


SCORING = (
    Exhibit(
        "The square root of the wrong width",
        "The model trains, but a little worse than it should.",
        "People who measure the standard deviation of the scores.",
        divided_by_the_models_width,
        divided_by_the_heads_width,
        scores_have_deviation_one,
        scores_fit,
        ("karpathy/ng-video-lecture#6", "lucidrains/vit-pytorch#65"),
        "why_scale#a-bug-from-the-wild-dividing-after-the-softmax",
    ),
    Exhibit(
        "A scale that was inverted twice",
        "Training is unstable, and the softmax is saturated from the first step.",
        "People who look at the entropy of the weights.",
        multiplied_instead_of_divided,
        divided_by_the_heads_width,
        scores_have_deviation_one,
        scores_fit,
        ("AI-Hypercomputer/maxtext#1370",),
        "why_scale#experiment-four-divisors",
    ),
    Exhibit(
        "A scale in one path only",
        "The same parameters give good vectors on one machine and bad ones on another.",
        "People who compare the two paths.",
        slow_path_without_scale,
        both_paths_with_scale,
        both_paths_agree,
        lambda f: f(Q, K, V, False).shape == V.shape,
        ("mlc-ai/mlc-llm#3426",),
        "why_scale#experiment-four-divisors",
    ),
    Exhibit(
        "Divided after the softmax",
        "The model trains, but slowly; the outputs of the layer are small.",
        "People who add up a row of weights.",
        divided_after_the_softmax,
        divided_before_the_softmax,
        rows_sum_to_one,
        weights_fit,
        ("FrancescoSaverioZuppichini/ViT#2",),
        "why_scale#a-bug-from-the-wild-dividing-after-the-softmax",
    ),
    Exhibit(
        "Softmax over the queries",
        "The model trains; when the bug is fixed, the published numbers hardly move.",
        "A reader of the code.",
        over_the_queries,
        divided_before_the_softmax,
        rows_sum_to_one,
        weights_fit,
        ("labmlai/annotated_deep_learning_paper_implementations#146", "nerdai/llms-from-scratch-rs#30"),
        "why_attention#a-bug-from-the-wild-softmax-over-the-wrong-axis",
    ),
    Exhibit(
        "One softmax over all heads",
        "Heads compete: where one head has large weights, the others have almost none.",
        "A reader of the code; the fix improved the published numbers.",
        over_all_heads,
        divided_before_the_softmax,
        rows_sum_to_one,
        weights_fit,
        ("facebookresearch/detr#247",),
        "why_attention#a-bug-from-the-wild-softmax-over-the-wrong-axis",
    ),
    Exhibit(
        "No output matrix",
        "There is none: every shape is right, and the model trains.",
        "People who compare the code with the figure in the paper.",
        joined_without_output_matrix,
        joined_and_mixed,
        one_value_reaches_every_channel,
        output_fits,
        ("Kyubyong/transformer#117",),
        "output_projection#a-bug-from-the-wild-a-layer-without-an-output-projection",
    ),
    Exhibit(
        "An output matrix with a ReLU",
        "There is none, except that no output of the layer is ever negative.",
        "People who test that the layer is linear in its values.",
        joined_with_relu,
        joined_and_mixed,
        minus_twice_gives_minus_twice,
        output_fits,
        ("Kyubyong/transformer#17",),
        "output_projection#a-bug-from-the-wild-a-layer-without-an-output-projection",
    ),
)
