/* A roofline: how fast the parts of a step can be on a machine of a data sheet, or on one of the reader's own. */
(() => {
  "use strict";
  const { drawn, picture, text, figures } = mhaLive;
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => 2 ** (from + n));
  const OWN = "your numbers";
  /* From data sheets: 10¹² FLOPs per second in 16 bits without sparsity, and 10⁹ bytes per second. */
  const MACHINES = { laptop: [1, 60], A100: [312, 2039], H100: [989.5, 3350] };
  const HEAD = 128; // the width of a head

  /* FLOPs and bytes of a projection and of the scores, as `cost` of a layer counts them. */
  function parts(s, asked, size) {
    const rows = s.batch * asked, heads = s.width / HEAD, kv = Math.max(1, heads / s.share);
    const scores = 2 * rows * heads * s.context * HEAD;
    return {
      projection: [2 * rows * s.width ** 2, size * (2 * rows * s.width + s.width ** 2)],
      scores: [scores, size * HEAD * (rows * heads + s.batch * kv * s.context)],
    };
  }
  function compute(s) {
    const size = s.bits / 8, [peak, bandwidth] = [s.peak * 1e12, s.bandwidth * 1e9];
    const found = {};
    for (const [phase, asked] of [["decode", s.tokens], ["prefill", s.context]]) {
      for (const [name, [flops, bytes]] of Object.entries(parts(s, asked, size))) {
        const intensity = flops / bytes, reached = Math.min(peak, bandwidth * intensity);
        found[`${phase}: ${name}`] = { flops, bytes, intensity, reached, seconds: flops / reached };
      }
    }
    return { ridge: peak / bandwidth, steps: found };
  }

  const LEFT = 44, WIDE = 286, TOP = 10, HIGH = 180, [LOW, MOST] = [-1, 5];
  const shown = (n) => (n >= 100 ? n.toFixed(0) : n.toPrecision(3));
  const time = (t) => (t >= 1 ? `${shown(t)} s` : t >= 1e-3 ? `${shown(t * 1e3)} ms` : `${shown(t * 1e6)} µs`);

  function draw(s, found) {
    const x = (intensity) => LEFT + (WIDE * (Math.log10(intensity) - LOW)) / (MOST - LOW);
    const floor = Math.log10(s.bandwidth * 1e9) + LOW, top = Math.log10(s.peak * 1e12) + 0.3;
    const y = (rate) => TOP + HIGH * (1 - (Math.log10(rate) - floor) / (top - floor));
    const [peak, bandwidth] = [s.peak * 1e12, s.bandwidth * 1e9];
    const corners = [[10 ** LOW, bandwidth * 10 ** LOW], [found.ridge, peak], [10 ** MOST, peak]];
    const made = [drawn("polyline", { points: corners.map(([i, r]) => `${x(i)},${y(r)}`).join(" "), class: "roof" })];
    for (let power = LOW; power <= MOST; power += 2) {
      const anchor = { "text-anchor": power === MOST ? "end" : "middle" };
      made.push(text(x(10 ** power), TOP + HIGH + 14, (10 ** power).toLocaleString("en"), anchor));
    }
    for (let power = Math.ceil(floor); power <= top; power++) {
      made.push(text(LEFT - 4, y(10 ** power) + 4, `${10 ** (power - 12)}`, { "text-anchor": "end" }));
    }
    made.push(text(LEFT + WIDE, TOP + HIGH + 28, "FLOPs per byte", { "text-anchor": "end" }));
    made.push(text(0, TOP + HIGH + 28, "TFLOP per second"));
    Object.entries(found.steps).forEach(([name, one], n) => {
      const at = TOP + HIGH + 48 + 19 * n, head = name.endsWith("scores") ? 1 : 0, open = name.startsWith("prefill");
      const mark = (cx, cy, r) => drawn("circle", { cx, cy, r, class: `dot head-${head}${open ? " open" : ""}` });
      made.push(mark(Math.min(x(one.intensity), LEFT + WIDE), y(one.reached), head ? 5 : 8), mark(8, at - 4, 5));
      made.push(text(20, at, `${name}: ${shown(one.intensity)} FLOPs per byte, ${time(one.seconds)}`));
    });
    return picture(340, TOP + HIGH + 110, made);
  }

  figures.roofline = {
    layout: "beside",
    start: { machine: "H100", peak: 989.5, bandwidth: 3350, width: 4096, context: 4096, batch: 1, tokens: 1, share: 1, bits: 16 },
    controls: [
      { name: "machine", label: "Machine", choices: [...Object.keys(MACHINES), OWN] },
      { name: "batch", label: "Batch", values: powers(0, 10) },
      { name: "context", label: "Context", values: powers(7, 17), text: (n) => n.toLocaleString("en") },
      { name: "share", label: "Queries per KV head", values: [1, 2, 4, 8, 16] },
      { name: "tokens", label: "Tokens per step", values: [1, 2, 4, 8] },
      { name: "width", label: "Width", values: powers(9, 14), text: (n) => n.toLocaleString("en") },
      { name: "bits", label: "Bits", values: [8, 16, 32] },
      { name: "peak", label: "Peak, TFLOP/s", values: [0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 312, 500, 989.5, 2000, 5000] },
      { name: "bandwidth", label: "Bandwidth, GB/s", values: [10, 25, 60, 100, 250, 500, 1000, 2039, 3350, 5000, 8000] },
    ],
    settle(s, changed) {
      if (changed.includes("machine") && s.machine !== OWN) {
        const [peak, bandwidth] = MACHINES[s.machine];
        return { peak, bandwidth };
      }
      return changed.some((name) => ["peak", "bandwidth"].includes(name)) ? { machine: OWN } : {};
    },
    compute,
    draw,
    say(s, found) {
      const limit = (name) => (found.steps[name].intensity < found.ridge ? "waits for memory" : "is limited by arithmetic");
      const told = ["decode", "prefill"].map((phase) =>
        `In ${phase}, the projection ${limit(`${phase}: projection`)} and the part of the scores ${limit(`${phase}: scores`)}.`);
      return `The ridge is at ${shown(found.ridge)} FLOPs per byte. ${told.join(" ")}`;
    },
  };
})();
