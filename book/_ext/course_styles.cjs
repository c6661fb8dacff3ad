// node course_styles.cjs PURGECSS, in the folder of the built book: out of its style sheets go the rules that no page and
// no script needs.
const content = ["**/*.html", "_static/{,scripts/,live/}*.{js,mjs}"], css = ["_static/{,styles/}*.css"];
const safelist = [/^:/, /^(aria|bs|data|head|pair)-/]; // a state has no name of its own; these names are put together by scripts

new (require(process.argv[2]).PurgeCSS)().purge({ content, css, safelist }).then((sheets) => {
  for (const sheet of sheets) require("fs").writeFileSync(sheet.file, sheet.css);
});
