/* Runs one task in a fresh MicroPython, with the course's mha.reference. Prints are sent in one piece per tick.

   A task is {code}, and for the answer to an exercise also {earlier: texts that are run before it without a word,
   check: {topic, checker, function}}: then the judge of the course says whether the function is right. */
import { loadMicroPython } from "./vendor/micropython/micropython.mjs";

const MOST = 20000; // characters that are shown
const MISSING = "Python in the page needs WebAssembly, which this browser lacks or has switched off. Another browser has it; " +
  "the notebook runs without.";
const UNLOADED = "Python could not be loaded. Check the connection and run again.";
const PLAIN = "The page has plain Python only: math, random and mha.reference. The notebook has the rest.";
const ASKED = "input() waits for a keyboard, and nobody can type here: write the answer into the code.";
const NAMES = /^NameError: name '(np|torch|mha|plt|F|statistics|mean|stdev)'/m; // what the notebook has imported
const BEGIN = `
import builtins, sys
if "/lib" not in sys.path:
    sys.path.append("/lib")
def _input(*_):
    raise RuntimeError("${ASKED}")
builtins.input = _input
_zip = builtins.zip
def _strict(*rows, strict=False):
    rows = [list(row) for row in rows] if strict else rows
    if strict and len(set([len(row) for row in rows])) > 1:
        raise ValueError("zip() was given lists of different lengths")
    return _zip(*rows)
builtins.zip = _strict
`;
const JUDGE = ["__init__", "draw", "guess", "judge", "words"];
const vendor = (name) => fetch(new URL(`./vendor/micropython/${name}.py`, import.meta.url)).then((answer) => {
  if (!answer.ok) throw new Error(name);
  return answer.text();
});
const reference = vendor("reference");
reference.catch(() => {}); // it is awaited below

function judge(python, code, { topic, checker, function: name }) {
  python.globals.set("_source", code);
  python.runPython(`
from mha.course.exercises.plain import judge as _judge, ${topic} as _exercises
_right, _said = _judge.judge_text(_exercises.${checker}, _source, "${name}", globals())
`);
  return { right: python.globals.get("_right"), said: python.globals.get("_said") };
}

self.onmessage = async ({ data: { code, earlier, check } }) => {
  let waiting = "", length = 0, quiet = false;
  const send = () => { if (waiting) postMessage({ text: waiting }); waiting = ""; };
  const print = (line) => {
    if (quiet) return;
    if (length <= MOST) waiting += length + line.length > MOST ? "… (more is printed than can be shown)\n" : line + "\n";
    length += line.length + 1;
    if (waiting.length > 500) send();
  };
  let python;
  try {
    if (typeof WebAssembly === "undefined") throw new Error();
    python = await loadMicroPython({ stdout: print, stderr: print, linebuffer: true, heapsize: 16 * 1024 * 1024 });
    python.FS.mkdirTree("/lib/mha/course/exercises/plain");
    for (const folder of ["mha", "mha/course", "mha/course/exercises"]) python.FS.writeFile(`/lib/${folder}/__init__.py`, "");
    python.FS.writeFile("/lib/mha/reference.py", await reference);
    const files = check ? [...JUDGE, check.topic] : [];
    const texts = await Promise.all(files.map((name) => vendor(`plain/${name}`)));
    files.forEach((name, n) => python.FS.writeFile(`/lib/mha/course/exercises/plain/${name}.py`, texts[n]));
  } catch {
    return postMessage({ done: true, error: typeof WebAssembly === "undefined" ? MISSING : UNLOADED });
  }
  try {
    python.runPython(BEGIN);
    quiet = true;
    for (const text of earlier ? ["import math", ...earlier] : []) try { python.runPython(text); } catch { /* the rest goes on */ }
    quiet = false;
    postMessage({ started: true });
    python.runPython(code);
    const verdict = check ? judge(python, code, check) : {};
    send();
    postMessage({ done: true, ...verdict });
  } catch (error) {
    send();
    const said = String(error.message ?? error).replace(/^PythonError:\s*/, "");
    const missing = /no module named|can't import name/.test(said) || NAMES.test(said);
    postMessage({ done: true, error: missing ? `${said.trimEnd()}\n${PLAIN}` : said });
  }
};
