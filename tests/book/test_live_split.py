"""Splitting and merging in chapter 05: each step of the figure has torch's shape, strides and memory."""

import pytest
import torch
from live_figures import computed, said, settings

import mha

WRONG = ["view alone", "no transpose back", "no contiguous"]
NUMBERS = [[11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]]
MATRICES = {"W": torch.eye(4, dtype=torch.int64), "W_o": torch.eye(4, dtype=torch.int64)}


def run(t, code):
    """The tensor after a step of the figure, which is code of torch, or nothing at all."""
    attention = {"P": torch.eye(3, dtype=torch.int64).expand(1, 2, 3, 3)}
    return eval(code, {"t": t} | MATRICES | attention) if code else t


def check(found, t, before):
    assert found["shape"] == list(t.shape)
    assert found["strides"] == list(t.stride())
    assert found["numbers"] == t.flatten().tolist()
    assert found["memory"] == t.as_strided((12,), (1,)).tolist()
    assert found["moved"] == (t.data_ptr() != before.data_ptr())


@pytest.mark.slow
@pytest.mark.parametrize("beside", WRONG)
def test_each_step_is_what_torch_does(live, beside):
    tab = live("split")
    right = wrong = torch.tensor([NUMBERS])
    for step in range(1, 9):
        found = computed(tab, "split", step=step, beside=beside)
        before, right = right, run(right, found["right"]["code"])
        check(found["right"], right, before)
        if "error" in found["wrong"]:
            assert beside == "no contiguous"
            assert step >= 7
            if step == 7:
                with pytest.raises(RuntimeError, match="view size is not compatible"):
                    run(wrong, found["wrong"]["code"])
            continue
        before, wrong = wrong, run(wrong, found["wrong"]["code"])
        check(found["wrong"], wrong, before)


@pytest.mark.slow
def test_the_right_way_is_that_of_the_package(live):
    tab = live("split")
    x = torch.tensor([NUMBERS]).double()
    heads = mha.split_heads(x, 2)
    assert computed(tab, "split", step=3)["right"]["numbers"] == heads.flatten().tolist()
    assert computed(tab, "split", step=3)["right"]["strides"] == list(heads.stride())
    assert computed(tab, "split", step=7)["right"]["numbers"] == mha.merge_heads(heads).flatten().tolist()
    owner = computed(tab, "split", step=3)["right"]["owner"]
    assert {int(number) for number, head in owner.items() if head == 0} == set(heads[0, 0].flatten().int().tolist())


@pytest.mark.slow
def test_the_task_of_the_figure_has_its_answer(live):
    tab = live("split")
    found = [computed(tab, "split", step=step)["right"]["memory"] for step in range(1, 9)]
    assert [step for step in range(2, 9) if found[step - 1] != found[step - 2]] == [4, 6]
    ends = {beside: computed(tab, "split", step=8, beside=beside)["wrong"] for beside in WRONG}
    assert {beside for beside, end in ends.items() if end.get("shape") == [1, 3, 4]} == set(WRONG[:2])


@pytest.mark.slow
def test_the_button_walks_through_the_steps_and_begins_anew(live):
    tab = live("split")
    for step in (*range(2, 9), 1):
        tab.get_by_role("button", name="Next step").click()
        assert settings(tab)["step"] == step
        shown = tab.locator(".picture text").all_text_contents()
        assert f"strides ({', '.join(map(str, computed(tab, 'split', step=step)['right']['strides']))})" in shown
    tab.locator("select[name=beside]").select_option("no transpose back")
    tab.locator("input[name=step]").fill("7")
    assert "Beside it, no transpose back: the first row is 11 12 21 22; shape (1, 3, 4)" in said(tab)
    tab.locator("select[name=beside]").select_option("no contiguous")
    assert "torch refuses the view" in said(tab)
