/* The index of the search, read once: courseSearch.read(index) gives its sections, how much each is about a word, and
   what has a name. No page is touched here. The index is made by book/_ext/course_search.py. */
(() => {
  "use strict";
  const {HAN, SMALL, ASKS, split, terms, key} = courseSearch;
  const LISTS = /^book\/(references|names|checkers)/; // they name everything and explain nothing: last
  const BROAD = /^book\/(claims|package|compat)/; // that such a page has all words says nothing
  const WORTH = [[LISTS, 0.3], [BROAD, 0.5], [/^book\/(notation|map|teach|how_to)/, 0.7], [/^book\//, 0.85]];
  const SIGNS = /[\u3400-\u9fff]/g;
  const LOWER = /^(Exercise|Quiz|Sources)/;

  const usual = (heading) => (heading.startsWith("mha.") ? heading : heading.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, ""));

  courseSearch.read = (index) => {
    const sections = [], kept = new Map(), titles = new Map(), at = new Map();
    const put = (map, one, empty) => map.get(one) || map.set(one, empty).get(one);
    for (const [page, title, ...rest] of index.pages) {
      for (const term of split(title).flatMap(terms)) put(titles, term, new Set()).add(page);
      for (const [other, heading, text, code = ""] of rest) {
        const anchor = other || usual(heading), han = text.match(SIGNS)?.length > text.length / 4;
        const id = sections.length, words = split(text), counts = new Map(), long = 0.5 + words.length / 150;
        const worth = (WORTH.find(([pattern]) => pattern.test(page))?.[1] || 1) * (LOWER.test(heading) ? 0.6 : 1);
        sections.push({page, title, anchor, heading, text, code, worth, last: LISTS.test(page), broad: BROAD.test(page), han});
        at.set(`${page}#${anchor}`, id);
        for (const term of words.flatMap(terms)) counts.set(term, (counts.get(term) || 0) + 1);
        for (const [term, count] of counts) put(kept, term, new Map()).set(id, count / (count + long));
        for (const [more, part] of [[code, 0.4], [heading, 1.2]])
          for (const term of new Set(split(more).flatMap(terms))) {
            const worths = put(kept, term, new Map());
            worths.set(id, (worths.get(id) || 0) + part);
          }
      }
    }

    /* The sections with a word and how much each is about it; with longer words, too, if it is long, or short, unknown
       and just being typed. */
    const vocabulary = [...kept.keys()].sort();
    function having(term, typed) {
      const found = new Map(kept.get(term));
      if (HAN.test(term) ? term.length > 1 : term.length < (typed && !found.size ? 2 : 4)) return found;
      let low = 0, high = vocabulary.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (vocabulary[middle] < term) low = middle + 1;
        else high = middle;
      }
      for (; vocabulary[low]?.startsWith(term); low++)
        for (const [id, worth] of kept.get(vocabulary[low])) found.set(id, Math.max(found.get(id) || 0, worth * 0.6));
      return found;
    }

    /* What a text is made of, without small words. Chinese is cut at the longest names that are known. */
    const all = [...index.names, ...index.asked].flatMap(([names]) => names).concat(index.same.flat());
    const runs = new Set(all.flatMap(split).filter((word) => HAN.test(word) && word.length > 1));
    function atoms(text) {
      const found = split(text).flatMap((word) => (HAN.test(word) ? cut(word) : word));
      const main = found.filter((word) => !SMALL.has(word.toLowerCase()));
      return main.length ? main : found.length ? found : split(text);
    }
    function cut(run) {
      for (let long = Math.min(12, run.length); long > 1; long--)
        for (let from = 0; from + long <= run.length; from++)
          if (runs.has(run.slice(from, from + long))) return [...cut(run.slice(0, from)), run.slice(from, from + long), ...cut(run.slice(from + long))];
      return run.replace(ASKS, " ").split(" ").filter((part) => part.length > 1 || (part && part === run));
    }

    /* A name: the sections that explain it, and what else it is called. A question: the sections that answer it. */
    const called = new Map(), asked = new Map();
    const name = (one) => put(called, key(atoms(one)), {aims: new Set(), same: []});
    for (const [names, page, anchor] of index.names) for (const one of names) name(one).aims.add(at.get(`${page}#${anchor}`));
    for (const group of index.same) for (const one of group) name(one).same.push(...group.filter((other) => other !== one));
    for (const [names, page, anchor] of index.asked)
      for (const one of names) put(asked, key(atoms(one)), new Set()).add(at.get(`${page}#${anchor}`));
    return {sections, titles, having, atoms, called, asked};
  };
})();
