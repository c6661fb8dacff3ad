(function () {
const fresh = '.mha-hv[data-view="__ID__"]:not([data-on])', before = document.currentScript && document.currentScript.previousElementSibling;
const root = before && before.matches(fresh) ? before : document.querySelector(fresh);
if (!root) return;
root.dataset.on = "";
const D = __DATA__;
const COLORS = __COLORS__;  // on a light page, on a dark one
const SVG = "http://www.w3.org/2000/svg", AT = {};
"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".split("").forEach((c, v) => AT[c] = v);
const read = (p, at) => p.low + (p.high - p.low) * (64 * AT[p.text[2 * at]] + AT[p.text[2 * at + 1]]) / 4095;
const write = (x, digits = 2) => (+x.toFixed(digits) || 0).toFixed(digits);
const color = h => COLORS[+dark][h % 8];
const make = (tag, set = {}, ...inside) => {
  const e = document.createElement(tag);
  for (const name in set) e.setAttribute(name, set[name]);
  e.append(...inside);
  return e;
};
let at = 0, head = 0, q = D.start, k = 0, matrix = false, all = D.together, ROW = 28, dark = isDark();
const layer = () => D.layers[at], rows = () => D.tokens[layer().rows], cols = () => D.tokens[layer().cols];
const weight = (l, h, i, j) => read(l.weights, (h * D.tokens[l.rows].length + i) * D.tokens[l.cols].length + j);
const row = (h, i) => cols().map((_, j) => weight(layer(), h, i, j));
const best = w => w.reduce((m, x, j) => x > w[m] ? j : m, 0);
const alike = (p, w) => w.filter(x => w[best(w)] - x <= (p.high - p.low) / 4094).length;
const nothing = w => w.every(x => Math.abs(x) < 1e-9);

const grid = make("div", {role: "group", "aria-label": "Heads: choose one"});
const how = make("div", {class: "line", role: "group", "aria-label": "How it is shown"});
const main = make("div", {class: "main"}), say = make("p", {class: "say", "aria-live": "polite"});
const top = make("div", {class: "top", "aria-hidden": "true"});
const left = make("div", {class: "col", role: "group"}), right = make("div", {class: "col keys", "aria-hidden": "true"});
const middle = make("div", {class: "middle"}), spot = make("div", {class: "spot"}), bars = make("div", {class: "bars"}), products = make("div");
const heads = D.layers.map((l, a) => {
  const line = make("div", {class: "line", role: "group", "aria-label": l.name}, make("span", {}, l.name));
  grid.append(line);
  return Array.from({length: l.heads}, (_, h) => {
    const label = `${l.name}, head ${h}`, n = D.tokens[l.rows].length, m = D.tokens[l.cols].length;
    const small = make("canvas", {width: m, height: n, "aria-hidden": "true"});
    paint(small, l, h);
    const b = make("button", {type: "button", class: "head", "aria-label": label, title: label}, small, `${h}`);
    b.onclick = () => choose(a, h);
    b.onkeydown = e => step(e, {ArrowRight: [a, h + 1], ArrowLeft: [a, h - 1], ArrowDown: [a + 1, h], ArrowUp: [a - 1, h]});
    line.append(b);
    return b;
  });
});
function step(e, ways) {
  const way = ways[e.key];
  if (!way) return;
  e.preventDefault();
  const a = Math.max(0, Math.min(D.layers.length - 1, way[0]));
  const h = Math.max(0, Math.min(D.layers[a].heads - 1, way[1]));
  choose(a, h);
  heads[a][h].focus();
}
function isDark() {  // where letters are light
  const ink = make("canvas", {width: 1, height: 1}).getContext("2d");
  ink.fillStyle = getComputedStyle(root).color;
  ink.fillRect(0, 0, 1, 1);
  return ink.getImageData(0, 0, 1, 1).data[1] > 127;
}
function renew() {
  if (!root.isConnected) return watch.disconnect();
  if (isDark() === dark) return;
  dark = !dark;
  heads.forEach((line, a) => line.forEach((b, h) => paint(b.firstChild, D.layers[a], h)));
  drawn = "";
  draw();
}
function paint(canvas, l, h) {
  const n = canvas.height, m = canvas.width, picture = canvas.getContext("2d"), data = picture.createImageData(m, n);
  const rgb = [1, 3, 5].map(c => parseInt(color(h).slice(c, c + 2), 16));
  const most = Math.max(Math.abs(l.weights.low), Math.abs(l.weights.high)) || 1;
  for (let c = 0; c < n * m; c++)
    data.data.set([...rgb, Math.round(255 * Math.abs(read(l.weights, h * n * m + c)) / most)], 4 * c);
  picture.putImageData(data, 0, 0);
}
const views = ["Lines", "Matrix"].map((name, c) => {
  const b = make("button", {type: "button"}, name);
  b.onclick = () => { matrix = c === 1; lay(); };
  how.append(b);
  return b;
});
const every = make("button", {type: "button"}, "All heads of the layer");
every.onclick = () => { all = !all; draw(); };
how.append(every);
root.querySelectorAll("details").forEach(d => d.open = false);
root.prepend(grid, how, say, main, bars, products, make("p", {}, "Point at a token or a cell. With the keyboard: ",
  "Tab from part to part, ↑ ↓ for the token that looks, ← → for the token looked at."));

function choose(a, h) {
  const moved = D.layers[a].rows !== layer().rows || D.layers[a].cols !== layer().cols;
  at = a; head = h; all = false;
  q = Math.min(q, rows().length - 1);
  if (moved) { k = best(row(head, q)); lay(); } else draw();
}
function look(i, j) {
  q = Math.max(0, Math.min(rows().length - 1, i));
  k = j === undefined ? best(row(head, q)) : Math.max(0, Math.min(cols().length - 1, j));
  draw();
}
let words = [], others = [], names = [];
function lay() {
  ROW = Math.max(28, Math.min(44, Math.floor(280 / Math.max(rows().length, cols().length))));
  main.style.setProperty("--row", `${ROW}px`);
  words = rows().map((t, i) => {
    const b = make("button", {type: "button", title: t}, t);
    b.onmouseenter = b.onclick = () => look(i);
    b.onfocus = () => { if (i !== q) look(i); };
    b.onkeydown = e => {
      const to = {ArrowUp: [q - 1], ArrowDown: [q + 1], Home: [0], End: [1e9], ArrowLeft: [q, k - 1], ArrowRight: [q, k + 1]}[e.key];
      if (!to) return;
      e.preventDefault();
      look(...to);
      words[q].focus();
    };
    return b;
  });
  others = cols().map((t, j) => {
    const s = make("span", {title: t}, t);
    s.onmouseenter = s.onclick = () => look(q, j);
    return s;
  });
  names = cols().map(t => make("span", {title: t}, t));
  left.replaceChildren(...words);
  left.setAttribute("aria-label", "The token that looks");
  right.replaceChildren(...others);
  top.replaceChildren(...names);
  if (matrix) main.replaceChildren(top, left, middle); else main.replaceChildren(left, middle, right);
  main.classList.toggle("flat", matrix);
  draw();
}
function lines(shown) {
  const n = Math.max(rows().length, cols().length), svg = document.createElementNS(SVG, "svg");
  const most = Math.max(Math.abs(layer().weights.low), Math.abs(layer().weights.high)) || 1;
  const set = {viewBox: `0 0 100 ${ROW * n}`, preserveAspectRatio: "none", "aria-hidden": "true", style: `height:${ROW * n}px`};
  for (const name in set) svg.setAttribute(name, set[name]);
  shown.forEach((h, c) => row(h, q).forEach((w, j) => {
    const share = Math.abs(w) / most, away = (c - (shown.length - 1) / 2) * 2, y = i => ROW * i + ROW / 2 + away;
    if (share < .002) return;
    const line = document.createElementNS(SVG, "path");
    const look = {d: `M0 ${y(q)}C40 ${y(q)} 60 ${y(j)} 100 ${y(j)}`, stroke: color(h), "stroke-width": 1 + ROW / 4 * share,
      "stroke-opacity": .25 + .75 * share, fill: "none", "vector-effect": "non-scaling-stroke"};
    if (w < 0) look["stroke-dasharray"] = "4 3";
    for (const name in look) line.setAttribute(name, look[name]);
    svg.append(line);
  }));
  return svg;
}
function map() {
  const n = rows().length, m = cols().length, c = make("canvas", {class: "map", width: m, height: n, "aria-hidden": "true"});
  paint(c, layer(), head);
  c.style.cssText = `height:${ROW * n}px;image-rendering:pixelated`;
  c.onmousemove = c.onclick = e => {
    const box = c.getBoundingClientRect(), share = (x, size) => Math.floor(x / size);
    const i = share(n * (e.clientY - box.top), box.height), j = share(m * (e.clientX - box.left), box.width);
    if (i !== q || j !== k) look(i, j);
  };
  return c;
}
let drawn = "";
function draw() {
  const l = layer(), shown = all && !matrix ? Array.from({length: l.heads}, (_, h) => h) : [head];
  heads.forEach((line, a) => line.forEach((b, h) => {
    b.setAttribute("aria-pressed", a === at && h === head);
    b.tabIndex = a === at && h === head ? 0 : -1;
  }));
  views.forEach((b, c) => b.setAttribute("aria-pressed", matrix === (c === 1)));
  every.setAttribute("aria-pressed", all);
  every.hidden = matrix;
  words.forEach((b, i) => { b.setAttribute("aria-pressed", i === q); b.tabIndex = i === q ? 0 : -1; });
  [...others, ...names].forEach((s, c) => s.classList.toggle("on", c % others.length === k));
  const w = row(head, q);
  others.forEach((s, j) => tint(s, w[j], head, "3px"));
  const now = `${matrix} ${at} ${head}`;
  if (!matrix || now !== drawn) middle.replaceChildren(...(matrix ? [map(), spot] : [lines(shown)]));
  drawn = now;
  if (matrix) mark();
  tell(w);
}
function mark() {
  const n = rows().length, m = cols().length, gap = Math.ceil(13 * m / (main.clientWidth - left.clientWidth || 1e3));
  spot.style.cssText = `left:${100 * k / m}%;top:${100 * q / n}%;width:${100 / m}%;height:${100 / n}%`;
  names.forEach((s, j) => s.style.visibility = j === k || (j % gap === 0 && Math.abs(j - k) >= gap) ? "" : "hidden");
}
function tint(e, w, h, high) {
  e.style.background = `linear-gradient(${color(h)},${color(h)}) left bottom/${100 * Math.min(1, Math.abs(w))}% ${high} no-repeat`;
}
function tell(w) {
  const l = layer();
  say.textContent = all && !matrix ? `${l.name}: “${rows()[q]}” looks most ${everywhere(l)}.` :
    `${l.name}, head ${head}: “${rows()[q]}” ${gives(l, w)}.`;
  bars.replaceChildren(make("b", {}, `“${rows()[q]}” to “${cols()[k]}”`), ...Array.from({length: l.heads}, (_, h) => {
    const x = weight(l, h, q, k), e = make("span", {}, `head ${h}: ${write(x)}`);
    tint(e, x, h, "3px");
    return e;
  }));
  products.replaceChildren(...(l.queries ? explain(l) : []));
}
function gives(l, w) {
  const b = best(w), n = alike(l.weights, w), first = w[b] - w[k] <= (l.weights.high - l.weights.low) / 4094;
  if (nothing(w)) return "looks at nothing";
  if (n > 1 && n === w.length) return `gives all ${n} tokens the same, ${write(w[k])}`;
  return `gives “${cols()[k]}” ${write(w[k])}` + (n === 1 ?
    (first ? ", the most of all tokens" : `; the most goes to “${cols()[b]}”, ${write(w[b])}`) :
    (first ? `, and as much to ${n - 1} more; no token gets more` : `; the most, ${write(w[b])}, goes to ${n} tokens alike`));
}
function everywhere(l) {
  const found = new Map();
  for (let h = 0; h < l.heads; h++) {
    const w = row(h, q), b = best(w), to = nothing(w) ? "nothing" : alike(l.weights, w) > 1 ? "several tokens alike" : `“${cols()[b]}”`;
    found.set(to, [...(found.get(to) || []), l.heads > 4 || nothing(w) ? `${h}` : `${h} (${write(w[b])})`]);
  }
  return [...found].map(([to, some]) => `at ${to} in head${some.length > 1 ? "s" : ""} ${some.join(", ")}`).join("; ");
}
function explain(l) {
  const d = l.width, a = (head * rows().length + q) * d, b = (head * cols().length + k) * d;
  const each = Array.from({length: d}, (_, c) => read(l.queries, a + c) * read(l.keys, b + c));
  const sum = each.reduce((x, y) => x + y, 0), most = Math.max(...each.map(Math.abs)) || 1;
  const order = each.map((_, c) => c).filter(c => +write(each[c])).sort((x, y) => Math.abs(each[y]) - Math.abs(each[x])).slice(0, 3);
  const picture = make("div", {class: "products", "aria-hidden": "true"}, ...each.map((x, c) => {
    const e = make("i", {title: `channel ${c}: ${write(x)}`}), high = 50 * Math.abs(x) / most;
    e.style.background = `linear-gradient(${color(head)},${color(head)}) 0 ${x < 0 ? 50 / (100 - high) * 100 : (50 - high) / (100 - high) * 100}%/100% ${high}% no-repeat,` +
      "linear-gradient(rgba(128,128,128,.8),rgba(128,128,128,.8)) 0 50%/100% 1px no-repeat";
    return e;
  }));
  return [picture, make("p", {}, `Query times key, channel by channel: the ${d} products add up to ${write(sum)}, and to ` +
    `${write(sum / Math.sqrt(d))} after dividing by √${d}.` +
    (order.length ? ` Largest: ${order.map(c => `channel ${c} (${write(each[c])})`).join(", ")}.` : ""))];
}
k = best(row(head, q));
lay();
const turned = () => [0, 500].forEach(wait => setTimeout(renew, wait));  // some pages fade into the other colors
const watch = new MutationObserver(turned);
[document.documentElement, document.body].forEach(e => watch.observe(e, {attributeFilter: ["data-theme", "data-jp-theme-light", "class", "style"]}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", turned);
})();
