/* Small things for every page. */
(() => {
  "use strict";

  /* A formula that is wider than its column scrolls by itself; with this it can be scrolled from the keyboard too.
     Formulas are drawn when the reader comes near them, so each is looked at whenever its size changes. */
  const watcher = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      const formula = target.querySelector('mjx-container[display="true"]');
      if (formula?.scrollWidth > formula?.clientWidth) formula.tabIndex = 0;
      else formula?.removeAttribute("tabindex");
    }
  });
  for (const place of document.querySelectorAll("div.math")) watcher.observe(place);
})();
