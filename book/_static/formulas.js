/* A formula that is wider than its column scrolls by itself; with this it can be scrolled from the keyboard too. */
(() => {
  "use strict";
  function letTabReach() {
    for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  }
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    letTabReach();
    addEventListener("resize", letTabReach);
    addEventListener("toggle", letTabReach, true);
  });
})();
