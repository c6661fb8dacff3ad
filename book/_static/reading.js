/* A figure opens above the page. Without this script its link leads to the picture alone. */
(() => {
  "use strict";
  const dialog = Object.assign(document.createElement("dialog"), { className: "large" });
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  dialog.setAttribute("aria-label", "The figure, large");
  dialog.addEventListener("click", () => dialog.close());
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
  for (const drawing of document.querySelectorAll("figure.mha-drawing svg")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "large", title: "Open large" });
    drawing.replaceWith(button);
    button.append(drawing);
    button.addEventListener("click", () => open(drawing.cloneNode(true)));
  }
})();
