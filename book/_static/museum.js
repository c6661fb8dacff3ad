/* The bug museum by symptom and by topic. Two lists choose which exhibits are shown; the address remembers the choice, so
   that the page of symptoms can lead to a part of the museum. Without this script all exhibits are there. */
(() => {
  "use strict";
  const WORDS = {
    symptom: "What you see", symptomAll: "anything",
    topic: "Topic", topicAll: "all topics",
    reset: "Show all",
    all: (count) => `All ${count} exhibits are shown.`,
    some: (shown, count) => `${shown} of ${count} exhibits ${shown === 1 ? "is" : "are"} shown.`,
  };
  const place = document.querySelector(".museum-filter");
  if (!place) return;
  const { symptoms, topics, exhibits } = JSON.parse(place.dataset.museum);
  const contents = [...document.querySelectorAll("#pst-page-toc-nav a")];
  const parts = Object.entries(exhibits).map(([anchor, [symptom, topic]]) => {
    const section = document.getElementById(anchor).closest("section");
    const entry = contents.find((link) => [anchor, section.id].includes(decodeURIComponent(link.hash.slice(1))));
    return { section, entry: entry?.closest("li"), symptom, topic: [topic] };
  });

  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const option = ([value, text]) => element("option", { value, textContent: text });
  const groups = symptoms.filter(([, all]) => all.length).map(([label, all]) => element("optgroup", { label }, ...all.map(option)));
  const chapters = topics.map(([number, title]) => option([number, `${number} ${title}`]));
  const lists = {};
  for (const [name, options] of [["symptom", groups], ["topic", chapters]]) {
    lists[name] = element("select", { name, autocomplete: "off" }, option(["", WORDS[`${name}All`]]), ...options);
    lists[name].addEventListener("change", () => { show(); remember(); });
    place.append(element("label", {}, element("span", { textContent: WORDS[name] }), lists[name]));
  }
  const reset = element("button", { type: "button", textContent: WORDS.reset });
  reset.addEventListener("click", () => { choose({}); remember(); lists.symptom.focus(); });
  const said = element("p", {});
  said.setAttribute("role", "status");
  place.append(reset, said);

  const fits = (part, name, value) => !value || part[name].includes(value);

  function show() {
    const chosen = { symptom: lists.symptom.value, topic: lists.topic.value };
    let count = 0;
    for (const part of parts) {
      const shown = fits(part, "symptom", chosen.symptom) && fits(part, "topic", chosen.topic);
      part.section.hidden = !shown;
      if (part.entry) part.entry.hidden = !shown;
      count += shown;
    }
    for (const [name, other] of [["symptom", "topic"], ["topic", "symptom"]]) { // no choice leads to an empty museum
      const left = parts.filter((part) => fits(part, other, chosen[other]));
      for (const one of lists[name].options) one.disabled = !left.some((part) => fits(part, name, one.value));
    }
    reset.disabled = count === parts.length;
    said.textContent = count === parts.length ? WORDS.all(count) : WORDS.some(count, parts.length);
  }

  function remember() {
    const address = new URL(location.href);
    for (const [name, list] of Object.entries(lists)) {
      if (list.value) address.searchParams.set(name, list.value);
      else address.searchParams.delete(name);
    }
    if (target()?.section.hidden) address.hash = "";
    history.replaceState(null, "", address);
  }

  /* What nobody can have chosen is ignored: a name that does not exist, two that have no exhibit in common. */
  function choose({ symptom = "", topic = "" }) {
    const known = (name, value) => [...lists[name].options].some((one) => one.value === value);
    lists.symptom.value = known("symptom", symptom) ? symptom : "";
    lists.topic.value = known("topic", topic) && parts.some((part) => fits(part, "symptom", lists.symptom.value) && fits(part, "topic", topic)) ? topic : "";
    show();
  }

  /* A link to an exhibit that is not shown shows all again. */
  function target() {
    const asked = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    return parts.find((part) => part.section.contains(asked));
  }
  function reveal() {
    const part = target();
    if (!part?.section.hidden) return;
    choose({});
    remember();
    part.section.scrollIntoView();
  }

  choose(Object.fromEntries(new URLSearchParams(location.search)));
  reveal();
  addEventListener("hashchange", reveal);
})();
