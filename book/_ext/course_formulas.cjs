// node course_formulas.cjs MATHJAX FONTS: formulas in, drawn formulas out.
// In comes JSON, [[TeX, whether it stands in a line of its own], ...]; out goes {html: [...], styles: "..."}.
const [mathjax, fontURL] = process.argv.slice(2);
const parts = ["input/tex", "output/chtml", "a11y/assistive-mml"];

require(mathjax).init({ loader: { load: parts }, chtml: { fontURL } }).then(async (MathJax) => {
  const html = [], adaptor = MathJax.startup.adaptor;
  for (const [tex, display] of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
    html.push(adaptor.outerHTML(await MathJax.tex2chtmlPromise(tex, { display })));
  }
  process.stdout.write(JSON.stringify({ html, styles: adaptor.textContent(MathJax.chtmlStylesheet()) }));
});
