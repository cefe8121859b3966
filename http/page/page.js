"use strict";
// Draws the answers of /v1/status, /v1/config and /v1/log.

const REFRESH_MS = 5000;
const ANSWER_MS = 15000;
const TOKEN = "troupe-token";
const RANGE = "troupe-range";
const STATES = ["live", "reserved", "quarantined", "free"];

// -- bars -------------------------------------------------------------------------------------------------------------

/// A stacked bar. Each part is drawn with at least a pixel or two if it is there at all.
function bar(parts, whole, title) {
  const picture = drawn("svg", { class: "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img",
                                 "aria-label": title });
  picture.append(drawn("rect", { class: "free", x: 0, y: 0, width: 1000, height: 10 }));
  let at = 0;
  for (const [style, amount] of parts) {
    if (!(amount > 0) || !(whole > 0)) continue;
    const width = Math.min(Math.max((amount / whole) * 1000, 4), 1000 - at);
    picture.append(drawn("rect", { class: style, x: at, y: 0, width, height: 10 }));
    at += width;
  }
  return picture;
}

function legend() {
  return STATES.map((state) => element("li", {},
    drawn("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
          drawn("rect", { class: state, width: 10, height: 10, rx: 2 })), state));
}

// -- tables -----------------------------------------------------------------------------------------------------------

