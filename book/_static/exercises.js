/* Exercises that the page can check: the stub of an exercise becomes an editor. The judge is the notebook's, in Python. */
(() => {
  "use strict";
  const TEXT = {
    label: "Your answer, in plain Python. Ctrl + Enter checks it.",
    check: "Check", run: "Run", reset: "Reset", stop: "Stop", output: "What the checker says",
    missing: /NameError: name '(np|torch|mha)' isn't defined/,
    plain: "The page has plain Python only: math, random and mha.reference. The notebook has the rest.",
  };
  const KEPT = "mha-code"; // in localStorage: {exercise: the reader's text}
  const { run, editor, element } = window.mhaPython, progress = window.mhaProgress;
  const editors = [];

  function texts() {
    try { return JSON.parse(localStorage.getItem(KEPT)) || {}; } catch { return {}; }
  }
  function keep(name, text) {
    const all = texts();
    if (text === null) delete all[name]; else all[name] = text;
    try { localStorage.setItem(KEPT, JSON.stringify(all)); } catch { /* a private window: it lasts as long as the page */ }
  }

  /* The stub without the lines that import its checker and call it: the page does that. */
  function stub(text, checker) {
    const begin = text.search(/^def /m);
    return text.slice(Math.max(begin, 0)).replace(new RegExp(`\\n+${checker}\\([^]*$`), "").trimEnd();
  }

  function addEditor(cell) {
    const name = cell.dataset.exercise, [topic, checker] = name.split("."), label = `answer-${checker}`;
    const source = cell.querySelector(".cell_input pre");
    if (!source) return;
    const original = stub(source.textContent, checker), area = editor(label, texts()[name] ?? original);
    const button = (textContent) => element("button", { type: "button", textContent });
    const check = button(TEXT.check), only = button(TEXT.run), reset = button(TEXT.reset);
    check.className = "answer-check";
    const output = element("pre", { className: "answer-output" });
    output.setAttribute("role", "status");
    output.tabIndex = 0;
    output.setAttribute("aria-label", TEXT.output);
    const own = { name, area };
    let stop = null;

    function show(text, state, right) {
      output.textContent = state !== "running" && TEXT.missing.test(text) ? `${text.trimEnd()}\n${TEXT.plain}` : text;
      output.dataset.state = right ? "right" : state;
      check.textContent = state === "running" ? TEXT.stop : TEXT.check;
      only.disabled = state === "running";
      if (state !== "running") stop = null;
      if (right) progress.solve(name);
    }

    function start(judged) {
      if (stop) return stop();
      const before = editors.slice(0, editors.indexOf(own)).filter((one) => progress.read().solved[one.name] !== undefined);
      const task = { code: area.value, earlier: before.map((one) => one.area.value) };
      if (judged) task.check = { topic, checker, function: cell.dataset.function };
      stop = run(task, show);
    }

    check.addEventListener("click", () => start(true));
    only.addEventListener("click", () => start(false));
    reset.addEventListener("click", () => {
      if (stop) stop();
      area.value = original;
      keep(name, null);
      show("", "reset");
      area.focus();
    });
    area.addEventListener("input", () => keep(name, area.value));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(true); }
    });
    for (const part of cell.children) part.hidden = true; // the stub, and "Not solved yet."
    cell.append(element("div", { className: "answer" }, element("label", { htmlFor: label, textContent: TEXT.label }), area,
      element("div", { className: "answer-buttons" }, check, only, reset), output));
    editors.push(own);
  }

  document.querySelectorAll("div.cell[data-function]").forEach(addEditor);
})();
