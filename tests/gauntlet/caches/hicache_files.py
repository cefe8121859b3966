"""SGLang's HiCache with its storage in files, `HiCacheFile` of PyPI, unchanged. It has no server: engines on one host
share a directory. What else is in an engine, its GPU's pages and the pool of host memory, is not played."""

import pathlib

import facts
from caches import cache
from caches.lmcache_server import damage_whole

VERSION = "0.5.23"
OF_THE_NAME = "its keys have the name under which a model is served, and engines with another one in this have another name"


class Cache(cache.Cache):
    name, title = "hicache", "SGLang's HiCache with its file backend"
    # Faults for a server are those of its clients here.
    abilities = frozenset(("disk", "found", "ranks", "damage on disk", "preloads", "disk faults"))
    client_module = "caches.hicache_client"
    unknown_parts = {"revision": OF_THE_NAME, "layers": OF_THE_NAME,
                     "hash_algorithm": "it has one",
                     "block_tokens": "its keys are hashes of a page's tokens, so pages of other sizes have other keys"}

    def __init__(self, directory, settings):
        super().__init__(directory, settings)
        self.files, self.faults = self.directory / "pages", {}

    @classmethod
    def missing(cls):
        if not (cache.installed(f"sglang-{VERSION}") / "complete").exists():
            return (f"SGLang {VERSION} is not installed: scripts/engines sglang --version {VERSION} --install-only "
                    "does that")
        return None

    @classmethod
    def version(cls):
        return VERSION

    def python(self):
        return str(cache.installed(f"sglang-{VERSION}") / "venv" / "bin" / "python")

    def environment(self):
        return self.faults

    def max_size(self):
        return (self.settings["disk_pages"] or self.settings["memory_pages"]) * facts.PAGE_BYTES

    def described(self):
        return {"max_size": self.max_size()}

    def where(self):
        return {"directory": str(self.files), "max_size": self.max_size()}

    def start(self, preload=None):
        self.faults = dict(preload or {})
        self.files.mkdir(exist_ok=True)
        return self

    def damage_disk(self, share, dice):
        return sum(damage_whole(path, dice) for path in sorted(self.files.glob("*.bin")) if dice.random() < share)

    def disk_files(self):
        return str(self.files)
