// Markdown of a model's answer to HTML that cannot act. What is returned goes into the page as it stands.

import { Marked, Renderer } from "../vendor/marked.js";
import DOMPurify from "../vendor/purify.js";

/** A formula is shown as it was written: nothing here draws it, and Markdown would take its signs for its own. */
function formula(level, start, rule, tag) {
  return {
    name: `${level}-formula`,
    level,
    start: (text) => (start.exec(text) ?? { index: undefined }).index,
    tokenizer(text) {
      const found = rule.exec(text);
      return found ? { type: `${level}-formula`, raw: found[0], text: found[0].trim() } : undefined;
    },
    renderer: ({ text }) => tag(escape(text)),
  };
}

const FORMULAS = [
  formula("block", /\$\$|\\\[/, /^(?:\$\$[^$]+\$\$|\\\[[^]+?\\\])(?:\n|$)/, (text) => {
    return `<div class="wide formula" tabindex="0" role="region" aria-label="formula">${text}</div>`;
  }),
  // A dollar begins one where no space follows, and ends it where none stands before and no digit behind: not "$5 or $6".
  formula("inline", /\$|\\\(/, /^(?:\$\$[^$]+\$\$|\$(?![\s$])(?:[^$\n\\]|\\[^\n])+?(?<!\s)\$(?!\d)|\\\([^\n]+?\\\))/, (text) => {
    return `<span class="formula">${text}</span>`;
  }),
];

const marked = new Marked({
  gfm: true,
  breaks: false,
  extensions: FORMULAS,
  renderer: {
    // A picture would be asked for at an address that the model chose.
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    code: ({ text, lang }) => {
      const language = (lang ?? "").trim().split(/\s+/)[0];
      const head = `<span class="code-language">${escape(language || "text")}</span>`;
      const button = '<button type="button" class="quiet code-copy">Copy</button>';
      const label = escape(language ? `${language} code` : "code");
      return (
        `<div class="code"><div class="code-head">${head}${button}</div>` +
        `<pre tabindex="0" role="region" aria-label="${label}"><code>${escape(text)}</code></pre></div>`
      );
    },
    table(token) {
      const table = Renderer.prototype.table.call(this, token);
      return `<div class="wide" tabindex="0" role="region" aria-label="table">${table}</div>`;
    },
    heading({ tokens, depth }) {
      const level = Math.min(Math.max(depth + 1, 3), 6); // below the heading of the message
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    checkbox: ({ checked }) => `<span role="img" aria-label="${checked ? "done" : "open"}">${checked ? "☑" : "☐"}</span> `,
    // Other tags are shown as they were written: what looks like a part of this page is none.
    html: ({ text }) => (/^<\/?(br|sub|sup|kbd|b|i|s|u) *\/?>$/i.test(text.trim()) ? text : escape(text)),
  },
});

const ALLOWED = {
  ALLOWED_TAGS: [
    ..."p br hr h3 h4 h5 h6 ul ol li blockquote pre code em strong del a table thead tbody tr th td".split(" "),
    ..."div span button sup sub kbd b i s u".split(" "),
  ],
  ALLOWED_ATTR: "href class type align start tabindex role aria-label title".split(" "),
  ADD_URI_SAFE_ATTR: "type align start tabindex".split(" "), // the pattern of addresses is not for these
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

function escape(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (letter) => names[letter]);
}

/** HTML of each top-level block, so that a growing answer leaves its finished blocks alone. */
export function blocks(text) {
  const tokens = marked.lexer(text);
  return tokens.filter(({ type }) => type !== "space").map((token) => DOMPurify.sanitize(marked.parser([token]), ALLOWED));
}
