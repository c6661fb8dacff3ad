"""Build every kind of model of transformers small, put layers of ours into it, and compare the numbers.

    python tools/try_models.py [--write] [type ...]      (all when none is named; some minutes)

A type is *equal* when the model with our layers in all places that are known gives the same output on both kernels,
*refused* when `swap` says why it takes none of them, *not tried* when no small model of it could be built here, and
*different* when it gives other numbers: then the program ends with an error. `--write` writes book/models.md.
"""

import argparse
import copy
import inspect
import os
import re
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from mha.interop import swap
from mha.interop.swapping import attention_places

PAGE = Path(__file__).resolve().parents[1] / "book" / "models.md"
LIMIT = 1e-5
SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "intermediate_size": 48,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ffn_dim": 48, "n_inner": 48, "num_hidden_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "n_layer": 2, "n_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 60, "max_position_embeddings": 64, "n_positions": 64, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "image_size": 32, "patch_size": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "q_lora_rank": 8, "kv_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "num_mel_bins": 16, "embedding_size": 32,
    "projection_dim": 32, "max_source_positions": 20, "max_target_positions": 20, "num_channels": 3, "n_group": 1,
    "topk_group": 1, "shared_expert_intermediate_size": 16, "sliding_window": 4, "rotary_dim": 4,
    "index_topk": 4, "index_n_heads": 16, "index_head_dim": 8,
}  # fmt: skip
DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
HEADS = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModel")


@dataclass(frozen=True)
class Row:
    """What became of one type of model."""

    kind: str
    taken: str = ""
    verdict: str = "not tried"
    said: str = ""


def small_values(config):
    """Return the keywords that make a configuration small, and those inside it."""
    fixed = {name for name in SMALL if getattr(getattr(type(config), name, None), "fset", True) is None}
    values = {n: value for n, value in SMALL.items() if n not in fixed and getattr(config, n, None) is not None}
    if "kv_lora_rank" in values:
        values["num_key_value_heads"] = values["num_attention_heads"]
    depth = next((getattr(config, name) for name in DEPTH if isinstance(getattr(config, name, None), int)), None)
    for name, value in vars(config).items():
        if isinstance(value, transformers.PretrainedConfig):
            values[name] = {**small_values(value), "model_type": value.model_type}
        elif isinstance(value, list) and len(value) == depth:  # one entry for each layer: keep the kinds that there are
            values[name] = (list(dict.fromkeys(value)) * 2)[:2] if value and isinstance(value[0], str) else value[:2]
    return values


def inputs_of(model):
    """Make inputs of the kinds that a model's signature asks for: tokens, tokens and a picture, a picture, sound."""
    names = inspect.signature(model.forward).parameters
    draw = torch.Generator().manual_seed(0)
    text, behind, tokens = {}, {}, torch.randint(3, 50, (2, 9), generator=draw)
    if "input_ids" in names:
        text = {"input_ids": tokens, "attention_mask": torch.ones(2, 9, dtype=torch.long)}
        text["attention_mask"][1, :3] = 0  # in front; then behind, for models that read one place
        behind = text | {"attention_mask": text["attention_mask"].flip(1)}
        if model.config.is_encoder_decoder:
            text["decoder_input_ids"] = tokens[:, :5]
    size = next((one for one in all_values(model.config, "image_size") if isinstance(one, int)), 32)
    bins = next(iter(all_values(model.config, "num_mel_bins")), 16)
    others = [
        {"pixel_values": torch.randn(2, 3, size, size, generator=draw)},
        {"input_values": torch.randn(2, 2000, generator=draw)},
        {"input_features": torch.randn(2, bins, 40, generator=draw)},
        {"input_features": torch.randn(2, 40, bins, generator=draw)},
        {"input_features": torch.randn(2, bins, 40, generator=draw), "decoder_input_ids": tokens[:, :5]},
    ]
    for given in [text, behind, *({**behind, **one} for one in others), *others]:
        known = {name: value for name, value in given.items() if name in names}
        if known:
            yield known


def all_values(config, name):
    """Find a value in a configuration, and in those inside it."""
    for key, value in vars(config).items():
        if key == name:
            yield value
        elif isinstance(value, transformers.PretrainedConfig):
            yield from all_values(value, name)


def first_result(model):
    """Return the first inputs that a model takes, and its answer; padding in front only where each token answers."""
    problem = "it takes no tokens, pictures or sound"
    for number, given in enumerate(inputs_of(model)):
        try:
            answer = result(model, given)
        except Exception as error:
            problem = error
            continue
        if number or "attention_mask" not in given or len(answer) == given["attention_mask"].sum():
            return given, answer
    raise RuntimeError(problem)


def result(model, given):
    """Return the first tensor of floating-point numbers that a model answers with, without those of padding."""
    torch.manual_seed(0)  # some models draw numbers, such as which patches they hide
    with torch.no_grad():
        answer = model(**given)
    values = answer.values() if hasattr(answer, "values") else answer
    first = next(x for x in values if isinstance(x, torch.Tensor) and x.is_floating_point())
    mask = given.get("attention_mask")
    return first[mask.bool()] if mask is not None and first.shape[:2] == mask.shape else first


