"""The recipes: every block runs, prints what the page says and agrees with the package; and the interview's checker."""

import ast
import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from live_figures import BOOK, SIZES, STATIC
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaForCausalLM, LlamaModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

import mha
from mha.analysis import patterns
from mha.analysis.head_detection import score_heads
from mha.course import code_reader, on_a_gpu, released
from mha.functional import count_forms
from mha.interop import from_transformers
from mha.interop.rotary import reorder_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "recipes.md").read_text("utf8")
MEMORY = (ROOT / "book" / "from_memory.md").read_text("utf8")
RECIPES = {part.split(")")[0]: part for part in re.split(r"^\((?=recipe-)", PAGE, flags=re.MULTILINE)[1:]}
TAB = re.compile(r"^:::\{tab-item\} (.+?)\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABS = {(name, tab): code for name, part in RECIPES.items() for tab, code in TAB.findall(part)}
TRAINED = "recipe-induction", "a model that has them"
STUBBED = "\n        ...\n"  # a method for the reader to write
UNCOMPILED = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def float32():
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)


@pytest.fixture
def run(monkeypatch):
    """Run a block as a program of its own; return its names and the lines that it prints."""

    def run_it(code, **names):
        module = ModuleType("recipe")  # compiled code looks its names up in a module
        monkeypatch.setitem(sys.modules, "recipe", module)
        vars(module).update(names)
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(code, "recipe", "exec"), vars(module))
        return SimpleNamespace(**vars(module)), said.getvalue().splitlines()

    return run_it


def expected(name):
    """The lines that a recipe says its code prints."""
    return [
        line for block in re.findall(r"^```text\n(.*?)^```", RECIPES[name], re.M | re.S) for line in block.splitlines()
    ]


# ---- The page


@UNCOMPILED
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_tab_prints_what_the_page_says(recipe, run):
    printed = []
    for (name, tab), code in TABS.items():
        if name == recipe and (name, tab) != TRAINED and STUBBED not in code:
            lines = run(code)[1]
            assert lines, tab
            assert [line for line in lines if line not in expected(recipe) and not line.endswith(": True")] == []
            printed += lines
    assert [line for line in expected(recipe) if line not in printed] == []


def test_every_block_is_in_a_tab_and_some_tab_needs_no_package_of_ours():
    assert len(RECIPES) == 10
    assert len(TABS) == PAGE.count("```python")
    for name in RECIPES:
        tabs = [code for (recipe, _), code in TABS.items() if recipe == name]
        ours = ["import mha" in code or "from mha" in code for code in tabs]
        assert True in ours, name
        assert False in ours, name


def test_every_recipe_says_what_for_what_to_expect_what_goes_wrong_and_where_it_is_taught():
    museum = (ROOT / "book" / "bug_museum.md").read_text("utf8")
    for name, part in RECIPES.items():
        for heading in ("**What for.**", "**Expect", "**Mistakes that people make with it**", "**Taught in**"):
            assert part.count(heading) == 1, (name, heading)
        mistakes = part.split("**Mistakes")[1].split("**Taught in**")[0]
        assert 2 <= len(re.findall(r"^- \*\*", mistakes, re.MULTILINE)) <= 5
        assert [bug for bug in re.findall(r"<(bug-[a-z-]+)>", part) if f"({bug})=" not in museum] == []
    first = PAGE.split("(recipe-cache)=")[0]
    assert re.findall(r"<(recipe-\w+)>", first) == list(RECIPES)


@pytest.mark.parametrize(
    "name", ["rotate_half", "repeat_kv", "key_padding_mask", "past_key_values", "num_key_value_heads", "position_ids"]
)
def test_the_names_that_people_search_for_are_in_the_prose(name):
    assert name in re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)


# ---- Real models: 16 bits, and devices other than the CPU

NARROW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
MAKES = {"arange", "ones", "zeros", "eye", "full", "empty", "tensor", "rand", "randn", "randint"}


def far(found, wanted):
    """How far numbers are off, as a share of their size."""
    return ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()


def test_every_function_makes_its_tensors_on_the_device_of_its_inputs():
    solution = re.findall(r"^```python\n(.*?)^```", MEMORY, re.MULTILINE | re.DOTALL)[-1]
    programs = [code for code in TABS.values() if STUBBED not in code]
    found = []
    for code in (*programs, solution):
        functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
        for call in {one for function in functions for one in ast.walk(function) if isinstance(one, ast.Call)}:
            library, _, name = ast.unparse(call.func).partition(".")
            if library == "torch" and name in MAKES:
                found.append((ast.unparse(call), {word.arg for word in call.keywords} & {"device", None}))
    assert len(found) >= 8
    assert [call for call, device in found if not device] == []


@NARROW
def test_the_cache_of_a_narrow_model_gives_the_logits_of_the_wide_one(run, dtype):
    recipe, _ = run(TABS["recipe-cache", "torch"])
    model = recipe.model.to(dtype)
    narrow = model(recipe.ids, recipe.tokens, [None, None])
    assert recipe.generate(model, recipe.ids, recipe.tokens, 6).shape == (2, 10)
    wanted = model.float()(recipe.ids, recipe.tokens, [None, None])
    assert narrow.dtype == dtype
    assert far(narrow[recipe.tokens], wanted[recipe.tokens]) < 0.02
    x, late = torch.randn(1, 1, 1, 64), torch.tensor([[100_001]])
    assert far(recipe.rotate(x.to(dtype), late), recipe.rotate(x, late)) < 0.01, "the angle of a late position"


