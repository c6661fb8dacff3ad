/* FlashAttention: tiles sweep over the scores; a query keeps a maximum, a sum and an output. The backward pass makes each
   tile again from the logsumexp of its rows. */
(() => {
  "use strict";
  const { drawn, picture, text, figures } = mhaLive;
  const N = 8, FORWARD = "forward", BACKWARD = "backward";
  const rows = Array.from({ length: N }, (_, n) => n);
  const of = (n, turn) => [2 * Math.cos(1.3 * n + turn), 2 * Math.sin(1.3 * n + turn)];
  const Q = rows.map((i) => of(i, 0)), K = rows.map((j) => of(j, 0.4)), V = rows.map((j) => 1 + ((3 * j) % 5));
  const SCORES = Q.map((q) => K.map((k) => (q[0] * k[0] + q[1] * k[1]) / Math.SQRT2));

  /* The tiles in their order: a row of tiles is one block of queries, which meets all keys. */
  function order(tile) {
    const starts = rows.filter((n) => n % tile === 0);
    return starts.flatMap((i) => starts.map((j) => [i, j]));
  }
  const count = (s) => (N / s.tile) ** 2;

  function compute(s) {
    const state = rows.map(() => ({ m: -Infinity, l: 0, r: 0 })), gradient = rows.map(() => 0);
    const done = rows.map(() => rows.map(() => false)), tiles = order(s.tile).slice(0, s.step);
    const whole = SCORES.map((row) => {
      const m = Math.max(...row);
      return m + Math.log(row.reduce((sum, x) => sum + Math.exp(x - m), 0));
    });
    for (const [i0, j0] of tiles) {
      for (let i = i0; i < i0 + s.tile; i++) {
        const mine = state[i], part = SCORES[i].slice(j0, j0 + s.tile), m = Math.max(mine.m, ...part);
        const scale = Math.exp(mine.m - m);
        mine.l = scale * mine.l + part.reduce((sum, x) => sum + Math.exp(x - m), 0);
        mine.r = scale * mine.r + part.reduce((sum, x, n) => sum + Math.exp(x - m) * V[j0 + n], 0);
        mine.m = m;
        for (let j = j0; j < j0 + s.tile; j++) {
          done[i][j] = true;
          gradient[j] += Math.exp(SCORES[i][j] - whole[i]); // of the sum of all outputs, with respect to v_j
        }
      }
    }
    const memory = { explicit: N * N, tiled: s.tile ** 2 + 3 * N };
    for (const one of state) one.z = one.l ? one.r / one.l : 0;
    return { state, gradient, logsumexp: whole, done, memory, last: tiles.at(-1) ?? null, scores: SCORES, values: V };
  }

  const shown = (x) => (Number.isFinite(x) ? x.toFixed(2).replace("-", "−") : "−∞");
  function draw(s, found) {
    const made = [text(26, 10, "keys"), text(0, 40, "queries", { transform: "rotate(-90 10 40)", "text-anchor": "end" })];
    rows.forEach((i) => rows.forEach((j) => {
      const here = found.last && i >= found.last[0] && i < found.last[0] + s.tile && j >= found.last[1] && j < found.last[1] + s.tile;
      const kind = here ? "full q" : found.done[i][j] ? "done" : "free";
      made.push(drawn("rect", { x: 24 + 21 * j, y: 16 + 21 * i, width: 19, height: 19, rx: 2, class: kind }));
    }));
    const mine = found.state[s.row], y = 16 + 21 * s.row;
    made.push(drawn("rect", { x: 22, y: y - 2, width: 170, height: 23, rx: 3, class: "frame" }));
    const lines = s.pass === FORWARD
      ? [`query ${s.row + 1} keeps`, `maximum m = ${shown(mine.m)}`, `sum ℓ = ${shown(mine.l)}`, `values r = ${shown(mine.r)}`,
        `output r/ℓ = ${shown(mine.z)}`]
      : ["from the forward pass:", `L of query ${s.row + 1} = ${shown(found.logsumexp[s.row])}`, "recomputed in each tile:",
        "P = exp(S − L)", `gradient of v${s.row + 1} = ${shown(found.gradient[s.row])}`];
    lines.forEach((line, n) => made.push(text(202, 34 + 20 * n, line)));
    made.push(text(24, 206, `numbers at once: ${found.memory.explicit} with the whole matrix, ${found.memory.tiled} with tiles`));
    return picture(342, 214, made);
  }

  figures.tiles = {
    start: { pass: FORWARD, tile: 2, step: 0, row: 2 },
    controls: [
      { name: "pass", label: "Pass", choices: [FORWARD, BACKWARD], radio: true },
      { name: "tile", label: "Tile", values: [1, 2, 4, 8], text: (n) => `${n} × ${n}` },
      { name: "row", label: "Query", values: rows, text: (n) => String(n + 1) },
      { label: "Next tile", press: (s) => ({ step: s.step + 1 }), idle: (s) => s.step >= count(s) },
      { label: "Start again", press: () => ({ step: 0 }), idle: (s) => !s.step },
    ],
    settle: (s, changed) => (changed.includes("tile") || changed.includes("pass") ? { step: 0 } : {}),
    compute,
    draw,
    say(s, found) {
      const mine = found.state[s.row], where = `Tile ${s.step} of ${count(s)}.`;
      if (s.pass === FORWARD) return `${where} Query ${s.row + 1}: maximum ${shown(mine.m)}, sum ${shown(mine.l)}, output ${shown(mine.z)}.`;
      return `${where} The weights of a tile are recomputed from the kept logsumexp; value ${s.row + 1} has gradient ${shown(found.gradient[s.row])}.`;
    },
  };
})();
