#!/usr/bin/env python3
"""Tests the layout of the web page: at four widths, light and dark, nothing is cut, overlaps, or is wider than its box;
and what charts and tables say of nodes that are large, fresh, or part of a cluster.

Usage: layout_test.py PROGRAM. Ends with 77 where there is no browser.
"""

import copy
import datetime
import json
import math
import sys
import unittest
import urllib.request

import browser
import layout
import node

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else "build/release/troupe"
WIDTHS = (360, 768, 1280, 1920)
NOW = 1_800_000_000
LONG_NAME = "a-name-as-long-as-names-may-be-which-is-64-characters-0123456789"


def moment(unix):
    return datetime.datetime.fromtimestamp(unix, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def history_like(history, samples):
    """The same columns with this many samples of an uneven load."""
    out = {"interval_s": history["interval_s"]}
    for k, name in enumerate(n for n in history if n != "interval_s"):
        out[name] = [int(1e6 * (1.1 + math.sin(i / (5 + k))) ** 3) for i in range(samples)]
    out["at"] = [NOW - 10 * (samples - 1 - i) for i in range(samples)]
    out["seconds"] = [10] * samples
    return out


def peer(name, state, trouble=""):
    big = 12_345_678_901
    return {"node": name, "address": f"{name}.cache.example.org:7001", "state": state, "lag_us": 220,
            "trouble": trouble, "namespaces": 2, "asked": big, "had": big, "late": 1, "pages": big,
            "bytes": big * 1000, "failed": 1,
            "learned_keys": big, "file_pages": 55, "file_bytes": 1, "files_stale": 0, "files_damaged": 0,
            "files_failed": 0, "served_pages": big, "served_bytes": big * 1000}


def large(document):
    """The document of a node, with many large things in it: with the same members."""
    x = copy.deepcopy(document)
    ns = x["namespaces"][0]
    ns["capacity"]["keys"] = 819
    of_eight = {**copy.deepcopy(ns), "name": LONG_NAME, "model": "/models/" + LONG_NAME + "/snapshots/" + 40 * "7"}
    slots = {"total": 819, "free": 421, "reserved": 0, "live": 398, "quarantined": 0}
    of_eight["ranks"] = [{**copy.deepcopy(ns["ranks"][0]), "rank": i, "slots": slots} for i in range(8)]
    of_four = {**copy.deepcopy(of_eight), "name": "llama-70b-tp4", "ranks": copy.deepcopy(of_eight["ranks"][:4])}
    of_four["ranks"][1]["damaged"] = True
    of_four["ranks"][2]["slots"] = {"total": 819, "free": 400, "reserved": 10, "live": 400, "quarantined": 9}
    x["namespaces"] += [of_eight, of_four]
    minute = {"seconds": 60, "loaded_bytes": 1, "saved_bytes": 1, "load_gbps": 1.2, "save_gbps": 0.0123}
    x["clients"]["list"] = [
        {"name": LONG_NAME, "namespace": LONG_NAME, "process": 4_000_000 + i, "elsewhere": i == 1, "is_node": i == 2,
         "attached_s": 123_456, "loaded_bytes": 12_345_678_901_234, "saved_bytes": 0, "last_minute": minute}
        for i in range(3)]
    x["cluster"] = {"cluster": "prod", "nodes": [
        peer("cache-1", "self"), peer("cache-2", "up"),
        peer(LONG_NAME, "unreachable", "connecting to 10.0.0.3:7001: connection refused; is a node running there?")],
        "etcd": {"endpoints": "https://a.example:2379,https://b.example:2379", "state": "unreachable",
                 "trouble": "no answer", "registered": True, "listed": 3},
        "adopted": [{"node": "cache-9", "own": True, "keys": 1, "asked": 1, "had": 1, "pages": 1, "bytes": 1,
                     "failed": 0}]}
    x["lmcache"] = {"connected": 1, "clients": [
        {"client": 1, "process": 4711, "name": "VLLM::Worker_TP0", "user": 0, "version": "0.5.7", "requests": 123_456,
         "malformed": 0, "difference": ""}]}
    x["warnings"] = [{"severity": severity, "reason": reason, "runbook": "docs/operations.md#" + reason,
                      "text": f"the slab file /srv/troupe/data/namespaces/{LONG_NAME}.rank-1.slab needs attention"}
                     for severity, reason in (("failed", "slab_damaged"), ("notice", "etcd_unreachable"))]
    x["health"] = "degraded"
    x["history"] = history_like(x["history"], 360)
    x["node"].update(now=moment(NOW), started=moment(NOW - 7200), uptime_s=7200)
    return x


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = browser.Browser(browser.find())
        cls.served = node.Node(PROGRAM)
        with urllib.request.urlopen(cls.served.url + "v1/status") as answer:
            cls.fresh = json.load(answer)
        cls.large = large(cls.fresh)

    @classmethod
    def tearDownClass(cls):
        cls.served.__exit__()
        cls.page.__exit__()

    def show(self, document, width=1280):
        """Opens the page and shows it this document from now on."""
        self.page.size(width, 900, mobile=width < 500)
        self.page.open(self.served.url)
        self.page.until("!document.getElementById('main').hidden && "
                        "document.getElementById('config').textContent != ''")
        self.page.run(f"window.shown = {json.dumps(document)}; window.asked = []; "
                      "ask = async (path) => { asked.push(path); return path.includes('status') ? shown : "
                      "path.includes('log') ? { lines: ['a line of the log '.repeat(20)] } : "
                      "{ a: 'b'.repeat(300) }; }; "
                      "refresh()")

    def faults_of(self, document):
        for width in WIDTHS:
            self.show(document, width)
            for scheme in ("light", "dark"):
                self.page.colors(scheme)
                with self.subTest(width=width, scheme=scheme):
                    self.assertEqual(layout.faults(self.page), [])
            self.page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            with self.subTest(width=width, details="open"):
                self.assertEqual(layout.faults(self.page), [])
            rows = self.page.run("Object.values(Object.groupBy(document.querySelectorAll('.tile'), "
                                 "(e) => e.offsetTop)).map((row) => row.length)")
            with self.subTest(width=width, tiles=rows):
                self.assertEqual(len(set(rows)), 1)

    def test_dark_has_all_colours(self):
        self.show(self.fresh)
        light, dark = self.page.run(
            "(() => { const rules = [...document.styleSheets[0].cssRules]; "
            "const names = (rule) => [...rule.style].filter((x) => x.startsWith('--')).sort(); "
            "const media = rules.find((r) => r.media && r.media.mediaText.includes('dark')); "
            "return [names(rules.find((r) => r.selectorText === ':root')), names(media.cssRules[0])]; })()")
        self.assertEqual(light, dark)

    def test_a_node_that_has_just_started(self):
        self.faults_of(self.fresh)

    def test_a_large_node_in_a_cluster(self):
        self.faults_of(self.large)

    def test_runbooks_fit_every_screen(self):
        for width in WIDTHS:
            self.show(self.large, width)
            for reason in ("slab_damaged", "etcd_unreachable"):
                self.page.run(f"document.querySelector('#warnings a[href$=\"#{reason}\"]').click()")
                self.page.until(f"document.getElementById('runbook_title').textContent == '{reason}'")
                with self.subTest(width=width, reason=reason):
                    self.assertEqual(layout.faults(self.page), [])
            # A table, code, and a link to another section.
            self.assertGreater(self.page.run("document.querySelectorAll('#runbook_text td code').length"), 3)
            self.page.run("document.getElementById('runbook').close(); show_runbook('memory_full')")
            self.page.until("document.getElementById('runbook_text').innerText.includes('docs/configuration.md')")
            self.page.run("show_runbook('index_failed')")
            self.page.until("document.querySelector('#runbook_text a')")
            self.page.run("document.querySelector('#runbook_text a').click()")
            self.page.until("document.getElementById('runbook_title').textContent == 'index_full'")

    def test_the_check_finds_what_is_wrong(self):
        breaks = {
            "#tiles { width: 3000px; }": "the page is 3",
            ".tile strong { margin-left: 60rem; }": "is cut or sticks out",
            ".facts { line-height: 0; flex-direction: column; }": "lies over",
            ".card { overflow: hidden; } .card > div { width: 200%; }": "has to be scrolled sideways",
        }
        for style, said in breaks.items():
            self.show(self.large)
            self.assertEqual(layout.faults(self.page), [])
            self.page.run(f"document.styleSheets[0].insertRule({json.dumps('@media all { ' + style + ' }')}, "
                          "document.styleSheets[0].cssRules.length)")
            self.assertIn(said, "\n".join(layout.faults(self.page)), style)

    def test_what_is_said_of_ranks(self):
        self.show(self.large)
        cards = self.page.run("[...document.querySelectorAll('#namespaces article')].map((a) => a.innerText)")
        self.assertIn("8 ranks, 398 of 819 slots each", cards[1])
        self.assertNotIn("each", cards[2])
        self.assertIn("400 of 819 slots", cards[2])
        tagged = "[...document.querySelectorAll('.tag')].map((e) => e.parentElement.textContent)"
        self.assertEqual(self.page.run(tagged), ["rank 1 damaged"])

    def test_what_is_said_of_the_cluster_and_of_clients(self):
        self.show(self.large)
        text = self.page.run("document.getElementById('cluster_section').innerText")
        for part in ("Cluster prod", "cache-2", "unreachable", "connection refused", "220 µs", "11.2 TiB", "no answer",
                     "cache-9"):
            self.assertIn(part, text)
        clients = self.page.run("document.getElementById('clients').innerText")
        for part in ("1.2 GB/s", "12.3 MB/s", "on another host", "another node", "1 d 10 h"):
            self.assertIn(part, clients)
        self.show(self.fresh)
        self.assertTrue(self.page.run("document.getElementById('cluster_section').hidden"))

    def test_charts_begin_with_the_node(self):
        self.show(self.large)
        begin = "frame_of({{interval_s: 10, at: [{at}]}}, RANGES[2], {started}, {now}, 500).begin"
        self.assertEqual(self.page.run(begin.format(at=1000, started=990, now=1010)), 990)
        self.assertEqual(self.page.run(begin.format(at=9000, started=990, now=9000)), 9000 - 3600)
        # One sample is a dot.
        dot = "paths(frame_of({interval_s: 10, at: [1000]}, RANGES[0], 990, 1000, 500), [1], (v) => v).dots"
        self.assertRegex(self.page.run(dot), r"^M[\d.]+ 1\.0h0\.01$")
        # Gaps stay gaps.
        gaps = "paths(frame_of({interval_s: 10, at: [0, 10, 100]}, RANGES[0], 0, 100, 500), [1, 2, 3], (v) => v)"
        self.assertEqual(self.page.run(gaps + ".lines").count("M"), 1)
        self.assertEqual(self.page.run(gaps + ".dots").count("M"), 1)

    def test_one_cursor_for_all_charts(self):
        self.show(self.large)
        visible = ("[...document.querySelectorAll('.cursor')]"
                   ".filter((e) => e.getAttribute('visibility') == 'visible').length")
        self.assertEqual(self.page.run(visible), 0)
        move = ("(() => { const e = document.querySelectorAll('#charts svg')[%d], box = e.getBoundingClientRect(); "
                "e.dispatchEvent(new PointerEvent('%s', { clientX: box.left + box.width / 2 })); })()")
        self.page.run(move % (2, "pointermove"))
        self.assertEqual(self.page.run(visible), 8)
        self.assertEqual(self.page.run("new Set([...document.querySelectorAll('.cursor')].map((e) => "
                                       "e.getAttribute('x1'))).size"), 1)
        self.assertRegex(self.page.run("document.getElementById('chosen').textContent"),
                         r"^Values at \d\d:\d\d:\d\d UTC")
        # It stays where it is when new values come.
        self.page.run("show(shown)")
        self.assertEqual(self.page.run(visible), 8)
        self.page.run(move % (2, "pointerleave"))
        self.assertEqual(self.page.run(visible), 0)

    def test_ranges(self):
        self.show(self.large)
        points = "(document.querySelector('#charts .series').getAttribute('d').match(/[ML]/g) || []).length"
        # The page asks for other things as well.
        last_asked = "asked.filter((x) => x.includes('status')).at(-1)"
        for name, count in (("5 min", 31), ("15 min", 91), ("1 h", 360), ("6 h", None)):
            self.page.run("[...document.querySelectorAll('#ranges button')]"
                          f".find((b) => b.textContent == '{name}').click()")
            self.page.until(f"document.querySelector('#ranges [aria-pressed=true]').textContent == '{name}'")
            self.page.until(f"{last_asked} == '{'v1/status?history=long' if name == '6 h' else 'v1/status'}'")
            if count:
                self.page.until(f"{points} == {count}")

    def test_numbers(self):
        self.show(self.fresh)
        for script, text in (("speed(0)", "0 MB/s"), ("speed(0.009)", "9 MB/s"), ("speed(0.0123)", "12.3 MB/s"),
                             ("speed(1.234)", "1.23 GB/s"), ("speed(2e-5)", "20 kB/s"), ("rate(0.5)", "0.5/s"),
                             ("rate(1250)", "1.25 k/s"), ("bytes(1536)", "1.5 KiB"), ("micros(40)", "40 µs"),
                             ("micros(5300)", "5.3 ms"), ("clock(86399)", "23:59:59")):
            self.assertEqual(self.page.run(script), text)


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: there is no Chromium (apt-get install chromium)")
        sys.exit(77)
    unittest.main()