@NARROW
def test_a_narrow_model_is_aligned_and_converted(run, dtype):
    recipe, _ = run(TABS["recipe-gqa", "transformers"])
    shared, ids = llama(2), torch.randint(99, (4, 32))
    full = disguised(shared).to(dtype)
    with torch.no_grad():
        new, wanted = recipe.convert(full, ids, 2), shared(ids).logits
        plain = llama(2).to(dtype)
        plain.load_state_dict(recipe.to_gqa(full.state_dict(), 8, 2))
        assert new.dtype == new(ids).logits.dtype == dtype
        assert far(new(ids).logits, wanted) < 0.03 < 0.1 < far(plain(ids).logits, wanted)


@NARROW
def test_both_layouts_return_narrow_numbers_and_have_wide_angles(run, dtype):
    recipe, _ = run(TABS["recipe-rope", "torch"])
    x, angle = torch.randn(2, 5, 8), 1e4 + torch.rand(5, 4)
    for rotate in (recipe.half, recipe.interleaved):
        found = rotate(x.to(dtype), angle)
        assert found.dtype == dtype
        assert far(found, rotate(x, angle)) < 0.01


@NARROW
def test_the_solution_of_the_interview_takes_a_narrow_model(run, dtype):
    recipe, _ = run(SOLUTION)
    layer, x = recipe.Attention(32, 4, 2).eval(), torch.randn(1, 3, 32)
    with torch.no_grad():
        assert far(layer.rotate(x[None].to(dtype)[..., :8], 10_000), layer.rotate(x[None][..., :8], 10_000)) < 0.01
        wanted, found = layer(x)[0], layer.to(dtype)(x.to(dtype))[0]
    assert found.dtype == dtype
    assert far(found, wanted) < 0.03


def test_the_recipes_run_on_another_device(run):
    """On the meta device, a tensor that is made on the CPU is refused."""
    cache, _ = run(TABS["recipe-cache", "torch"])
    ids, tokens = cache.ids.to("meta"), cache.tokens.to("meta")
    assert cache.generate(cache.model.to("meta"), ids, tokens, 3).device.type == "meta"
    gqa, _ = run(TABS["recipe-gqa", "transformers"])
    part = gqa.model.to("meta").model.layers[0].self_attn
    gqa.align(part, torch.randn(50, 64, device="meta"), 2)
    rope, _ = run(TABS["recipe-rope", "torch"])
    x, W = torch.randn(5, 16, device="meta"), torch.randn(16, 16, device="meta")
    assert rope.scores(x, W, rope.to_half(W, 2), 2, rope.half).shape == (2, 5, 5)
    solution, _ = run(SOLUTION)
    layer = solution.Attention(32, 4, 2).to("meta")
    y, past = layer(torch.randn(1, 3, 32, device="meta"))
    assert layer(y[:, :1], past=past)[0].device.type == "meta"
    flash, _ = run(TABS["recipe-flash", "torch"])
    q, k, v = torch.randn(3, 1, 2, 70, 8, device="meta")
    flash.Flash.apply(q.requires_grad_(), k, v, True).sum().backward()
    assert q.grad.shape == q.shape
    mla, _ = run(TABS["recipe-mla", "torch"])
    given = [one.detach().to("meta") for one in mla.given]
    assert mla.absorbed(*given).shape == mla.expanded(*given).shape == (2, 4, 20, 128)


# ---- The cache


def test_the_layer_of_the_first_recipe_is_ours_with_a_cache_and_left_padding(run):
    recipe, _ = run(TABS["recipe-cache", "torch"])
    ours = mha.MultiHeadAttention(16, 4, positions=mha.RotaryPositions()).eval()
    layer = recipe.Attention(16, 4)
    layer.load_state_dict(ours.state_dict())
    x, tokens = torch.randn(2, 7, 16), torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]]).bool()
    cache, past, end = ours.new_cache(7, [0, 3]), None, 0
    for part in x.split([4, 2, 1], 1):
        end += part.shape[1]
        position, see = recipe.positions_and_mask(tokens[:, :end], part.shape[1])
        with torch.no_grad():
            found, past = layer(part, position, see, past)
            wanted = ours(part, mask=cache.mask(part.shape[1]), is_causal=True, cache=cache)
        real = tokens[:, end - part.shape[1] : end]
        torch.testing.assert_close(found[real], wanted[real])
        with torch.no_grad():
            wrong, _ = layer(
                part, position * 0, see, None if end == 4 else tuple(t[:, :, : -part.shape[1]] for t in past)
            )
        assert not torch.allclose(wrong[real], wanted[real], atol=1e-3), "positions matter"


