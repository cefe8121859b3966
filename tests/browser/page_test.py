#!/usr/bin/env python3
"""Tests the web page of a node in a browser: its content, and that it violates no policy.

Usage: page_test.py PROGRAM. Ends with 77 where there is no browser.
"""

import json
import sys
import unittest
import urllib.request

import browser
import node

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else "build/release/troupe"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def setUp(self):
        self.page = self.browser
        self.page.size(1200, 900)

    def says(self, *parts):
        """Waits until the text appears: status, log and config are requested one by one."""
        for part in parts:
            self.page.until(f"document.body.innerText.includes({json.dumps(part)})")

    def test_of_a_node_that_is_used(self):
        with node.Node(PROGRAM) as served:
            served.replay()
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
            self.says("node-7", "healthy", "Hit ratio", "Throughput", "Pages loaded, by tier", "Lookup latency",
                      "Load and save latency, p99", "Evictions", "Disk queue", "rank 0", "rank 1", "demo/small",
                      "Memory", "Disk", "Index", "no client is attached", "node 'node-7' is ready", " UTC.")
            # Each rank has a bar of what its slots hold.
            self.assertEqual(self.page.run("document.querySelectorAll('#namespaces .bar').length"), 2)
            self.assertEqual(self.page.run("document.querySelector('#namespaces .bar .live').getAttribute('x')"), "0")
            label = self.page.run("document.querySelector('#namespaces .bar').getAttribute('aria-label')")
            self.assertRegex(label, r"chat, rank 0: \d+ live, 0 reserved, 0 quarantined, \d+ free")
            self.assertEqual(self.page.run("document.querySelectorAll('#charts svg').length"), 8)
            # Used memory is the same number as in the status.
            with urllib.request.urlopen(served.url + "v1/status") as answer:
                memory = json.load(answer)["tiers"]["memory"]
            share = f"{100 * memory['bytes'] / memory['limit_bytes']:.1f} %"
            self.assertIn(share, self.page.run("document.getElementById('tiers').innerText"))
            self.assertIn(share, self.page.run("document.getElementById('tiles').innerText"))
            self.page.until("document.getElementById('config').textContent.includes('\"node_name\": \"node-7\"')")
            # It asks for nothing but what is its own, and its policy has had nothing to forbid.
            hosts = self.page.run("performance.getEntriesByType('resource').map(x => new URL(x.name).host)")
            self.assertEqual(set(hosts), {f"127.0.0.1:{served.port}"})
            self.assertEqual(self.page.complaints, [])

    def test_of_a_node_that_was_used_some_time_ago(self):
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
            said = ("hit_ratio({last_minute: {hit_ratio: null}, node: {now: '2026-01-01T02:00:00Z'}, history: {"
                    "at: [0, 600, 660].map((x) => x + Date.parse('2026-01-01T00:55:00Z') / 1000), "
                    "found_keys: [9, 0, 3], asked_keys: [9, 4, 4]}})")
            self.assertEqual(self.page.run(f"{said}.join()"), "hit ratio, 1 h,37.5 %")
            self.assertEqual(self.page.run(said.replace("null", "0.5") + ".join()"), "hit ratio,50.0 %")
            # A value between two gaps is a dot.
            drawn = "paths({times: [0, 100, 110, 300], x: (t) => t, longest: 35}, [1, 2, 3, 4], (v) => v)"
            self.assertEqual(self.page.run(drawn + ".dots"), "M0.0 1.0h0.01M300.0 4.0h0.01")
            self.assertEqual(self.page.run(drawn + ".lines"), "M100.0 2.0L110.0 3.0")

    def test_of_a_node_with_a_damaged_slab(self):
        with node.Node(PROGRAM) as served:
            served.spoil()
            self.page.open(served.url)
            self.page.until("document.getElementById('health').textContent == 'degraded'")
            self.says("slab_damaged", "What to do")
            # The rank is marked, and the runbook comes from the node.
            tagged = "document.querySelector('#namespaces .tag').parentElement.textContent"
            self.assertEqual(self.page.run(tagged), "rank 1 damaged")
            self.page.run("document.querySelector('#warnings a').click()")
            self.page.until("document.getElementById('runbook').open")
            self.says("A slab file was removed or truncated while the node ran.")
            self.page.run("document.getElementById('runbook_close').click()")
            self.page.until("!document.getElementById('runbook').open")
            self.assertEqual(self.page.complaints, [])

    def test_the_glossary(self):
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
            self.page.run("document.getElementById('glossary').click()")
            self.page.until("document.getElementById('runbook').open")
            self.assertEqual(self.page.run("document.getElementById('runbook_title').textContent"), "Glossary")
            self.says("What is stored", "The leading keys of a prompt.")
            self.assertEqual(self.page.complaints, [])

    def test_of_a_node_that_ends(self):
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
        self.page.until("document.getElementById('health').textContent == 'unreachable'")
        self.says("Cannot reach the node (connection failed). Showing data from 20", "node-7")

    def test_of_a_node_with_tokens(self):
        tokens = {"read": "a-token-that-reads", "admin": "a-token-that-may-all"}
        with node.Node(PROGRAM, tokens) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('ask').hidden")
            self.assertNotIn("rank 0", self.page.text())

            def enter(token):
                self.page.run(f"document.getElementById('token').value = '{token}'; "
                              "document.getElementById('ask').requestSubmit()")

            enter("no-such-token")
            self.page.until("document.body.innerText.includes('This token was rejected')")
            enter(tokens["read"])
            self.page.until("document.getElementById('namespaces').innerText.includes('rank 0')")
            self.page.until("document.getElementById('log').textContent != ''")
            self.says("Needs a token of role admin.")
            self.assertEqual(self.page.run("sessionStorage.getItem('troupe-token')"), tokens["read"])
            self.assertEqual(self.page.run("localStorage.length"), 0)
            self.page.leave("document.getElementById('forget').click()")
            self.page.until("document.getElementById('ask') && !document.getElementById('ask').hidden")
            enter(tokens["admin"])
            self.page.until("document.body.innerText.includes(\"node 'node-7' is ready\")")

    def test_a_page_that_is_left_while_it_is_asked(self):
        # A limit of the driver, not of the page: a call without an answer is repeated on the next page.
        never = "(location.reload(), new Promise(() => {}))"
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            with self.assertRaises(browser.PageIsLeft):
                self.page.evaluate(never)
            self.page.until("document.readyState == 'complete'")
            self.page.leave(never)
            self.page.run("window.isFirst = true")
            self.assertEqual(self.page.run(f"window.isFirst ? {never} : 5"), 5)

    def test_names_are_text_and_never_markup(self):
        # Names that clients choose may be any text; showing them must not execute anything.
        model = "<img src=x onerror=alert(1)>"
        with node.Node(PROGRAM, more={"namespaces": [dict(node.NAMESPACE, model=model)]}) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
            self.says(model)
            self.assertEqual(self.page.run("document.querySelectorAll('img').length"), 0)
            # Not even the page's own script can add one.
            self.page.run("document.body.append(Object.assign(document.createElement('script'), "
                          "{textContent: 'window.done = 1'}))")
            self.assertIsNone(self.page.run("window.done"))

    def test_on_a_phone_and_in_the_dark(self):
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.page.until("!document.getElementById('main').hidden")
            self.page.size(360, 740, mobile=True)
            # Nothing is wider than the screen but tables, which scroll by themselves.
            self.assertLessEqual(self.page.run("document.documentElement.scrollWidth"), 360)
            paper = "getComputedStyle(document.body).backgroundColor"
            self.page.colors("light")
            light = self.page.run(paper)
            self.page.colors("dark")
            self.assertNotEqual(self.page.run(paper), light)
            self.page.colors("light")


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: there is no Chromium (apt-get install chromium)")
        sys.exit(77)
    unittest.main()
