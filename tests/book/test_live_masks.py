"""The mask that can be drawn in chapter 03: its weights and its code hide what the package hides."""

import pytest
import torch
from live_figures import computed, said, settings
from torch import nn

import mha

N = 6
PRESETS = {
    "causal": mha.causal_mask(N),
    "window of 3": mha.sliding_window(N, 3),
    "padding, left": mha.causal_mask(N) & (torch.arange(N) >= 2),
    "padding, right": (mha.causal_mask(N) & mha.padding_mask([4], N))[0, 0],
    "packed sequences": torch.block_diag(mha.causal_mask(3), mha.causal_mask(3)),
}
TORCH, LAYER, FLEX = "scaled_dot_product_attention", "nn.MultiheadAttention", "FlexAttention"
TWO, FOUR = "transformers, 2 axes", "transformers, 4 axes"


def drawn():
    """Masks of all kinds: each preset, none and all visible, by chance, with one row that sees nothing."""
    yield from PRESETS.values()
    yield torch.ones(N, N, dtype=torch.bool)
    yield torch.zeros(N, N, dtype=torch.bool)
    random = torch.Generator().manual_seed(3)
    for _ in range(4):
        yield torch.rand(N, N, generator=random) < 0.6
    no_view = torch.rand(N, N, generator=random) < 0.6
    no_view[1] = False
    yield no_view


def asked(tab, mask, library=TORCH):
    """What the figure finds for a mask that was drawn, or for a preset."""
    if isinstance(mask, str):
        return computed(tab, "masks", preset=mask, mask=PRESETS[mask].int().tolist(), library=library)
    return computed(tab, "masks", preset="your own", mask=mask.int().tolist(), library=library)


def example(tab):
    fixed = tab.evaluate("mhaLive.figures.masks.example")
    return (torch.tensor(fixed[name], dtype=torch.float64)[None, None] for name in "qk")


def run(code, **names):
    """Run code of the figure, and return all that it named."""
    exec(compile(code, "<code of the figure>", "exec"), names)
    return names


@pytest.mark.slow
def test_the_weights_and_the_leak_are_those_of_the_package(live):
    tab = live("masks")
    q, k = example(tab)
    all_weights = mha.attention_weights(q, k)[0, 0]
    for mask in drawn():
        found = asked(tab, mask)
        torch.testing.assert_close(torch.tensor(found["weights"]).double(), mha.attention_weights(q, k, mask)[0, 0])
        torch.testing.assert_close(torch.tensor(found["leak"]).double(), 1 - (all_weights * mask).sum(1))
        assert found["empty"] == (~mask.any(1)).nonzero().flatten().tolist()


@pytest.mark.slow
def test_a_click_and_the_keyboard_draw_what_is_shown(live):
    tab = live("masks")
    tab.locator("[data-key='0-3']").click()
    tab.locator("[data-key='0-3']").focus()
    for key in ("ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp", "Space"):  # the upper edge stops
        tab.keyboard.press(key)
    mask = PRESETS["causal"].clone()
    mask[0, 2:4] = True
    assert settings(tab)["mask"] == mask.int().tolist()
    assert tab.evaluate("document.activeElement.dataset.key") == "0-2"
    assert tab.locator("select[name=preset]").input_value() == "your own"
    q, k = example(tab)
    weights = mha.attention_weights(q, k, mask)[0, 0]
    shown = tab.locator(".cells button").all_inner_texts()
    assert shown == [f"{w:.2f}" if see else "" for w, see in zip(weights.flatten(), mask.flatten(), strict=True)]
    assert tab.locator("[data-key='0-2']").get_attribute("aria-label") == f"query 1, key 3: weight {weights[0, 2]:.2f}"


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_draws_its_mask(live, preset):
    tab = live("masks")
    tab.locator("select[name=preset]").select_option("your own")
    tab.locator("select[name=preset]").select_option(preset)
    assert settings(tab)["mask"] == PRESETS[preset].int().tolist()
    empty = "rows 1, 2 see nothing: NaN or zeros, see below"
    assert tab.inner_text(".alarm") == (empty if preset == "padding, left" else "")
    assert (empty in said(tab)) == (preset == "padding, left")


