"""LMCache's own multi-process server of PyPI, unchanged. Its clients speak its protocol (lmcache_client.py): pages
lie in a shared memory, and with a disk in files of its adapter "fs"."""

import itertools
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

import facts
from caches import cache
from processes import environment, listens

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from free_ports import free_ports  # noqa: E402

VERSION = "0.5.6"
CHUNK_TOKENS = 16
GIB = 1 << 30
# Importing takes it half a minute of processor time.
START_SECONDS = 900

_numbers = itertools.count()


class Cache(cache.Cache):
    name, title = "lmcache", "LMCache"
    abilities = frozenset(("disk", "durable index", "found", "leases", "ranks", "damage in memory", "damage on disk",
                           "preloads", "servers", "directories", "disk faults", "eviction policies"))
    client_module = "caches.lmcache_client"
    policies, least_lease = ("LRU", "ARC"), 1.0
    unknown_parts = {**{each: "no key and no message of its protocol has this part"
                        for each in ("revision", "layout", "hash_algorithm")},
                     "block_tokens": "its pages have the same content for all block sizes"}

    def __init__(self, directory, settings):
        super().__init__(directory, settings)
        self.port, self.http = free_ports(2)
        self.shared_memory = f"troupe_gauntlet_{os.getpid()}_{next(_numbers)}"
        self.files = self.directory / "pages"

    @classmethod
    def missing(cls):
        if not (cache.installed(f"lmcache-{VERSION}") / "complete").exists():
            return (f"LMCache {VERSION} is not installed: scripts/engines lmcache --version {VERSION} --install-only "
                    "does that")
        return None

    @classmethod
    def version(cls):
        return VERSION

    def command(self):
        # All else is its default. Its default mode is for GPUs: with CPUs, engines copy.
        out = ["--transport", "zmq", "--host", "127.0.0.1", "--port", str(self.port), "--http-host", "127.0.0.1",
               "--http-port", str(self.http), "--chunk-size", str(CHUNK_TOKENS), "--supported-transfer-mode",
               "engine_driven", "--shm-name", self.shared_memory, "--no-l1-use-lazy",
               "--l1-size-gb", str(self.settings["memory_pages"] * facts.PAGE_BYTES / GIB),
               "--eviction-policy", self.settings["eviction"] or "LRU"]
        if self.settings.get("lease_seconds"):
            out += ["--l1-read-ttl-seconds", str(max(1, round(self.settings["lease_seconds"])))]
        if self.settings["disk_pages"]:
            out += ["--l2-adapter", json.dumps(self.adapter())]
        return out

    def adapter(self):
        out = {"type": "fs", "base_path": str(self.files)}
        if self.safest:
            # Authenticated encryption is the one check of what comes from the disk.
            master = self.directory / "master.key"
            master.write_bytes(b"a key of 32 bytes for the trials")
            out["serde"] = {"type": "aesgcm", "master_key_path": str(master)}
        return out

    def described(self):
        shown = [each for each in self.command() if str(self.directory) not in each and self.shared_memory not in each]
        return {"command": " ".join(shown), "disk": "fs" if self.settings["disk_pages"] else "none",
                "safest": self.safest}

    def where(self):
        return {"port": self.port, "chunk": CHUNK_TOKENS, "safest": self.safest}

    def start(self, preload=None):
        self.files.mkdir(exist_ok=True)
        program = cache.installed(f"lmcache-{VERSION}") / "venv" / "bin" / "lmcache"
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(program), "server", *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment({"LMCACHE_DISABLE_BANNER": "1", "LMCACHE_TRACK_USAGE": "false", **(preload or {})}),
                start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while True:
            if listens(self.process.pid, self.port) and self.pool().exists():
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"LMCache's server does not start: {self.log_tail()}")
            time.sleep(0.1)

    def pool(self):
        """The file of its memory, to whose name it puts a prefix."""
        return pathlib.Path("/dev/shm", f"lmcache_l1_pool_{self.shared_memory}")

    def kill(self):
        if self.process is not None:
            # It may have started helpers.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        super().kill()

    def close(self):
        self.kill()
        self.pool().unlink(missing_ok=True)

    def share(self, what, other):
        if what == "directory":
            self.files = other.files
        elif what == "port":
            self.port, self.http = other.port, other.http
        else:
            self.shared_memory = other.shared_memory
        return True

    def damage_memory(self, share, dice):
        return damage_facts(self.pool(), share, dice)

    def damage_disk(self, share, dice):
        return sum(damage_whole(path, dice) for path in sorted(self.files.rglob("*"))
                   if path.is_file() and dice.random() < share)

    def disk_files(self):
        return str(self.files)


def damage_facts(path, share, dice):
    """Flips a byte in a share of the facts of a file; returns their number."""
    damaged = 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = content.find(b"fact of ")
        while at >= 0:
            if dice.random() < share:
                content[at + dice.randrange(facts.LABEL_BYTES, facts.PAGE_BYTES // 2)] ^= 0xFF
                damaged += 1
            at = content.find(b"fact of ", at + 1)
    return damaged


def damage_whole(path, dice):
    """Flips a byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    if len(content) < facts.PAGE_BYTES // 2:
        return 0
    content[len(content) // 2 + dice.randrange(100)] ^= 0xFF
    path.write_bytes(content)
    return 1
