"use strict";
// Elements, and numbers and times as text. Texts of a node, such as names that clients choose, become text, never
// markup.

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

/// At most three digits that matter, and no zeros behind the point.
const short = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : String(parseFloat(x.toPrecision(3))));

function scaled(x, units, base) {
  let i = 0;
  while (Math.abs(x) >= base && i + 1 < units.length) {
    x /= base;
    i += 1;
  }
  return short(x) + units[i];
}

const bytes = (x) => scaled(x, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
const count = (x) => x.toLocaleString("en");
const counted = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;
const rate = (x) => scaled(x, ["", " k", " M", " G"], 1000) + "/s";
const percent = (x) => (x === null || x === undefined ? "–" : (100 * x).toFixed(1) + " %");
const share = (part, whole) => (whole > 0 ? percent(part / whole) : "–");
const micros = (x) => (x >= 1e6 ? short(x / 1e6) + " s" : x >= 1000 ? short(x / 1000) + " ms" : short(x) + " µs");

/// `x` in 10⁹ bytes per second.
function speed(x) {
  if (x >= 0.1) return short(x) + " GB/s";
  return x === 0 || x >= 1e-4 ? short(x * 1e3) + " MB/s" : short(x * 1e6) + " kB/s";
}

function span(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

// Times are in UTC, as in the log.
const clock = (unix) => new Date(unix * 1000).toISOString().slice(11, 19);
const minute = (unix) => clock(unix).slice(0, 5);
const moment = (text) => text.replace("T", " ").replace("Z", " UTC");
