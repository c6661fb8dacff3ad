"""Write book/compatibility.md: what each layer can be combined with, and whose parameters it reads, found by trying it.

    python tools/make_compatibility.py

A "no" appears only where the layer refuses with an error that says why, and the reason is below the table. (Whether
the fused kernel runs is counted, no error belongs to it.) A test compares the page with what the layers do now.
"""

import re
import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

import mha
from mha.analysis import Gates
from mha.course.comparison import candidates
from mha.course.comparison.conversion_table import below, interop_table
from mha.interop import delta
from mha.systems import tensor_parallel

PAGE = Path(__file__).resolve().parents[1] / "book" / "compatibility.md"
WIDTH, HEADS = 16, 4
TODAY = {  # layers of current LLMs
    "gated": candidates.Candidate(lambda d, h: mha.GatedAttention(d, h)),
    "with a sink": candidates.Candidate(lambda d, h: mha.SinkAttention(d, h)),
    "latent": candidates.Candidate(lambda d, h: mha.LatentAttention(d, h, d // 2)),
    "indexed": candidates.Candidate(lambda d, h: mha.IndexedAttention(d, h, 2)),
    "indexed latent": candidates.Candidate(lambda d, h: mha.IndexedLatentAttention(d, h, d // 2, 2)),
    "linear": candidates.Candidate(lambda d, h: mha.LinearAttention(d, h)),
    "delta rule": candidates.Candidate(lambda d, h: mha.DeltaAttention(d, h)),
    "delta rule, as released": candidates.TODAY["delta, as released"],
}
LAYERS = candidates.LAYERS | TODAY
NAMES = [name for name in LAYERS if name != "plain, half the heads"]

HEAD = """# What goes together

Which layer takes a cache, can lose heads, or can be spread over processes? Nobody typed this table. A program builds
each layer with 4 heads and tries (`python tools/make_compatibility.py`); a test repeats it. *Yes* means that it ran and
gave the right numbers. *No* means that the layer refused; its reason is below. A refusal is a limit of this package and
not always of the idea: gated heads, heads with a sink and latent heads are spread over GPUs every day. The column
*fused kernel* counts calls: does torch's own attention kernel run, or the explicit formula, which materializes all
weights? The delta rule *as released* has a short convolution, SiLU, a norm and a gate around it.

[Chapter 26](../notebooks/26_choosing.ipynb) compares what the layers achieve. Other libraries' classes have
[a table of their own](#attention-of-other-libraries).
"""

CLASSES = """
(attention-of-other-libraries)=
## Attention of other libraries

`mha.interop` reads and writes the parameters of these classes. Each was made with random parameters, in the settings
that [other people's layers](../notebooks/07b_other_peoples_layers.ipynb) lists, and compared in float64 in four ways. A
number is a limit: in every setting the largest difference, divided by the largest number, was below it. The limit is
1e-06 where the class computes norms in float32, whatever the type of its parameters.

*Parameters*: there and back, not one bit has changed. *Values*: their parameters in our layer, and ours in their
module, give the same outputs. *Gradients*: those of all parameters are the same. *Cache*: a causal sequence is fed in
three chunks, with our cache and with theirs. A dash means that the class has no cache.
"""

LINEAR = """
**Linear attention.** Three more classes are read and written, each as a `DeltaAttention`
([room 17c](../notebooks/17c_one_recurrence.ipynb) says how they differ):

{}

They are not in the table, because these classes compute the rule in float32, whatever the type of the parameters.
Their own test, `test_delta_layers.py`, compares them in float64. Parameters go there and back bit for bit. Outputs
differ by less than 2e-06 of the largest number, whether the sequence is fed at once, in chunks with our cache, or with
padding in front. Gradients with respect to the input differ by less than 1e-05. `swap` leaves these layers alone.
"""


class Trial:
    """One layer, ready to be tried: a new one for every column."""

    def __init__(self, name):
        torch.manual_seed(0)
        self.name, self.layer = name, LAYERS[name].make(WIDTH, HEADS).double().eval()
        self.x, self.memory = torch.randn(2, 5, WIDTH).double(), torch.randn(2, 7, WIDTH).double()

    def __call__(self, mask=None, layer=None):
        """Call the layer in the way that suits it: alone, or over a memory."""
        layer = self.layer if layer is None else layer
        if self.name in ("merged", "feedback"):
            return layer(self.x, self.memory, mask=mask)
        return layer(self.x, mask=mask, is_causal=self.name.startswith("delta rule"))


def same(one, other):
    """Say whether two results agree; a column must not say yes to wrong numbers."""
    if not torch.allclose(one, other, atol=1e-10):
        raise AssertionError("it ran, but gave other numbers")


def alone(t):
    """Itself as its memory."""
    assert t.layer(t.x).shape == t.x.shape


def crossing(t):
    """Another sequence as memory."""
    assert t.layer(t.x, t.memory).shape == t.x.shape


def hidden(t):
    """A mask that hides the last two keys is as if they were not there."""
    n = 5 if t.name not in ("merged", "feedback") else 7
    mask = torch.ones(5, n, dtype=torch.bool)
    mask[:, -2:] = False
    before = t(mask)
    target = t.x if n == 5 else t.memory
    target[:, -2:] += 1.0
    after = t(mask)
    same(before[:, :3], after[:, :3])


def causal(t):
    """The first tokens do not notice the last ones."""
    before = t.layer(t.x, is_causal=True)
    t.x[:, -2:] += 1.0
    same(before[:, :3], t.layer(t.x, is_causal=True)[:, :3])


def cached(t):
    """Token by token with a cache is the same as all at once."""
    cache = t.layer.new_cache()
    if t.name == "feedback":
        parts = [t.layer(t.x, t.memory[:, j : j + 1], cache=cache) for j in range(7)]
        return same(parts[-1], t.layer(t.x, t.memory))
    if t.name == "merged":
        parts = [t.layer(one, t.memory, cache=cache) for one in t.x.split(1, 1)]
        return same(torch.cat(parts, 1), t.layer(t.x, t.memory))
    parts = [t.layer(one, is_causal=True, cache=cache) for one in t.x.split((3, 1, 1), 1)]
    return same(torch.cat(parts, 1), t.layer(t.x, is_causal=True))


def taken(t):
    """A layer without heads 2 and 3 is the layer with these two silent."""
    smaller = t.layer.take_heads([0, 1])
    with mha.edit(t.layer, heads=lambda z: z * torch.tensor([1.0, 1, 0, 0]).to(z)[:, None, None]):
        same(t(), t(layer=smaller))


def spread(t):
    """The heads in processes. Here it is a group of one, which runs all checks and the same code."""
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        same(t(), t(layer=tensor_parallel.shard_heads(t.layer)))
    finally:
        dist.destroy_process_group()


def gated(t):
    """A gate of zero on every head leaves the bias of the output."""
    gates = Gates(t.layer, log_a=-20.0)
    with gates.on(t.layer):
        same(t(), t.layer.W_o.bias.expand(2, 5, WIDTH))


def watched(t):
    """Watching changes nothing, and shows scores and weights."""
    before = t()
    with mha.watch(t.layer, "scores", "weights") as seen:
        same(t(), before)
    assert seen.scores.shape == seen.weights.shape


def rotary(t):
    """Positions inside the layer: the slot that plain layers have."""
    made = type(t.layer)
    settings = {"grouped": (2,), "routed": (1, 2), "latent": (8,)}
    settings |= {"indexed": (2,), "indexed latent": (8, 2)}
    settings = settings.get(t.name, ())
    more = {"d_rotary": 4} if "latent" in t.name else {}  # channels of their own
    try:
        layer = made(WIDTH, HEADS, *settings, **more, positions=mha.RotaryPositions()).double().eval()
    except TypeError as error:
        raise ValueError(f"{made.__name__} takes no positions: it has no slot for them") from error
    turned = layer(t.x.flip(1)).flip(1)
    assert not torch.allclose(layer(t.x), turned), "the order does not matter"


def converted(t):
    """At some setting it is the plain layer with the same parameters."""
    if t.name == "plain":
        return
    plain = mha.MultiHeadAttention(WIDTH, HEADS).double().eval()
    same(t(layer=type(t.layer).from_plain(plain)), t(layer=plain))


def fused(t):
    """Count the calls of torch's kernel."""
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as kernel:
        t()
    if not kernel.called:
        raise LookupError


COLUMNS = {
    "self-attention": alone,
    "over a memory": crossing,
    "any mask": hidden,
    "`is_causal`": causal,
    "cache": cached,
    "fused kernel": fused,
    "taking heads out": taken,
    "heads in processes": spread,
    "gates": gated,
    "watching": watched,
    "rotary positions": rotary,
    "from a plain layer": converted,
}
CLEAR = (ValueError, TypeError)  # what a layer may raise to refuse


def tried(name, column):
    """Return "yes" or "no", and the reason of a "no"."""
    try:
        with torch.no_grad():
            COLUMNS[column](Trial(name))
    except LookupError:
        return "no", ""
    except CLEAR as error:
        return "no", reason(error)
    return "yes", ""


def reason(error):
    """The layer's own words, on one line; a list of heads is ours and not worth repeating."""
    return re.sub(r"\s+", " ", str(error)).replace("|", "\\|")


def classes():
    """One row for each class of another library: the worst of its settings."""
    rows = {}
    for row in interop_table():
        rows.setdefault((row.library, row.module), []).append(row)
    lines = ["| library | class | settings | parameters | values | gradients | cache |", "|---" * 7 + "|"]
    for (library, module), each in rows.items():
        columns = zip(*((row.error, row.gradient, row.cache) for row in each), strict=True)
        same = "same bits" if all(row.round_trip for row in each) else "changed"
        lines.append(f"| {library} | `{module}` | {len(each)} | {same} | " + " | ".join(map(worst, columns)) + " |")
    return lines


def worst(errors):
    """The limit of the largest error; of those that were not compared there are none. (torch keeps a NaN.)"""
    known = [error for error in errors if error is not None]
    return below(torch.tensor(known).max().item() if known else None)


def page():
    """The whole page as text."""
    reasons, rows = [], []
    for name in NAMES:
        cells = []
        for column in COLUMNS:
            answer, why = tried(name, column)
            if why and (name, column, why) not in reasons:
                reasons.append((name, column, why))
            cells.append(f"{answer} [{len(reasons)}](#reasons)" if why else answer)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    head = ["| layer | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    notes = [f"{n}. {name}, {column}: *{why}*" for n, (name, column, why) in enumerate(reasons, 1)]
    notes = ["\n(reasons)=\n## The reasons, in the layers' own words\n", *notes]
    linear = LINEAR.format("\n".join(f"- `{name}` of {model}" for name, model in delta.MODELS.items()))
    return "\n".join([HEAD, *head, *rows, *notes, CLASSES, *classes(), linear.rstrip()]) + "\n"


def main():
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(PAGE.read_text("utf8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
