/* "Change it and run it here": cells tagged try-it get a small editor. */
(() => {
  "use strict";
  const TEXT = {
    open: "Change it and run it here", label: "Python, in this page. Ctrl + Enter runs it.", run: "Run", stop: "Stop",
    reset: "Reset", output: "What the code printed",
  };
  const { run, editor, element } = window.mhaPython;

  function addEditor(cell, number) {
    const source = cell.querySelector(".cell_input pre");
    if (!source) return;
    const original = source.textContent.trimEnd(), label = `tryit-${number}`, area = editor(label, original);
    const button = element("button", { type: "button", className: "tryit-run", textContent: TEXT.run });
    const reset = element("button", { type: "button", className: "tryit-reset", textContent: TEXT.reset });
    const output = element("pre", { className: "tryit-output" });
    output.setAttribute("role", "status");
    output.tabIndex = 0;
    output.setAttribute("aria-label", TEXT.output);
    let stop = null;

    function show(text, state) {
      output.textContent = text;
      output.dataset.state = state;
      button.textContent = state === "running" ? TEXT.stop : TEXT.run;
      if (state !== "running") stop = null;
    }

    function start() {
      if (stop) stop();
      else stop = run({ code: area.value }, show);
    }

    button.addEventListener("click", start);
    reset.addEventListener("click", () => { if (stop) stop(); area.value = original; show("", "reset"); area.focus(); });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
    });
    cell.append(element("details", { className: "tryit" },
      element("summary", { textContent: TEXT.open }),
      element("label", { htmlFor: label, textContent: TEXT.label }),
      area, element("div", { className: "tryit-buttons" }, button, reset), output));
  }

  const addAll = () => document.querySelectorAll("div.cell.tag_try-it").forEach(addEditor);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", addAll); else addAll();
})();
