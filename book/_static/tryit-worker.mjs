/* Runs one piece of Python in a fresh MicroPython, with the course's mha.reference. Prints are sent in one piece per tick. */
import { loadMicroPython } from "./vendor/micropython/micropython.mjs";

const MOST = 20000; // characters that are shown
const reference = fetch(new URL("./vendor/micropython/reference.py", import.meta.url)).then((answer) => answer.text());

self.onmessage = async ({ data }) => {
  let waiting = "", length = 0;
  const send = () => { if (waiting) postMessage({ text: waiting }); waiting = ""; };
  const print = (line) => {
    if (length <= MOST) waiting += length + line.length > MOST ? "… (more is printed than can be shown)\n" : line + "\n";
    length += line.length + 1;
    if (waiting.length > 500) send();
  };
  try {
    const python = await loadMicroPython({ stdout: print, stderr: print, linebuffer: true, heapsize: 16 * 1024 * 1024 });
    python.FS.mkdirTree("/lib/mha");
    python.FS.writeFile("/lib/mha/__init__.py", "");
    python.FS.writeFile("/lib/mha/reference.py", await reference);
    python.runPython("import sys\nif '/lib' not in sys.path:\n    sys.path.append('/lib')\n");
    postMessage({ started: true });
    python.runPython(data);
    send();
    postMessage({ done: true });
  } catch (error) {
    send();
    postMessage({ done: true, error: String(error.message ?? error).replace(/^PythonError:\s*/, "") });
  }
};
