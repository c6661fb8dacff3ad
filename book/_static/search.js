/* The search: results while typing, on its own page and in the dialog of every page. The index is loaded when somebody
   begins to search, and never else. Found by search/find.js, in what course_search.py has kept. */
(() => {
  "use strict";
  const SAY = { // for readers
    hint: "A name, a piece of code, an error or a whole question. Arrow keys choose a result.",
    wait: "The index is loading.",
    failed: "The index could not be loaded.",
    none: "Nothing found. Try one word, or another name for it.",
    one: (n) => `${n} section${n > 1 ? "s" : ""}.`,
    both: (all, some) => (all ? `${all} section${all > 1 ? "s" : ""} with all words` : "No section has all words") + (some ? `, ${some} with some of them.` : "."),
    some: "With some of the words",
    missing: (words) => ` Not in the book: ${words.join(", ")}.`,
    code: "In code: ",
  };
  const PAUSE = 150; // milliseconds without a key
  const root = document.documentElement.dataset.content_root || "./";
  const SCRIPTS = ["sentences.js", "_static/search/words.js", "_static/search/index.js", "_static/search/find.js"];

  let ready;
  const load = () => (ready ||= Promise.all(SCRIPTS.map((name) => new Promise((resolve, reject) => {
    document.head.append(make("script", {src: root + name, async: false, onload: resolve, onerror: reject}));
  }))).then(() => courseSearch.finder(courseIndex)));
  function make(tag, set, ...inside) {
    const made = Object.assign(document.createElement(tag), set);
    made.append(...inside);
    return made;
  }
  const number = (page) => page.match(/^notebooks\/(\d\d[a-z]?)_/)?.[1];

  /* A section: its title, its page where that has another, and the sentence with the words. */
  function item(one, units) {
    const page = [number(one.page), one.title].filter(Boolean).join(" "), first = one.heading === one.title;
    const {text, code} = courseSearch.quote(one, units);
    const words = courseSearch.marked(text, units).map(([words, asked]) => (asked ? make("mark", {}, words) : words));
    return make("li", {},
      make("a", {href: `${root}${one.page}.html#${one.anchor}`}, first ? page : one.heading),
      ...(first ? [] : [" ", make("span", {className: "search-page"}, page)]),
      make("p", {className: "context"}, ...(code ? [SAY.code, make("code", {}, ...words)] : words)));
  }

  function attach(input, place, dialog) {
    const status = make("p", {className: "search-summary", role: "status"}), lists = make("div", {});
    let timer;
    place.replaceChildren(status, lists);
    function say(text) {
      status.textContent = text;
      lists.replaceChildren();
    }
    async function show() {
      const asked = input.value;
      if (!asked.trim()) return say(SAY.hint);
      if (!lists.firstChild) say(SAY.wait);
      let find;
      try { find = await load(); } catch { return say(SAY.failed); }
      if (asked !== input.value) return; // somebody types on
      const {units, missing, found} = find(asked), all = found.filter((one) => one.all), some = found.filter((one) => !one.all);
      const list = (part) => make("ol", {className: "search"}, ...part.map((one) => item(one, units)));
      say(!found.length ? SAY.none : (units.length > 1 ? SAY.both(all.length, some.length) : SAY.one(found.length)) + (missing.length ? SAY.missing(missing) : ""));
      if (all.length) lists.append(list(all));
      if (all.length && some.length) lists.append(make("p", {className: "search-some"}, SAY.some));
      if (some.length) lists.append(list(some));
      if (!dialog && location.protocol !== "file:") history.replaceState(null, "", `?${new URLSearchParams({q: asked})}`);
    }
    input.addEventListener("focus", () => { load().catch(() => {}); if (!input.value.trim()) say(SAY.hint); });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(show, PAUSE);
    });
    /* Down from the field to the first result, on to the next, and up again. */
    (dialog || document).addEventListener("keydown", (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key], links = [...lists.querySelectorAll("li > a")];
      const now = document.activeElement === input ? -1 : links.indexOf(document.activeElement);
      if (now < 0 && document.activeElement !== input) return;
      if (event.key === "Escape" && now >= 0) dialog ? dialog.close() : input.focus();
      if (!step || event.isComposing) return;
      event.preventDefault();
      (links[now + step] || (now + step < 0 ? input : links.at(-1)))?.focus();
    });
    return show;
  }

  const dialog = document.querySelector("#pst-search-dialog"), field = dialog?.querySelector("input");
  if (field) {
    const place = make("div", {className: "search-found"});
    dialog.append(place);
    attach(field, place, dialog);
  }
  const page = document.querySelector("#search-results"), box = document.querySelector(".bd-search-container input[name=q]");
  if (page && box) {
    box.value = new URLSearchParams(location.search).get("q") || "";
    const show = attach(box, page);
    box.focus();
    show();
  }
})();