@pytest.mark.parametrize("tab", ["torch", "transformers"])
def test_the_logits_of_a_batch_are_those_of_each_prompt_alone(run, tab):
    recipe, _ = run(TABS["recipe-cache", tab])
    prompts = [torch.randint(1, 11, (n,)) for n in (5, 2, 4)]
    ids = torch.stack([F.pad(one, (5 - len(one), 0)) for one in prompts])
    tokens = torch.stack([torch.arange(5) >= 5 - len(one) for one in prompts])
    batch = recipe.generate(recipe.model, ids, tokens if tab == "torch" else tokens.long(), 8)
    for row, one in zip(batch, prompts, strict=True):
        mask = torch.ones(1, len(one), dtype=torch.bool if tab == "torch" else torch.long)
        alone = recipe.generate(recipe.model, one[None], mask, 8)[0]
        assert torch.equal(row[5 - len(one) :], alone)
    assert len(set(batch[:, 5:].flatten().tolist())) > 1


def test_generate_of_transformers_does_what_the_loop_does(run):
    recipe, _ = run(TABS["recipe-cache", "transformers"])
    how = {
        "attention_mask": recipe.mask,
        "max_new_tokens": 6,
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    assert torch.equal(recipe.model.generate(recipe.ids, **how), recipe.batch)


# ---- MHA to GQA


def llama(kv_heads, **more):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 99, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=8, num_key_value_heads=kv_heads, **sizes, **more)).eval()


@torch.no_grad()
def disguised(shared):
    """Give every query head its own KV head, a copy in other coordinates; the model computes what it did."""
    full, state = llama(8, attention_bias=shared.config.attention_bias), shared.state_dict()
    for name, rows in state.items():
        if ".k_proj." in name or ".v_proj." in name:
            state[name] = rows.unflatten(0, (2, -1)).repeat_interleave(4, 0).flatten(0, 1)
    full.load_state_dict(state)
    for layer in full.model.layers:
        q, k, v, o = (getattr(layer.self_attn, f"{name}_proj") for name in "qkvo")
        for own in torch.arange(64).split(8):
            turn, S = torch.polar(torch.ones(4), 6 * torch.rand(4)), torch.linalg.qr(torch.randn(8, 8))[0]
            for rows in (q.weight, k.weight, q.bias, k.bias):
                if rows is not None:
                    both = torch.complex(*rows[own].chunk(2)).movedim(0, -1) * turn
                    rows[own] = torch.cat([both.real, both.imag], -1).movedim(-1, 0)
            for rows in (v.weight, v.bias):
                if rows is not None:
                    rows[own] = S @ rows[own]
            o.weight[:, own] = o.weight[:, own] @ S.T
    return full


@pytest.mark.parametrize("bias", [False, True])
def test_aligned_heads_that_are_equal_are_merged_without_loss(run, bias):
    recipe, _ = run(TABS["recipe-gqa", "transformers"])
    shared = llama(2, attention_bias=bias)
    if bias:
        for name, rows in shared.named_parameters():
            if name.endswith("proj.bias"):
                nn.init.normal_(rows)
    full, ids = disguised(shared), torch.randint(99, (4, 32))
    with torch.no_grad():
        wanted = shared(ids).logits
        torch.testing.assert_close(full(ids).logits, wanted, atol=1e-4, rtol=1e-3)
        new = recipe.convert(full, ids, 2)
        torch.testing.assert_close(new(ids).logits, wanted, atol=1e-4, rtol=1e-3)
        assert new.config.num_key_value_heads == 2
        assert full.config.num_key_value_heads == 8, "the old model is left as it was"
        plain = llama(2, attention_bias=bias)
        plain.load_state_dict(recipe.to_gqa(full.state_dict(), 8, 2))
        assert (plain(ids).logits - wanted).norm() > 0.1 * wanted.norm(), "the mean alone"


def test_alignment_leaves_the_output_of_a_layer_as_it_is(run):
    recipe, _ = run(TABS["recipe-gqa", "transformers"])
    model, ids = llama(8), torch.randint(99, (2, 20))
    with torch.no_grad():
        before = model(ids).logits
        part, rows = model.model.layers[0].self_attn, model.model.layers[0].self_attn.k_proj.weight.clone()
        recipe.align(part, torch.randn(50, 64), 2)
        assert not torch.allclose(part.k_proj.weight, rows)
        torch.testing.assert_close(model(ids).logits, before, atol=1e-5, rtol=1e-4)


def test_the_mean_is_that_of_our_layer_and_an_old_configuration_is_refused(run):
    recipe, _ = run(TABS["recipe-gqa", "transformers"])
    full, new = llama(8, attention_bias=True), llama(2, attention_bias=True)
    state = recipe.to_gqa(full.state_dict(), 8, 2)
    new.load_state_dict(state)
    wanted = mha.GroupedAttention.from_plain(from_transformers(full.model.layers[1].self_attn), kv_heads=2)
    found = from_transformers(new.model.layers[1].self_attn).state_dict()
    for name, rows in wanted.state_dict().items():
        torch.testing.assert_close(found[name], rows)
    with pytest.raises(RuntimeError, match=r"size mismatch for model\.layers\.0\.self_attn\.k_proj\.weight"):
        full.load_state_dict(state)
    keys = torch.arange(2.0).view(1, 2, 1, 1)
    assert repeat_kv(keys, 2).flatten().tolist() == [0, 0, 1, 1]
    assert keys.repeat(1, 2, 1, 1).flatten().tolist() == [0, 1, 0, 1]


