"use strict";
// Draws the answers of /v1/status, /v1/config and /v1/log. Clients choose the names in them: they become text, never
// markup.

const REFRESH_MS = 5000;
const ANSWER_MS = 15000;
const TOKEN = "troupe-token";
const STATES = ["live", "reserved", "quarantined", "free"];
const SVG = "http://www.w3.org/2000/svg";

const by = (id) => document.getElementById(id);

function fill(parent, ...children) {
  parent.replaceChildren(...children);
  return parent;
}

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const element = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

// -- numbers as text ---------------------------------------------------------------------------------------------------

function scaled(x, units, base) {
  let i = 0;
  while (Math.abs(x) >= base && i + 1 < units.length) {
    x /= base;
    i += 1;
  }
  return (x >= 100 || Number.isInteger(x) ? x.toFixed(0) : x.toPrecision(3)) + units[i];
}

const bytes = (x) => scaled(x, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
const count = (x) => x.toLocaleString("en");
const rate = (x) => scaled(x, ["", " k", " M", " G"], 1000) + "/s";
const percent = (x) => (x === null || x === undefined ? "–" : (100 * x).toFixed(1) + " %");
const gbps = (x) => (x === 0 || x >= 0.01 ? x.toFixed(2) : x.toPrecision(1)) + " GB/s";
const micros = (x) => (x >= 1000 ? (x / 1000).toFixed(1) + " ms" : x.toFixed(x < 10 ? 1 : 0) + " µs");

function span(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

// -- charts ------------------------------------------------------------------------------------------------------------

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 64;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

/// A round number that is not below `x`.
function ceiling(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= x * 0.999999) return step * power;
  return 10 * power;
}

/// Missing values and times without samples are gaps.
function path(times, values, x, y, longest) {
  let out = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null || (i > 0 && times[i] - times[i - 1] > longest)) pen = "M";
    if (value === null) return;
    out += pen + x(times[i]).toFixed(1) + " " + y(value).toFixed(1);
    pen = "L";
  });
  return out;
}

