"use strict";
// The charts of the history: all of one range of time, with one cursor.

const HEIGHT = 190;
const LEFT = 66;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;
/// The least time that the axis shows, for a node that has just started.
const SHORTEST = 60;

const RANGES = [
  { name: "5 min", seconds: 300 },
  { name: "15 min", seconds: 900 },
  { name: "1 h", seconds: 3600 },
  { name: "6 h", seconds: 21600 },
];

/// A round number that is not below `x`.
function ceiling(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= x * 0.999999) return step * power;
  return 10 * power;
}

/// The times of the labels below a chart that is `columns` labels wide at most.
function ticks(begin, end, columns) {
  const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
  const step = steps.find((s) => (end - begin) / s <= columns) || 14400;
  const out = [];
  for (let t = Math.ceil(begin / step) * step; t <= end; t += step) out.push(t);
  return { times: out, write: step < 60 ? clock : minute };
}

/// Missing values and times without samples are gaps. A value between two gaps is a dot, which is drawn apart, larger.
function paths(frame, values, y) {
  const { times, x, longest } = frame;
  const breaks = (i) => i < 0 || i >= values.length || values[i] === null;
  const far = (i) => times[i] - times[i - 1] > longest;
  let lines = "", dots = "";
  values.forEach((value, i) => {
    if (value === null) return;
    const begins = breaks(i - 1) || far(i);
    const at = x(times[i]).toFixed(1) + " " + y(value).toFixed(1);
    if (begins && (breaks(i + 1) || far(i + 1))) dots += "M" + at + "h0.01";
    else lines += (begins ? "M" : "L") + at;
  });
  return { lines, dots };
}

/// What all charts of a range share: the samples in it, and the axis of time. The axis begins with the node.
function frame_of(history, range, started, now, width) {
  const longest = history.interval_s * 3.5;
  const end = Math.max(now, started + SHORTEST);
  const begin = Math.max(end - range.seconds, started);
  const first = history.at.findIndex((t) => t >= begin);
  const from = first < 0 ? history.at.length : first;
  const cut = {};
  for (const [name, column] of Object.entries(history)) if (Array.isArray(column)) cut[name] = column.slice(from);
  const x = (t) => LEFT + ((t - begin) / (end - begin)) * (width - LEFT - RIGHT);
  const time_at = (at) => begin + ((at - LEFT) / (width - LEFT - RIGHT)) * (end - begin);
  return { times: cut.at, columns: cut, begin, end, width, longest, x, time_at };
}

function chart(frame, title, series, write, most) {
  const { width, times } = frame;
  const values = element("span", { class: "values" });
  const caption = element("figcaption", {}, element("b", {}, title), values);
  const largest = Math.max(0, ...series.flatMap((s) => s.values.filter((v) => v !== null)));
  const top = most || ceiling(largest);
  const y = (v) => HEIGHT - BOTTOM - (v / top) * (HEIGHT - TOP - BOTTOM);
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const part of [0, 0.5, 1]) {
    const at = y(part * top);
    picture.append(
      drawn("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      drawn("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, write(part * top)));
  }
  const labels = ticks(frame.begin, frame.end, Math.max(2, Math.floor((width - LEFT) / 58)));
  // A label at an end would not fit.
  for (const t of labels.times.filter((at) => frame.x(at) > LEFT + 12 && frame.x(at) < width - RIGHT - 14))
    picture.append(
      drawn("text", { class: "tick", x: frame.x(t), y: HEIGHT - 6, "text-anchor": "middle" }, labels.write(t)));
  for (const s of series) {
    const { lines, dots } = paths(frame, s.values, y);
    picture.append(drawn("path", { class: "series " + s.style, d: lines }));
    if (dots) picture.append(drawn("path", { class: "series dots " + s.style, d: dots }));
  }
  const cursor = drawn("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  picture.append(cursor);

  /// Shows the values of sample `i`; -1: of none.
  const say = (i) => {
    const parts = series.map((s) => {
      const value = i < 0 || s.values[i] === null || s.values[i] === undefined ? "–" : write(s.values[i]);
      return element("span", { class: "value" }, element("span", { class: "key " + s.style }, s.label), " " + value);
    });
    fill(values, ...parts);
  };
  const point = (i, is_chosen) => {
    say(i);
    cursor.setAttribute("visibility", is_chosen && i >= 0 ? "visible" : "hidden");
    if (i >= 0) {
      cursor.setAttribute("x1", frame.x(times[i]));
      cursor.setAttribute("x2", frame.x(times[i]));
    }
  };
  return { figure: element("figure", {}, caption, picture), picture, point };
}

