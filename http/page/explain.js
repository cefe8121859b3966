"use strict";
// The view "Why no hit?": the answers of /v1/explain, at the end of the page.
// Clients choose the names in the answers: they become text, never markup.

(() => {
  const LAST = 20;

  function found(x) {
    const tiers = [[x.memory, "in memory"], [x.disk, "on disk"], [x.peer, "from other nodes"]];
    const parts = tiers.filter(([n]) => n > 0).map(([n, where]) => count(n) + " " + where);
    return "found " + count(x.found) + " of " + count(x.asked) + " blocks" +
      (parts.length ? ": " + parts.join(", ") : "");
  }

  /// The sentences, each once: where several blocks may be the first that was missing, they are mostly the same.
  function reasons(x) {
    if (x.refused) return [x.refused.text];
    const place = x.each ? "a block" : "block " + count(x.found + 1);
    return [...new Set(x.ends.map((end) => place + ": " + end.text))];
  }

  function item(x) {
    return element("li", { title: x.id }, element("span", { class: "quiet" }, clock(x.at_ms / 1000) + " "),
      (x.client || "a client") + (x.request ? `, request ${x.request},` : "") + " in " + x.namespace + " " + found(x),
      ...reasons(x).map((text) => element("div", { class: "quiet" }, text)));
  }

  /// The names of the clients in the answers so far, as suggestions.
  const clients = new Set();

  function query() {
    const wanted = [["client", by("explain_client").value.trim()], ["request", by("explain_request").value.trim()]];
    return "v1/explain?last=" + LAST +
      wanted.filter(([, value]) => value).map(([name, value]) => `&${name}=${encodeURIComponent(value)}`).join("");
  }

  function show(x) {
    by("explain").hidden = false;
    for (const name of x.lookups.map((one) => one.client).filter(Boolean))
      if (!clients.has(name)) {
        clients.add(name);
        by("explain_clients").append(element("option", { value: name }));
      }
    by("explain_note").textContent = !x.kept
      ? "This node keeps no lookups (registry.explain_lookups is 0)."
      : x.lookups.length === 0
        ? (query().includes("&") ? "No such lookup among those that are kept." : "No lookup yet.")
        : "The last lookups, the newest first. Removals are known since " + clock(x.events_since_ms / 1000) + ".";
    fill(by("explain_list"), ...x.lookups.map(item));
  }

  /// Without an answer, what was shown stays: the page says that the node cannot be reached. (The code of a
  /// DOMException is small.)
  function fail(e, is_filtered) {
    if (!(e.code >= 400)) return;
    if (!is_filtered) {
      by("explain").hidden = true;
      return;
    }
    by("explain_note").textContent = e.message;
    fill(by("explain_list"));
  }

  let timer = null;

  async function refresh() {
    clearTimeout(timer);
    // The page is hidden while it has no data or no token: then this view has none either.
    const shown = !by("main").hidden;
    if (shown) {
      const asked = query();
      // The answer to what was wanted before is of no use.
      const is_wanted = () => asked === query();
      try {
        const answer = await ask(asked);
        if (is_wanted()) show(answer);
      } catch (e) {
        if (is_wanted()) fail(e, asked.includes("&"));
      }
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, shown ? REFRESH_MS : 200);
  }

  for (const id of ["explain_client", "explain_request"]) by(id).addEventListener("change", refresh);
  refresh();
})();
