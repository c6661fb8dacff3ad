"""Every layer compiles whole and exports once for all lengths, and computes there what it computes here.

The first entry of each kind of layer is tried in the fast tests, the others in the slow ones.
"""

import pytest
import torch
from oracle import LIMIT, error
from registry import LAYERS

KINDS: set[type] = set()


def first_of_its_kind(entry):
    kind = type(entry.build())
    return not (kind in KINDS or KINDS.add(kind))


ENTRIES = [pytest.param(e, marks=() if first_of_its_kind(e) else pytest.mark.slow, id=e.name) for e in LAYERS]
LENGTHS = (5, 9, 70)  # the last one is longer than the chunks and tiles of every layer

# Why a layer cannot be exported, by the name of its entry. None may be missing here, and none may be here in vain.
NO_EXPORT: dict[str, str] = {}


def asked(entry, layer, n):
    """Arguments of one call at length n: self-attention under the causal mask where the layer has it."""
    x = entry.words(n, batch=2)
    if entry.alone or entry.needs_is_causal:
        return (x,), {"is_causal": True}
    random = torch.Generator().manual_seed(n)
    widths = layer.W_k.in_features, layer.W_v.in_features
    key, value = (torch.randn(2, n, w, generator=random).to(layer.W_k.weight) for w in widths)
    return (x[:, :1].contiguous(), key, value) if entry.name == "feedback heads" else (x, key, value), {}


@pytest.fixture(autouse=True)
def fresh(reader):
    """Each test compiles from nothing; annotations are left to other tests, because they are no part of a graph."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_layer_compiles_whole_and_follows_the_length(entry):
    layer = entry.build().eval()
    lengths = [n for n in LENGTHS if n <= 9 or entry.name != "feedback heads"]
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    for n in lengths:
        given, how = asked(entry, layer, n)
        assert error(compiled(*given, **how), layer(*given, **how)) < LIMIT, n


@pytest.mark.parametrize("entry", ENTRIES)
@torch.no_grad()
def test_a_layer_exports_once_for_all_lengths(entry):
    layer = entry.build().eval()
    given, how = asked(entry, layer, 7)
    longest = 9 if entry.name == "feedback heads" else 512
    length = torch.export.Dim("length", min=2, max=longest)
    shapes = [{1: length} if x.shape[1] > 1 else {} for x in given]
    names = ("query", "key", "value")[: len(given)]
    dynamic = dict(zip(names, shapes, strict=True)) | dict.fromkeys(how)
    if entry.name in NO_EXPORT:
        with pytest.raises(Exception, match=NO_EXPORT[entry.name]):
            torch.export.export(layer, given, how, dynamic_shapes=dynamic)
        return
    program = torch.export.export(layer, given, how, dynamic_shapes=dynamic).module()
    for n in (n for n in LENGTHS if n <= longest):
        given, how = asked(entry, layer, n)
        assert error(program(*given, **how), layer(*given, **how)) < LIMIT, n
