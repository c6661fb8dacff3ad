"""Bugs of layers that choose which keys are read (sparse attention by an index).

:Taught in: select.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RANDOM = torch.Generator().manual_seed(18)
BUDGET = 4  # keys that a query reads


ALL = torch.randn(2, 12, 12, generator=RANDOM)  # index scores of two layers, for 12 tokens


def best(scores, k):
    """Mark the k largest scores of each row, all of them where there are fewer."""
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    return chosen.scatter(-1, scores.topk(min(k, scores.shape[-1])).indices, True)


def each_layer_chooses(scores, k):
    """Choose the keys of two layers, where the second was trained with the set of the first."""
    return [best(layer, k) for layer in scores]


def the_second_layer_takes_the_set(scores, k):
    """Choose the keys of two layers, where the second was trained with the set of the first."""
    return [best(scores[0], k)] * 2


def one_set_serves_both_layers(choose):
    """With more tokens than the budget, both layers must read the same keys."""
    first, second = choose(ALL, BUDGET)
    return torch.equal(first, second)


def a_short_text_is_read_whole(choose):
    """With as many tokens as the budget, every key is read, whatever the index says."""
    return all(bool(chosen.all()) for chosen in choose(ALL[:, :BUDGET, :BUDGET], BUDGET))


def choose_then_hide(scores, k):
    """Choose k keys for each query; the future is hidden afterwards."""
    past = torch.ones_like(scores).tril() == 1
    return best(scores, k) & past


def hide_then_choose(scores, k):
    """Choose k keys for each query among those that it may see."""
    past = torch.ones_like(scores).tril() == 1
    return best(scores.masked_fill(~past, -torch.inf), k) & past


def early_queries_read_all_they_may(choose):
    """Query number i may see i keys, and must read all of them, or k where there are more."""
    read = choose(ALL[0], BUDGET).sum(-1)
    return torch.equal(read, torch.arange(1, 13).clamp(max=BUDGET))


def nothing_is_read_from_the_future(choose):
    """No query may read a key after its own, and the last one reads k keys."""
    chosen = choose(ALL[0], BUDGET)
    return not chosen.triu(1).any() and int(chosen[-1].sum()) == BUDGET


SELECTING = (
    Exhibit(
        "An index that no short test asks",
        "A ported model answers short prompts well and long ones worse, and every test passes.",
        "People who test with more tokens than the index chooses.",
        each_layer_chooses,
        the_second_layer_takes_the_set,
        one_set_serves_both_layers,
        a_short_text_is_read_whole,
        ("ml-explore/mlx-lm#1419",),
        "select#a-bug-from-the-wild-an-index-that-no-short-test-asks",
    ),
    Exhibit(
        "Chosen, then hidden",
        "Outputs are poor for the first tokens of a prompt and good for the last ones; token by token, all are right.",
        "People who count the keys that each query reads.",
        choose_then_hide,
        hide_then_choose,
        early_queries_read_all_they_may,
        nothing_is_read_from_the_future,
        ("NVIDIA/TensorRT-LLM#18585", "deepseek-ai/DeepGEMM#209"),
        "select#a-bug-from-the-wild-the-mask-after-the-choice",
    ),
)
