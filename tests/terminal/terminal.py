"""A program on a terminal of its own, with its screen and its keys."""

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import screen

PATIENCE = 60


class Terminal:
    """The output of `command` on a terminal of this size, until it ends or is left."""

    def __init__(self, command, columns=80, rows=24, locale="C.UTF-8"):
        self.screen = screen.Screen(columns, rows)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        environment = dict(os.environ, TERM="linux", LC_ALL=locale)
        for name in ("LINES", "COLUMNS"):
            environment.pop(name, None)
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            # Not before its size is known.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(command[0], command, environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self.terminal)

    def read(self, seconds):
        """Reads the output that comes within this time; false at the end."""
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
