/* A state to write into: linear attention adds, the delta rule writes over, decay forgets. */
(() => {
  "use strict";
  const { drawn, picture, text, figures } = mhaLive;
  const KEYS = { "key 1": [1, 0, 0], "key 2": [0, 1, 0], "key 3": [0, 0, 1], "between 1 and 2": [0.6, 0.8, 0] };
  const VALUES = ["a", "b", "c", "d"], MOST = 12;
  const dot = (x, y) => x.reduce((sum, one, n) => sum + one * y[n], 0);
  const column = (T, c) => T.map((row) => row[c]);

  /* The state after all tokens, and what each key reads from it: as mha.functional.delta_rule. */
  function compute(s) {
    let T = KEYS["key 1"].map(() => VALUES.map(() => 0));
    for (const [key, value] of s.written) {
      const k = KEYS[key], decayed = T.map((row) => row.map((x) => x * s.alpha));
      const known = VALUES.map((_, c) => (s.erase ? dot(k, column(decayed, c)) : 0));
      T = decayed.map((row, d) => row.map((x, c) => x + s.beta * k[d] * ((VALUES[c] === value ? 1 : 0) - known[c])));
    }
    const reads = Object.fromEntries(Object.entries(KEYS).map(([name, k]) => [name, VALUES.map((_, c) => dot(k, column(T, c)))]));
    return { T, reads };
  }

  const shown = (x) => x.toFixed(2).replace("-0.00", "0.00").replace("-", "−");
  function table(rows, names, top, kind) {
    const parts = VALUES.map((name, c) => text(146 + 54 * c, top + 10, name, { "text-anchor": "middle" }));
    rows.forEach((row, d) => {
      parts.push(text(112, top + 33 + 28 * d, names[d], { "text-anchor": "end" }));
      row.forEach((x, c) => {
        const box = { x: 122 + 54 * c, y: top + 16 + 28 * d, width: 50, height: 25, rx: 3 };
        parts.push(drawn("rect", { ...box, class: `full ${kind}`, "fill-opacity": 0.5 * Math.min(1, Math.abs(x)) }));
        parts.push(drawn("rect", { ...box, class: "free" }));
        parts.push(text(147 + 54 * c, top + 33 + 28 * d, shown(x), { "text-anchor": "middle" }));
      });
    });
    return parts;
  }
  const listed = (s) => s.written.map(([key, value]) => `${key} → ${value}`).join(", ") || "nothing yet";

  figures.state = {
    layout: "beside",
    start: { key: "key 1", value: "a", erase: false, alpha: 1, beta: 1, written: [] },
    controls: [
      { name: "key", label: "Key", choices: Object.keys(KEYS) },
      { name: "value", label: "Value", choices: VALUES },
      { name: "alpha", label: "Decay α", min: 0, max: 1, step: 0.1, text: (x) => x.toFixed(1) },
      { name: "beta", label: "Rate β", min: 0, max: 1, step: 0.1, text: (x) => x.toFixed(1) },
      {
        label: "Write token", press: (s) => ({ written: [...s.written, [s.key, s.value]] }),
        idle: (s) => s.written.length >= MOST,
      },
      { label: "Empty the state", press: () => ({ written: [] }), idle: (s) => !s.written.length },
      { name: "erase", label: "Delta rule (write over)", toggle: true },
    ],
    compute,
    draw: (s, found) => picture(340, 262,
      text(4, 14, "The state"), table(found.T, ["channel 1", "channel 2", "channel 3"], 14, "k"),
      text(4, 130, "What each key reads"), table(Object.values(found.reads), Object.keys(found.reads), 130, "v")),
    say(s, found) {
      const [name, read] = [s.key, found.reads[s.key]];
      const parts = read.map((x, c) => `${shown(x)} of ${VALUES[c]}`).join(", ");
      return `Written: ${listed(s)}. ${s.erase ? "The delta rule" : "Adding"}: ${name} now reads ${parts}.`;
    },
  };
})();
