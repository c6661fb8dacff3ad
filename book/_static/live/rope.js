/* Rotary positions: two tokens on a ruler, a clock for each pair of channels, and a score that knows their distance. */
(() => {
  "use strict";
  const { drag, drawn, picture, text, figures } = mhaLive;
  const LAST = 40, WIDTH = 8, PAIRS = [0, 1, 2, 3];
  const X = [2, 1, 1, 0.5, 1, 2, 0.5, 1]; // one token's query and key before they are rotated: equal, to compare positions

  const channels = (layout, c) => (layout === "half" ? [c, c + WIDTH / 2] : [2 * c, 2 * c + 1]);
  const rateOf = (base, c) => base ** ((-2 * c) / WIDTH);

  /* The token's channels at a position. */
  function rotated(s, position) {
    const found = [...X];
    for (const c of PAIRS) {
      const [a, b] = channels(s.layout, c), angle = position * rateOf(s.base, c);
      found[a] = X[a] * Math.cos(angle) - X[b] * Math.sin(angle);
      found[b] = X[b] * Math.cos(angle) + X[a] * Math.sin(angle);
    }
    return found;
  }

  function scoreOf(s, i, j) {
    const k = rotated(s, j);
    return rotated(s, i).reduce((sum, q, n) => sum + q * k[n], 0) / Math.sqrt(WIDTH);
  }

  function compute(s) {
    const apart = Math.abs(s.i - s.j);
    return {
      q: rotated(s, s.i),
      k: rotated(s, s.j),
      apart,
      score: scoreOf(s, s.i, s.j),
      turns: PAIRS.map((c) => (apart * rateOf(s.base, c)) / (2 * Math.PI)), // between the two hands of a pair
      curve: Array.from({ length: LAST + 1 }, (_, n) => scoreOf(s, n, 0)),
    };
  }

  const at = (position) => 20 + 7.5 * position;
  const digits = (number) => number.toFixed(2).replace("-", "−");
  const middle = { "text-anchor": "middle" };

  function ruler(s, figure) {
    const parts = [drawn("line", { x1: at(0), x2: at(LAST), y1: 34, y2: 34, class: "axis" })];
    for (let n = 0; n <= LAST; n += 5) {
      parts.push(drawn("line", { x1: at(n), x2: at(n), y1: 30, y2: 38, class: "axis" }));
      if (n % 10 === 0) parts.push(text(at(n), 72, n, middle));
    }
    for (const [name, kind, y] of [["i", "q", 16], ["j", "k", 52]]) {
      const knob = drawn("g", {},
        drawn("circle", { cx: at(s[name]), cy: y, r: 16, fill: "transparent" }),
        drawn("circle", { cx: at(s[name]), cy: y, r: 8, class: `full ${kind}` }),
        text(at(s[name]) + (s[name] > 34 ? -14 : 14), y + 4, kind === "q" ? "query" : "key", s[name] > 34 ? { "text-anchor": "end" } : {}));
      drag(knob, figure, (x) => {
        const position = Math.min(LAST, Math.max(0, Math.round((x - at(0)) / 7.5)));
        if (position !== figure.settings[name]) figure.set(name, position);
      });
      parts.push(knob);
    }
    return parts;
  }

  function clock(s, found, c) {
    const x = 44 + 84 * c, y = 122, [a, b] = channels(s.layout, c), period = (2 * Math.PI) / rateOf(s.base, c);
    const hand = (values, kind) =>
      drawn("line", { x1: x, y1: y, x2: x + 14.5 * values[a], y2: y - 14.5 * values[b], class: `hand ${kind}` });
    return [
      drawn("circle", { cx: x, cy: y, r: 36, class: `pair pair-${c}` }),
      hand(found.k, "k"), hand(found.q, "q"),
      text(x, 172, `turn: ${period < 100 ? period.toFixed(1) : Math.round(period).toLocaleString("en")}`, middle),
    ];
  }

  function strip(s, found) {
    return PAIRS.flatMap((c) => channels(s.layout, c).flatMap((n) => [
      drawn("rect", { x: 43 + 37 * n, y: 184, width: 35, height: 14, class: `pair pair-${c}` }),
      text(60.5 + 37 * n, 211, digits(found.q[n]), middle),
      text(60.5 + 37 * n, 225, digits(found.k[n]), middle),
    ]));
  }

  function curve(found) {
    const y = (score) => 272 - 8 * score;
    return [
      drawn("line", { x1: at(0), x2: at(LAST), y1: y(0), y2: y(0), class: "axis" }),
      drawn("polyline", { points: found.curve.map((score, n) => `${at(n)},${y(score)}`).join(" "), class: "curve" }),
      drawn("circle", { cx: at(found.apart), cy: y(found.score), r: 5, class: "bar" }),
      text(at(LAST), 246, `score at ${found.apart} apart: ${digits(found.score)}`, { "text-anchor": "end" }),
    ];
  }

  const LABELS = [[195, "pair"], [211, "query"], [225, "key"]];

  figures.rope = {
    layout: "beside",
    token: X,
    start: { i: 14, j: 10, base: 10000, layout: "half" },
    controls: [
      { name: "i", label: "Query at", min: 0, max: LAST },
      { name: "j", label: "Key at", min: 0, max: LAST },
      { name: "base", label: "Base", values: [10, 100, 1000, 10000, 100000, 500000, 1000000], text: (n) => n.toLocaleString("en") },
      { name: "layout", label: "Layout", choices: ["half", "interleaved"], radio: true },
      { label: "Move both one step", press: (s) => ({ i: s.i + 1, j: s.j + 1 }), idle: (s) => Math.max(s.i, s.j) === LAST },
    ],
    compute,
    draw: (s, found, figure) => picture(340, 316, ruler(s, figure), PAIRS.map((c) => clock(s, found, c)),
      LABELS.map(([y, label]) => text(38, y, label, { "text-anchor": "end" })), strip(s, found), curve(found)),
    say(s, found) {
      const angles = found.turns.map((turn) => `${Math.round(360 * turn)}°`).join(", ");
      const pairs = PAIRS.map((c) => channels(s.layout, c).join(" with ")).join(", ");
      return `Query at ${s.i}, key at ${s.j}: for any two positions ${found.apart} apart the score is ${digits(found.score)}. ` +
        `Between the two hands of each pair: ${angles}. Channels that are pairs: ${pairs}.`;
    },
  };
})();