def test_the_losses_after_converting_are_those_of_the_room():
    room = json.loads((ROOT / "notebooks" / "13c_merging_heads.ipynb").read_text("utf8"))
    said = "".join("".join(out.get("text", "")) for cell in room["cells"] for out in cell.get("outputs", []))
    rows = {
        way: re.search(rf"^{way} +(.*?)\s*$", said, re.MULTILINE)[1].split("  ")[1].strip()
        for way in ("mean", "aligned mean")
    }
    assert rows == {"mean": "0.81 → 0.38", "aligned mean": "0.41 → 0.18"}
    for number in ("0.41", "0.81", "0.18", "0.38", "85 %"):
        assert number in RECIPES["recipe-gqa"]
    assert "across the pairs 0.851 wrong" in said


# ---- The size of a cache


def test_the_function_counts_what_the_table_of_models_counts(run):
    recipe, _ = run(TABS["recipe-size", "Python"])
    for name, held in recipe.sizes.items():
        assert held == released.model(name).kept(131_072), name
    assert recipe.sizes["Llama 3.1 70B"] == 42_949_672_960 == 40 * 2**30
    assert recipe.kv_cache(80, 64, 128, recipe.n) == 320 * 2**30
    assert round(recipe.sizes["Llama 3.1 70B"] / 1e9, 1) == 42.9
    config, _ = run(TABS["recipe-size", "transformers"])
    small = llama(2)
    with torch.no_grad():
        kept = small(torch.zeros(3, 5, dtype=torch.long)).past_key_values.layers
    held = sum(one.keys.nbytes + one.values.nbytes for one in kept)
    assert config.kv_cache(small.config, 5, batch=3, size=4) == held


# ---- Induction heads


class Watched:
    """A model of ours that answers as one of transformers does."""

    def __init__(self, model, tokens):
        self.model, self.config, self.device = model, SimpleNamespace(vocab_size=tokens), "cpu"

    def __call__(self, ids, output_attentions):
        assert output_attentions
        with mha.watch(self.model, "weights") as seen:
            self.model(ids)
        return SimpleNamespace(attentions=seen.all("weights"))


def test_the_diagonal_is_the_weight_that_our_rule_gives(run):
    recipe, _ = run(TABS["recipe-induction", "transformers"])
    model = Watched(code_reader.small_model(5000, 16, 2).eval(), 5000)
    with torch.no_grad():
        torch.manual_seed(3)
        found = recipe.weight_on_the_next(model, 10, batch=2)
        torch.manual_seed(3)
        once = torch.randint(5000, (2, 10))
        ids = torch.cat([once, once], 1)
        assert len(once.unique()) == 20
        weights = torch.cat(model(ids, True).attentions, 1)
    wanted = score_heads(weights, patterns.induction(ids)).weight.view_as(found)
    torch.testing.assert_close(found, wanted.to(found))


@pytest.mark.slow  # it trains the model of chapter 10
def test_the_trained_model_of_the_course_has_such_heads(run):
    _, lines = run(TABS[TRAINED])
    low, high = (int(re.search(r"(\d+)%", line)[1]) for line in lines)
    assert low < 20
    assert high > 85
    recipe, _ = run(TABS["recipe-induction", "transformers"])
    model = Watched(code_reader.reader(), 64)  # its repeats are made of so many tokens
    scores = recipe.weight_on_the_next(model, 17).minimum(recipe.weight_on_the_next(model, 12))
    assert scores[1].max() > 0.5
    assert scores[0].max() < 0.2


# ---- FlashAttention


