"use strict";
// Shows a section of the runbooks, or the glossary, which the node serves as Markdown.

/// The text of each file that was asked for.
const markdown_files = new Map();

/// Code, bold text and links in a line of Markdown. Other pages of the documentation are not served: they are named.
function inline(text) {
  const out = [];
  const pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[((?:`[^`]*`|[^\]])+)\]\(([^)]+)\)/g;
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    out.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    if (found[1] !== undefined) out.push(element("code", {}, found[1]));
    else if (found[2] !== undefined) out.push(element("b", {}, ...inline(found[2])));
    else if (found[3] !== undefined) out.push(element("i", {}, ...inline(found[3])));
    else if (found[5].startsWith("#")) out.push(runbook_link(found[5].slice(1), found[4]));
    else out.push(...inline(found[4]), ` (docs/${found[5]})`);
  }
  out.push(text.slice(last));
  return out;
}

function table_of_markdown(lines) {
  const cells = (row) => row.replace(/^\||\|$/g, "").split("|").map((x) => x.trim());
  const rows = lines.filter((row) => !/^\|[\s|:-]+\|$/.test(row)).map(cells);
  const made_row = (tag, row) => element("tr", {}, ...row.map((x) => element(tag, {}, ...inline(x))));
  return element("table", { class: "prose" }, element("thead", {}, made_row("th", rows[0])),
                 element("tbody", {}, ...rows.slice(1).map((row) => made_row("td", row))));
}

/// Headings, paragraphs, lists, tables and code blocks.
function blocks(markdown) {
  const out = [];
  for (const block of markdown.trim().split(/\n\s*\n/)) {
    const lines = block.split("\n");
    const heading = lines[0].match(/^##+ (.*)$/);
    if (heading) out.push(element("h3", {}, ...inline(heading[1])));
    else if (lines[0].startsWith("|")) out.push(table_of_markdown(lines));
    else if (lines[0].startsWith("    ") || lines[0].startsWith("```"))
      out.push(element("pre", {},
                       lines.filter((x) => !x.startsWith("```")).map((x) => x.replace(/^ {4}/, "")).join("\n")));
    else if (lines[0].startsWith("- "))
      out.push(element("ul", {}, ...block.slice(2).split("\n- ").map((x) =>
        element("li", {}, ...inline(x.replace(/\n\s+/g, " "))))));
    else out.push(element("p", {}, ...inline(lines.join(" "))));
  }
  return out;
}

/// The text below a heading, up to the next one.
function section_of(markdown, anchor) {
  const name = (heading) => heading.toLowerCase().replace(/[^\w\- ]/g, "").replace(/ /g, "-");
  let lines = null;
  let title = "";
  for (const row of markdown.split("\n")) {
    const heading = row.match(/^#+ (.*)$/);
    if (heading && lines) break;
    if (heading && name(heading[1]) === anchor) {
      lines = [];
      title = heading[1];
    } else if (lines) {
      lines.push(row);
    }
  }
  return lines && { title, text: lines.join("\n") };
}

async function markdown_file(name) {
  if (!markdown_files.has(name)) {
    const answer = await fetch(name, { signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    markdown_files.set(name, await answer.text());
  }
  return markdown_files.get(name);
}

function show_text(title, ...content) {
  const panel = by("runbook");
  fill(by("runbook_title"), title);
  fill(by("runbook_text"), ...content);
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
}

async function show_runbook(anchor) {
  let section = null;
  let why = "This version has no such runbook.";
  try {
    section = section_of(await markdown_file("runbooks.md"), anchor);
  } catch (e) {
    why = "Cannot get the runbook from the node: " + e.message + ".";
  }
  if (section) show_text(section.title, ...blocks(section.text));
  else show_text(anchor, element("p", {}, why));
}

async function show_glossary() {
  try {
    const [title, ...rest] = (await markdown_file("glossary.md")).trim().split("\n");
    show_text(title.replace(/^# /, ""), ...blocks(rest.join("\n")));
  } catch (e) {
    show_text("Glossary", element("p", {}, "Cannot get the glossary from the node: " + e.message + "."));
  }
}

function runbook_link(anchor, text) {
  const out = element("a", { href: "#" + anchor }, text);
  out.addEventListener("click", (event) => {
    event.preventDefault();
    show_runbook(anchor);
  });
  return out;
}

function listen_for_runbooks() {
  const panel = by("runbook");
  by("runbook_close").addEventListener("click", () => panel.close());
  by("glossary").addEventListener("click", show_glossary);
  panel.addEventListener("click", (event) => {
    if (event.target === panel) panel.close(); // outside of its text
  });
  if (location.hash.length > 1) show_runbook(location.hash.slice(1));
}