const line = (label, style, values) => ({ label, style, values });

function specifications(h, has_peers) {
  const per_second = (values) => values.map((v, i) => (h.seconds[i] > 0 ? v / h.seconds[i] : null));
  const gigabytes = (values) => per_second(values).map((v) => (v === null ? null : v / 1e9));
  const positive = (values) => values.map((v) => (v > 0 ? v : null));
  const of_asked = (values) => values.map((v, i) => (h.asked_keys[i] > 0 ? Math.min(1, v / h.asked_keys[i]) : null));
  const ratios = [line("keys found / requested", "one", of_asked(h.found_keys)),
                  line("to be read from disk", "two", of_asked(h.disk_keys))];
  if (has_peers) ratios.push(line("fetched from peers", "three", of_asked(h.peer_keys)));
  const tiers = [line("memory", "one", per_second(h.memory_pages)), line("disk", "two", per_second(h.disk_pages))];
  if (has_peers) tiers.push(line("fetched from peers", "three", per_second(h.peer_pages)));
  return [
    ["Hit ratio", ratios, percent, 1],
    ["Throughput",
     [line("load", "one", gigabytes(h.loaded_bytes)), line("save", "two", gigabytes(h.saved_bytes))], speed],
    ["Pages loaded, by tier", tiers, rate],
    ["Lookups", [line("lookups", "one", per_second(h.lookups))], rate],
    ["Lookup latency",
     [line("p50", "one", positive(h.lookup_p50_us)), line("p99", "two", positive(h.lookup_p99_us))], micros],
    ["Load and save latency, p99",
     [line("from memory", "one", positive(h.memory_load_p99_us)),
      line("from disk", "two", positive(h.disk_load_p99_us)), line("save", "three", positive(h.save_p99_us))], micros],
    ["Evictions", [line("keys", "one", per_second(h.evicted_keys))], rate],
    ["Disk queue", [line("transfers in progress", "one", h.disk_transfers)], short],
  ];
}

/// The time that the cursor marks on all charts, or null for the newest sample.
let chosen_time = null;

/// Draws all charts of the range into `to`; `label` shows the time of the values.
function draw_charts(to, label, x, range) {
  const now = Date.parse(x.node.now) / 1000;
  const started = Date.parse(x.node.started) / 1000;
  const styles = getComputedStyle(to);
  const columns = styles.gridTemplateColumns.split(" ");
  const padding = 28;
  const width = Math.max(220, Math.floor(parseFloat(columns[0]) || to.clientWidth) - padding);
  const frame = frame_of(x.history, range, started, now, width);
  const all = specifications(frame.columns, Boolean(x.cluster)).map((spec) => chart(frame, ...spec));

  const show_time = () => {
    let best = frame.times.length - 1;
    if (chosen_time !== null)
      frame.times.forEach((at, i) => {
        if (Math.abs(at - chosen_time) < Math.abs(frame.times[best] - chosen_time)) best = i;
      });
    for (const one of all) one.point(best, chosen_time !== null);
    label.textContent = best < 0 ? "The first values appear ten seconds after the start." :
      `Values at ${clock(frame.times[best])} UTC.`;
  };
  for (const one of all) {
    one.picture.addEventListener("pointermove", (event) => {
      const box = one.picture.getBoundingClientRect();
      chosen_time = frame.time_at(((event.clientX - box.left) / box.width) * width);
      show_time();
    });
    one.picture.addEventListener("pointerleave", () => {
      chosen_time = null;
      show_time();
    });
  }
  show_time();
  fill(to, ...all.map((one) => one.figure));
}