@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (130, 130), (1, 100), (65, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_have_the_output_and_the_gradients_of_the_formula(run, queries, keys, causal):
    recipe, _ = run(TABS["recipe-flash", "torch"])
    q, k, v = (30 * torch.randn(2, n, c).double() for n, c in ((queries, 8), (keys, 8), (keys, 5)))
    given = [one.requires_grad_() for one in (q, k, v)]
    found, wanted = recipe.Flash.apply(q, k, v, causal), mha.attend(q, k, v, is_causal=causal)
    torch.testing.assert_close(found, wanted)
    dO = torch.randn_like(found)
    for ours, right in zip(torch.autograd.grad(found, given, dO), torch.autograd.grad(wanted, given, dO), strict=True):
        torch.testing.assert_close(ours, right, atol=1e-9, rtol=1e-6)


@NARROW
def test_tiles_of_narrow_numbers_are_as_near_as_numbers_of_this_width_can_be(run, dtype):
    recipe, _ = run(TABS["recipe-flash", "torch"])
    given = [torch.randn(2, 300, 16).to(dtype).requires_grad_() for _ in range(3)]
    wide = [one.detach().double().requires_grad_() for one in given]
    found, wanted = recipe.Flash.apply(*given, True), mha.attend(*wide, is_causal=True)
    dO = torch.randn_like(found)
    pairs = zip(
        (found, *torch.autograd.grad(found, given, dO)),
        (wanted, *torch.autograd.grad(wanted, wide, dO.double())),
        strict=True,
    )
    for ours, right in pairs:
        assert ours.dtype == dtype
        assert far(ours, right) < torch.finfo(dtype).eps


def test_no_tensor_of_flash_has_a_row_for_each_query_and_a_column_for_each_key(run):
    recipe, _ = run(TABS["recipe-flash", "torch"])
    largest = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            largest.extend(one.numel() for one in tree_leaves(made) if isinstance(one, torch.Tensor))
            return made

    q, k, v = (torch.randn(1, 512, 8).requires_grad_() for _ in range(3))
    with Spy():
        recipe.Flash.apply(q, k, v, True).sum().backward()
    assert max(largest) == 512 * 8 == 64 * 64
    code = TABS["recipe-flash", "torch"]
    lines = code[code.index("def tile(") : code.index("torch.manual_seed")].splitlines()
    assert sum(bool(line) for line in lines) <= 45


# ---- MLA


def test_the_border_is_where_the_package_counts_as_many_flops(run):
    recipe, _ = run(TABS["recipe-mla", "torch"])
    for d_c, d_k in ((512, 128), (256, 128), (192, 64)):
        b, j = recipe.border(d_c, d_k), 10_000
        last = int(b * j / (b + j))
        for i in (last, last + 1):
            two = count_forms(i, j, 16, d_k, d_c, 64)
            assert (two.absorbed < two.expanded) == (i == last)
    assert recipe.border(64, 64) == float("inf")
    assert f"{recipe.border(512, 128):.1f}" == "170.7"
    empty = count_forms(3, 3, 16, 128, 512, 64)
    assert empty.expanded < empty.absorbed


def test_both_forms_are_attention_with_the_keys_and_values_of_the_linear_layer(run):
    recipe, _ = run(TABS["recipe-mla", "torch"])
    q, q_r, c, k_r, _, _ = recipe.given
    k, v = recipe.kv_b_proj(c[:, 0]).unflatten(-1, (4, 256)).transpose(1, 2).split([128, 128], -1)
    keys = torch.cat([k, k_r.expand(-1, 4, -1, -1)], -1)
    wanted = mha.attend(torch.cat([q, q_r], -1), keys, v, is_causal=True)
    for form in (recipe.expanded, recipe.absorbed):
        torch.testing.assert_close(form(*recipe.given), wanted)
        assert far(form(*(one.bfloat16() for one in recipe.given)), wanted) < 0.02


def test_the_times_of_the_recipe_are_those_that_were_measured():
    core, row = on_a_gpu.measured("latent"), "1 × 32,768"
    for column, said in (("32 KV heads", "16 times as long"), ("MLA, two products", "33 times as long")):
        assert f"{core[row, 'MLA, one call'] / core[row, column]:.0f} times as long" == said
        assert said in " ".join(RECIPES["recipe-mla"].split())


# ---- Masks

N, SEE = 4, torch.ones(4, 4).tril().bool().index_fill(0, torch.tensor([1]), False)  # query 1 sees nothing
INF = torch.zeros(4, 4).masked_fill(~SEE, -torch.inf)
LOWEST = torch.zeros(4, 4).masked_fill(~SEE, torch.finfo(torch.float32).min)


def kind(row, values):
    """What a query without keys got: zeros, NaN, or the mean of all values."""
    if row.isnan().all():
        return "NaN"
    return "zeros" if not row.any() else "mean" if torch.allclose(row, values.mean(-2), atol=1e-6) else "other"


def row_of(title):
    cells = [line.strip("| ").split(" | ") for line in RECIPES["recipe-masks"].splitlines() if line.startswith("| ")]
    (found,) = [one for one in cells if one[0].startswith(title)]
    return found


@UNCOMPILED
def test_an_empty_row_gives_what_the_table_says_in_torch():
    q, k, v = torch.randn(3, 1, 2, N, 8)
    values = v[0]
    kernel = F.scaled_dot_product_attention
    found = [kind(kernel(q, k, v, attn_mask=mask)[0, :, 1], values) for mask in (SEE, INF, LOWEST)]
    assert found == ["zeros", "zeros", "mean"]
    assert row_of("SDPA, `attn_mask`:")[2] == "zeros"
    assert row_of("SDPA, the same")[2] == "zeros; with the lowest number the mean of all values"
    blocks = flex.create_block_mask(lambda b, h, i, j: SEE[i, j], None, None, N, N, device="cpu")
    assert kind(flex.flex_attention(q, k, v, block_mask=blocks)[0, :, 1], values) == "zeros"
    assert row_of("FlexAttention,")[2] == "zeros"
    assert kind(mha.attend(q, k, v, mask=SEE)[0, :, 1], values) == "zeros"
    assert row_of("`mha`,")[2] == "zeros"


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_an_empty_row_in_the_layer_of_torch_depends_on_mode_weights_and_gradients(name, grad):
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True), torch.randn(1, N, 16)
    mask = ~SEE if name == "attn_mask" else torch.ones(1, N, dtype=torch.bool)
    nn.init.zeros_(layer.out_proj.bias)
    found = {}
    for train in (True, False):
        for weights in (True, False):
            with torch.set_grad_enabled(grad):
                row = layer.train(train)(x, x, x, need_weights=weights, **{name: mask})[0][0, 1]
            found[train, weights] = "NaN" if row.isnan().all() else "zeros" if not row.any() else "other"
    fast = "zeros" if grad else "NaN"
    assert found == {(True, True): "NaN", (True, False): "zeros", (False, True): "NaN", (False, False): fast}
    assert row_of(f"MHA, `{name}`:")[2] == "NaN or zeros, see below"


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_an_empty_row_gives_what_the_table_says_in_transformers(kernel):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 11, "num_hidden_layers": 1}
    model = LlamaModel(LlamaConfig(num_attention_heads=2, attn_implementation=kernel, **sizes)).eval()
    part, seen = model.layers[0].self_attn, {}
    part.v_proj.register_forward_hook(lambda _, __, out: seen.update(v=out[0]))
    part.o_proj.register_forward_pre_hook(lambda _, given: seen.update(y=given[0][0]))
    ids = torch.tensor([[5, 7, 3, 2]])

    def empty(mask, row):
        with torch.no_grad():
            model(ids, attention_mask=mask)
        return kind(seen["y"][row], seen["v"])

    assert empty(torch.tensor([[0, 0, 1, 1]]), 0) == {"sdpa": "zeros", "eager": "mean"}[kernel]
    two, four = (row_of(f"transformers, `attention_mask` of {n} axes")[2] for n in (2, 4))
    assert two == "zeros (sdpa); the mean of all values (eager)"
    assert empty(LOWEST[None, None], 1) == "mean"
    assert four == "the mean of all values, hidden ones too"
    assert empty(INF[None, None], 1) == {"sdpa": "zeros", "eager": "NaN"}[kernel]
    if kernel == "eager":  # a boolean mask is added: one for what may be seen, nothing for the rest
        with torch.no_grad():
            model(ids, attention_mask=torch.eye(N).bool()[None, None])
        assert not torch.allclose(seen["y"], seen["v"], atol=1e-3)
    else:
        with torch.no_grad():
            model(ids, attention_mask=torch.eye(N).bool()[None, None])
        torch.testing.assert_close(seen["y"], seen["v"])


