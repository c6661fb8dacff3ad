/* A mask to draw: the weights that it leaves, what would leak after the softmax, and the same mask as code. */
(() => {
  "use strict";
  const { element, code, figures } = mhaLive, torch = "import torch\n\n";
  const N = 6, ROWS = [...Array(N).keys()], OWN = "your own";
  const Q = [[2, 0], [0, 1], [1, 1], [1, -1], [0, 2], [2, 1]];
  const K = [[0, 1], [2, 0], [1, 2], [1, 1], [-1, 1], [1, 0]];
  const SCORES = Q.map((q) => K.map((k) => (q[0] * k[0] + q[1] * k[1]) / Math.sqrt(2)));

  /* Who sees whom; the same in torch, of indices i and j; the same in mha. */
  const PRESETS = {
    causal: [(i, j) => j <= i, "j <= i", "mha.causal_mask(6)"],
    "window of 3": [(i, j) => j <= i && i - j < 3, "(j <= i) & (i - j < 3)", "mha.sliding_window(6, 3)"],
    "padding, left": [(i, j) => j <= i && j > 1, "(j <= i) & (j >= 2)", "mha.causal_mask(6) & (torch.arange(6) >= 2)"],
    "padding, right": [(i, j) => j <= i && j < 4, "(j <= i) & (j < 4)", "mha.causal_mask(6) & mha.padding_mask([4], 6)"],
    "packed sequences": [(i, j) => j <= i && i < 3 === j < 3, "(j <= i) & (i // 3 == j // 3)",
      "torch.block_diag(mha.causal_mask(3), mha.causal_mask(3))"],
  };
  const drawnBy = (name) => ROWS.map((i) => ROWS.map((j) => +PRESETS[name][0](i, j)));

  const SDPA = "scaled_dot_product_attention", MHA = "nn.MultiheadAttention", FLEX = "FlexAttention";
  const HF2 = "transformers, 2 axes", HF4 = "transformers, 4 axes";
  const FULL = "(query, key) or (batch, head, query, key)", BOOL = "torch.bool", LOOK = "True = may look";
  /* Shape, dtype, what an entry means, what an empty row reads. */
  const FACTS = {
    [SDPA]: [FULL, BOOL, LOOK, "zeros"],
    [MHA]: ["(query, key) or (batch · heads, query, key)", BOOL, "True = hide", "NaN"],
    [HF2]: ["(batch, key)", "torch.int64", "1 = token, 0 = padding; the model adds the causal mask",
      "zeros (“sdpa”), the average of all values (“eager”)"],
    [HF4]: ["(batch, 1, query, key)", "that of the model", "added to the scores: 0 = may look, the lowest number = hide",
      "the average of all values, hidden ones too"],
    [FLEX]: ["a function of batch, head, query, key", BOOL, LOOK, "zeros"],
    mha: [FULL, BOOL, LOOK, "zeros"],
  };

  /* The keys that are no padding, if the mask is causal apart from padding. */
  function tokens(mask) {
    const seen = mask[N - 1];
    return mask.every((row, i) => row.every((one, j) => one === +(j <= i && seen[j]))) ? seen : null;
  }

  function asCode({ mask, preset, library }) {
    const known = PRESETS[preset], rows = mask.map((row) => `    [${row.join(", ")}],\n`).join("");
    const table = `see = torch.tensor([\n${rows}]).bool()\n`;
    const formula = `i, j = torch.arange(6)[:, None], torch.arange(6)\nsee = ${known?.[1]}\n`;
    const see = torch + (known ? formula : table), seen = tokens(mask);
    return {
      [SDPA]: () => `${see}out = torch.nn.functional.${SDPA}(\n    q, k, v, attn_mask=see\n)`,
      [MHA]: () => `${see}out, weights = layer(q, k, v, attn_mask=~see)`,
      [HF2]: () => seen
        ? `${torch}attention_mask = torch.tensor([[${seen.join(", ")}]])\nout = model(input_ids, attention_mask=attention_mask)`
        : "# Two axes say only which keys are padding:\n# this mask needs four.",
      [HF4]: () => `${see}lowest = torch.finfo(model.dtype).min\nadded = torch.zeros(1, 1, 6, 6, dtype=model.dtype)\n` +
        "added = added.masked_fill(~see, lowest)\nout = model(input_ids, attention_mask=added)",
      [FLEX]: () => `${known ? "" : torch}from torch.nn.attention import flex_attention as flex\n\n${known ? "" : table}` +
        `def may_look(b, h, i, j):\n    return ${known ? known[1] : "see[i, j]"}\n\n` +
        "block_mask = flex.create_block_mask(\n    may_look, None, None, 6, 6, device=q.device\n)\n" +
        "out = flex.flex_attention(q, k, v, block_mask=block_mask)",
      mha: () => `${torch}import mha\n\n${known ? `see = ${known[2]}\n` : table}out = mha.attend(q, k, v, mask=see)`,
    }[library]();
  }

  function softmax(scores, see) {
    const powers = scores.map((score, j) => (see[j] ? Math.exp(score) : 0));
    const sum = powers.reduce((a, b) => a + b);
    return powers.map((power) => (sum ? power / sum : 0));
  }

  function compute(s) {
    const lost = (mask) => (sum, weight, j) => sum + weight * (1 - mask[j]);
    const leak = SCORES.map((row, i) => softmax(row, row.map(() => 1)).reduce(lost(s.mask[i]), 0));
    const empty = ROWS.filter((i) => !s.mask[i].includes(1));
    return { weights: SCORES.map((row, i) => softmax(row, s.mask[i])), leak, empty, code: asCode(s) };
  }

  const flip = (mask, which) => mask.map((row, i) => row.map((one, j) => (which(i, j) ? 1 - one : one)));
  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const noted = ({ empty }) => {
    const rows = empty.map((i) => i + 1).join(", ");
    return rows && `${empty[1] ? `rows ${rows} see` : `row ${rows} sees`} nothing: NaN or zeros, see below`;
  };

  function cell(s, found, figure, i, j) {
    const seen = s.mask[i][j], weight = found.weights[i][j];
    const key = `${i}-${j}`, shown = seen ? weight.toFixed(2) : "";
    const className = seen ? "seen" : found.empty.includes(i) ? "unseen empty" : "unseen";
    const tabIndex = (figure.at ?? "0-0") === key ? 0 : -1;
    const made = element("button", { type: "button", className, tabIndex, textContent: shown, ariaPressed: !!seen,
      ariaLabel: `query ${i + 1}, key ${j + 1}: ${seen ? `weight ${shown}` : "hidden"}` });
    made.dataset.key = key;
    made.style = `--weight: ${weight}`;
    made.addEventListener("focus", () => {
      made.parentNode.querySelector("[tabindex='0']").tabIndex = -1;
      made.tabIndex = 0;
      figure.at = key;
    });
    made.addEventListener("click", () => figure.set("mask", flip(s.mask, (a, b) => a === i && b === j)));
    made.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      made.parentNode.querySelector(`[data-key="${i + move[0]}-${j + move[1]}"]`)?.focus();
    });
    return made;
  }

  function draw(s, found, figure) {
    const label = (text) => element("span", { textContent: text });
    const head = ["query", ...ROWS.map((j) => (j ? j + 1 : "key 1")), "leak"].map(label);
    const ariaLabel = "The mask, a row for each query. Arrow keys move, space hides or shows.";
    const grid = element("div", { className: "cells", role: "group", ariaLabel }, head, ROWS.map((i) => [
      label(i + 1), ROWS.map((j) => cell(s, found, figure, i, j)), label(found.leak[i].toFixed(2))]));
    const facts = ["Shape", "Dtype", "Meaning", "An empty row reads"].map((name, n) => element("div", {},
      element("dt", { textContent: name }), element("dd", { textContent: FACTS[s.library][n] })));
    return element("div", {}, grid, element("p", { className: "alarm", textContent: noted(found) }), code(found.code),
      element("dl", {}, facts));
  }

  figures.masks = {
    layout: "wide",
    example: { q: Q, k: K },
    start: { preset: "causal", library: SDPA, mask: drawnBy("causal") },
    controls: [
      { name: "preset", label: "Mask", choices: [...Object.keys(PRESETS), OWN] },
      { name: "library", label: "As code for", choices: Object.keys(FACTS) },
      { label: "Invert the mask", press: (s) => ({ mask: flip(s.mask, () => true) }) },
    ],
    settle(s, changed) {
      if (changed.includes("preset")) return s.preset === OWN ? {} : { mask: drawnBy(s.preset) };
      return changed.includes("mask") ? { preset: OWN } : {};
    },
    compute,
    draw,
    say(s, found) {
      const pairs = s.mask.flat().filter(Boolean).length;
      const { leak, empty } = found, alarm = noted(found);
      const [worst] = ROWS.filter((i) => !empty.includes(i)).sort((a, b) => leak[b] - leak[a]);
      const late = worst >= 0 ? ` With this mask after the softmax, ${leak[worst].toFixed(2)} of the weight of row ` +
        `${worst + 1} would leak through the denominator.` : "";
      return `${pairs} of 36 pairs are visible.${alarm && ` Careful: ${alarm}.`}${late}`;
    },
  };
})();
