"""Troupe's client: pages of host memory by key, through libtroupe.so."""

import ctypes
import threading

import facts
from troupe import _halves
from troupe._library import TroupeError, load

KEY_BYTES = 32
# By the numbers of troupe.h: the page is not there, or what is there is not the page.
MISSES = {1: "not found", 5: "expired", 7: "stale", 11: "identity mismatch", 12: "corrupt"}


class Client:
    def __init__(self, where, identity):
        self.page_bytes, self.pages_in_pool = identity.page_bytes, identity.pool_pages
        self.memory = ctypes.create_string_buffer(self.page_bytes * self.pages_in_pool)
        self.base = ctypes.addressof(self.memory)
        self.lock, self.free = threading.Condition(), list(range(self.pages_in_pool))
        self.connection = _halves.connection({"address": where["address"].encode(),
                                              "client_name": (identity.instance or "engine").encode()})
        piece = self.page_bytes // identity.layers
        views = [{"base": self.base + layer * piece, "bytes": len(self.memory) - layer * piece,
                  "block_stride": self.page_bytes} for layer in range(identity.layers)]
        ns = _halves.Namespace(
            {"layers": identity.layers, "page_tokens": identity.block_tokens, "opaque_block_bytes": piece},
            world_size=identity.world_size, model=identity.model, revision=identity.revision, dtype=identity.dtype,
            layout=identity.layout, hash_algorithm=identity.hash_algorithm, salt=identity.salt)
        options = {"rank": identity.rank, "key_bytes": KEY_BYTES, "lease_seconds": identity.lease_seconds,
                   "copy_threads": 1}
        self.pool = _halves.Pages(self.connection, ns, options, views, self.pages_in_pool)

    def save(self, chain, first, pages, limit):
        blocks = self._take(len(pages))
        try:
            for block, page in zip(blocks, pages):
                ctypes.memmove(self.base + block * self.page_bytes, page, self.page_bytes)
            codes = self.pool.put(keys(chain, first, len(pages)), blocks, limit)
            return [None if code == 0 else name_of(code) for code in codes]
        except TroupeError as error:
            return [str(error)] * len(pages)
        finally:
            self._give(blocks)

    def load(self, chain, first, count, limit):
        blocks = self._take(count)
        try:
            for block in blocks:
                ctypes.memset(self.base + block * self.page_bytes, facts.POISON[0], self.page_bytes)
            codes = self.pool.get(keys(chain, first, count), blocks, limit)
            return [self._outcome(code, block) for code, block in zip(codes, blocks)]
        except TroupeError as error:
            return [("error", str(error))] * count
        finally:
            self._give(blocks)

    def _outcome(self, code, block):
        if code == 0:
            return "page", ctypes.string_at(self.base + block * self.page_bytes, self.page_bytes)
        return ("miss", MISSES[code]) if code in MISSES else ("error", name_of(code))

    def found(self, chain, count, limit):
        return self.pool.exist(keys(chain, 0, count), count, limit)

    def close(self):
        self.pool.shutdown()

    def _take(self, count):
        """Blocks of the pool that no other thread uses."""
        with self.lock:
            self.lock.wait_for(lambda: len(self.free) >= count)
            taken, self.free = self.free[:count], self.free[count:]
            return taken

    def _give(self, blocks):
        with self.lock:
            self.free += blocks
            self.lock.notify_all()


def keys(chain, first, count):
    return b"".join(facts.key(chain, first + i) for i in range(count))


def name_of(code):
    return load().troupe_code_name(code).decode()
