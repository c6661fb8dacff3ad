/* The search page: looks through all sentences of the book (sentences.js) and shows those that fit. */
(() => {
  "use strict";
  const MOST = 20, EACH = 3, LONG = 260; // pages, places in a page, letters of a sentence
  const SMALL = new Set("a an and are as at be by do does for from how i in is it my of on or that the this to what when where which why with you".split(" "));
  const CHINESE = /[\u3400-\u9fff]/;
  const field = document.querySelector(".bd-search-container input[name=q]"), results = document.querySelector("#search-results");

  const flat = (text) => text.normalize("NFKC").toLowerCase();
  const split = (text) => flat(text).match(/[\p{L}\p{N}_]+/gu) || [];
  const stem = (word) => (CHINESE.test(word) ? word : word.replace(/(?<=...)(ing|ed|es|s|d|e)$/, ""));
  /* A word of the question is found where a word of the text begins with its stem; Chinese has no spaces. A short one,
     such as NaN, is a whole word. */
  function matcher(word, flags) {
    const root = stem(word);
    if (CHINESE.test(word)) return new RegExp(root, flags);
    return new RegExp(`(?<![\\p{L}\\p{N}_])${root}${word.length <= 3 ? "s?(?![\\p{L}\\p{N}_])" : "[\\p{L}\\p{N}_]*"}`, flags);
  }

  const sections = PAGES.flatMap(([page, title, ...rest]) =>
    rest.map(([anchor, heading, text]) => ({page, title: flat(title), anchor, heading, text, plain: flat(text), head: flat(heading)})));
  const content = (words) => (words.some((word) => !SMALL.has(word)) ? words.filter((word) => !SMALL.has(word)) : words);
  const names = NAMES.map(([name, page]) => ({page, words: content(split(name)).map(stem)}));
  const number = (page) => page.match(/^notebooks\/(\d\d[a-z]?)_/)?.[1];

  /* The better the rarer a word is, the more of the words a section has, and the more they stand in headings. */
  function find(asked) {
    const use = [...new Set(content(split(asked)))], tests = use.map((word) => matcher(word, "gu"));
    const roots = use.map(stem), pages = new Map();
    const counts = sections.map((s) => tests.map((test) => (s.plain.match(test) || []).length));
    const titles = sections.map((s) => tests.map((test) => s.title.search(test) >= 0)), heads = sections.map((s) => tests.map((test) => s.head.search(test) >= 0));
    const rare = use.map((_, w) => Math.log(1 + sections.length / (1 + counts.filter((c, s) => c[w] || heads[s][w]).length)));
    sections.forEach((s, n) => {
      const got = rare.map((weight, w) => weight * (counts[n][w] / (counts[n][w] + 1.5) + heads[n][w] + titles[n][w] / 2));
      const share = got.filter((x) => x > 0).length / use.length;
      if (!got.some((x, w) => counts[n][w] || heads[n][w])) return;
      let score = share ** 2 * got.reduce((a, b) => a + b, 0);
      if (use.length > 1 && s.plain.includes(flat(asked).trim())) score *= 1.5;
      if (s.heading.startsWith("Exercise")) score *= 0.6;
      if (!number(s.page)) score *= s.page === "book/checkers" ? 0.3 : 0.8;
      if (!pages.has(s.page)) pages.set(s.page, {page: s.page, places: []});
      pages.get(s.page).places.push({...s, score});
    });
    const total = rare.reduce((a, b) => a + b, 0);
    /* A page that explains a name stands first, even if it says it only in a formula. */
    const named = new Map();
    for (const name of names) {
      const same = name.words.join("") === roots.join("");
      if (!same && !roots.every((root) => name.words.includes(root))) continue;
      named.set(name.page, Math.max(named.get(name.page) || 0, total * (same ? 10 : 3) / name.words.length));
      if (!pages.has(name.page)) pages.set(name.page, {page: name.page, places: [{...sections.find((s) => s.page === name.page), score: 0}]});
    }
    for (const one of pages.values()) {
      one.places.sort((a, b) => b.score - a.score);
      one.score = one.places.slice(0, EACH).reduce((sum, place, n) => sum + place.score / 2 ** n, named.get(one.page) || 0);
    }
    return {tests: use.map((word) => matcher(word, "giu")), rare, found: [...pages.values()].sort((a, b) => b.score - a.score)};
  }

  /* The sentence of a section that has most of the words, cut around the first of them where it is long. */
  function best(text, tests, rare, asked) {
    let most = -1, sentence = "";
    for (const one of text.split(/\n|(?<=[.?!]) (?=\p{Lu})/u)) {
      const worth = tests.reduce((sum, test, w) => sum + (one.search(test) >= 0) * rare[w], 0) + flat(one).includes(asked) - (one.length > LONG) * 0.1;
      if (worth > most) [most, sentence] = [worth, one];
    }
    if (sentence.length <= LONG) return sentence;
    const first = Math.min(...tests.map((test) => sentence.search(test)).filter((at) => at >= 0), sentence.length - 1);
    const start = first < LONG / 2 ? 0 : sentence.lastIndexOf(" ", first - LONG / 3) + 1;
    return (start ? "… " : "") + sentence.slice(start, start + LONG).replace(/ \S*$/, " …");
  }
  function make(tag, set, ...inside) {
    const made = Object.assign(document.createElement(tag), set);
    made.append(...inside);
    return made;
  }
  function marked(text, tests) {
    const whole = new RegExp(tests.map((test) => test.source).join("|"), "giu"), parts = [];
    let at = 0;
    for (const hit of text.matchAll(whole)) {
      parts.push(text.slice(at, hit.index), make("mark", {}, hit[0]));
      at = hit.index + hit[0].length;
    }
    return [...parts, text.slice(at)];
  }

  function show() {
    const asked = field.value.trim();
    if (!asked) return results.replaceChildren();
    const {tests, rare, found} = split(asked).length ? find(asked) : {found: []};
    const list = found.slice(0, MOST).map((one) => {
      const page = PAGES.find(([name]) => name === one.page), title = [number(one.page), page[1]].filter(Boolean).join(" ");
      const least = one.places[0].score / 3;
      return make("li", {}, make("a", {href: `${one.page}.html`}, title), ...one.places.slice(0, EACH).filter((p) => p.score >= least).map((place) =>
        make("p", {className: "context"}, make("a", {href: `${one.page}.html#${place.anchor}`}, place.heading), " ", ...marked(best(place.text, tests, rare, flat(asked)), tests))));
    });
    const more = found.length > MOST ? `, the best ${MOST} of them here` : "";
    const said = found.length ? `${found.length} page${found.length > 1 ? "s" : ""}${more}.` : "Nothing found. Try one word, or another name for it.";
    results.replaceChildren(make("p", {className: "search-summary", role: "status"}, said), make("ul", {className: "search"}, ...list));
  }

  field.value = new URLSearchParams(location.search).get("q") || "";
  field.focus();
  field.addEventListener("input", show);
  show();
})();
