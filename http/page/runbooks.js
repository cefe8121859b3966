"use strict";
// Shows a section of the runbooks, which the node serves as Markdown.

let runbooks_text = null;

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

/// Paragraphs, lists, tables and code blocks.
function blocks(markdown) {
  const out = [];
  for (const block of markdown.trim().split(/\n\s*\n/)) {
    const lines = block.split("\n");
    if (lines[0].startsWith("|")) out.push(table_of_markdown(lines));
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

async function show_runbook(anchor) {
  const panel = by("runbook");
  let section = null;
  let why = "This version has no such runbook.";
  try {
    if (runbooks_text === null) {
      const answer = await fetch("runbooks.md", { signal: AbortSignal.timeout(ANSWER_MS) });
      if (!answer.ok) throw new Error("HTTP " + answer.status);
      runbooks_text = await answer.text();
    }
    section = section_of(runbooks_text, anchor);
  } catch (e) {
    why = "Cannot get the runbook from the node: " + e.message + ".";
  }
  fill(by("runbook_title"), section ? section.title : anchor);
  fill(by("runbook_text"), ...(section ? blocks(section.text) : [element("p", {}, why)]));
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
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
  panel.addEventListener("click", (event) => {
    if (event.target === panel) panel.close(); // outside of its text
  });
  if (location.hash.length > 1) show_runbook(location.hash.slice(1));
}