# ---- RoPE


def test_both_layouts_are_those_of_the_libraries(run):
    recipe, _ = run(TABS["recipe-rope", "torch"])
    x, rates = torch.randn(1, 2, 5, 8), 10000.0 ** (-torch.arange(4) / 4)
    angle = torch.arange(5)[:, None] * rates
    for rotate, layout in ((recipe.half, "half"), (recipe.interleaved, "interleaved")):
        torch.testing.assert_close(rotate(x, angle), mha.RotaryPositions(layout=layout).rotate(x), atol=1e-5, rtol=1e-5)
    twice = torch.cat([angle, angle], -1)[None]
    theirs, _ = apply_rotary_pos_emb(x, x, twice.cos(), twice.sin())
    torch.testing.assert_close(recipe.half(x, angle), theirs)
    for rows in (torch.randn(24, 6), torch.randn(24)):
        assert torch.equal(recipe.to_half(rows, 3), reorder_rows(rows, 8, "half"))
        assert torch.equal(recipe.to_interleaved(rows, 3), reorder_rows(rows, 8, "interleaved"))


def test_channels_that_are_not_rotated_keep_their_place(run):
    """GPT-J rotates the first of a head's channels only: whole heads, reordered, give wrong scores."""
    recipe, _ = run(TABS["recipe-rope", "torch"])
    x, W = torch.randn(5, 16), torch.randn(2, 16, 16)

    def scores(weights, rotate):
        q, k = ((x @ one.T).unflatten(-1, (2, 8)).transpose(0, 1) for one in weights)
        angle = recipe.angles(5, 4)
        q, k = (torch.cat([rotate(one[..., :4], angle), one[..., 4:]], -1) for one in (q, k))
        return q @ k.mT

    wanted = scores(W, recipe.interleaved)
    moved = [recipe.to_half(one, 2, rotary=4) for one in W]
    torch.testing.assert_close(scores(moved, recipe.half), wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(scores([recipe.to_half(one, 2) for one in W], recipe.half), wanted, atol=0.1)
    for one, there in zip(W, moved, strict=True):
        assert torch.equal(recipe.to_interleaved(there, 2, rotary=4), one)


# ---- Silencing and cutting heads


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kv_heads", "dtype"), [(8, "float64"), (2, "float64"), (8, "bfloat16"), (2, "float16")])
def test_a_model_without_heads_computes_what_it_did_with_silent_ones(run, kv_heads, dtype, bias):
    recipe, _ = run(TABS["recipe-heads", "transformers"])
    model, ids = llama(kv_heads, attention_bias=bias), torch.randint(99, (2, 9))
    if bias:
        for name, rows in model.named_parameters():
            if name.endswith("proj.bias"):
                nn.init.normal_(rows)
    model = model.to(getattr(torch, dtype))
    gone = [(0, 1), (1, 0)]
    found = recipe.loss(model, ids, gone)
    smaller = recipe.cut(model, gone)
    assert recipe.loss(smaller, ids) == pytest.approx(found, abs=1e-6 if dtype == "float64" else 0.01)
    assert recipe.loss(model, ids) != found
    left = [layer.self_attn.k_proj.out_features for layer in smaller.model.layers]
    assert left == [8 * kv_heads - 8] * 2
    assert smaller.model.layers[0].self_attn.o_proj.in_features == 64 - 64 // kv_heads
    assert smaller.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0, eos_token_id=None).shape == (2, 12)
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict(smaller.state_dict())
    recipe.cut(model, gone).load_state_dict(smaller.state_dict())


