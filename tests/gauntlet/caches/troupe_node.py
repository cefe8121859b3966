"""A node of Troupe. Its clients use the package `troupe` as SGLang does: pages of host memory by key."""

import mmap
import os
import pathlib
import subprocess
import sys

import facts
from caches import cache
from processes import environment
from verdicts import NotRun

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "engines"))
import node as engines_node  # noqa: E402

# A page in memory and on the disk has a header before it.
SLOT_BYTES = facts.PAGE_BYTES + engines_node.PAGE_HEADER
MIB = 1 << 20
LEAST_MEMORY = 4 * MIB
VLLM = "0.32.0"
ARENA = "/memfd:troupe-arena (deleted)"


def program():
    return os.environ.get("TROUPE_PROGRAM") or str(ROOT / "build" / "release" / "troupe")


def library():
    return os.environ.get("TROUPE_LIBRARY") or str(ROOT / "build" / "release" / "libtroupe.so")


class Cache(cache.Cache):
    name, title = "troupe", "Troupe"
    abilities = frozenset(cache.ABILITIES)
    client_module = "caches.troupe_client"
    policies = ("lru", "s3-fifo", "reuse")
    SETTINGS = {**cache.Cache.SETTINGS, "plain_writes": False, "remote": False}

    def __init__(self, directory, settings):
        super().__init__(directory, settings)
        self.node = engines_node.node(program(), self.directory, remote=self.settings["remote"])
        self.shared = {}

    @classmethod
    def missing(cls):
        for path in (program(), library()):
            if not pathlib.Path(path).exists():
                return f"there is no {path}: build it, or name another one by TROUPE_PROGRAM and TROUPE_LIBRARY"
        return None

    @classmethod
    def version(cls):
        if not pathlib.Path(program()).exists():
            return ""
        said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
        return said[0].removeprefix("troupe ") if said else ""

    @classmethod
    def engine_command(cls, work):
        place = cache.installed(f"vllm-{VLLM}")
        if not (place / "complete").exists():
            raise NotRun(f"vLLM {VLLM} is not installed: scripts/engines vllm --version {VLLM} --install-only "
                         "does that")
        command = [str(place / "venv" / "bin" / "python"), "-B", str(ROOT / "tests" / "engines" / "play.py"),
                   "--troupe", program(), "--library", library(), "--work", str(work)]
        return command, {}

    def config(self):
        """Keys of the config for the settings. All else is the default, so that what users have is played."""
        memory = max(LEAST_MEMORY, -(-self.settings["memory_pages"] * SLOT_BYTES // (2 * MIB)) * 2 * MIB)
        out = {"memory.bytes": memory, "memory.huge_pages": "off", "registry.durability": self.settings["durability"],
               "storage.disk_bytes": -(-self.settings["disk_pages"] * SLOT_BYTES // MIB) * MIB}
        if self.settings["eviction"]:
            out["registry.eviction"] = out["memory.eviction"] = self.settings["eviction"]
        if self.settings["plain_writes"]:
            # Those of io_uring do not pass through a function that could fail.
            out["io.engine"] = "threads"
        return {**out, **self.shared}

    def described(self):
        return {path: value for path, value in self.config().items() if not path.startswith("memory.huge")}

    def environment(self):
        return {"TROUPE_LIBRARY": library(), "PYTHONPATH": str(ROOT / "python")}

    def where(self):
        return {"address": self.node.address}

    @property
    def process(self):
        return self.node.process if hasattr(self, "node") else None

    @process.setter
    def process(self, value):
        if hasattr(self, "node"):
            self.node.process = value

    def start(self, preload=None):
        self.node.configure(self.config())
        self.node.start(environment(preload))
        return self

    def share(self, what, other):
        if what == "directory":
            self.shared = {"data_dir": str(other.directory / "data")}
        elif what == "port":
            self.shared = {"actors.port": other.node.port, "http.port": other.node.metrics_port}
        else:
            seeds = [{"host": "127.0.0.1", "port": each.node.port} for each in (other, self)]
            self.shared = {"cluster.name": "one", "cluster.seeds": seeds, "remote.enabled": True}
        return True

    def damage_memory(self, share, dice):
        """Flips a byte of a share of the pages in the arena, which the node shares with its clients."""
        damaged = 0
        for link in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            if os.readlink(link) != ARENA:
                continue
            with open(link, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
                at = content.find(engines_node.MAGIC)
                while at >= 0:
                    if at % engines_node.PAGE_HEADER == 0 and dice.random() < share:
                        content[at + engines_node.PAGE_HEADER + dice.randrange(facts.PAGE_BYTES)] ^= 0xFF
                        damaged += 1
                    at = content.find(engines_node.MAGIC, at + 1)
        return damaged

    def damage_disk(self, share, dice):
        damaged, _ = self.node.damage_pages(share, seed=dice.random())
        return damaged

    def disk_files(self):
        """Where pages are. If its index cannot be written, the node ends on purpose (docs/operations.md)."""
        return str(self.directory / "data" / "namespaces")
