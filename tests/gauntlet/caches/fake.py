"""A small cache that is right as it stands, and wrong in one way if it is asked to be: it shows that each case can
fail. The server is fake_server.py."""

import mmap
import multiprocessing.connection
import os
import pathlib
import subprocess
import sys
import threading
import time
import zlib

import facts
from caches import cache
from caches.fake_server import COMPARED
from processes import environment

HERE = pathlib.Path(__file__).resolve().parent
# How long the second half of a page takes, for the defect of half saved pages.
SAVE_PAUSE = 0.03


class Cache(cache.Cache):
    name, title = "fake", "The cache of the self-test"
    abilities = frozenset(cache.ABILITIES) - {"network", "engine"}
    client_module = "caches.fake"
    SETTINGS = {**cache.Cache.SETTINGS, "defect": ""}
    policies = ("lru",)

    def where(self):
        return {"directory": str(self.directory), "defect": self.settings["defect"]}

    def start(self, preload=None):
        socket = self.directory / "socket"
        socket.unlink(missing_ok=True)
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-B", str(HERE / "fake_server.py"), str(self.directory), repr(self.settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(preload))
        deadline = time.monotonic() + self.patience
        while not socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the fake does not start: {self.log_tail()}")
            time.sleep(0.002)
        return self

    def share(self, what, other):
        """Makes it use the directory of another one."""
        if what != "directory":
            return False
        (self.directory / "pages").symlink_to(other.directory / "pages")
        return True

    def damage_memory(self, share, dice):
        return damage_file(self.directory / "memory", share, dice)

    def damage_disk(self, share, dice):
        return damage_file(self.directory / "pages" / "slab", share, dice)

    def disk_files(self):
        return str(self.directory / "pages")


def damage_file(path, share, dice):
    """Flips a byte in a share of the pages of a file; returns their number."""
    damaged = 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for first in range(0, len(content) - facts.PAGE_BYTES + 1, facts.PAGE_BYTES):
            if any(content[first:first + facts.LABEL_BYTES]) and dice.random() < share:
                content[first + dice.randrange(facts.LABEL_BYTES, facts.PAGE_BYTES)] ^= 0xFF
                damaged += 1
    return damaged


class Client:
    def __init__(self, where, identity):
        self.where, self.identity, self.lock = where, identity, threading.Lock()
        self.directory = pathlib.Path(where["directory"])
        ignored = where["defect"].removeprefix("ignores ")
        self.tag = tuple((each, getattr(identity, each)) for each in COMPARED if each != ignored)
        self.rank = 0 if where["defect"] == "one rank for all" else identity.rank
        self.checked = where["defect"] not in ("no checksum", "expired leases")
        self.instance = identity.instance or f"process {os.getpid()}"
        self.link = self.memory = None
        self._connect()

    def _connect(self):
        self.link = multiprocessing.connection.Client(str(self.directory / "socket"))
        with open(self.directory / "memory", "rb") as file:
            self.memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.link.send(("hello", [(self.instance, os.getpid())]))
        self.link.recv()

    def _call(self, what, pages):
        """The server may have been started again since the last call."""
        with self.lock:
            for _ in range(2):
                try:
                    self.link.send((what, pages))
                    return self.link.recv()
                except (OSError, EOFError):
                    try:
                        self._connect()
                    except (OSError, EOFError):
                        break
        return [("error", "the server cannot be reached")] * len(pages)

    def _name(self, chain, number):
        return self.tag, facts.key(chain, number)

    def save(self, chain, first, pages, limit):
        names = [self._name(chain, number) for number in range(first, first + len(pages))]
        about = [(name, self.rank, self.identity.world_size) for name in names]
        if self.where["defect"] == "half saved pages":
            self._call("half", [(*each, page[:len(page) // 2]) for each, page in zip(about, pages)])
            time.sleep(SAVE_PAUSE)
        answers = self._call("whole", [(*each, page) for each, page in zip(about, pages)])
        return [None if answer[0] == "saved" else answer[1] for answer in answers]

    def load(self, chain, first, count, limit):
        names = [self._name(chain, number) for number in range(first, first + count)]
        lease = self.identity.lease_seconds
        answers = self._call("pin", [(name, self.rank, self.instance, lease or 30.0) for name in names])
        firsts = [self._half(answer, 0) for answer in answers]
        time.sleep(lease)
        pages = [first + self._half(answer, 1) for first, answer in zip(firsts, answers)]
        pins = [(name, self.rank, answer[3]) for name, answer in zip(names, answers) if answer[0] == "slot"]
        if pins:
            self._call("unpin", pins)
        return [self._outcome(answer, page) for answer, page in zip(answers, pages)]

    def _half(self, answer, number):
        """Half of the page that the answer points at."""
        if answer[0] != "slot":
            return b""
        half = facts.PAGE_BYTES // 2
        return self.memory[answer[1] + number * half:answer[1] + (number + 1) * half]

    def _outcome(self, answer, page):
        if answer[0] == "miss" and self.where["defect"] == "failed load counts":
            return "page", facts.POISON * self.identity.page_bytes
        if answer[0] != "slot":
            return answer
        page = page[:self.identity.page_bytes]
        if self.checked and answer[2] not in (None, zlib.crc32(page)):
            return "miss", "damaged"
        return "page", page

    def found(self, chain, count, limit):
        answers = self._call("found", [(self._name(chain, number),) for number in range(count)])
        return next((number for number, answer in enumerate(answers) if answer[0] != "yes"), count)

    def close(self):
        self.link.close()