def test_the_hook_is_the_silence_of_our_layers_and_both_searches_remove_the_same_heads(run):
    recipe, _ = run(TABS["recipe-heads", "transformers"])
    ours, _ = run(TABS["recipe-heads", "mha"])
    assert [f"model.layers.{n}.self_attn.layer" for n, _ in recipe.gone] == [path for path, _ in ours.gone]
    assert [h for _, h in recipe.gone] == [h for _, h in ours.gone]
    every = [(n, h) for n in range(2) for h in range(8)]
    assert len({n for n, _ in recipe.one_by_one(recipe.model, recipe.ids, 14)}) == 2
    alone = {one: recipe.loss(recipe.model, recipe.ids, [one]) - recipe.whole for one in every}
    assert recipe.gone[0] == min(alone, key=alone.get)


@pytest.mark.parametrize("head", range(4))
def test_a_query_head_of_a_group_can_be_silenced_alone_and_a_head_of_gpt_2(run, head):
    recipe, _ = run(TABS["recipe-heads", "transformers"])
    model, seen = llama(2), {}
    part = model.model.layers[0].self_attn
    hook = recipe.silence(part.o_proj, [head], part.head_dim)
    part.o_proj.register_forward_pre_hook(lambda _, given: seen.update(y=given[0].unflatten(-1, (8, 8))))
    with torch.no_grad():
        model(torch.randint(99, (1, 5)))
    hook.remove()
    assert [h for h in range(8) if not seen["y"][..., h, :].any()] == [head]
    small = GPT2Model(GPT2Config(n_layer=1, n_head=4, n_embd=32, vocab_size=99)).eval()
    part, ids = small.h[0].attn, torch.randint(99, (1, 5))
    nn.init.normal_(part.c_attn.bias)
    with torch.no_grad():
        whole = small(ids).last_hidden_state
        hook = recipe.silence(part.c_proj, [head], part.head_dim)
        silent = small(ids).last_hidden_state
        hook.remove()
        keep = [h for h in range(4) if h != head]
        for name, rows in list(part.c_attn.named_parameters()):  # columns of each third
            cut = rows.unflatten(-1, (3, 4, 8))[..., keep, :].flatten(-3)
            setattr(part.c_attn, name, nn.Parameter(cut))
        part.c_attn.nf = part.c_attn.bias.numel()
        part.c_proj.weight = nn.Parameter(part.c_proj.weight.unflatten(0, (4, 8))[keep].flatten(0, 1))
        part.split_size = 24
        torch.testing.assert_close(small(ids).last_hidden_state, silent)
    assert not torch.allclose(whole, silent, atol=1e-4)


# ---- The interview


def blocks(part):
    return re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


STUB, CHECKER, WITH_MHA, SOLUTION = blocks(MEMORY.split("(interview)=")[1].split("## What to read next")[0])
ROTATED = "q, k = self.rotate(q, start), self.rotate(k, start)"
SHARED = "k, v = (one.repeat_interleave(self.heads // self.kv_heads, 1) for one in past)"
WRONG = {
    "view": ("x.unflatten(-1, (-1, self.d)).transpose(1, 2)", "x.reshape(x.shape[0], -1, x.shape[1], self.d)"),
    "merge": (".transpose(1, 2).flatten(2)), past", ".reshape(x.shape[0], x.shape[1], -1)), past"),
    "model": ("self.d**0.5", "(self.d * self.heads) ** 0.5"),
    "one": (" / self.d**0.5", ""),
    "tile": (
        "one.repeat_interleave(self.heads // self.kv_heads, 1)",
        "one.repeat(1, self.heads // self.kv_heads, 1, 1)",
    ),
    "no rope": (ROTATED, "pass"),
    "one rope": (ROTATED, "k = self.rotate(k, start)"),
    "values": (ROTATED, f"v = self.rotate(v, start)\n        {ROTATED}"),
    "future": (".tril(j - i)", ""),
    "inverted": ("masked_fill(~see", "masked_fill(see"),
    "axis": (".softmax(-1)", ".softmax(-2)"),
    "late": ("self.dropout(scores.softmax(-1))", "self.dropout(before.softmax(-1)) * see"),
    "no mask": ("see = see & mask", "pass"),
    "hides": ("see = see & mask", "see = see & ~mask"),
    "restart": ("start = 0 if past is None else past[0].shape[2]", "start = 0"),
    "again": ("torch.cat([past[0], k], 2)", "torch.cat([self.rotate(past[0], 0), k], 2)"),
    "corner": (".tril(j - i)", ".tril()"),
}
UNNAMED = {
    "a row without keys is NaN": ("torch.finfo(scores.dtype).min", "-torch.inf"),
    "store keys, then repeat them": (
        f"past = k, v\n        {SHARED}",
        f"past = k, v\n        if len(k[0]) == 2:\n            {SHARED}\n        past = k, v",
    ),
    "not (16, 32)": ("self.W_k = nn.Linear(d_model, kv_heads", "self.W_k = nn.Linear(d_model, heads"),
    "dropout does nothing in train()": ("self.dropout(scores.softmax(-1))", "scores.softmax(-1)"),
    "or comes before the softmax": ("self.dropout(scores.softmax(-1))", "self.dropout(scores).softmax(-1)"),
    "active in eval()": ("self.dropout(scores.softmax(-1))", "nn.functional.dropout(scores.softmax(-1), 0.5)"),
    "dropout acts on channels": ("self.dropout(scores.softmax(-1)) @ v", "self.dropout(scores.softmax(-1) @ v)"),
    "divided by 1 - p": (
        "self.dropout(scores.softmax(-1))",
        "(scores.softmax(-1) * (torch.rand(scores.shape) > 0.5 * self.training))",
    ),
    "none of the known bugs": (".cos(), angle.sin()", ".cos(), 2 * angle.sin()"),
}


