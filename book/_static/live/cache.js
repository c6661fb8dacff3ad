/* A KV cache: tokens come and fill it, and how many GiB it takes in a model of one's own or a released one. */
(() => {
  "use strict";
  const { element, drawn, picture, text, figures, presets } = mhaLive;
  const GIB = 2 ** 30, SHOWN = 10, OWN = "your numbers";
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => 2 ** (from + n));
  const LATENT = 512 + 64; // numbers per token and layer: DeepSeek-V3's latent and its rotary key
  const STATE = 128 * 128; // numbers of one state, Qwen3-Next's; 32 of them in a layer

  /* Bytes that one layer keeps after n tokens: as Layers.kept of mha.course.released, with `bits` per number of a cache. */
  function kept(layer, n, bits) {
    const near = layer.span === null ? 0 : Math.min(n, layer.span);
    const far = layer.every === null ? 0 : Math.floor(n / layer.every);
    const index = layer.index === null || !layer.index.heads ? 0 : Math.floor(n / layer.index.every) * layer.index.width;
    return (((near + far) * layer.row + index + layer.recent) * bits) / 8 + 4 * layer.state;
  }

  const own = (s) => [{ count: s.layers, row: 2 * s.kv * s.width, span: null, every: 1, index: null, recent: 0, state: 0 }];
  const layersOf = (s) => (s.model === OWN ? own(s) : presets.models[s.model].layers);
  const total = (layers, s, n) => layers.reduce((sum, one) => sum + one.count * kept(one, n, s.bits), 0) * s.batch;

  function compute(s) {
    const layers = layersOf(s), depth = layers.reduce((sum, one) => sum + one.count, 0);
    const same = (row, state = 0) => total([{ ...own(s)[0], count: depth, row, every: row ? 1 : null, state }], s, s.context);
    const here = total(layers, s, s.context);
    return {
      bytes: here,
      more: total(layers, s, s.context + 1) - here,
      latent: same(LATENT),
      state: same(0, 32 * STATE),
      depth,
    };
  }

  const amount = (bytes) => {
    const [unit, size] = bytes >= GIB ? ["GiB", GIB] : bytes >= 2 ** 20 ? ["MiB", 2 ** 20] : ["KiB", 2 ** 10];
    const many = bytes / size;
    return `${many < 1000 ? many.toPrecision(3) : Math.round(many).toLocaleString("en-US")} ${unit}`;
  };

  function slots(s) {
    const parts = [], at = (n) => 74 + 26 * n;
    for (const [row, name, kind] of [[30, "keys", "k"], [60, "values", "v"]]) {
      parts.push(text(66, row + 15, name, { "text-anchor": "end" }));
      for (let n = 0; n < SHOWN; n++) {
        const full = n < s.tokens;
        parts.push(drawn("rect", { x: at(n), y: row, width: 22, height: 22, rx: 3, class: full ? `full ${kind}` : "free" }));
      }
    }
    const last = s.tokens - 1;
    parts.push(text(66, 128, "query", { "text-anchor": "end" }));
    parts.push(drawn("rect", { x: at(last), y: 112, width: 22, height: 22, rx: 3, class: "full q" }));
    for (let n = 0; n <= last; n++) parts.push(drawn("line", { x1: at(last) + 11, y1: 112, x2: at(n) + 11, y2: 83, class: "q" }));
    for (let n = 0; n < SHOWN; n++) parts.push(text(at(n) + 11, 22, n + 1, { "text-anchor": "middle" }));
    return parts;
  }

  function bars(s, found) {
    const rows = [[s.model === OWN ? "this cache" : s.model, found.bytes], ["latents of 512 + 64 in each layer", found.latent],
      ["32 states of 128 × 128 in each layer", found.state]];
    const high = Math.max(...rows.map((one) => one[1]));
    return rows.flatMap(([name, bytes], n) => [
      text(4, 164 + 38 * n, `${name}: ${amount(bytes)}`),
      drawn("rect", { x: 4, y: 170 + 38 * n, width: Math.max(1, (326 * bytes) / high), height: 12, rx: 2, class: "bar" }),
    ]);
  }

  figures.cache = {
    layout: "beside",
    start: { model: "Llama 3.1 8B", tokens: 3, context: 8192, batch: 1, bits: 16, layers: 32, kv: 8, width: 128 },
    controls: [
      { name: "model", label: "Model", choices: [...Object.keys(presets.models), OWN] },
      { name: "context", label: "Context", values: powers(9, 20), text: (n) => n.toLocaleString("en") },
      { name: "batch", label: "Batch", values: powers(0, 8) },
      { name: "bits", label: "Bits", values: [4, 8, 16, 32] },
      { name: "layers", label: "Layers", min: 1, max: 128 },
      { name: "kv", label: "KV heads", values: [...powers(0, 3), 12, 16, 24, 32, 40, 48, 64, 96, 128] },
      { name: "width", label: "Head width", values: [32, 64, 80, 96, 128, 192, 256, 512] },
      { label: "Next token", press: (s) => ({ tokens: (s.tokens % SHOWN) + 1 }) },
    ],
    /* A model fills in its numbers where all its layers are alike; if the reader moves one of them, they are no longer the model's. */
    settle(s, changed) {
      if (changed.includes("model") && s.model !== OWN) {
        const { layers, kv, width, plain } = presets.models[s.model];
        return plain ? { layers: layers[0].count, kv, width } : {};
      }
      return changed.some((name) => ["layers", "kv", "width"].includes(name)) ? { model: OWN } : {};
    },
    compute,
    draw: (s, found) => picture(340, 264, slots(s), bars(s, found)),
    say(s, found) {
      const read = `Token ${s.tokens} adds one key and one value to each layer; its query reads all ${s.tokens}.`;
      const name = s.model === OWN ? `${s.layers} layers, ${s.kv} KV heads of ${s.width}` : `${s.model}: ${presets.models[s.model].mix} layers`;
      return `${read} ${name}. ${amount(found.bytes)} for ${s.batch} × ${s.context.toLocaleString("en")} tokens, ` +
        `${amount(found.more)} for one more token in each sequence.`;
    },
  };
})();
