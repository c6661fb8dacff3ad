/* A clock for an exercise: <figure class="mha-live mha-timer" data-minutes="30"> gets a button, a clock and what should be
   done by when. The time is that of the computer's clock, so it is right after the page was in the background, too. */
(() => {
  "use strict";
  const TEXT = {
    start: "Start", pause: "Pause", on: "Go on", again: "Begin again",
    left: (minutes) => (minutes === 1 ? "One minute is left." : `${minutes} minutes are left.`),
    over: "The time is over. Run the checker.",
    steps: [
      [0, "projections, heads, scores, softmax, merge"],
      [10, "causal mask and padding mask"],
      [14, "dropout"],
      [16, "fewer KV heads (GQA)"],
      [19, "RoPE"],
      [24, "the cache"],
      [28, "read it once more, aloud"],
    ],
  };
  const SAID = [20, 10, 5, 1]; // minutes left at which it speaks

  const make = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;

  function put(place) {
    const total = 60 * place.dataset.minutes;
    let used = 0, since = null, told = total, ticking = 0; // milliseconds before this run; when it began
    const shown = make("output", { textContent: clock(total), role: "timer" });
    const said = make("p", { className: "said", role: "status", style: "min-height: 1.6em" });
    const go = make("button", { type: "button", textContent: TEXT.start });
    const again = make("button", { type: "button", textContent: TEXT.again, disabled: true });
    const steps = TEXT.steps.map(([minute, text]) => make("li", { textContent: `${clock(60 * minute)} ${text}` }));

    const spent = () => used + (since === null ? 0 : Date.now() - since);
    const left = () => Math.max(0, Math.ceil(total - spent() / 1000));
    function show() {
      const now = left(), passed = total - now;
      shown.textContent = clock(now);
      const next = TEXT.steps.findIndex(([minute]) => 60 * minute > passed);
      const current = (next < 0 ? steps.length : next) - 1;
      steps.forEach((step, n) => {
        const now = n === current && spent() > 0;
        step.style.fontWeight = now ? "700" : "";
        if (now) step.setAttribute("aria-current", "step");
        else step.removeAttribute("aria-current");
      });
      const mark = SAID.find((minutes) => now <= 60 * minutes && told > 60 * minutes && now > 60 * minutes - 60);
      if (mark) said.textContent = TEXT.left(mark);
      if (!now && told) said.textContent = TEXT.over;
      told = now;
      if (!now) stop();
    }
    function stop() {
      clearInterval(ticking);
      [used, since] = [spent(), null];
      go.textContent = TEXT.on;
      go.disabled = !left();
    }
    function start() {
      since = Date.now();
      ticking = setInterval(show, 250);
      go.textContent = TEXT.pause;
      again.disabled = false;
    }
    go.addEventListener("click", () => {
      if (since === null) start();
      else stop();
      show();
    });
    again.addEventListener("click", () => {
      stop();
      used = 0;
      told = total;
      said.textContent = "";
      go.textContent = TEXT.start;
      go.disabled = false;
      again.disabled = true;
      show();
      go.focus();
    });
    place.replaceChildren(make("p", { className: "buttons" }, shown, go, again), make("ol", { style: "list-style: none; margin: 0.8rem 0; padding: 0" }, ...steps), said);
    show();
  }

  document.querySelectorAll(".mha-timer").forEach(put);
})();
