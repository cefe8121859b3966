#!/usr/bin/env python3
"""Runs `troupe top` on a terminal of 80×24, presses keys, and checks the screen.

Usage: top_test.py PROGRAM. Ends with 77 where the program was built without curses.
"""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import node  # noqa: E402
import terminal  # noqa: E402

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else "build/release/troupe"

def top(*arguments, **terminal_of):
    return terminal.Terminal([PROGRAM, "top", *arguments], **terminal_of)


class TopTest(unittest.TestCase):
    def test_beside_a_replay(self):
        with node.Node(PROGRAM) as served, top(f"127.0.0.1:{served.port}", "--interval", "0.2") as shown:
            shown.shows("node-7: healthy", "hit ratio", "lookup p99", "evictions", "NAMESPACE", "USED", "chat",
                        "q quit  p pause  s sort: name  r all ranks  v clients")
            # The values shown are of the last minute: the load has to continue while the screen is read.
            with served.used():
                shown.until(lambda text: "%" in text.split("hit ratio")[1].split("\n")[0])
                # A picture of what was, of blocks.
                shown.until(lambda text: any(c in text for c in "▁▂▃▄▅▆▇█"))
            self.assertEqual(len(shown.screen.lines()), 24)
            self.assertIn("q quit", shown.screen.lines()[-1])
            shown.press("q")
            self.assertEqual(shown.end(), 0)

    def test_keys(self):
        with node.Node(PROGRAM) as served, top(f"127.0.0.1:{served.port}", "--interval", "0.2") as shown:
            # Equal ranks are folded.
            shown.until(lambda text: "rank 1" not in text and "r all ranks" in text)
            shown.press("r")
            shown.shows("  rank 1", "r fold ranks")
            shown.press("v")
            shown.shows("CLIENT", "none", "v namespaces")
            shown.press("\t")
            shown.shows("NAMESPACE")
            shown.press("s")
            shown.shows("sort: hits")
            shown.press("p")
            shown.shows("paused", "p resume")
            shown.press("p")
            shown.until(lambda text: "paused" not in text)
            shown.press("\x03")
            self.assertEqual(shown.end(), 0)

    def test_of_a_node_that_is_damaged_and_ends(self):
        with node.Node(PROGRAM) as served, top(f"127.0.0.1:{served.port}", "--interval", "0.2") as shown:
            shown.shows("node-7: healthy")
            served.spoil()
            shown.shows("node-7: degraded", "slab_damaged", "  rank 1 damaged")
            served.__exit__()
            served.__exit__ = lambda *_: None
            shown.shows("node-7: unreachable", "cannot connect")
            shown.press("q")
            self.assertEqual(shown.end(), 0)

    def test_without_unicode_and_on_other_sizes(self):
        with node.Node(PROGRAM) as served:
            served.replay()
            with top(f"127.0.0.1:{served.port}", "--interval", "0.2", locale="C", columns=60, rows=12) as shown:
                shown.shows("node-7: healthy", "hit ratio", "q quit")
                self.assertTrue(shown.screen.text().isascii())
                shown.resize(100, 30)
                shown.shows("node-7: healthy", "chat", "scroll")
                self.assertEqual(len(shown.screen.lines()), 30)
                shown.press("q")
                self.assertEqual(shown.end(), 0)

    def test_without_a_terminal(self):
        with node.Node(PROGRAM) as served:
            command = [PROGRAM, "top", f"127.0.0.1:{served.port}", "--interval", "0.1", "--count", "3"]
            got = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=terminal.PATIENCE
            )
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            self.assertEqual(len(got.stdout.splitlines()), 3)
            self.assertIn("node-7 healthy: hits", got.stdout)


if __name__ == "__main__":
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    if "curses" in said:
        print("skipped: troupe was built without curses (apt-get install libncurses-dev)")
        sys.exit(77)
    unittest.main()
