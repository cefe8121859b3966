"""Mooncake Store of PyPI (mooncake-transfer-engine-non-cuda), unchanged: its master, a process that provides memory to
it, and clients over TCP. Keys have what vLLM's connector for it puts in them: model, world size, rank, salt, hash."""

import pathlib
import subprocess
import sys
import time

import facts
from caches import cache
from processes import ended_by, environment

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from free_ports import free_ports  # noqa: E402

VERSION = "0.3.13.post1"
START_SECONDS, SETTLE_SECONDS = 120, 1
# It takes no less.
LEAST_BYTES = 16 << 20


class Cache(cache.Cache):
    name, title = "mooncake", "Mooncake Store"
    abilities = frozenset(("found", "leases", "preloads", "servers", "damage in memory", "directories"))
    client_module = "caches.mooncake_client"
    unknown_parts = {each: "its keys are made by the engine's connector, which has no such part in them"
                     for each in ("revision", "dtype", "layout", "hash_algorithm", "block_tokens", "layers",
                                  "page_bytes")}
    least_lease = 0.2

    def __init__(self, directory, settings):
        super().__init__(directory, settings)
        self.port, self.metrics = free_ports(2)
        self.storage = None

    @classmethod
    def missing(cls):
        if not (cache.installed(f"mooncake-{VERSION}") / "complete").exists():
            return f"Mooncake Store {VERSION} is not installed: scripts/gauntlet --against mooncake does that"
        return None

    @classmethod
    def version(cls):
        return VERSION

    def python(self):
        return str(cache.installed(f"mooncake-{VERSION}") / "venv" / "bin" / "python")

    def environment(self):
        # Its own check of what was read, which is off by default.
        return {"MOONCAKE_STORE_CHECKSUM": "1"} if self.safest else {}

    def flags(self):
        out = []
        if self.settings.get("lease_seconds"):
            out.append(f"-default_kv_lease_ttl={round(self.settings['lease_seconds'] * 1000)}ms")
        return out

    def segment_bytes(self):
        return max(LEAST_BYTES, self.settings["memory_pages"] * facts.PAGE_BYTES)

    def described(self):
        return {"master": " ".join(self.flags()) or "defaults", "segment_bytes": self.segment_bytes(),
                "protocol": "tcp", **self.environment()}

    def where(self):
        return {"master": f"127.0.0.1:{self.port}"}

    def start(self, preload=None):
        package = next(cache.installed(f"mooncake-{VERSION}").glob("venv/lib/python3.*/site-packages/mooncake"))
        more = environment({**self.environment(), **(preload or {})})
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(package / "mooncake_master"), f"-rpc_port={self.port}", f"-metrics_port={self.metrics}",
                 *self.flags()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=more)
            self.storage = subprocess.Popen(
                [self.python(), "-B", str(pathlib.Path(__file__).with_name("mooncake_storage.py")),
                 f"127.0.0.1:{self.port}", str(self.segment_bytes()), str(self.directory / "ready")],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=more)
        deadline = time.monotonic() + START_SECONDS
        while not (self.directory / "ready").exists():
            if self.died() or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Mooncake does not start: {self.log_tail()}")
            time.sleep(0.05)
        (self.directory / "ready").unlink()
        # The process with the memory is content with the master of another server at the same port.
        time.sleep(SETTLE_SECONDS)
        if problem := self.died():
            self.kill()
            raise RuntimeError(problem)
        return self

    def kill(self):
        for each in (self.storage, self.process):
            if each is not None:
                each.kill()
                each.wait()
        self.storage = self.process = None

    def stop(self):
        self.kill()
        return True

    def died(self):
        for what, each in (("master", self.process), ("process with the memory", self.storage)):
            code = each.poll() if each is not None else None
            if code is not None:
                self.kill()
                return f"the {what} {ended_by(code)}: {self.log_tail()}"
        return None

    def share(self, what, other):
        if what != "port":
            return False
        self.port, self.metrics = other.port, other.metrics
        return True

    def damage_memory(self, share, dice):
        """Flips a byte of a share of the facts in the memory of the process that provides it."""
        damaged = 0
        with open(f"/proc/{self.storage.pid}/maps") as file:
            places = [line.split() for line in file]
        with open(f"/proc/{self.storage.pid}/mem", "r+b", buffering=0) as memory:
            for place in places:
                first, end = (int(each, 16) for each in place[0].split("-"))
                if not place[1].startswith("rw") or end - first < self.segment_bytes():
                    continue
                memory.seek(first)
                content = memory.read(end - first)
                at = content.find(b"fact of ")
                while at >= 0:
                    if dice.random() < share:
                        there = at + dice.randrange(facts.LABEL_BYTES, facts.PAGE_BYTES)
                        memory.seek(first + there)
                        memory.write(bytes([content[there] ^ 0xFF]))
                        damaged += 1
                    at = content.find(b"fact of ", at + 1)
        return damaged
