/* Answers to a quiz are kept in this browser. The first answer to each question counts. */
(() => {
  "use strict";
  const TEXT = {
    result: (right, of) => `${right} of ${of} right at the first answer. The result is kept in this browser.`,
    open: (left) => `${left === 1 ? "One question is" : `${left} questions are`} left. The first answer to each counts.`,
    again: "Answer again",
  };
  const { read, change, better, now, element } = window.mhaProgress;

  /* All answers that were opened are open when the reader comes back. */
  function addQuiz(quiz) {
    const questions = [...quiz.querySelectorAll("section")], topic = questions[0]?.querySelector("[id]")?.id.split("-")[1];
    if (!topic) return;
    const said = element("p", { className: "mha-quiz-said" }), again = element("button", { type: "button", textContent: TEXT.again });
    said.setAttribute("role", "status");
    const options = (question) => [...question.querySelectorAll("details")];
    const answers = () => read().answers?.[topic] || [];
    function tell() {
      const given = answers(), firsts = questions.map((_, n) => given[n]?.[0]), left = firsts.filter((one) => one === undefined).length;
      const right = firsts.filter((one, n) => options(questions[n])[one]?.matches(".right")).length;
      again.hidden = left === questions.length;
      said.textContent = again.hidden ? "" : left ? TEXT.open(left) : TEXT.result(right, questions.length);
      return left ? null : { right, of: questions.length, first: now() };
    }
    questions.forEach((question, n) => options(question).forEach((option, which) => {
      option.open = !!answers()[n]?.includes(which);
      option.addEventListener("toggle", () => {
        if (!option.open || answers()[n]?.includes(which)) return;
        change((record) => {
          const given = ((record.answers ||= {})[topic] ||= []);
          for (let i = 0; i <= n; i += 1) given[i] ||= [];
          given[n].push(which);
        });
        const result = tell();
        if (result) change((record) => { if (better(result, record.quiz[topic])) record.quiz[topic] = result; });
      });
    }));
    again.addEventListener("click", () => {
      change((record) => { delete record.answers?.[topic]; });
      for (const option of quiz.querySelectorAll("details")) option.open = false;
      tell();
    });
    tell();
    quiz.append(said, again);
  }

  document.querySelectorAll(".mha-quiz").forEach(addQuiz);
})();
