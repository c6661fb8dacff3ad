/* Expanded or absorbed: the FLOPs of reading latents (MLA) in both forms, by the number of new tokens. */
(() => {
  "use strict";
  const { drawn, picture, text, figures, presets } = mhaLive;
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => 2 ** (from + n));
  const NEW = [1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 170, 171, 192, 256, 384, 512, 1024, 2048, 4096];
  const ENDS = [1, 4096];

  /* As mha.functional.count_forms. */
  function forms(i, s) {
    const between = 4 * s.heads * s.width * s.latent;
    const scores = 2 * i * s.kept * s.heads;
    return [between * s.kept + scores * (2 * s.width + s.rotary), between * i + scores * (2 * s.latent + s.rotary)];
  }
  function compute(s) {
    const [expanded, absorbed] = forms(s.asked, s);
    const more = s.latent - s.width;
    return { expanded, absorbed, border: more > 0 ? (s.latent * s.width) / more : Infinity };
  }

  const flops = (n) => {
    const at = Math.min(4, Math.max(0, Math.floor(Math.log10(n) / 3) - 1));
    return `${(n / 1000 ** (at + 1)).toPrecision(3)} ${["thousand", "million", "billion", "trillion", "quadrillion"][at]}`;
  };
  const LEFT = 40, WIDE = 290, TOP = 12, HIGH = 170;

  function draw(s, found) {
    const all = ENDS.flatMap((i) => forms(i, s)), [low, high] = [Math.log10(Math.min(...all)), Math.log10(Math.max(...all))];
    const x = (i) => LEFT + (WIDE * Math.log2(i)) / 12;
    const y = (n) => TOP + HIGH * (1 - (Math.log10(n) - low) / (high - low));
    const curve = (which) => NEW.map((i) => `${x(i).toFixed(1)},${y(forms(i, s)[which]).toFixed(1)}`).join(" ");
    const parts = [drawn("line", { x1: x(s.asked), x2: x(s.asked), y1: TOP, y2: TOP + HIGH, class: "guide" })];
    for (const [which, name] of [[0, "expanded"], [1, "absorbed"]]) {
      parts.push(drawn("polyline", { points: curve(which), class: `line head-${which}` }));
      parts.push(drawn("circle", { cx: x(s.asked), cy: y(forms(s.asked, s)[which]), r: 5, class: `full head-${which}` }));
      parts.push(drawn("rect", { x: LEFT + 130 * which, y: TOP + HIGH + 36, width: 12, height: 12, class: `full head-${which}` }));
      parts.push(text(LEFT + 18 + 130 * which, TOP + HIGH + 46, name));
    }
    for (const i of [1, 16, 256, 4096]) parts.push(text(x(i), TOP + HIGH + 14, i.toLocaleString("en"), { "text-anchor": i === 1 ? "start" : i === 4096 ? "end" : "middle" }));
    parts.push(text(LEFT + WIDE, TOP + HIGH + 28, "new tokens", { "text-anchor": "end" }));
    parts.push(text(12, TOP + HIGH / 2, "FLOPs", { transform: `rotate(-90 12 ${TOP + HIGH / 2})`, "text-anchor": "middle" }));
    return picture(340, TOP + HIGH + 56, parts);
  }

  figures.absorbed = {
    start: { asked: 1, kept: 65536, ...presets.latent },
    controls: [
      { name: "asked", label: "New tokens", values: NEW, text: (n) => n.toLocaleString("en") },
      { name: "kept", label: "Tokens in cache", values: powers(6, 20), text: (n) => n.toLocaleString("en") },
      { name: "heads", label: "Heads", values: powers(0, 7) },
      { name: "width", label: "Head width", values: powers(3, 8) },
      { name: "latent", label: "Latent width", values: powers(3, 11) },
      { name: "rotary", label: "Rotary width", values: [0, 16, 32, 64, 128] },
    ],
    compute,
    draw,
    say(s, found) {
      const fewer = found.absorbed < found.expanded ? "The absorbed form needs fewer." : "The expanded form needs fewer.";
      const border = found.border === Infinity
        ? "With a latent no wider than a head, the absorbed form never loses in the cache."
        : `With a long cache the border is near ${found.border.toFixed(1)} new tokens.`;
      return `${s.asked.toLocaleString("en")} new token${s.asked > 1 ? "s" : ""}: expanded ${flops(found.expanded)} FLOPs, absorbed ` +
        `${flops(found.absorbed)}. ${fewer} ${border}`;
    },
  };
})();