/// `columns`: names; one that begins with "#" is of numbers. A cell is a text or an element. On a narrow screen each
/// row is a block, with the name of the column beside each value.
function table(columns, rows, nothing) {
  if (!rows.length) return element("p", { class: "quiet" }, nothing);
  const is_number = columns.map((x) => x.startsWith("#"));
  const names = columns.map((x) => x.replace("#", ""));
  const style = (i) => (is_number[i] ? { class: "number" } : {});
  const head = element("tr", {}, ...names.map((x, i) => element("th", style(i), x)));
  const body = rows.map((row) => element("tr", {}, ...row.map((x, i) =>
    element("td", { ...style(i), "data-label": names[i] }, element("span", { class: "cell" }, x)))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

const with_note = (text, note) => element("span", {}, text, element("span", { class: "quiet" }, note));

function facts(list) {
  return element("div", { class: "facts" }, ...list.map(([name, value]) =>
    element("div", {}, element("span", {}, name), element("b", {}, value))));
}

function details(summary, ...children) {
  return element("details", {}, element("summary", {}, summary), ...children);
}

// -- storage ----------------------------------------------------------------------------------------------------------

function meter(name, used, limit, text) {
  const said = limit > 0 ? `${bytes(used)} of ${bytes(limit)} (${share(used, limit)})` : "none";
  return element("div", { class: "meter" }, element("b", {}, name), bar([["live", used]], limit, `${name}: ${said}`),
                 element("div", { class: "text" }, limit > 0 ? `${said}, ${text}` : said));
}

function tiers(x) {
  const { memory, disk, index } = x.tiers;
  const waiting = disk.capacity_bytes > 0 ? `, ${count(memory.dirty_pages)} not yet on disk` : "";
  const alone = memory.memory_only_pages > 0 ? `, ${count(memory.memory_only_pages)} in memory only` : "";
  return [
    meter("Memory", memory.bytes, memory.limit_bytes,
          `${counted(memory.pages, "page", "pages")}${waiting}${alone}; ` +
          `${bytes(memory.assigned_bytes)} assigned to ranks`),
    meter("Disk", disk.bytes, disk.capacity_bytes,
          `${counted(disk.pages, "page", "pages")}; slab files of ${bytes(disk.limit_bytes)} now`),
    meter("Index", index.bytes, index.limit_bytes, `${counted(x.registry.keys, "key", "keys")}`),
  ];
}

// -- namespaces -------------------------------------------------------------------------------------------------------

const slots_text = (slots) => `${count(slots.live)} of ${count(slots.total)} slots`;

function slots_title(name, slots) {
  return `${name}: ${STATES.map((state) => `${count(slots[state])} ${state}`).join(", ")}`;
}

function rank_bar(ns, rank) {
  const parts = STATES.slice(0, -1).map((state) => [state, rank.slots[state]]);
  // A slab file that grows has fewer slots now than it will have.
  const whole = Math.max(rank.slots.total, ns.capacity.keys);
  return bar(parts, whole, slots_title(`${ns.name}, rank ${rank.rank}`, rank.slots));
}

/// A bar for each rank. Where all ranks are equal, one sentence has their numbers.
function ranks(ns) {
  const list = ns.ranks;
  if (!list.length) return element("p", { class: "quiet" }, "No rank has slots yet.");
  const first = list[0].slots;
  const equal = list.length > 1 &&
                list.every((r) => !r.damaged && STATES.every((s) => r.slots[s] === first[s]));
  const parts = list.flatMap((rank) => {
    const label = element("span", {}, `rank ${rank.rank} `);
    if (rank.damaged) label.append(element("span", { class: "tag" }, "damaged"));
    const picture = rank_bar(ns, rank);
    if (!equal) return [label, picture, element("span", { class: "said" }, slots_text(rank.slots))];
    picture.classList.add("long");
    return [label, picture];
  });
  const said = equal ? [element("div", { class: "only" }, `${list.length} ranks, ${slots_text(first)} each`)] : [];
  return element("div", { class: "ranks" }, ...said, ...parts);
}

function ranks_table(ns) {
  const rows = ns.ranks.map((r) => {
    const m = r.last_minute || { load_gbps: 0, save_gbps: 0, memory_pages: 0, disk_pages: 0 };
    const own = (part, key) => (r[part] ? bytes(r[part][key]) : "–");
    return [String(r.rank), slots_title("", r.slots).slice(2), own("memory", "bytes"), own("disk", "bytes"),
            speed(m.load_gbps), share(m.memory_pages, m.memory_pages + m.disk_pages), speed(m.save_gbps),
            r.disk ? count(r.disk.transfers) : "–"];
  });
  return details("Each rank", table(
    ["rank", "slots", "#in memory", "#on disk", "#load", "#of it memory", "#save", "#disk queue"], rows, ""));
}

function namespace_card(ns) {
  const m = ns.last_minute;
  const each = (v) => rate(m.seconds > 0 ? v / m.seconds : 0);
  const room = ns.capacity.bounded_by ? `${count(ns.capacity.keys)} keys (${ns.capacity.bounded_by})` : "–";
  const kept = ns.ranks.some((r) => r.kept_by === "engine") ? ", pages in files of its engine" : "";
  const left_out = ns.ranks_omitted > 0 ? [element("p", { class: "quiet" }, `and ${ns.ranks_omitted} more ranks`)] : [];
  return element("article", { class: "card" },
    element("h3", {}, ns.name),
    element("div", { class: "quiet" }, `${ns.model}, pages of ${bytes(ns.page_bytes)}${kept}`),
    facts([["hit ratio", percent(m.hit_ratio)], ["lookups", each(m.lookups)], ["load", speed(m.load_gbps)],
           ["save", speed(m.save_gbps)], ["evicted", each(m.evicted_keys)], ["keys", count(ns.complete_keys)],
           ["room for", room], ["leases", count(ns.leases)]]),
    ranks(ns), ...left_out, ranks_table(ns));
}

// -- cluster and clients ----------------------------------------------------------------------------------------------

function cluster(x) {
  const c = x.cluster;
  const state = (node) => (node.trouble ? with_note(node.state, node.trouble) : node.state);
  const own = (node, value) => (node.state === "self" ? "–" : value);
  const files = (node) => (node.file_pages > 0 ?
    with_note(count(node.pages), `${count(node.file_pages)} from its files`) : count(node.pages));
  const out = [table(
    ["node", "address", "state", "#lag", "#pages fetched", "#bytes fetched", "#pages served", "#bytes served",
     "#learned keys"],
    c.nodes.map((node) => [
      node.node || "?", node.address, state(node), node.state === "up" ? micros(node.lag_us) : "–",
      own(node, files(node)), own(node, bytes(node.bytes)), own(node, count(node.served_pages)),
      own(node, bytes(node.served_bytes)), own(node, count(node.learned_keys))]),
    "no other node is known"),
    element("p", { class: "quiet" }, `protocol ${c.protocol} between nodes`)];
  if (c.etcd) {
    const listed = counted(c.etcd.listed, "node is", "nodes are");
    const text = `etcd at ${c.etcd.endpoints}: ${c.etcd.state}, ${listed} listed`;
    out.push(element("p", { class: "quiet" }, c.etcd.trouble ? `${text}; ${c.etcd.trouble}` : text));
  }
  if (c.adopted)
    out.push(element("h3", {}, "Directories of dead nodes"), table(
      ["node", "claim", "#keys", "#pages read", "#bytes read", "#failed"],
      c.adopted.map((a) => [a.node, a.own ? "this node" : "another node", count(a.keys), count(a.pages), bytes(a.bytes),
                            count(a.failed)]), ""));
  return out;
}

function clients(list) {
  return table(["client", "namespace", "process", "attached for", "#load", "#save", "#loaded", "#saved"],
    list.map((c) => [
      c.name, c.namespace, c.is_node ? "another node" : c.elsewhere ? "on another host" : String(c.process),
      span(c.attached_s), speed(c.last_minute.load_gbps), speed(c.last_minute.save_gbps), bytes(c.loaded_bytes),
      bytes(c.saved_bytes)]),
    "no client is attached");
}

function lmcache_clients(list) {
  return table(["client", "process", "version", "#requests", "#malformed"],
    list.map((c) => [c.name || String(c.client), c.process ? String(c.process) : "–", c.version, count(c.requests),
                     count(c.malformed)]), "no client is connected");
}

// -- the page ---------------------------------------------------------------------------------------------------------

/// Their number is a multiple of the numbers of columns in page.css, so that they fill their rows.
/// The hit ratio of the last minute; without lookups in it, that of the range that charts show, as it says.
function hit_ratio(x) {
  const now = x.last_minute.hit_ratio, h = x.history;
  if (now !== null || !h) return ["hit ratio", percent(now)];
  const begin = Date.parse(x.node.now) / 1000 - range.seconds;
  const sum = (values) => values.reduce((all, v, i) => all + (h.at[i] >= begin ? v : 0), 0);
  return [`hit ratio, ${range.name}`, share(sum(h.found_keys), sum(h.asked_keys))];
}

function tiles(x) {
  const m = x.last_minute;
  const each = (v) => rate(m.seconds > 0 ? v / m.seconds : 0);
  const time = (v) => (v > 0 ? micros(v) : "–");
  const all = [
    hit_ratio(x), ["lookups", each(m.lookups)], ["lookup p99", time(m.lookup_p99_us)],
    ["load", speed(m.load_gbps)], ["save", speed(m.save_gbps)],
    ["loaded from memory", share(m.memory_pages, m.memory_pages + m.disk_pages)],
    ["load p99, memory", time(m.memory_load_p99_us)], ["load p99, disk", time(m.disk_load_p99_us)],
    ["evictions", each(m.evicted_keys)], ["keys", count(x.registry.complete_keys)],
    ["memory used", share(x.tiers.memory.bytes, x.tiers.memory.limit_bytes)], ["clients", count(x.clients.attached)],
  ];
  return all.map(([name, value]) =>
    element("div", { class: "tile" }, element("span", {}, name), element("strong", {}, value)));
}

function warnings(list) {
  return list.map((w) => element("li", { class: w.severity }, element("b", {}, w.reason), w.text, " ",
                                 runbook_link(w.runbook.split("#")[1] || w.reason, "What to do")));
}

function about(x) {
  return table(["", ""], [
    ["version", `troupe ${x.node.version} (${x.node.commit}), protocol ${x.node.protocol}`],
    ["process", `${x.node.process}, started ${moment(x.node.started)}`],
    ["data_dir", x.node.data_dir], ["memory", x.node.memory], ["slabs", x.node.slabs],
    ["durability of the index", x.node.durability],
  ], "");
}

let newest = null;
let range = RANGES.find((r) => r.name === sessionStorage.getItem(RANGE)) || RANGES[2];

function show_charts() {
  if (newest && newest.history) draw_charts(by("charts"), by("chosen"), newest, range);
}

function show_ranges() {
  fill(by("ranges"), ...RANGES.map((r) => {
    const out = element("button", { type: "button", "aria-pressed": String(r === range) }, r.name);
    out.addEventListener("click", () => {
      range = r;
      sessionStorage.setItem(RANGE, r.name);
      show_ranges();
      refresh_status();
    });
    return out;
  }));
}

/// Replaces the content, and keeps open what the reader has opened.
function renew(parent, ...children) {
  const open = [...parent.querySelectorAll("details")].map((d) => d.open);
  fill(parent, ...children);
  parent.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
}

function show(x) {
  newest = x;
  document.title = `${x.node.name} – Troupe`;
  by("name").textContent = x.node.name;
  by("health").textContent = x.health;
  by("health").className = "pill " + x.health;
  by("facts").textContent = `up for ${span(x.node.uptime_s)}`;
  fill(by("warnings"), ...warnings(x.warnings));
  fill(by("tiles"), ...tiles(x));
  by("main").hidden = false;
  show_charts();
  fill(by("tiers"), ...tiers(x));
  const nothing = element("p", { class: "quiet" }, "none yet: clients create them, or the config names them");
  const cards = x.namespaces.map(namespace_card);
  if (x.namespaces_omitted > 0)
    cards.push(element("p", { class: "quiet" }, `and ${x.namespaces_omitted} more namespaces`));
  renew(by("namespaces"), ...(cards.length ? cards : [nothing]));
  by("cluster_section").hidden = !x.cluster;
  if (x.cluster) {
    by("cluster_name").textContent = `Cluster ${x.cluster.cluster}`;
    fill(by("cluster"), ...cluster(x));
  }
  fill(by("clients"), clients(x.clients.list));
  by("lmcache_section").hidden = !x.lmcache;
  if (x.lmcache) fill(by("lmcache"), lmcache_clients(x.lmcache.clients));
  fill(by("about"), about(x));
  by("updated").textContent = `As of ${moment(x.node.now)}.`;
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN);
  // A stopped process accepts connections but never answers.
  const answer = await fetch(path, {
    headers: token ? { Authorization: "Bearer " + token } : {},
    cache: "no-store",
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(body.detail || "HTTP " + answer.status), { code: answer.status });
}

function ask_for_token(why) {
  by("ask").hidden = false;
  by("main").hidden = true;
  by("health").textContent = "needs a token";
  if (why) by("ask_why").textContent = why;
}

async function refresh_rest() {
  const with_text = async (id, path, text) => {
    const pre = by(id);
    try {
      const at_end = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
      pre.textContent = text(await ask(path));
      if (at_end) pre.scrollTop = pre.scrollHeight;
    } catch (e) {
      pre.textContent = e.code === 401 || e.code === 403 ? "Needs a token of role admin." : e.message;
    }
  };
  await with_text("log", "v1/log", (x) => x.lines.join("\n"));
  await with_text("config", "v1/config", (x) => JSON.stringify(x, null, 2));
}

/// What a failed request says; the browser's own words differ from browser to browser.
function reason_of(e) {
  if (e.name === "TimeoutError") return "no answer for " + ANSWER_MS / 1000 + " s";
  return e.name === "TypeError" ? "connection failed" : e.message;
}

/// Shows why there is no answer; returns whether there is a use in asking again.
function fail_to_refresh(e) {
  if (e.code === 401 || e.code === 403) {
    const had = sessionStorage.getItem(TOKEN);
    sessionStorage.removeItem(TOKEN);
    ask_for_token(had ? "This token was rejected: " + e.message : "");
    return false;
  }
  by("health").textContent = "unreachable";
  by("health").className = "pill unreachable";
  const since = newest ? ` Showing data from ${moment(newest.node.now)}.` : "";
  by("trouble").textContent = `Cannot reach the node (${reason_of(e)}).${since}`;
  by("trouble").hidden = false;
  return true;
}

/// Returns whether there is a use in asking again.
async function refresh_status() {
  let answer;
  try {
    answer = await ask(range.seconds > 3600 ? "v1/status?history=long" : "v1/status");
  } catch (e) {
    return fail_to_refresh(e);
  }
  show(answer);
  by("trouble").hidden = true;
  by("ask").hidden = true;
  by("forget").hidden = !sessionStorage.getItem(TOKEN);
  return true;
}

async function refresh() {
  if (!(await refresh_status())) return;
  if (by("trouble").hidden) await refresh_rest();
  setTimeout(refresh, REFRESH_MS);
}

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, by("token").value.trim());
  by("token").value = "";
  refresh();
});
by("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  location.reload();
});
addEventListener("resize", show_charts);
show_ranges();
fill(by("legend"), ...legend());
listen_for_runbooks();
refresh();
