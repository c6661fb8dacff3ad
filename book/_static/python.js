/* Python for the editors of a page: MicroPython, half a megabyte, is loaded when somebody first runs something. It works
   in a worker of its own and is stopped after ten seconds. */
window.mhaPython = (() => {
  "use strict";
  const SECONDS = 10;
  const TEXT = {
    asFile: "A page opened as a file cannot start Python. Serve the folder: python -m http.server",
    starting: "Starting Python …",
    unloaded: "Python could not be loaded. Check the connection and run again.",
    nothing: "(nothing was printed)",
    stopped: "(stopped)",
    endless: `(stopped after ${SECONDS} seconds: is there a loop that never ends?)`,
  };
  const folder = new URL(".", document.currentScript.src).href;
  let worker = null, stop = () => {};

  /* Run a task, {code, earlier, check} (see tryit-worker.mjs). show(text, state, right) is given all that is said so far.
     Another run of the page ends this one. Returns what stops it. */
  function run(task, show) {
    stop();
    let printed = "", timer = 0;
    const end = (text, state, right) => {
      clearTimeout(timer);
      if (worker && state !== "done") { worker.terminate(); worker = null; }
      stop = () => {};
      show(printed + text, state, right);
    };
    if (location.protocol === "file:") { end(TEXT.asFile, "error"); return stop; }
    show(TEXT.starting, "running");
    worker = worker || new Worker(folder + "tryit-worker.mjs", { type: "module" });
    worker.onerror = () => end(TEXT.unloaded, "error");
    worker.onmessage = ({ data }) => {
      if (data.started) { show("", "running"); timer = setTimeout(() => end(TEXT.endless, "stopped"), SECONDS * 1000); }
      if (data.text) show(printed += data.text, "running");
      if (data.done) end(data.said || data.error || (printed ? "" : TEXT.nothing), data.error ? "error" : "done", data.right);
    };
    stop = () => end(TEXT.stopped, "stopped");
    worker.postMessage(task);
    return () => stop();
  }

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  /* A box to write Python in. Enter keeps the indentation of its line. */
  function editor(id, text) {
    const area = element("textarea", { id, value: text, spellcheck: false, autocapitalize: "off", rows: text.split("\n").length + 1 });
    area.setAttribute("autocorrect", "off");
    area.setAttribute("wrap", "off");
    area.addEventListener("input", () => { area.rows = Math.max(area.rows, Math.min(area.value.split("\n").length + 1, 24)); });
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
      const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
      const indent = line.match(/^ */)[0] + (/:\s*$/.test(line) ? "    " : "");
      if (!indent) return;
      event.preventDefault();
      document.execCommand("insertText", false, `\n${indent}`); // unlike a change of the value it can be undone
    });
    return area;
  }

  return { run, editor, element };
})();
