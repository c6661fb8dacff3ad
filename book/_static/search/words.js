/* The words of the search: how a text is cut into them, and which sentence of a section has most of those asked for.
   No page is touched here. */
(() => {
  "use strict";
  const HAN = /[\u3400-\u9fff]/, WORD = /[\u3400-\u9fff]+|(?:(?![\u3400-\u9fff])[\p{L}\p{N}_])+/gu;

  /* Words that ask and say nothing. */
  const SMALL = new Set("a an and any are as at be by can could did do does for from get give how i if in into is it its like me my of on or our should so some than that the their then there these this to use using was we what when where which while who why will with without would you your".split(" "));
  const ASKS = /为什么|是什么|什么|怎么样|怎么|怎样|如何|为何|请问|哪些|哪个|多少|可以|能否|是否|需要|[的了吗呢吧么与和是]/g;

  const plain = (text) => text.normalize("NFKC").replace(/√/g, " sqrt ");
  const split = (text) => plain(text).match(WORD) || [];
  const stem = (word) => word.replace(/(?<=...)(ing|ed|es|s|d|e)$/, "");
  /* Chinese has no spaces: each two signs that stand side by side are a word. */
  const pairs = (run) => (run.length < 2 ? [run] : [...run].slice(1).map((sign, n) => run[n] + sign));
  const parts = (word) => word.split(/_+|(?<=[A-Za-z])(?=[A-Z][a-z]{2})/).filter(Boolean);
  /* What a word is kept as: rotate_half is also rotate and half, and DynamicCache also dynamic and cache. */
  const known = new Map();
  function terms(word) {
    if (HAN.test(word)) return pairs(word);
    if (!known.has(word)) {
      const some = parts(word), all = some.length > 1 ? [some.join(""), ...some] : some;
      known.set(word, all.map((part) => stem(part.toLowerCase())));
    }
    return known.get(word);
  }
  /* One name, however it is written: key_padding_mask, key padding masks, KeyPaddingMask. */
  const key = (words) => stem(words.flatMap((word) => (HAN.test(word) ? word : parts(word))).join("").toLowerCase());

  /* Which words of a text are asked for, as [from, to, word] in it. */
  function hits(text, units) {
    const wanted = new Set(units.flatMap((unit) => unit.lists.flat())), found = [];
    for (const {0: word, index} of text.matchAll(WORD)) {
      if (HAN.test(word)) pairs(word).forEach((pair, n) => wanted.has(pair) && found.push([index + n, index + n + pair.length, pair]));
      else for (const term of terms(word)) {
        const begun = wanted.has(term) ? term : [...wanted].find((one) => one.length > 3 && term.startsWith(one));
        if (begun) { found.push([index, index + word.length, begun]); break; }
      }
    }
    return found;
  }
  /* The sentence of a section that has most of the words, cut around the first of them where it is long; or, where
     none has any, names in the code that do. */
  function quote(section, units, long = 240) {
    let most = -1, best = "";
    for (const one of section.text.split(/\n|(?<=[.?!]) (?=\p{Lu})|(?<=[。？！])/u)) {
      const seen = new Set(hits(one, units).map((hit) => hit[2]));
      const share = (list) => list.filter((term) => seen.has(term)).length / list.length;
      const worth = units.reduce((sum, unit) => sum + unit.rare * Math.max(...unit.lists.map(share)), 0) - (one.length > long) * 0.1;
      if (worth > most) [most, best] = [worth, one];
    }
    const names = most > 0 ? [] : section.code.split(" ").filter((name) => hits(name, units).length);
    if (names.length) return {text: names.slice(0, 5).join(" "), code: true};
    if (best.length <= long) return {text: best};
    const first = hits(best, units)[0]?.[0] || 0, start = first < long / 2 ? 0 : best.lastIndexOf(" ", first - long / 3) + 1;
    return {text: `${start ? "… " : ""}${best.slice(start, start + long).replace(/ \S*$/, "")} …`};
  }
  /* A text in pieces, [words, whether they are asked for]. */
  function marked(text, units) {
    const pieces = [];
    let done = 0;
    for (const [from, to] of hits(text, units)) {
      if (from > done) pieces.push([text.slice(done, from), false]);
      if (to > done) pieces.push([text.slice(Math.max(from, done), to), true]);
      done = Math.max(done, to);
    }
    return [...pieces, [text.slice(done), false]].filter(([words]) => words);
  }
  globalThis.courseSearch = {HAN, SMALL, ASKS, plain, split, pairs, terms, key, quote, marked};
})();
