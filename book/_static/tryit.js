/* "Change it and run it here": cells tagged try-it get a small editor. Python itself (MicroPython, half a megabyte) is
   loaded when somebody first runs something, runs in a worker of its own, and is stopped after ten seconds. */
(() => {
  "use strict";
  const SECONDS = 10;
  const folder = new URL(".", document.currentScript.src).href;

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  function addEditor(cell, number) {
    const source = cell.querySelector(".cell_input pre");
    if (!source) return;
    const original = source.textContent.trimEnd();
    const label = `tryit-${number}`;
    const area = element("textarea", {
      id: label, value: original, spellcheck: false, autocapitalize: "off", rows: original.split("\n").length + 1,
    });
    area.setAttribute("autocorrect", "off");
    area.setAttribute("wrap", "off");
    const run = element("button", { type: "button", className: "tryit-run", textContent: "Run" });
    const reset = element("button", { type: "button", className: "tryit-reset", textContent: "Reset" });
    const output = element("pre", { className: "tryit-output" });
    output.setAttribute("role", "status");
    output.tabIndex = 0;
    output.setAttribute("aria-label", "What the code printed");
    let worker = null, timer = 0, printed = "";

    function finish(text, state) {
      clearTimeout(timer);
      if (worker && state !== "done") { worker.terminate(); worker = null; }
      output.textContent = printed + text;
      output.dataset.state = state;
      run.textContent = "Run";
    }

    function start() {
      if (run.textContent === "Stop") return finish("(stopped)", "stopped");
      if (location.protocol === "file:") {
        return finish("A page opened as a file cannot start Python. Serve the folder: python -m http.server", "error");
      }
      printed = "";
      output.textContent = "Starting Python …";
      output.dataset.state = "running";
      run.textContent = "Stop";
      worker = worker || new Worker(folder + "tryit-worker.mjs", { type: "module" });
      worker.onerror = () => finish("Python could not be loaded. Check the connection and run again.", "error");
      worker.onmessage = ({ data }) => {
        if (data.started) output.textContent = "";
        if (data.text) output.textContent = printed += data.text;
        if (data.done) finish(data.error || (printed ? "" : "(nothing was printed)"), data.error ? "error" : "done");
      };
      timer = setTimeout(() => finish(`(stopped after ${SECONDS} seconds: is there a loop that never ends?)`, "stopped"), SECONDS * 1000);
      worker.postMessage(area.value);
    }

    run.addEventListener("click", start);
    reset.addEventListener("click", () => { area.value = original; printed = ""; finish("", "reset"); area.focus(); });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
    });
    cell.append(element("details", { className: "tryit" },
      element("summary", { textContent: "Change it and run it here" }),
      element("label", { htmlFor: label, textContent: "Python, in this page. Ctrl + Enter runs it." }),
      area, element("div", { className: "tryit-buttons" }, run, reset), output));
  }

  const addAll = () => document.querySelectorAll("div.cell.tag_try-it").forEach(addEditor);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", addAll); else addAll();
})();
