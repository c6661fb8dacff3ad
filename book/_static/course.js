/* Small things for every page. */
(() => {
  "use strict";

  /* A formula that is wider than its column scrolls by itself; with this it can be scrolled from the keyboard too.
     Each is looked at whenever its size changes. */
  const watcher = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      const formula = target.querySelector('mjx-container[display="true"]');
      if (formula?.scrollWidth > formula?.clientWidth) formula.tabIndex = 0;
      else formula?.removeAttribute("tabindex");
    }
  });
  for (const place of document.querySelectorAll("div.math")) watcher.observe(place);

  /* So does code in a tab or a fold: the theme looked at it while it was closed, and nothing was wider than its box. */
  const folded = new ResizeObserver((changes) => {
    for (const { target } of changes) if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
  });
  for (const code of document.querySelectorAll(":is(.sd-tab-content, details) pre")) folded.observe(code);

  /* The contents at the side mark the section that is read. The theme marks a section when its heading passes the top of
     the window; after a jump over cells that are laid out late, none does. So it is looked up when scrolling is over. */
  const links = [...document.querySelectorAll("#pst-page-toc-nav a")], entries = document.querySelectorAll("#pst-page-toc-nav .toc-entry");
  const top = (link) => {
    const place = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    return place.closest("[hidden]") ? Infinity : place.getBoundingClientRect().top; // hidden: an exhibit of the museum
  };
  function mark() {
    const end = scrollY + innerHeight > document.documentElement.scrollHeight - 4, high = end ? innerHeight : 0.3 * innerHeight;
    const asked = links.find((link) => link.hash === location.hash && top(link) >= 0 && top(link) < high);
    const here = asked || links.findLast((link) => top(link) < high);
    for (const link of links) {
      link.classList.toggle("active", link === here);
      if (link === here) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    for (const entry of entries) entry.classList.toggle("active", !!here && entry.contains(here));
  }
  let waiting;
  if (links.length) addEventListener("scroll", () => { clearTimeout(waiting); waiting = setTimeout(mark, 150); }, { passive: true });
})();
