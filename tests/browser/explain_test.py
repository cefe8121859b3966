#!/usr/bin/env python3
"""Tests the view "Why no hit?" of a node's web page in a browser.

Usage: explain_test.py PROGRAM. Ends with 77 where there is no browser.
"""

import json
import sys
import unittest

import browser
import node

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else "build/release/troupe"

VIEW = "document.getElementById('explain')"
TEXT = f"({VIEW} && !{VIEW}.hidden ? {VIEW}.innerText : '')"


class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def setUp(self):
        self.page = self.browser
        self.page.size(1200, 900)

    def says(self, part):
        self.page.until(f"{TEXT}.includes({part!r})")

    def test_why_lookups_did_not_hit(self):
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.says("No lookup yet.")
            served.replay()
            self.says("in chat found")
            self.says("never saved since the node started")
            # A second time everything is found, and nothing is to be explained.
            served.replay()
            self.says("found 68 of 68 blocks")
            self.assertEqual(self.page.run(f"{VIEW}.parentNode.tagName"), "MAIN")
            self.assertEqual(self.page.run(f"{VIEW}.querySelectorAll('li').length"), 20)
            self.assertEqual(self.page.complaints, [])
            # At no width anything is wider than the screen or cut.
            for width in (360, 768, 1200, 1920):
                self.page.size(width, 800, mobile=width < 700)
                self.assertLessEqual(self.page.run("document.documentElement.scrollWidth"), width)
                self.assertEqual(self.page.run(
                    f"[...{VIEW}.querySelectorAll('*')].filter(x => x.scrollWidth > x.clientWidth + 1 && "
                    "getComputedStyle(x).display != 'inline').length"), 0)

    def choose(self, box, value):
        self.page.run(f"document.getElementById('{box}').value = {value!r}; "
                      f"document.getElementById('{box}').dispatchEvent(new Event('change'))")

    def test_the_lookups_of_one_client_or_request(self):
        with node.Node(PROGRAM) as served:
            served.replay()
            self.page.open(served.url)
            self.says("in chat found")
            title = self.page.run(f"{VIEW}.querySelector('li').title")
            self.choose("explain_request", title)
            self.page.until(f"{VIEW}.querySelectorAll('li').length == 1")
            self.assertEqual(self.page.run(f"{VIEW}.querySelector('li').title"), title)
            self.choose("explain_request", "")
            self.page.until(f"{VIEW}.querySelectorAll('li').length == 20")
            # A name that no client has is an answer as well: the view stays.
            self.choose("explain_client", "no-such-client")
            self.says("no-such-client")
            self.page.until(f"{VIEW}.querySelectorAll('li').length == 0")
            self.choose("explain_client", "")
            self.page.until(f"{VIEW}.querySelectorAll('li').length == 20")

    def test_a_node_that_keeps_no_lookups(self):
        with node.Node(PROGRAM, more={"registry": {"explain_lookups": 0}}) as served:
            self.page.open(served.url)
            self.says("registry.explain_lookups is 0")

    def test_the_token_is_needed(self):
        tokens = {"read": "a-token-that-reads", "admin": "a-token-that-may-all"}
        with node.Node(PROGRAM, tokens) as served:
            served.replay()
            self.page.open(served.url)
            self.page.until("!document.getElementById('ask').hidden")
            self.assertEqual(self.page.run(TEXT), "")
            self.page.run(f"document.getElementById('token').value = '{tokens['read']}'; "
                          "document.getElementById('ask').requestSubmit()")
            self.says("in chat found")

    def test_names_are_text_and_never_markup(self):
        name = "<b id=bold>x"
        lookup = {"id": "1-1", "client": name, "namespace": name, "at_ms": 0, "asked": 3, "found": 1, "memory": 1,
                  "disk": 0, "peer": 0, "each": False, "ends": [{"text": name}, {"text": name}]}
        answer = json.dumps({"kept": True, "events_since_ms": 0, "lookups": [lookup]})
        with node.Node(PROGRAM) as served:
            self.page.open(served.url)
            self.says("No lookup yet.")
            self.page.run(f"window.fetch = async () => new Response({json.dumps(answer)})")
            self.says(f"{name} in {name} found 1 of 3 blocks: 1 in memory")
            self.assertEqual(self.page.run(f"{TEXT}.split('block 2: ').length"), 2)
            self.assertIsNone(self.page.run("document.getElementById('bold')"))


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: there is no Chromium (apt-get install chromium)")
        sys.exit(77)
    unittest.main()
