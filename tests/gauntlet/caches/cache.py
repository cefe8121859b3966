"""What a trial needs of a cache. Each cache has a module here with a class `Cache`, which runs its server, and names a
module with a class `Client`, which runs in processes of its own.

A `Client` is made from what `Cache.where` returns and an `Identity`, and has:

- `save(chain, first, pages, limit)`: for each page None if it was saved, else a sentence;
- `load(chain, first, count, limit)`: for each page ("page", bytes), ("miss", why) or ("error", why). The memory that is
  loaded into holds `facts.POISON` before, and is returned as it is after a load that was reported as done;
- `found(chain, count, limit)`: the number of leading pages that the cache says it has; `close()`.

`limit` are seconds. A chain is a prompt; page `number` of it has the key `facts.key(chain, number)` for all engines.
"""

import dataclasses
import os
import pathlib
import subprocess

from facts import PAGE_BYTES


@dataclasses.dataclass(frozen=True)
class Identity:
    """Everything that must be equal for two engines to share pages."""

    model: str = "model-a"
    revision: str = "r1"
    dtype: str = "bfloat16"
    layout: str = "NHD"
    hash_algorithm: str = "sha256"
    salt: str = ""
    world_size: int = 1
    rank: int = 0
    layers: int = 2
    block_tokens: int = 16
    page_bytes: int = PAGE_BYTES
    # Not of the identity: the instance id of the engine's process (empty: one that no other has), how long found pages
    # stay leased (0: the default), and the number of pages that its memory has room for.
    instance: str = ""
    lease_seconds: float = 0.0
    pool_pages: int = 256


def installed(name):
    """Where scripts/engines and scripts/gauntlet install an environment."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "troupe" / "engines" / name


# What a cache may be able to do; cases name what they need.
ABILITIES = {
    "disk": "a tier on a disk",
    "durable index": "an index that survives a crash",
    "found": "a lookup apart from a load",
    "leases": "a lease whose duration a client chooses",
    "ranks": "a page of each of several ranks under one key",
    "damage in memory": "memory that a test can reach",
    "damage on disk": "a file that a test can damage",
    "network": "a client on another host",
    "eviction policies": "a choice of eviction policies",
    "preloads": "a process into which a test can load its faults",
    "servers": "a server process",
    "directories": "a directory that two servers could share",
    "disk faults": "a disk that a test can make fail",
    "engine": "a real engine on CPUs",
}


class Cache:
    name, title = "cache", "This cache"
    abilities = frozenset()
    client_module = ""
    # Eviction policies by name, and parts of an identity in which its clients cannot differ, each with the reason.
    policies, unknown_parts = (), {}
    # Whether it is run at its safest settings instead of its defaults.
    safest = False
    # The shortest lease that its settings allow, in seconds; 0: any.
    least_lease = 0.0
    # Settings in the terms of the cases, which every cache translates: `memory_pages`, `disk_pages` (0: no disk),
    # `durability` ("none", "relaxed", "strict"), `eviction`, `lease_seconds` where the server decides on it.
    SETTINGS = {"memory_pages": 512, "disk_pages": 0, "durability": "none", "eviction": ""}

    def __init__(self, directory, settings):
        self.directory, self.settings = pathlib.Path(directory), {**self.SETTINGS, **settings}
        self.directory.mkdir(parents=True, exist_ok=True)
        self.process, self.killed, self.patience = None, False, 60.0

    @classmethod
    def missing(cls):
        """Why it cannot be run here; None if it can."""
        return None

    @classmethod
    def version(cls):
        return ""

    def described(self):
        """Its settings as the report shows them."""
        return self.settings

    def python(self):
        """The interpreter of its clients; None: this one."""
        return None

    def environment(self):
        """Additional environment of its clients."""
        return {}

    def where(self):
        """Picklable: how clients find it."""
        raise NotImplementedError

    @classmethod
    def engine_command(cls, work):
        """The command that plays experiments with a real engine, whose names follow, and its environment. `work`: a
        directory for it. NotRun where the engine is not installed."""
        raise NotImplementedError

    def start(self, preload=None):
        """Starts its server and waits until it is ready. `preload`: environment with faults for it."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------------------------- the server

    def kill(self):
        """Ends it as in a power cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self):
        """Ends it in good order; whether it has ended in time."""
        if self.process is None:
            return True
        self.process.terminate()
        try:
            self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            return False
        self.process = None
        return True

    def close(self):
        """Ends it and removes what it has outside of its directory."""
        self.kill()

    def died(self):
        """A sentence if the server has ended by itself."""
        from processes import ended_by

        code = self.process.poll() if self.process is not None else None
        if code is None:
            return None
        self.process = None
        return f"the server {ended_by(code)}: {self.log_tail()}"

    def log_tail(self):
        log = self.directory / "log"
        return (log.read_text(errors="replace") if log.exists() else "").strip()[-300:]

    def memory_bytes(self):
        """Private memory of the server, without what it shares with clients."""
        if self.process is None:
            return 0
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0
