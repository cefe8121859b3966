"use strict";
// The view "Why no hit?": the answers of /v1/explain, at the end of the page. It needs nothing of the page but <main>.
// Clients choose the names in the answers: they become text, never markup.

(() => {
  const REFRESH = 5000;
  const ANSWER = 15000;
  const LAST = 20;

  const number = (x) => x.toLocaleString("en");
  const time = (ms) => new Date(ms).toLocaleTimeString("en-GB");

  function node(tag, text, name) {
    const out = document.createElement(tag);
    if (text !== undefined) out.textContent = text;
    if (name) out.className = name;
    return out;
  }

  const section = node("section");
  section.id = "explain";
  section.hidden = true;
  const title = node("h2", "Why no hit?");
  const note = node("p", "", "quiet");
  const list = node("ul");
  list.style.listStyle = "none";
  list.style.margin = "0";
  list.style.padding = "0";
  section.append(title, note, list);

  function found(x) {
    const tiers = [[x.memory, "in memory"], [x.disk, "on disk"], [x.peer, "from other nodes"]];
    const parts = tiers.filter(([n]) => n > 0).map(([n, where]) => number(n) + " " + where);
    return "found " + number(x.found) + " of " + number(x.asked) + " blocks" +
      (parts.length ? ": " + parts.join(", ") : "");
  }

  /// The sentences, each once: where several blocks may be the first that was missing, they are mostly the same.
  function reasons(x) {
    if (x.refused) return [x.refused.text];
    const place = x.each ? "a block" : "block " + number(x.found + 1);
    return [...new Set(x.ends.map((end) => place + ": " + end.text))];
  }

  function item(x) {
    const out = node("li");
    out.style.margin = "0 0 .5rem";
    out.style.overflowWrap = "anywhere";
    out.append(node("span", time(x.at_ms) + " ", "quiet"));
    out.append((x.client || "a client") + " in " + x.namespace + " " + found(x));
    out.title = x.id;
    for (const text of reasons(x)) out.append(node("div", text, "quiet"));
    return out;
  }

  function show(x) {
    section.hidden = false;
    note.textContent = !x.kept
      ? "This node keeps no lookups (registry.explain_lookups is 0)."
      : x.lookups.length === 0
        ? "No lookup yet."
        : "The last lookups, the newest first. Removals are known since " + time(x.events_since_ms) + ".";
    list.replaceChildren(...x.lookups.map(item));
  }

  async function refresh() {
    const main = document.querySelector("main");
    // The page is hidden while it has no data or no token: then this view has none either.
    if (main && !main.hidden) {
      if (section.parentNode !== main) main.append(section);
      const token = sessionStorage.getItem("troupe-token");
      try {
        const answer = await fetch("v1/explain?last=" + LAST, {
          headers: token ? { Authorization: "Bearer " + token } : {},
          cache: "no-store",
          signal: AbortSignal.timeout(ANSWER),
        });
        if (answer.ok) show(await answer.json());
        else section.hidden = true;
      } catch {
        // The page says when the node cannot be reached; what was shown stays.
      }
    }
    setTimeout(refresh, main && !main.hidden ? REFRESH : 200);
  }

  refresh();
})();
