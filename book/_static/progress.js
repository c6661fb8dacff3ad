/* What a reader has solved, kept in this browser alone: the record that notebooks keep too (mha/course/record.py), its
   marks in the contents, in the map and beside exercises, and the record as a file. */
window.mhaProgress = (() => {
  "use strict";
  const TEXT = {
    solved: "solved",
    of: (n, all) => `${n} of ${all} exercises solved`,
    sum: (n, all, quizzes) => `In this browser: ${n} of ${all} exercises solved. Quizzes answered: ${quizzes}.`,
    save: "Save as a file", load: "Add a file", forget: "Forget everything",
    sure: "Forget all solved exercises, answers and quizzes that this browser keeps?",
    loaded: (n, quizzes) => `Added what was not here. Exercises: ${n}. Quizzes: ${quizzes}.`,
    unread: "This file is no record of progress. Nothing was changed.",
    unkept: "This browser keeps nothing for this page. Save a file before you close it.",
  };
  const KEY = "mha-progress", FILE = "mha_progress.json", VERSION = 2;
  const CHAPTERS = {}; // {topic: [file, {checker: does it run in the page}]}: written here when the book is built
  const watchers = [];
  let here = null, unkept = false; // where the browser keeps nothing, the record lasts as long as the page

  const now = () => `${new Date().toISOString().slice(0, 19)}+00:00`;
  const table = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  function checked(found) {
    let { solved, quiz = {} } = table(found) ? found : {};
    if (Array.isArray(solved)) solved = Object.fromEntries(solved.map((name) => [name, null])); // version 1
    const whole = table(solved) && Object.values(solved).every((at) => at === null || typeof at === "string");
    const results = table(quiz) && Object.values(quiz).every((one) => Number.isInteger(one?.right) && Number.isInteger(one?.of));
    if (!whole || !results) throw new Error("no record");
    const given = Object.entries(table(found.answers) ? found.answers : {});
    const answers = Object.fromEntries(given.filter(([, one]) => Array.isArray(one) && one.every(Array.isArray)));
    return { ...found, version: VERSION, solved, quiz, answers };
  }

  function read() {
    if (here) return here;
    try { return checked(JSON.parse(localStorage.getItem(KEY))); } catch { return { version: VERSION, solved: {}, quiz: {}, answers: {} }; }
  }
  function write(record) {
    try { localStorage.setItem(KEY, JSON.stringify(record)); } catch { here = record; unkept = true; }
    watchers.forEach((watcher) => watcher());
  }
  function change(add) {
    const record = read();
    add(record);
    write(record);
  }

  const solve = (name) => change(({ solved }) => { solved[name] ||= now(); });
  const better = (one, other) => !other || one.right * other.of > other.right * one.of;
  function merge(found) {
    let exercises = 0, quizzes = 0;
    change((record) => {
      for (const [name, at] of Object.entries(found.solved)) {
        if (!(name in record.solved)) exercises += 1;
        record.solved[name] = [record.solved[name], at].filter(Boolean).sort()[0] ?? null;
      }
      for (const [topic, result] of Object.entries(found.quiz)) {
        if (!record.quiz[topic]) quizzes += 1;
        if (better(result, record.quiz[topic])) record.quiz[topic] = result;
      }
      record.answers = { ...found.answers, ...record.answers };
      for (const key of Object.keys(found)) if (!(key in record)) record[key] = found[key];
    });
    return [exercises, quizzes];
  }

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }
  function mark(place, text, name) {
    let sign = [...place.children].find((child) => child.className === "mha-mark");
    if (!text) return sign?.remove();
    if (!sign) place.append(sign = element("span", { className: "mha-mark" }));
    sign.textContent = text;
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", `, ${name}`);
  }

  /* Of a chapter those exercises count that run in the page; if there are none, all. */
  function count(topic, solved) {
    const [, every] = CHAPTERS[topic], inPage = Object.keys(every).filter((name) => every[name]);
    const names = inPage.length ? inPage : Object.keys(every);
    return [names.filter((name) => `${topic}.${name}` in solved).length, names.length];
  }
  function draw() {
    const { solved } = read();
    for (const topic of Object.keys(CHAPTERS)) {
      const [n, all] = count(topic, solved), page = `/${CHAPTERS[topic][0]}.html`;
      for (const link of document.querySelectorAll("nav.bd-links li.toctree-l1 > a, main td:first-child a")) {
        if (link.pathname.endsWith(page)) mark(link, n === all ? "✓" : n ? `${n}/${all}` : "", TEXT.of(n, all));
      }
    }
    for (const cell of document.querySelectorAll("div.cell[data-exercise]")) {
      let title = cell.previousElementSibling;
      while (title && !title.matches(".exercise")) title = title.previousElementSibling;
      title = title?.querySelector(".admonition-title");
      if (title) mark(title, cell.dataset.exercise in solved ? `✓ ${TEXT.solved}` : "", TEXT.solved);
    }
  }

  function addPanel(place) {
    const sum = element("p"), said = element("p"), file = element("input", { type: "file", accept: ".json,application/json", hidden: true });
    said.setAttribute("role", "status");
    file.setAttribute("aria-label", TEXT.load);
    const button = (text, act) => {
      const made = element("button", { type: "button", textContent: text });
      made.addEventListener("click", act);
      return made;
    };
    function tell() {
      const { solved, quiz } = read(), every = Object.entries(CHAPTERS).flatMap(([topic, [, all]]) => Object.keys(all).map((one) => `${topic}.${one}`));
      sum.textContent = TEXT.sum(every.filter((name) => name in solved).length, every.length, Object.keys(quiz).length);
      if (unkept) said.textContent = TEXT.unkept;
    }
    function save() {
      const text = `${JSON.stringify(read(), null, 1)}\n`, url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      element("a", { href: url, download: FILE }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    }
    file.addEventListener("change", async () => {
      try { said.textContent = TEXT.loaded(...merge(checked(JSON.parse(await file.files[0].text())))); } catch { said.textContent = TEXT.unread; }
      file.value = "";
    });
    place.replaceChildren(sum, element("div", { className: "answer-buttons" }, button(TEXT.save, save),
      button(TEXT.load, () => file.click()), button(TEXT.forget, () => {
        if (!confirm(TEXT.sure)) return;
        try { localStorage.removeItem("mha-code"); } catch { /* nothing was kept */ }
        write({ version: VERSION, solved: {}, quiz: {}, answers: {} });
      })), file, said);
    watchers.push(tell);
    tell();
  }

  watchers.push(draw);
  addEventListener("storage", ({ key }) => { if (key === KEY) watchers.forEach((watcher) => watcher()); });
  draw();
  document.querySelectorAll(".mha-progress").forEach(addPanel);
  return { read, change, solve, merge, checked, better, now, element };
})();
