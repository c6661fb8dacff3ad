"""The Triton kernel, in Triton's interpreter: equal to the tiles in PyTorch for every length; refusals; it compiles."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from mha.functional import attend, tiled_attention

if find_spec("triton") is None:
    pytest.skip("triton is missing: pip install -e '.[kernels]' (Linux only)", allow_module_level=True)

from mha.course.triton_rows import attend_rows

LENGTHS = [(1, 1), (1, 40), (5, 5), (16, 32), (33, 33), (7, 70), (64, 64), (40, 7)]
CUDA = torch.cuda.is_available()
WHERE = {"device": "cuda" if CUDA else "cpu", "dtype": torch.float32}


def draw(i, j, d=20, c=5, lead=(2, 3)):
    return (torch.randn(*lead, *shape, **WHERE) for shape in ((i, d), (j, d), (j, c)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("i", "j"), LENGTHS)
def test_it_reads_what_the_tiles_in_pytorch_read(i, j, is_causal):
    """Also where the last block or tile is not full, and where a row sees nothing: then both give zeros."""
    q, k, v = draw(i, j)
    found = attend_rows(q, k, v, is_causal=is_causal)
    wanted = tiled_attention(q, k, v, is_causal=is_causal)
    torch.testing.assert_close(found, wanted, atol=3e-6, rtol=1e-5)
    if is_causal and i > j:
        assert (found[..., : i - j, :] == 0).all()


@pytest.mark.parametrize(("d", "c"), [(1, 1), (3, 17), (16, 16), (33, 2), (64, 64)])
def test_any_width_of_queries_and_values_will_do(d, c):
    q, k, v = draw(19, 35, d, c, lead=())
    torch.testing.assert_close(attend_rows(q, k, v), tiled_attention(q, k, v), atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize(("rows", "tile"), [(16, 16), (32, 16), (16, 64), (64, 128)])
def test_the_sizes_of_blocks_and_tiles_change_nothing(rows, tile):
    q, k, v = draw(37, 50)
    found = attend_rows(q, k, v, is_causal=True, rows=rows, tile=tile)
    torch.testing.assert_close(found, tiled_attention(q, k, v, is_causal=True), atol=3e-6, rtol=1e-5)


def test_scores_that_would_overflow_are_no_problem():
    q, k, v = draw(9, 40)
    found = attend_rows(300 * q, k, v)
    assert found.isfinite().all()
    torch.testing.assert_close(found, tiled_attention(300 * q, k, v), atol=1e-4, rtol=1e-4)


def test_half_precision_is_read_in_float32():
    q, k, v = draw(20, 45)
    found = attend_rows(q.half(), k.half(), v.half())
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), attend(q, k, v), atol=5e-3, rtol=5e-3)


def test_views_are_read_in_their_own_order():
    q, k, v = (x.mT.contiguous().mT for x in draw(6, 18))
    torch.testing.assert_close(attend_rows(q, k, v), tiled_attention(q, k, v), atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"rows": 24}, ValueError, "rows = 24: .*power of two"),
        ({"tile": 8}, ValueError, "tile = 8: it must be at least 16"),
        ({"dtype": torch.float64}, TypeError, "torch.float64, but the kernel computes in float32"),
        ({"grad": True}, RuntimeError, "no backward pass"),
    ],
    ids=["rows", "tile", "float64", "gradient"],
)
def test_what_the_kernel_cannot_do_is_refused(how, error, words):
    inputs = [x.to(how.get("dtype", torch.float32)).requires_grad_("grad" in how) for x in draw(3, 3)]
    with pytest.raises(error, match=words):
        attend_rows(*inputs, **{name: size for name, size in how.items() if name in ("rows", "tile")})


@pytest.mark.skipif(CUDA, reason="on a GPU bfloat16 is right")
def test_the_interpreter_is_not_asked_for_bfloat16():
    q, k, v = (x.bfloat16() for x in draw(3, 3))
    with pytest.raises(TypeError, match="interpreter multiplies the bits of bfloat16"):
        attend_rows(q, k, v)


COMPILED = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from mha.course.triton_rows import attend_rows, rows_kernel
x = torch.zeros(2, 2)
try:
    attend_rows(x, x, x)
except RuntimeError as error:
    print(error)
kinds = dict.fromkeys(("q", "k", "v", "out"), "*fp16") | dict.fromkeys(("n_q", "n_k", "d", "c"), "i32")
sizes = {"CAUSAL": True, "ROWS": 64, "TILE": 64, "D": 64, "C": 64}
kinds |= {"scale": "fp32"} | dict.fromkeys(sizes, "constexpr")
made = triton.compile(ASTSource(fn=rows_kernel, signature=kinds, constexprs=sizes), target=GPUTarget("cuda", 80, 32))
print("tensor cores" if "mma.sync" in made.asm["ptx"] else "no tensor cores")
"""


def test_it_compiles_for_a_gpu_to_products_on_tensor_cores(tmp_path):
    """Without a GPU, for one of compute capability 8.0; and without the interpreter, a processor is refused."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    said = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "set TRITON_INTERPRET=1 before it is imported" in said
    assert "\ntensor cores" in said
