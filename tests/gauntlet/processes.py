"""Clients of a cache as processes, with a limit on every wait."""

import multiprocessing.connection
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from verdicts import CRASH, ERROR, HANG, Stop

HERE = pathlib.Path(__file__).resolve().parent


def environment(more=None):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}


def ended_by(code):
    """A phrase for the exit code of a process that ended by itself."""
    if code is not None and code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with code {code}"


def listens(pid, port):
    """Whether this process listens on a TCP port of IPv4: another one may have the port."""
    try:
        # The second field is the local address, the fourth the state, the tenth the number of the socket.
        rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
        return any(os.readlink(link) in sockets for link in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        # It has ended, or has closed a file meanwhile.
        return False


class ClientProcess:
    """A client with a name for the report. Answers that take too long are a hang, an end that the case did not ask for
    is a crash; both are noted in the tally of the trial, and end the client."""

    def __init__(self, tally, name, log, patience, python=None, extra=None):
        self.tally, self.name, self.patience, self.busy, self.log = tally, name, patience, False, log
        ours, theirs = socket.socketpair()
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [python or sys.executable, "-B", str(HERE / "client_process.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(extra))
        theirs.close()
        self.link = multiprocessing.connection.Connection(ours.detach())

    @property
    def pid(self):
        return self.process.pid

    def begin(self, name, *arguments):
        """Begins a call, whose answer `end` takes."""
        if self.busy:
            raise RuntimeError(f"{self.name} has not answered yet")
        self.busy = name
        try:
            self.link.send((name, arguments))
        except OSError:
            self._crashed()

    def answered(self):
        """Takes what has arrived without waiting: (whether the call has ended, its answer). Tallies are added."""
        while self.link.poll(0):
            kind, value = self._received()
            if kind == "progress":
                self.tally.add(value)
                continue
            self.busy = False
            if kind == "failed":
                # An exception in Python is how such caches report a failure.
                self.tally.note(ERROR, f"{self.name}: {value}")
                return True, None
            return True, value
        return False, None

    def end(self, patience=None):
        """The answer of the call; None if it failed with an error. `Stop` if it hangs or the process dies."""
        deadline, what = time.monotonic() + (patience or self.patience), self.busy
        while True:
            ended, answer = self.answered()
            if ended:
                return answer
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                self.tally.note(HANG, f"{self.name}: {what} did not return within {patience or self.patience:.0f} s")
                raise Stop
            self.link.poll(left)

    def call(self, name, *arguments, patience=None):
        self.begin(name, *arguments)
        return self.end(patience)

    def _received(self):
        try:
            return self.link.recv()
        except (EOFError, OSError):
            self._crashed()

    def _crashed(self):
        code = self.process.wait(self.patience)
        tail = pathlib.Path(self.log).read_text(errors="replace").strip().splitlines()[-1:]
        self.tally.note(CRASH, f"{self.name} {ended_by(code)} in {self.busy} ({' '.join(tail) or 'no output'})")
        raise Stop

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Ends the process at once, as in a crash of the engine."""
        self.process.kill()
        self.process.wait()
        self.link.close()
        self.busy = False

    def close(self):
        """Ends the client in good order."""
        if self.process.poll() is None and not self.busy:
            try:
                self.link.send(("close", ()))
                if self.link.poll(min(self.patience, 10)):
                    self.link.recv()
            except (OSError, EOFError):
                pass
        if self.process.poll() is None:
            self.kill()
