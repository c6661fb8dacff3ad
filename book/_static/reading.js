/* A figure opens above the page. Without this script its link leads to the picture alone. */
(() => {
  "use strict";
  const dialog = Object.assign(document.createElement("dialog"), { className: "large" });
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  dialog.setAttribute("aria-label", "The figure, large");
  dialog.addEventListener("click", ({ target }) => { if (!target.closest("label, fieldset, .mha-hv")) dialog.close(); });
  document.body.append(dialog);

  function open(picture) {
    dialog.replaceChildren(close, picture);
    dialog.showModal();
  }

  for (const link of document.querySelectorAll("a.large")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the reader wants a tab of its own
      event.preventDefault();
      open(Object.assign(new Image(), { src: link.href, alt: link.querySelector("img").alt }));
    });
  }

  /* Drawings made of text stand in the page itself: the button around them opens a copy. */
  function around(drawing) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "large", title: "Open large" });
    drawing.replaceWith(button);
    button.append(drawing);
    return button;
  }
  for (const drawing of document.querySelectorAll("figure.mha-drawing svg")) {
    around(drawing).addEventListener("click", () => open(drawing.cloneNode(true)));
  }

  /* Pictures that change with sliders, and head views, move into the dialog and back, so that they stay alive. A box of
     the same height keeps their place. */
  let back = () => {};
  dialog.addEventListener("close", () => { back(); back = () => {}; });
  function move(part, opener) {
    const place = Object.assign(document.createElement("div"), { style: `height: ${part.offsetHeight}px` });
    part.replaceWith(place);
    open(part);
    back = () => { place.replaceWith(part); opener.focus(); };
  }
  for (const figure of document.querySelectorAll("figure.mha-frames")) {
    const opener = around(figure.querySelector("[role=img]"));
    opener.addEventListener("click", () => { if (!dialog.open) move(figure, opener); });
  }
  for (const view of document.querySelectorAll(".mha-hv[data-on]")) {
    const opener = Object.assign(document.createElement("button"), { type: "button", className: "whole", textContent: "Open large" });
    view.querySelector('[aria-label="How it is shown"]').append(opener);
    opener.addEventListener("click", () => move(view, opener));
    const list = view.querySelector(".main"), chosen = list.querySelector('.col [aria-pressed="true"]');
    list.scrollTop = chosen.offsetTop - list.offsetTop - (list.clientHeight - chosen.offsetHeight) / 2; // where it scrolls
  }
})();