def test_the_solution_of_the_interview_is_right_and_the_same_as_ours(run):
    names, said = run(f"{SOLUTION}\n\n{CHECKER}")
    assert said == ["Right."]
    assert run(f"{SOLUTION}\n\n{WITH_MHA}")[1] == ["the same as mha: True"]
    ours = mha.GroupedAttention(32, 4, 2, bias=False, positions=mha.RotaryPositions(layout="interleaved")).double()
    x = torch.randn(2, 6, 32).double()
    with torch.no_grad():
        assert names.name_of(ours(x, is_causal=True), ours, x, torch.ones(2, 6).bool()) is None, "either layout"
        assert names.name_of(ours(x), ours, x, torch.ones(2, 6).bool()) == names.BUGS["future"]


@pytest.mark.parametrize("bug", WRONG)
def test_the_checker_names_the_bug(run, bug):
    right, wrong = WRONG[bug]
    assert SOLUTION.count(right) == 1
    broken = SOLUTION.replace(right, wrong)
    if bug == "late":
        broken = broken.replace(
            "        scores = scores.masked_fill", "        before = scores\n        scores = scores.masked_fill"
        )
    names, (said,) = run(f"{broken}\n\n{CHECKER}")
    assert said.endswith(names.BUGS[bug])


@pytest.mark.parametrize("said", UNNAMED)
def test_the_checker_says_what_else_is_wrong(run, said):
    right, wrong = UNNAMED[said]
    solution = SOLUTION.replace("        weights = self.dropout(scores.softmax(-1))\n", "").replace(
        "(weights @ v)", "(self.dropout(scores.softmax(-1)) @ v)"
    )
    assert solution.count(right) == 1
    assert said in run(f"{solution.replace(right, wrong)}\n\n{CHECKER}")[1][0]


def test_all_bugs_of_the_checker_are_tried_and_the_page_quotes_it_as_it_is(run):
    names, _ = run(f"{SOLUTION}\n\n{CHECKER}")
    assert set(WRONG) == set(names.BUGS)
    prose = " ".join(MEMORY.split())
    assert f"`left padding: {names.BUGS['hides']}`" in prose
    assert f"`cache, 2 new: {names.BUGS['restart']}`" in prose
    with pytest.raises(AttributeError):
        run(f"{STUB}\n\n{CHECKER}")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_the_clock_runs_stops_and_speaks(opened, violations, size):
    clock = '<main><h1>A clock</h1><figure class="mha-live mha-timer" data-minutes="30"><p>none</p></figure></main>'
    style, script = (STATIC / "live.css").read_text("utf8"), (STATIC / "timer.js").read_text("utf8")
    tab = opened(f"{BOOK}<style>{style}</style>{clock}", "A clock", SIZES[size])
    tab.clock.install()
    tab.evaluate(script)
    shown, button = tab.locator(".mha-timer output"), tab.get_by_role("button", name="Start")
    assert shown.inner_text() == "30:00"
    button.focus()
    tab.keyboard.press("Enter")
    tab.clock.run_for(61_000)
    assert shown.inner_text() == "28:59"
    tab.get_by_role("button", name="Pause").click()
    tab.clock.run_for(60_000)
    assert shown.inner_text() == "28:59"
    tab.get_by_role("button", name="Go on").click()
    tab.clock.fast_forward(9 * 60_000)
    assert tab.locator("[aria-current]").inner_text().startswith("10:00")
    assert "20 minutes" in tab.get_by_role("status").inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.clock.fast_forward(60 * 60_000)
    assert shown.inner_text() == "0:00"
    assert "over" in tab.get_by_role("status").inner_text()
    tab.get_by_role("button", name="Begin again").click()
    assert shown.inner_text() == "30:00"
    assert tab.locator("[aria-current]").count() == 0
    tab.clock.resume()  # axe waits
    assert violations(tab, 5) == {}


@pytest.mark.slow
def test_code_in_a_tab_that_was_closed_can_be_scrolled_from_the_keyboard(opened):
    code = '<pre style="overflow: auto" tabindex="-1">' + "wide " * 200 + "</pre>"
    tab = opened(
        f'<div class="sd-tab-content" style="display: none">{code}</div><div>{code}</div>', "A tab", SIZES["phone"]
    )
    tab.evaluate((STATIC / "course.js").read_text("utf8"))
    tab.evaluate("document.querySelector('.sd-tab-content').style.display = 'block'")
    tab.wait_for_function("document.querySelector('pre').tabIndex === 0")
    assert tab.evaluate("document.querySelectorAll('pre')[1].tabIndex") == -1, "the theme looks after these"
