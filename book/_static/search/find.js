/* What the search finds, and in which order: courseSearch.finder(index) gives a function of what is typed.
   No page is touched here. The index is made by book/_ext/course_search.py. */
(() => {
  "use strict";
  const {HAN, plain, split, pairs, terms, key} = courseSearch;
  const SMALL = new Set("a an and any are as at be by can could did do does for from get give how i if in into is it its like me my of on or our should so some than that the their then there these this to use using was we what when where which while who why will with without would you your".split(" "));
  const ASKS = /为什么|是什么|什么|怎么样|怎么|怎样|如何|为何|请问|哪些|哪个|多少|可以|能否|是否|需要|[的了吗呢吧么与和是]/g;
  const MOST = 20, EACH = 3; // results, and sections of one page among them
  const LISTS = /^book\/(references|names)/; // they name everything and explain nothing: last
  const BROAD = /^book\/(checkers|claims|package|compat)/; // a page that has all words says nothing
  const WORTH = [[/^book\/checkers/, 0.3], [BROAD, 0.5], [/^book\/(notation|map|teach|how_to)/, 0.7], [/^book\//, 0.85]];
  const LOWER = /^(Exercise|Quiz|Sources)/;

  courseSearch.finder = (index) => {
    const sections = [], kept = new Map(), titles = new Map(), at = new Map();
    const put = (map, one, empty = Map) => map.get(one) || map.set(one, empty === Set ? new Set() : empty === Map ? new Map() : empty()).get(one);
    for (const [page, title, ...rest] of index.pages) {
      for (const term of split(title).flatMap(terms)) put(titles, term, Set).add(page);
      for (const [anchor, heading, text, code = ""] of rest) {
        const id = sections.length, words = split(text), counts = new Map(), long = 0.5 + words.length / 150;
        const worth = (WORTH.find(([pattern]) => pattern.test(page))?.[1] || 1) * (LOWER.test(heading) ? 0.6 : 1);
        sections.push({page, title, anchor, heading, text, code, worth, last: LISTS.test(page)});
        at.set(`${page}#${anchor}`, id);
        for (const term of words.flatMap(terms)) counts.set(term, (counts.get(term) || 0) + 1);
        for (const [term, count] of counts) put(kept, term).set(id, count / (count + long));
        for (const [more, part] of [[code, 0.4], [heading, 1.2]])
          for (const term of new Set(split(more).flatMap(terms))) put(kept, term).set(id, (kept.get(term).get(id) || 0) + part);
      }
    }
    const vocabulary = [...kept.keys()].sort();

    /* The names: which sections explain each, and what else it is called. */
    const runs = new Set([...index.names.flatMap(([all]) => all), ...index.same.flat()].flatMap(split).filter((word) => HAN.test(word) && word.length > 1));
    const called = new Map(), entry = (name) => put(called, key(atoms(name)), () => ({aims: new Set(), same: []}));
    for (const [all, page, anchor] of index.names) for (const name of all) entry(name).aims.add(at.get(`${page}#${anchor}`));
    for (const group of index.same) for (const name of group) entry(name).same.push(...group.filter((other) => other !== name));

    /* What a question is made of, without small words. Chinese is cut at the longest names that are known. */
    function atoms(text) {
      const found = split(text).flatMap((word) => (HAN.test(word) ? cut(word) : word));
      const main = found.filter((word) => !SMALL.has(word.toLowerCase()));
      return main.length ? main : found;
    }
    function cut(run) {
      for (let long = Math.min(12, run.length); long > 1; long--)
        for (let from = 0; from + long <= run.length; from++)
          if (runs.has(run.slice(from, from + long))) return [...cut(run.slice(0, from)), run.slice(from, from + long), ...cut(run.slice(from + long))];
      return run.replace(ASKS, " ").split(" ").filter((part) => part.length > 1 || (part && part === run));
    }

    /* The sections with a word and how much each is about it; with longer words, too, if it is long or just being typed. */
    function having(term, typed) {
      const found = new Map(kept.get(term));
      if (HAN.test(term) ? term.length > 1 : term.length < (typed ? 2 : 4)) return found;
      let low = 0, high = vocabulary.length;
      while (low < high) vocabulary[(low + high) >> 1] < term ? (low = ((low + high) >> 1) + 1) : (high = (low + high) >> 1);
      for (; vocabulary[low]?.startsWith(term); low++)
        for (const [id, worth] of kept.get(vocabulary[low])) found.set(id, Math.max(found.get(id) || 0, worth * 0.6));
      return found;
    }
    function together(list, typed) {
      const all = list.map((term, n) => having(term, typed && n === list.length - 1)), found = new Map();
      for (const [id] of all[0] || []) {
        const some = all.map((one) => one.get(id) || 0);
        if (Math.min(...some) > 0) found.set(id, some.reduce((a, b) => a + b) / some.length);
      }
      return found;
    }

    /* The parts of a question: names of several words are one part, which other names of the same thing find as well. */
    const listed = (words) => words.flatMap((word) => (HAN.test(word) ? pairs(word) : terms(word).slice(0, 1)));
    function units(asked) {
      const words = atoms(asked), found = [], typed = /[\p{L}\p{N}_]$/u.test(asked);
      for (let from = 0, long; from < words.length; from += long) {
        for (long = Math.min(6, words.length - from); long > 1 && !called.has(key(words.slice(from, from + long)));) long--;
        const own = words.slice(from, from + long), name = called.get(key(own));
        if (!name && HAN.test(own[0])) found.push(...pairs(own[0]).map((pair) => ({own: [pair], lists: [[pair]], aims: new Set()})));
        else {
          const some = long === 1 ? terms(own[0]).slice(1) : [], others = (name?.same || []).map((other) => listed(atoms(other)));
          const lists = [listed(own), ...(some.length && !HAN.test(own[0]) ? [some] : []), ...others];
          found.push({own, lists, aims: name?.aims || new Set(), typed: typed && from + long === words.length});
        }
      }
      for (const unit of found) {
        const got = unit.lists.map((list, n) => together(list, unit.typed && !n)), rare = (one) => Math.log(1 + sections.length / (1 + one.size));
        unit.rare = rare(got.find((one) => one.size) || unit.aims) * (unit.own.join("").length < 2 ? 0.3 : 1);
        unit.got = new Map();
        got.forEach((one, n) => one.forEach((worth, id) => {
          const better = worth * (n ? 0.6 : 1) * Math.min(1, rare(one) / unit.rare);
          if (better > (unit.got.get(id) || 0)) unit.got.set(id, better);
        }));
        unit.pages = new Set([...unit.got.keys(), ...unit.aims].map((id) => sections[id].page));
      }
      return found;
    }

    /* First what has all words (the page, and the section at least half of their worth), then what has some. */
    return (asked) => {
      const all = units(asked), use = all.filter((unit) => unit.pages.size), whole = plain(asked).toLowerCase().trim();
      const total = use.reduce((sum, unit) => sum + unit.rare, 0), order = [];
      const aimed = new Set(use.flatMap((unit) => [...unit.aims].map((id) => sections[id].page)));
      for (const id of new Set(use.flatMap((unit) => [...unit.got.keys(), ...unit.aims]))) {
        const one = sections[id];
        let score = 0, has = 0, count = 0;
        for (const unit of use) {
          const here = (unit.got.get(id) || 0) + (unit.aims.has(id) ? (use.length > 1 ? 2 : 6) : 0);
          const worth = here + (unit.lists[0].every((term) => titles.get(term)?.has(one.page)) ? 0.5 : 0);
          score += unit.rare * worth;
          has += worth && unit.rare;
          count += worth || (!BROAD.test(one.page) && unit.pages.has(one.page)) ? 1 : 0;
        }
        score *= one.worth * (has / total) ** 2 * (aimed.has(one.page) ? 1.2 : 1);
        if (whole.includes(" ") && plain(`${one.heading} ${one.text}`).toLowerCase().includes(whole)) score *= 1.4;
        order.push({...one, score, all: count === use.length && has >= total / 2});
      }
      return {units: use, missing: all.filter((unit) => !use.includes(unit)).map((unit) => unit.own.join(" ")), count: order.length, found: spread(order)};
    };
    /* A page has three places at most, and its second and third stand behind the first ones of pages as good. */
    function spread(order) {
      const times = new Map(), better = (a, b) => b.all - a.all || a.last - b.last || b.score - a.score;
      for (const one of order.sort(better)) {
        one.place = times.get(one.page) || 0;
        times.set(one.page, one.place + 1);
        one.score *= 0.6 ** one.place;
      }
      return order.filter((one) => one.place < EACH).sort(better).slice(0, MOST);
    }
  };
})();