def built(kind):
    """Make a small model of one type with random weights; the first class that can be made."""
    config = CONFIG_MAPPING[kind](**small_values(CONFIG_MAPPING[kind]()))
    problem = None
    for head in HEADS:
        try:
            torch.manual_seed(0)
            model = getattr(transformers, head).from_config(copy.deepcopy(config), attn_implementation="eager")
        except Exception as error:
            problem = error
            continue
        model = model.eval().float()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.1)
        return model
    raise RuntimeError(f"no small model: {type(problem).__name__}: {str(problem)[:80]}")


def tried(kind):
    """Build, swap, compare."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    try:
        model = built(kind)
        given, right = first_result(model)
    except Exception as error:
        return Row(kind, said=str(error).splitlines()[0][:90] if str(error) else type(error).__name__)
    places = attention_places(model)
    if not places:
        classes = sorted({type(m).__name__ for m in model.modules() if "Attention" in type(m).__name__})
        if not classes:
            return Row(kind, said="it has no attention")
        return Row(kind, "", "refused", f"{', '.join(classes)}: no parts that can be read")
    taken, reasons = Counter(), []
    for number, (_, place) in enumerate(places):
        try:
            swap(model, number)
        except ValueError as error:
            said = " ".join(str(error).split())
            said = said.partition(" Its weights can be looked")[0].rpartition("does not fit: - ")[2]
            reasons.append(f"{type(place).__name__}: {said}")
        except Exception as error:
            return Row(kind, "", "different", f"swap ended with {type(error).__name__}: {str(error)[:120]}")
        else:
            taken[type(place).__name__] += 1
    told = ", ".join(f"{count} {one}" for one, count in taken.items())
    if not taken:
        return Row(kind, "", "refused", shorten(reasons[0], 160, placeholder=" …"))
    left = f"left alone: {len(reasons)}" if reasons else ""
    worst = 0.0
    for kernel in ("eager", "sdpa"):
        try:
            model.set_attn_implementation(kernel)
        except ValueError:
            continue
        try:
            found = result(model, given)
        except ValueError as error:  # a mask or an argument that our layer refuses
            return Row(kind, "", "refused", shorten(f"when it is called: {error}", 140, placeholder=" …"))
        except Exception as error:
            return Row(kind, told, "different", shorten(f"{type(error).__name__}: {error}", 160, placeholder=" …"))
        worst = max(worst, float((found - right).abs().max() / right.abs().max().clamp_min(1e-12)))
    verdict = "equal" if worst <= LIMIT else "different"
    return Row(kind, told, verdict, left or ("" if verdict == "equal" else f"by {worst:.1e}"))


def named(text):
    """Set names of code as code, so that a phone may break them."""
    return re.sub(r"(?<!\w)[A-Za-z]\w*(?:[A-Z._]\w+)+(?!\w)", r"`\g<0>`", text)


def page(rows):
    """Write the table of all types with attention that is known here."""
    count = Counter(row.verdict for row in rows)
    lines = [
        "(models)=", "# Models of Transformers, tried", "",
        f"A program built small models of {len(rows)} types that Transformers has, with random parameters. It replaced "
        "every attention that it knows with a layer of `mha`, and compared the outputs, with padding, on both "
        "kernels.", "",
        f"**{count['equal']} types** give the same numbers (the largest difference is below {LIMIT:.0e} of the largest "
        f"number), **{count['different']}** give other numbers, and {count['refused']} are refused, with the reason "
        f"and a way out. {count['not tried']} have no attention, or the program could not build them small.", "",
        "## Equal", "", "| type | attention taken | |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| `{row.kind}` | {named(row.taken)} | {row.said} |" for row in rows if row.verdict == "equal"]
    lines += ["", "## Refused", "", "| type | reason |", "|---|---|"]
    lines += [f"| `{row.kind}` | {named(row.said)} |" for row in rows if row.verdict == "refused"]
    return "\n".join(lines) + "\n"


def main():
    """Try all types, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--write", action="store_true", help="write book/models.md")
    options = parser.parse_args()
    kinds, rows = options.types or sorted(CONFIG_MAPPING), []
    for start in range(0, len(kinds), 20):  # a type that ends its process must not end all
        some = kinds[start : start + 20]
        try:
            with ProcessPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
                rows += list(pool.map(tried, some))
        except BrokenProcessPool:
            rows += [Row(kind, said="the process ended") for kind in some]
        for row in rows[-len(some) :]:
            print(f"{row.kind:32} {row.verdict:10} {row.taken:40} {row.said[:90]}", flush=True)
    print(Counter(row.verdict for row in rows))
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8", newline="\n")
    return int(any(row.verdict == "different" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
