/* Figures that can be moved. A page holds <figure class="mha-live" data-live="cache">; the script of that name puts
   { start, controls, compute, draw, say } into mhaLive.figures. `compute` is plain arithmetic on the settings, so that a
   test can ask it the same as the package; `draw` makes a picture of what was found, `say` tells it in words. A figure
   that would be higher than a screen names a `layout`, a class of live.css. */
(() => {
  "use strict";
  const live = (window.mhaLive = { figures: {}, presets: {} });
  const SVG = "http://www.w3.org/2000/svg";

  function add(node, children) {
    node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
    return node;
  }

  /* Make an element of the page, or of a drawing: properties, then children. */
  live.element = (tag, properties = {}, ...children) => add(Object.assign(document.createElement(tag), properties), children);
  live.drawn = (tag, attributes = {}, ...children) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return add(node, children);
  };
  /* A drawing that fills the column; its letters are as large as the page's where the column is as wide as the drawing. */
  live.picture = (width, height, ...children) => {
    const made = live.drawn("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...children);
    made.style.maxWidth = `${width / 11}rem`;
    return made;
  };
  live.text = (x, y, text, attributes = {}) => live.drawn("text", { x, y, ...attributes }, String(text));

  /* A part of a drawing to drag with mouse or finger: `move(x, y)` is told where the pointer is, in units of the drawing.
     The drawing is made anew while somebody drags, so the figure listens. A slider must do the same for a keyboard. */
  live.drag = (part, figure, move) => {
    part.classList.add("drag");
    part.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // no scrolling
    part.addEventListener("pointerdown", (down) => {
      down.preventDefault();
      const moved = (event) => {
        const matrix = figure.place.querySelector(".picture svg").getScreenCTM().inverse();
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
        move(x, y);
      };
      const end = new AbortController(), until = { signal: end.signal };
      figure.place.setPointerCapture(down.pointerId);
      figure.place.addEventListener("pointermove", moved, until);
      figure.place.addEventListener("lostpointercapture", () => end.abort(), until);
    });
  };

  /* Lines of code with a button that copies them; it selects them, which works in a page opened as a file, too. */
  live.code = (lines) => {
    const pre = live.element("pre", { textContent: lines, tabIndex: 0 });
    const copy = live.element("button", { type: "button", textContent: "Copy" });
    copy.dataset.key = "copy";
    copy.addEventListener("click", () => {
      getSelection().selectAllChildren(pre);
      document.execCommand("copy");
    });
    return live.element("div", { className: "code" }, pre, copy);
  };

  /* ---- controls: each belongs to one setting of the figure; `change(value)` sets it */

  const words = (asked, value, settings) => (asked.text ? asked.text(value, settings) : String(value));

  /* { name, label, values } or { name, label, min, max, step }: a slider. */
  function slider(asked, figure) {
    const { name, label, values } = asked;
    const [min, max, step] = values ? [0, values.length - 1, 1] : [asked.min, asked.max, asked.step ?? 1];
    const input = live.element("input", { type: "range", min, max, step, name });
    const output = live.element("output");
    const read = () => (values ? values[+input.value] : +input.value);
    input.addEventListener("input", () => figure.set(name, read()));
    return {
      node: live.element("label", {}, live.element("span", { textContent: label }), input, output),
      show(settings) {
        input.value = values ? values.indexOf(settings[name]) : settings[name];
        output.textContent = words(asked, settings[name], settings);
        input.setAttribute("aria-valuetext", output.textContent);
        input.disabled = !!asked.idle?.(settings);
      },
    };
  }

  /* { name, label, choices }: a list to choose from; { …, radio: true } shows all of them as buttons. */
  function choice(asked, figure) {
    const { name, label, choices } = asked;
    if (!asked.radio) {
      const select = live.element("select", { name }, choices.map((one) => live.element("option", { value: one, textContent: one })));
      select.addEventListener("change", () => figure.set(name, select.value));
      return {
        node: live.element("label", {}, live.element("span", { textContent: label }), select),
        show(settings) { select.value = settings[name]; },
      };
    }
    const buttons = choices.map((one) => live.element("input", { type: "radio", name: `${figure.id}-${name}`, value: one }));
    for (const button of buttons) button.addEventListener("change", () => figure.set(name, button.value));
    const labels = buttons.map((button) => live.element("label", {}, button, button.value));
    return {
      node: live.element("fieldset", {}, live.element("legend", { textContent: label }), labels),
      show(settings) { for (const button of buttons) button.checked = button.value === settings[name]; },
    };
  }

  /* { label, press(settings) → settings that change }: a button; { name, label, toggle: true }: a box to tick. */
  function button(asked, figure) {
    const made = live.element("button", { type: "button", textContent: asked.label });
    made.addEventListener("click", () => figure.change(asked.press(figure.settings)));
    return { node: made, show(settings) { made.disabled = !!asked.idle?.(settings); } };
  }
  function box(asked, figure) {
    const input = live.element("input", { type: "checkbox", name: asked.name });
    input.addEventListener("change", () => figure.set(asked.name, input.checked));
    return {
      node: live.element("label", { className: "box" }, input, asked.label),
      show(settings) { input.checked = settings[asked.name]; },
    };
  }
  const control = (asked, figure) =>
    (asked.choices ? choice : asked.press ? button : asked.toggle ? box : slider)(asked, figure);

  /* ---- a figure on the page */

  function begin(place, number) {
    const what = live.figures[place.dataset.live];
    if (!what) return;
    const figure = { id: `live-${number}`, settings: { ...what.start }, place };
    const controls = live.element("div", { className: "controls" });
    const picture = live.element("div", { className: "picture" });
    const said = live.element("p", { className: "said" });
    said.setAttribute("role", "status");
    let made = [];

    figure.change = (settings) => {
      Object.assign(figure.settings, settings);
      Object.assign(figure.settings, what.settle?.(figure.settings, Object.keys(settings)));
      show();
    };
    figure.set = (name, value) => figure.change({ [name]: value });
    function show() {
      for (const one of made) one.show(figure.settings);
      figure.found = what.compute(figure.settings);
      const active = picture.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      picture.replaceChildren(what.draw(figure.settings, figure.found, figure));
      if (active) picture.querySelector(`[data-key="${active}"]`)?.focus();
      said.textContent = what.say(figure.settings, figure.found);
    }

    made = what.controls.map((asked) => control(asked, figure));
    const buttons = made.filter((one) => one.node.matches("button, .box"));
    controls.append(...made.filter((one) => !buttons.includes(one)).map((one) => one.node));
    if (buttons.length) controls.append(live.element("div", { className: "buttons" }, buttons.map((one) => one.node)));
    place.querySelector(".still")?.remove();
    if (what.layout) place.classList.add(what.layout);
    place.prepend(controls, picture, said);
    place.mha = figure;
    show();
  }

  const beginAll = () => document.querySelectorAll(".mha-live").forEach(begin);
  /* Not before DOMContentLoaded: between two deferred scripts the page is "interactive", and the figures' come later. */
  if (document.readyState === "complete") setTimeout(beginAll);
  else document.addEventListener("DOMContentLoaded", beginAll);
})();
