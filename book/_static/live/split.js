/* Splitting and merging heads: twelve numbers, their shape, their strides and their row of memory, step by step. */
(() => {
  "use strict";
  const { drawn, picture, text, figures } = mhaLive;
  const NAMES = ["project", "view", "transpose", "attend", "transpose back", "contiguous", "join", "mix"];
  const INPUT = { memory: [11, 12, 13, 14, 21, 22, 23, 24, 31, 32, 33, 34], shape: [1, 3, 4], strides: [12, 4, 1], copies: 0 };

  /* A tensor, as torch has it: a row of memory, a shape, and how far one step along each axis goes in memory. */
  const inOrder = (shape) => shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const isInOrder = (t) => String(t.strides) === String(inOrder(t.shape));
  const numbers = ({ memory, shape, strides }) =>
    shape.reduce((starts, size, axis) => starts.flatMap((at) => Array.from({ length: size }, (_, n) => at + n * strides[axis])), [0])
      .map((at) => memory[at]);
  const swap = ([a, b, c, d]) => [a, c, b, d];
  const fresh = (t) => ({ memory: numbers(t), shape: t.shape, strides: inOrder(t.shape), copies: t.copies + 1 });

  /* What a step does, as code and as arithmetic; all matrices are identity matrices, so that numbers keep their names. */
  const view = (...shape) => [`t.view(${shape.join(", ")})`, (t) => (isInOrder(t) ? { ...t, shape, strides: inOrder(shape) } : null)];
  const turn = ["t.transpose(1, 2)", (t) => ({ ...t, shape: swap(t.shape), strides: swap(t.strides) })];
  const copy = ["t.contiguous()", (t) => (isInOrder(t) ? t : fresh(t))];
  const skip = ["", (t) => t];
  const project = ["t @ W", fresh], attend = ["P @ t", fresh], mix = ["t @ W_o", fresh];
  const split = view(1, 3, 2, 2), join = view(1, 3, 4);
  const WAYS = {
    right: [project, split, turn, attend, turn, copy, join, mix],
    "view alone": [project, view(1, 2, 3, 2), skip, attend, skip, skip, join, mix],
    "no transpose back": [project, split, turn, attend, skip, copy, join, mix],
    "no contiguous": [project, split, turn, attend, turn, skip, join, mix],
  };

  /* The tensor after some steps of a way; null after a view that torch refuses. */
  const after = (way, step) => WAYS[way].slice(0, step).reduce((t, [, does]) => t && does(t), INPUT);

  function found(way, step) {
    const t = after(way, step), [code] = WAYS[way][step - 1], before = step > 1 ? after(way, step - 1) : INPUT;
    const heads = numbers(after(way, 3)), owner = Object.fromEntries(heads.map((number, n) => [number, n < 6 ? 0 : 1]));
    return t ? { ...t, code, owner, numbers: numbers(t), moved: t.copies > before.copies } : { code: join[0], error: true };
  }
  const compute = (s) => ({ right: found("right", s.step), wrong: found(s.beside, s.step) });

  /* Where the numbers of a tensor are drawn: tokens below each other, heads beside each other or, if they come first, below. */
  function places({ shape, numbers: read }, left) {
    const [, rows, ...rest] = shape, wide = rest.reduce((a, b) => a * b), headsFirst = rows === 2;
    return Object.fromEntries(read.map((number, n) => {
      const a = Math.floor(n / wide), m = n % wide;
      const [row, column, gap] = headsFirst ? [3 * a + Math.floor(m / 2), m % 2, 0] : [a, m, rest[1] && m > 1 ? 12 : 0];
      return [number, [left + 36 * column + gap, 44 + 24 * row + (headsFirst ? 12 * a : 0)]];
    }));
  }

  const cell = (number, owner, width = 34) => [
    drawn("rect", { width, height: 22, rx: 3, "fill-opacity": 0.35, class: owner === null ? "free" : `full head-${owner}` }),
    text(width / 2, 15, number, { "text-anchor": "middle" }),
  ];
  const list = (values) => `(${values.join(", ")})`;

  function panel(name, now, step, left, figure) {
    const parts = [text(left, 12, name, { "font-weight": 600 }), text(left, 30, now.code || "(nothing)")];
    if (now.error) return [...parts, text(left, 62, "RuntimeError: view size"), text(left, 78, "is not compatible")];
    const where = places(now, left), last = figure.walked?.[left] ?? where;
    for (const [number, [x, y]] of Object.entries(where)) {
      const one = drawn("g", { transform: `translate(${x} ${y})` }, cell(number, step > 1 && step < 8 ? now.owner[number] : null));
      const from = last[number];
      if (String(from) !== String([x, y]) && !matchMedia("(prefers-reduced-motion: reduce)").matches)
        queueMicrotask(() => one.animate({ transform: [`translate(${from[0]}px, ${from[1]}px)`, `translate(${x}px, ${y}px)`] }, 500));
      parts.push(one);
    }
    if (now.shape[1] === 2) for (const h of [0, 1]) parts.push(text(left + 78, 83 + 84 * h, `head ${h}`));
    figure.walked = { ...figure.walked, [left]: where };
    return [...parts, text(left, 222, `shape ${list(now.shape)}`), text(left, 238, `strides ${list(now.strides)}`)];
  }

  const strip = (name, now, step, y) => [
    text(4, y, `memory, ${name}: ${now.error ? "nothing" : now.moved ? "new" : "as before"}`),
    now.error ? [] : now.memory.map((number, n) => drawn("g", { transform: `translate(${4 + 28 * n} ${y + 6})` },
      cell(number, step > 1 && step < 8 ? now.owner[number] : null, 26))),
  ];

  const told = (now) => {
    if (now.error) return "torch refuses the view";
    const mine = now.numbers.filter((number) => now.owner[number] === 0).join(" ");
    const read = now.shape.length === 3 ? `the first row is ${now.numbers.slice(0, 4).join(" ")}` : `head 0 has ${mine}`;
    return `${read}; shape ${list(now.shape)}, strides ${list(now.strides)}`;
  };

  figures.split = {
    layout: "beside",
    start: { step: 1, beside: "view alone" },
    controls: [
      { name: "step", label: "Step", min: 1, max: 8, text: (n) => `${n} of 8` },
      { name: "beside", label: "Beside it", choices: Object.keys(WAYS).slice(1) },
      { label: "Next step", press: (s) => ({ step: (s.step % 8) + 1 }) },
    ],
    compute,
    draw: (s, { right, wrong }, figure) => picture(340, 346,
      panel("right", right, s.step, 4, figure), panel(s.beside, wrong, s.step, 186, figure),
      strip("right", right, s.step, 262), strip(s.beside, wrong, s.step, 310)),
    say: (s, { right, wrong }) =>
      `Step ${s.step}, ${NAMES[s.step - 1]}: ${told(right)}${right.moved ? ", in new memory" : ""}. ` +
      `Beside it, ${s.beside}: ${told(wrong)}.`,
  };
})();