@pytest.mark.slow
def test_the_task_of_the_figure_can_be_done(live):
    tab = live("masks")
    tab.locator("select[name=preset]").select_option("padding, left")
    for key in ("0-0", "1-1"):
        tab.locator(f"[data-key='{key}']").click()
    assert tab.inner_text(".alarm") == ""
    tab.get_by_role("button", name="Invert").click()
    assert "NaN" not in tab.inner_text(".alarm")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("library", [TORCH, LAYER, FLEX, "mha"])
def test_the_code_hides_the_same_in_torch_and_here(live, library):
    tab = live("masks")
    q, k = example(tab)
    v = torch.randn(1, 1, N, 2)
    for mask in [*PRESETS, *drawn()]:
        see = PRESETS[mask] if isinstance(mask, str) else mask
        wanted = mha.attend(q, k, v, see)
        names = {"q": q, "k": k, "v": v}
        if library == LAYER:
            names = {name: t[0] for name, t in names.items()} | {"layer": untouched(2)}
            wanted[0, 0, ~see.any(1)] = torch.nan
        out = run(asked(tab, mask, library)["code"], **names)["out"]
        torch.testing.assert_close(out.view_as(wanted), wanted, equal_nan=True)


def untouched(width):
    """A layer of torch that passes queries, keys, values and its output through as they are."""
    layer = nn.MultiheadAttention(width, 1, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(width))
    return layer


@pytest.fixture
def gpt2():
    """A small model of transformers of one layer, and what its attention gets and gives."""
    why = "transformers is missing: pip install -e '.[interop]'"
    transformers = pytest.importorskip("transformers", reason=why)

    def made(kernel):
        config = transformers.GPT2Config(
            n_embd=8, n_head=2, n_layer=1, n_positions=N, vocab_size=N, attn_implementation=kernel
        )
        model, seen = transformers.GPT2Model(config).eval(), {}
        layer = model.h[0].attn
        layer.c_attn.register_forward_hook(lambda _, given, out: seen.update(qkv=out))
        layer.c_proj.register_forward_pre_hook(lambda _, given: seen.update(out=given[0]))
        return model, seen

    return made


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("library", [TWO, FOUR])
def test_the_code_hides_the_same_in_transformers(live, gpt2, library, kernel):
    tab = live("masks")
    model, seen = gpt2(kernel)
    done = 0
    for mask in [*PRESETS, *drawn()]:
        see = PRESETS[mask] if isinstance(mask, str) else mask
        code = asked(tab, mask, library)["code"]
        if library == TWO and not torch.equal(see, mha.causal_mask(N) & see[-1]):
            assert "model(" not in code
            continue
        with torch.no_grad():
            run(code, model=model, input_ids=torch.arange(N)[None])
        q, k, v = (t.view(1, N, 2, 4).transpose(1, 2) for t in seen["qkv"].chunk(3, -1))
        wanted = mha.attend(q, k, v, see)
        if (library, kernel) != (TWO, "sdpa"):  # an empty row reads the average of all values
            wanted[:, :, ~see.any(1)] = v.mean(2, keepdim=True)
        torch.testing.assert_close(seen["out"], wanted.transpose(1, 2).flatten(2))
        done += 1
    assert done >= (4 if library == TWO else 12)


@pytest.mark.slow
def test_the_code_can_be_copied(live):
    tab = live("masks")
    tab.evaluate("addEventListener('copy', () => { window.copied = String(getSelection()); })")
    tab.get_by_role("button", name="Copy").click()
    assert tab.evaluate("copied").strip() == asked(tab, "causal")["code"].strip()
