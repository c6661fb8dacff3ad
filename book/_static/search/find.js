/* What the search finds, and in which order: courseSearch.finder(index) gives a function of what is typed.
   No page is touched here. */
(() => {
  "use strict";
  const {HAN, plain, pairs, terms, key} = courseSearch;
  const MOST = 20, EACH = 3; // results, and sections of one page among them

  courseSearch.finder = (index) => {
    const {sections, titles, having, atoms, called, asked} = courseSearch.read(index);
    const pageOf = (id) => sections[id].page, rare = (found) => Math.log(1 + sections.length / (1 + found.size));

    /* The sections that have all of some words. */
    function together(list, typed) {
      const all = list.map((term, n) => having(term, typed && n === list.length - 1)), found = new Map();
      for (const [id] of all[0] || []) {
        const some = all.map((one) => one.get(id) || 0);
        if (Math.min(...some) > 0) found.set(id, some.reduce((a, b) => a + b) / some.length);
      }
      return found;
    }

    /* The parts of a question. A name of several words is one part, and other names of the same thing find it as well.
       `lists` are the words that must stand together, `aims` the sections that explain it, `got` those that have it. */
    const listed = (words) => words.flatMap((word) => (HAN.test(word) ? pairs(word) : terms(word).slice(0, 1)));
    function parts(text) {
      const words = atoms(text), units = [], whole = new Map(), typed = /[\p{L}\p{N}_]$/u.test(text);
      for (let from = 0, long; from < words.length; from += long) {
        for (long = Math.min(6, words.length - from); long > 1 && !called.has(key(words.slice(from, from + long)));) long--;
        const own = words.slice(from, from + long), name = called.get(key(own)), aims = new Set(name?.aims);
        const more = {from, typed: typed && from + long === words.length};
        if (long === words.length) aims.forEach((id) => whole.set(id, 6));
        if (!name && HAN.test(own[0])) units.push(...pairs(own[0]).map((pair) => ({...more, own: [pair], lists: [[pair]], aims: new Set()})));
        else {
          const some = long === 1 && !HAN.test(own[0]) ? terms(own[0]).slice(1) : [];
          const lists = [listed(own), ...(some.length ? [some] : []), ...(name?.same || []).map((other) => listed(atoms(other)))];
          units.push({...more, own, lists, aims});
        }
      }
      for (let from = 0; from < words.length; from++)
        for (let to = from + 1; to <= words.length; to++)
          for (const id of asked.get(key(words.slice(from, to))) || []) {
            for (const unit of units) if (unit.from >= from && unit.from < to) unit.aims.add(id);
            if (to - from === words.length) whole.set(id, 9); // a person chose the section
          }
      for (const unit of units) {
        const got = unit.lists.map((list, n) => together(list, unit.typed && !n));
        const some = got.find((one) => one.size);
        unit.small = units.length > 1 && unit.own.join("").length < 2; // the k of top k
        unit.rare = some ? rare(some) * (unit.small ? 0.3 : 1) : 1;
        unit.got = new Map();
        got.forEach((one, n) => one.forEach((worth, id) => {
          const better = worth * (n ? 0.6 : 1) * Math.min(1, rare(one) / unit.rare);
          if (better > (unit.got.get(id) || 0)) unit.got.set(id, better);
        }));
        unit.pages = new Set([...unit.got.keys(), ...unit.aims].map(pageOf));
      }
      return {units, whole};
    }

    /* First what has all words, then what has some. A section has them, too, if its page does and it is as good. */
    return (text) => {
      const {units: all, whole} = parts(text), units = all.filter((unit) => unit.pages.size), order = [];
      const total = units.reduce((sum, unit) => sum + unit.rare, 0), said = plain(text).toLowerCase().trim();
      const aimed = new Set(units.flatMap((unit) => [...unit.aims].map(pageOf)));
      for (const id of new Set(units.flatMap((unit) => [...unit.got.keys(), ...unit.aims]))) {
        const one = sections[id];
        let score = 0, has = 0, here = 0, near = 0;
        for (const unit of units) {
          const own = (unit.got.get(id) || 0) + (whole.get(id) || (unit.aims.has(id) ? 2 : 0));
          const worth = own + (unit.lists[0].every((term) => titles.get(term)?.has(one.page)) ? 0.5 : 0);
          score += unit.rare * worth;
          if (worth) has += unit.rare;
          if (worth || unit.small) here++;
          if (unit.small || unit.pages.has(one.page)) near++;
        }
        score *= one.worth * (has / total) ** 2 * (aimed.has(one.page) ? 1.2 : 1);
        if (one.han) score *= HAN.test(said) ? 4 : 0.3; // told in Chinese: for those who ask in Chinese
        if (said.includes(" ") && plain(`${one.heading} ${one.text}`).toLowerCase().includes(said)) score *= 1.4;
        const full = here === units.length, close = !one.broad && near === units.length && has > total / 2;
        order.push({...one, score, full, close});
      }
      const best = Math.max(...order.map((one) => one.score));
      for (const one of order) one.all = !one.last && (one.full || (one.close && one.score > best / 3));
      const missing = all.filter((unit) => !unit.pages.size).map((unit) => unit.own.join(" "));
      return {units, missing, found: spread(order.filter((one) => one.score > best / 150))};
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
