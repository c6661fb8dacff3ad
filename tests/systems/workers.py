"""What the processes of test_parallel.py do: functions that a new process can import by name."""

import copy
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import mha
from mha.layers import MemoryCache
from mha.systems import launch, tensor_parallel

X, MEMORY = (2, 5, 12), (2, 3, 12)
LAYERS = {
    "heads": lambda: mha.MultiHeadAttention(12, 4),
    "no bias, own width": lambda: mha.MultiHeadAttention(12, 4, d_head=2, bias=False),
    "shared": lambda: mha.GroupedAttention(12, 8, 4, d_head=2),
    "shared, rotary": lambda: mha.GroupedAttention(12, 8, 4, d_head=2, positions=mha.RotaryPositions()),
    "sloped": lambda: mha.MultiHeadAttention(12, 4, positions=mha.LinearBias()),
}


def relative(found, right):
    """The largest difference, relative to the largest number."""
    pairs = [(a.full_tensor() if isinstance(a, DTensor) else a, b) for a, b in zip(found, right, strict=True)]
    return max((a - b).abs().max().item() for a, b in pairs) / max(b.abs().max().item() for _, b in pairs)


def one_pass(layer, inputs, **how):
    """Output and all gradients, with the all-reduces that each took."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    with tensor_parallel.count_all_reduces() as forward:
        y = layer(*inputs, **how)
    pull = torch.linspace(-1, 2, y.numel()).view_as(y)
    with tensor_parallel.count_all_reduces() as backward:
        (y * pull).sum().backward()
    weights = dict(layer.named_parameters())
    return y.detach(), [x.grad for x in inputs], {n: p.grad for n, p in weights.items()}, (forward, backward)


def compare(group, names=tuple(LAYERS)):
    """One process against all of the group, for every layer and kind of call."""
    found = {}
    for name in names:
        build = LAYERS[name]
        torch.manual_seed(0)
        layer, x, memory = build(), torch.randn(X), torch.randn(MEMORY)
        calls = {"self": ([x], {}), "causal": ([x], {"is_causal": True})}
        calls |= {"padding": ([x], {"mask": mha.padding_mask([3, 0], 5)})}
        calls |= {} if layer.positions else {"cross": ([x, memory], {}), "keyword": ([x], {"key": memory})}
        for kind, (inputs, how) in calls.items():
            spread = tensor_parallel.shard_heads(layer, group)
            how_here = {k: v.clone().requires_grad_() if k == "key" else v for k, v in how.items()}
            y, into, weights, _ = one_pass(copy.deepcopy(layer), inputs, **how_here)
            found_y, found_into, found_weights, counts = one_pass(spread, inputs, **how_here)
            worst = relative([found_y, *found_into, *found_weights.values()], [y, *into, *weights.values()])
            found[f"{name}, {kind}"] = (worst, [len(c) for c in counts], [sum(c) for c in counts])
    return found


@torch.no_grad()
def cached(group):
    """Reading word by word with heads on several processes, and the size of the cache of one of them."""
    torch.manual_seed(0)
    layer, x = LAYERS["shared, rotary"](), torch.randn(X)
    spread = tensor_parallel.shard_heads(layer, group)
    cache, memory, other = spread.new_cache(5), MemoryCache(), torch.randn(MEMORY)
    y = torch.cat([spread(word, is_causal=True, cache=cache) for word in x.split(1, 1)], 1)
    plain = LAYERS["shared"]()
    crossing = tensor_parallel.shard_heads(plain, group)
    crossed = torch.cat([crossing(word, other, cache=memory) for word in x.split(1, 1)], 1)
    worst = max(relative([y], [layer(x, is_causal=True)]), relative([crossed], [plain(x, other)]))
    cost = spread.cost(2, 1, 5, fresh=1)
    held = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in spread.parameters())
    return worst, cache.bytes, cost.cache, cost.parameters, held


def moved(group):
    """A checkpoint of the whole layer goes in and comes out again."""
    torch.manual_seed(1)
    trained, x = LAYERS["shared"](), torch.randn(X)
    torch.manual_seed(2)
    spread = tensor_parallel.shard_heads(LAYERS["shared"](), group)
    tensor_parallel.load_whole(spread, trained.state_dict())
    back = tensor_parallel.whole(spread)
    same = all(torch.equal(back[name], weight) for name, weight in trained.state_dict().items())
    return relative([spread(x)], [trained(x)]), same and list(back) == list(trained.state_dict())


def refused(call):
    """The kind and the words of the error."""
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def refusals(group):
    """Errors that every process of the group must raise."""
    rank = group.rank()

    def other_weights():
        torch.manual_seed(rank // 2)
        tensor_parallel.shard_heads(mha.MultiHeadAttention(12, 4), group)

    def other_layer():
        tensor_parallel.shard_heads(mha.MultiHeadAttention(12, 4 if rank else 2), group)

    def too_few():
        torch.manual_seed(0)
        tensor_parallel.shard_heads(mha.GroupedAttention(12, 4, 2), group)

    class Mixing(mha.Heads):
        pass

    def mixing():
        torch.manual_seed(0)
        tensor_parallel.shard_heads(Mixing(12, 4), group)

    def own_weights():
        torch.manual_seed(0)
        tensor_parallel.shard_heads(mha.EntmaxAttention(12, 4), group)

    return {f.__name__: refused(f) for f in (other_weights, other_layer, too_few, mixing, own_weights)}


def everything():
    """All checks with one, two and four of four processes."""
    torch.set_default_dtype(torch.float64)
    found = {}
    for size in (1, 2, 4):
        group = dist.new_group(list(range(size)))
        if dist.get_rank() < size:
            found[size] = {check.__name__: check(group) for check in (compare, cached, moved)}
    return found | {"refused": refusals(dist.group.WORLD)}


def smoke():
    """One layer on two processes against one process: the largest relative error."""
    torch.set_default_dtype(torch.float64)
    return max(error for error, *_ in compare(dist.group.WORLD, ["shared"]).values())


def die(how):
    """The last process dies while the others wait for its part."""
    layer = mha.MultiHeadAttention(12, 4)
    torch.manual_seed(0)
    for p in layer.parameters():
        torch.nn.init.constant_(p, 0.1)
    spread, x = tensor_parallel.shard_heads(layer), torch.ones(X)
    spread(x)
    if dist.get_rank() == dist.get_world_size() - 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "raises":
            raise ArithmeticError("out of numbers")
        time.sleep(60)  # "sleeps"
    return spread(x).sum().item()


def rank():
    return dist.get_rank()


if __name__ == "__main__":  # under torchrun
    launch.join(20)
    line = f"rank {dist.get_rank()} of {dist.get_world_size()}: {smoke() < 1e-10}\n"
    os.write(1, line.encode())  # at one stroke: the end of a printed line may come after the other process
    dist.destroy_process_group()
