/* Runs one piece of Python in a fresh MicroPython, with the course's mha.reference. Prints are sent in one piece per tick. */
import { loadMicroPython } from "./vendor/micropython/micropython.mjs";

const MOST = 20000; // characters that are shown
const MISSING = "Python in the page needs WebAssembly, which this browser lacks or has switched off. Another browser has it; " +
  "the notebook runs without.";
const UNLOADED = "Python could not be loaded. Check the connection and run again.";
const PLAIN = "The page has plain Python only: math, random and mha.reference. The notebook has the rest.";
const ASKED = "input() waits for a keyboard, and nobody can type here: write the answer into the code.";
const BEGIN = `
import builtins, sys
if "/lib" not in sys.path:
    sys.path.append("/lib")
def _input(*_):
    raise RuntimeError("${ASKED}")
builtins.input = _input
`;
const reference = fetch(new URL("./vendor/micropython/reference.py", import.meta.url)).then((answer) => answer.text());

self.onmessage = async ({ data }) => {
  let waiting = "", length = 0;
  const send = () => { if (waiting) postMessage({ text: waiting }); waiting = ""; };
  const print = (line) => {
    if (length <= MOST) waiting += length + line.length > MOST ? "… (more is printed than can be shown)\n" : line + "\n";
    length += line.length + 1;
    if (waiting.length > 500) send();
  };
  let python;
  try {
    if (typeof WebAssembly === "undefined") throw new Error();
    python = await loadMicroPython({ stdout: print, stderr: print, linebuffer: true, heapsize: 16 * 1024 * 1024 });
  } catch {
    return postMessage({ done: true, error: typeof WebAssembly === "undefined" ? MISSING : UNLOADED });
  }
  try {
    python.FS.mkdirTree("/lib/mha");
    python.FS.writeFile("/lib/mha/__init__.py", "");
    python.FS.writeFile("/lib/mha/reference.py", await reference);
    python.runPython(BEGIN);
    postMessage({ started: true });
    python.runPython(data);
    send();
    postMessage({ done: true });
  } catch (error) {
    send();
    const said = String(error.message ?? error).replace(/^PythonError:\s*/, "");
    postMessage({ done: true, error: /no module named|can't import name/.test(said) ? `${said.trimEnd()}\n${PLAIN}` : said });
  }
};
