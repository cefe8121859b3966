#!/usr/bin/env python3
"""Runs `troupe top` on a terminal of 80×24, presses keys, and looks at what stands there.

Usage: top_test.py PROGRAM. Ends with 77 where the program was built without curses.
"""

import codecs
import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import node  # noqa: E402
import screen  # noqa: E402

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else "build/release/troupe"
PATIENCE = 60


class Top:
    """The program on a terminal of its own."""

    def __init__(self, *arguments, columns=80, rows=24, locale="C.UTF-8"):
        self.screen = screen.Screen(columns, rows)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        environment = dict(os.environ, TERM="linux", LC_ALL=locale)
        for name in ("LINES", "COLUMNS"):
            environment.pop(name, None)
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            # Not before its size is known.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(PROGRAM, [PROGRAM, "top", *arguments], environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self.terminal)

    def read(self, seconds):
        """What comes within this time; false at the end."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.screen.feed(self.decoder.decode(more))
        return bool(more)

    def until(self, wanted):
        end = time.monotonic() + PATIENCE
        while not wanted(self.screen.text()):
            if time.monotonic() > end:
                raise AssertionError("never came to be:\n" + self.screen.text())
            self.read(0.1)

    def shows(self, *parts):
        self.until(lambda text: all(part in text for part in parts))

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def resize(self, columns, rows):
        self.screen = screen.Screen(columns, rows)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self):
        """The exit code."""
        while self.read(0.1):
            pass
        _, status = os.waitpid(self.process, 0)
        self.process = 0
        return os.waitstatus_to_exitcode(status)


class TopTest(unittest.TestCase):
    def test_beside_a_replay(self):
        with node.Node(PROGRAM) as served, Top(f"127.0.0.1:{served.port}", "--interval", "0.2") as top:
            top.shows("node-7: healthy", "hit ratio", "lookup p99", "evictions", "NAMESPACE", "chat", "  rank 0",
                      "  rank 1", "q quit  p pause  s sort: name  r hide ranks")
            for salt in range(3):
                served.replay("--salt", str(salt))
            top.until(lambda text: "%" in text.split("hit ratio")[1].split("\n")[0])
            # A picture of what was, of blocks.
            top.until(lambda text: any(c in text for c in "▁▂▃▄▅▆▇█"))
            self.assertEqual(len(top.screen.lines()), 24)
            self.assertIn("q quit", top.screen.lines()[-1])
            top.press("q")
            self.assertEqual(top.end(), 0)

    def test_keys(self):
        with node.Node(PROGRAM) as served, Top(f"127.0.0.1:{served.port}", "--interval", "0.2") as top:
            top.shows("  rank 1")
            top.press("r")
            top.until(lambda text: "rank 1" not in text and "show ranks" in text)
            top.press("s")
            top.shows("sort: hits")
            top.press("p")
            top.shows("paused", "p go on")
            top.press("p")
            top.until(lambda text: "paused" not in text)
            top.press("\x03")
            self.assertEqual(top.end(), 0)

    def test_of_a_node_that_is_damaged_and_ends(self):
        with node.Node(PROGRAM) as served, Top(f"127.0.0.1:{served.port}", "--interval", "0.2") as top:
            top.shows("node-7: healthy")
            served.spoil()
            top.shows("node-7: degraded", "slab_damaged")
            served.__exit__()
            served.__exit__ = lambda *_: None
            top.shows("node-7: unreachable", "cannot connect")
            top.press("q")
            self.assertEqual(top.end(), 0)

    def test_without_unicode_and_on_other_sizes(self):
        with node.Node(PROGRAM) as served:
            served.replay()
            with Top(f"127.0.0.1:{served.port}", "--interval", "0.2", locale="C", columns=60, rows=12) as top:
                top.shows("node-7: healthy", "hit ratio", "q quit")
                self.assertTrue(top.screen.text().isascii())
                top.resize(100, 30)
                top.shows("node-7: healthy", "  rank 1", "scroll")
                self.assertEqual(len(top.screen.lines()), 30)
                top.press("q")
                self.assertEqual(top.end(), 0)

    def test_without_a_terminal(self):
        with node.Node(PROGRAM) as served:
            command = [PROGRAM, "top", f"127.0.0.1:{served.port}", "--interval", "0.1", "--count", "3"]
            got = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            self.assertEqual(len(got.stdout.splitlines()), 3)
            self.assertIn("node-7 healthy: hits", got.stdout)


if __name__ == "__main__":
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    if "curses" in said:
        print("skipped: troupe was built without curses (apt-get install libncurses-dev)")
        sys.exit(77)
    unittest.main()