function chart(title, times, series, write, options) {
  const end = times.length ? times[times.length - 1] : Date.now() / 1000;
  const begin = end - 3600;
  const largest = Math.max(0, ...series.flatMap((s) => s.values.filter((v) => v !== null)));
  const most = (options && options.most) || ceiling(largest);
  const x = (t) => LEFT + ((t - begin) / 3600) * (WIDTH - LEFT - RIGHT);
  const y = (v) => HEIGHT - BOTTOM - (v / most) * (HEIGHT - TOP - BOTTOM);
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const share of [0, 0.5, 1]) {
    const at = y(share * most);
    picture.append(
      drawn("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
      drawn("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, write(share * most)));
  }
  for (let t = Math.ceil(begin / 900) * 900; t <= end; t += 900)
    picture.append(drawn("text", { class: "tick", x: x(t), y: HEIGHT - 5, "text-anchor": "middle" }, clock(t)));
  for (const s of series)
    picture.append(drawn("path", { class: "series " + s.name_of_class, d: path(times, s.values, x, y, 35) }));

  const values = element("span", { class: "values" });
  const say = (i) => {
    const parts = series.map((s) => {
      const value = i < 0 || s.values[i] === null || s.values[i] === undefined ? "–" : write(s.values[i]);
      return [element("span", { class: "key " + s.name_of_class }, s.label + " "), value];
    });
    fill(values, ...parts.flatMap((p, k) => (k ? [", ", ...p] : p)), i < 0 ? "" : " at " + clock(times[i]));
  };
  say(times.length - 1);
  const cursor = drawn("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  picture.append(cursor);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const t = begin + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * 3600;
    let best = -1;
    times.forEach((at, i) => {
      if (best < 0 || Math.abs(at - t) < Math.abs(times[best] - t)) best = i;
    });
    if (best < 0) return;
    cursor.setAttribute("x1", x(times[best]));
    cursor.setAttribute("x2", x(times[best]));
    cursor.setAttribute("visibility", "visible");
    say(best);
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    say(times.length - 1);
  });
  return element("figure", {}, element("figcaption", {}, element("b", {}, title), values), picture);
}

const line = (label, name_of_class, values) => ({ label, name_of_class, values });

function charts(h) {
  const per_second = (values) => values.map((v, i) => (h.seconds[i] > 0 ? v / h.seconds[i] : null));
  const gigabytes = (values) => per_second(values).map((v) => (v === null ? null : v / 1e9));
  const quiet = (values) => values.map((v, i) => (h.lookups[i] > 0 ? v : null));
  const ratio = h.found_keys.map((v, i) => (h.asked_keys[i] > 0 ? Math.min(1, v / h.asked_keys[i]) : null));
  return [
    chart("Hit ratio", h.at, [line("found of requested", "one", ratio)], percent, { most: 1 }),
    chart("Throughput", h.at,
          [line("load", "one", gigabytes(h.loaded_bytes)), line("save", "two", gigabytes(h.saved_bytes))], gbps),
    chart("Lookup latency", h.at,
          [line("p50", "one", quiet(h.lookup_p50_us)), line("p99", "two", quiet(h.lookup_p99_us))], micros),
    chart("Lookups", h.at, [line("lookups", "one", per_second(h.lookups))], rate),
    chart("Evictions", h.at, [line("keys", "one", per_second(h.evicted_keys))], rate),
  ];
}

// -- slots -------------------------------------------------------------------------------------------------------------

const COLUMNS = 64;
const ROWS = 4;

/// Cells for each state, in proportion; a state with at least one slot gets at least one cell.
function cells(slots) {
  const all = COLUMNS * ROWS;
  const out = [];
  if (slots.total === 0) return out;
  for (const state of STATES.slice(0, -1)) {
    const share = slots[state] ? Math.max(1, Math.round((slots[state] / slots.total) * all)) : 0;
    for (let i = 0; i < share && out.length < all; ++i) out.push(state);
  }
  while (out.length < all) out.push("free");
  return out;
}

function map(slots, title) {
  const size = 10;
  const picture = drawn("svg", { viewBox: `0 0 ${COLUMNS * size} ${ROWS * size}`, role: "img", "aria-label": title });
  cells(slots).forEach((state, i) => {
    // Column by column, so that a state is a block.
    const x = Math.floor(i / ROWS) * size;
    const y = (i % ROWS) * size;
    picture.append(drawn("rect", { class: state, x, y, width: size - 1.5, height: size - 1.5, rx: 1.5 }));
  });
  return picture;
}

function legend() {
  return STATES.map((state) => element("li", {},
    drawn("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
          drawn("rect", { class: state, width: 10, height: 10, rx: 2 })), state));
}

function ranks(list) {
  return list.flatMap((ns) => ns.ranks.map((rank) => {
    const name = `${ns.name}, rank ${rank.rank}`;
    const said = STATES.map((state) => `${count(rank.slots[state])} ${state}`).join(", ");
    const kept = rank.kept_by === "engine" ? " in a file of its engine" : "";
    return element("div", { class: "rank" }, element("h3", {}, name),
                   element("div", { class: "quiet" }, `${count(rank.slots.total)} slots${kept}: ${said}`),
                   map(rank.slots, `${name}: ${said}`));
  }));
}

// -- tables ------------------------------------------------------------------------------------------------------------

function table(head, rows, nothing) {
  const cells_of = (tag, row) => row.map((x) => element(tag, {}, String(x)));
  const body = rows.map((row) => element("tr", {}, ...cells_of("td", row)));
  if (!rows.length) body.push(element("tr", {}, element("td", { colspan: head.length }, nothing)));
  return [element("thead", {}, element("tr", {}, ...cells_of("th", head))), element("tbody", {}, ...body)];
}

function tiers(x) {
  const share = (part, whole) => (whole > 0 ? percent(part / whole) : "–");
  const t = x.tiers;
  const alone = t.memory.memory_only_pages > 0 ? `, ${count(t.memory.memory_only_pages)} in memory only` : "";
  return table(["tier", "pages", "bytes", "of", "used", ""], [
    ["memory", count(t.memory.pages), bytes(t.memory.bytes), bytes(t.memory.limit_bytes),
     share(t.memory.assigned_bytes, t.memory.limit_bytes), `${count(t.memory.dirty_pages)} dirty${alone}; ${x.node.memory}`],
    ["disk", count(t.disk.pages), bytes(t.disk.bytes), bytes(t.disk.limit_bytes),
     share(t.disk.bytes, t.disk.limit_bytes), "slabs: " + x.node.slabs],
    ["index", count(x.registry.keys) + " keys", bytes(t.index.bytes), bytes(t.index.limit_bytes),
     share(t.index.bytes, t.index.limit_bytes), "durability: " + x.node.durability],
  ], "");
}

function namespaces(list) {
  return table(
    ["name", "model", "ranks", "page", "keys", "room for", "leases", "hit ratio", "lookups", "load", "save", "evicted"],
    list.map((s) => {
      const m = s.last_minute;
      const each = (v) => rate(m.seconds > 0 ? v / m.seconds : 0);
      const most = s.capacity.bounded_by ? `${count(s.capacity.keys)} (${s.capacity.bounded_by})` : "–";
      return [s.name, s.model, s.ranks.length, bytes(s.page_bytes), count(s.keys), most, count(s.leases),
              percent(m.hit_ratio), each(m.lookups), gbps(m.load_gbps), gbps(m.save_gbps), each(m.evicted_keys)];
    }),
    "none yet: clients create them, or the config names them");
}

function clients(list) {
  return table(["client", "namespace", "process", "attached for"],
    list.map((c) => [c.name, c.namespace, c.elsewhere ? "on another host" : c.process, span(c.attached_s)]),
    "no client is attached");
}

// -- the page ----------------------------------------------------------------------------------------------------------

function tiles(x) {
  const m = x.last_minute;
  const each = (v) => rate(m.seconds > 0 ? v / m.seconds : 0);
  const all = [
    ["hit ratio", percent(m.hit_ratio)], ["lookups", each(m.lookups)], ["lookup p99", micros(m.lookup_p99_us)],
    ["load", gbps(m.load_gbps)], ["save", gbps(m.save_gbps)], ["evictions", each(m.evicted_keys)],
    ["keys", count(x.registry.complete_keys)], ["leases", count(x.registry.leases)],
    ["clients", count(x.clients.attached)],
  ];
  return all.map(([name, value]) =>
    element("div", { class: "tile" }, element("span", {}, name), element("strong", {}, value)));
}

function warnings(list) {
  return list.map((w) => element("li", { class: w.severity }, element("b", {}, w.reason), w.text, " ",
                                 element("span", { class: "quiet" }, "→ " + w.runbook)));
}

function show(x) {
  document.title = `${x.node.name} – Troupe`;
  by("name").textContent = x.node.name;
  by("health").textContent = x.health;
  by("health").className = "pill " + x.health;
  by("facts").textContent = `troupe ${x.node.version} (${x.node.commit}), up for ${span(x.node.uptime_s)}, ` +
                            `process ${x.node.process}, in ${x.node.data_dir}`;
  fill(by("warnings"), ...warnings(x.warnings));
  fill(by("tiles"), ...tiles(x));
  fill(by("charts"), ...charts(x.history));
  fill(by("legend"), ...legend());
  fill(by("ranks"), ...ranks(x.namespaces));
  if (!by("ranks").hasChildNodes()) by("ranks").append("No rank has slots yet.");
  fill(by("tiers"), ...tiers(x));
  fill(by("namespaces"), ...namespaces(x.namespaces));
  fill(by("clients"), ...clients(x.clients.list));
  by("updated").textContent = "As of " + new Date(x.node.now).toLocaleString() + ".";
  by("main").hidden = false;
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

async function refresh() {
  try {
    show(await ask("v1/status"));
    by("trouble").hidden = true;
    by("ask").hidden = true;
    by("forget").hidden = !sessionStorage.getItem(TOKEN);
    await refresh_rest();
  } catch (e) {
    if (e.code === 401 || e.code === 403) {
      const had = sessionStorage.getItem(TOKEN);
      sessionStorage.removeItem(TOKEN);
      ask_for_token(had ? "This token was rejected: " + e.message : "");
      return;
    }
    by("health").textContent = "unreachable";
    by("health").className = "pill unreachable";
    const why = e.name === "TimeoutError" ? "no answer for " + ANSWER_MS / 1000 + " s" : e.message;
    by("trouble").textContent = "Cannot reach the node: " + why + ". The page shows older data; see the time below.";
    by("trouble").hidden = false;
  }
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
refresh();
