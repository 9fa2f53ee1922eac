/* How the search of the site ranks pages: words of the query in the title of a page count most, and
   pages of the guide come before the reference, the proofs, the examples and long lists. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([page, title, anchor, description, score]) => {
    const wordsOf = (text) => text.toLowerCase().match(/[a-z0-9]+/g) || [];
    const asked = wordsOf(new URLSearchParams(window.location.search).get("q") || "");
    const words = wordsOf(title);
    const singular = (word) => word.replace(/s$/, "");
    const found = asked.filter((one) => words.some((word) => singular(word) === singular(one)));
    const guide = !page.includes("/") && !["benchmarks", "changelog", "glossary"].includes(page);
    return score + (asked.length ? (20 * found.length) / asked.length : 0) + (guide ? 2 : 0);
  },
};
