"""A client of Mooncake Store, as vLLM's connector for it: batches of keys, in and out of registered memory."""

import ctypes
import threading

import facts
from mooncake.store import MooncakeDistributedStore

LOCAL_BYTES = 16 << 20
NOT_FOUND = -704


class Client:
    def __init__(self, where, identity):
        self.identity, self.lock = identity, threading.Lock()
        self.page_bytes = identity.page_bytes
        self.memory = ctypes.create_string_buffer(self.page_bytes * identity.pool_pages)
        self.base = ctypes.addressof(self.memory)
        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, LOCAL_BYTES, "tcp", "", where["master"])
        if code != 0:
            raise RuntimeError(f"setup answers {code}")
        self.store.register_buffer(self.base, len(self.memory))

    def _keys(self, chain, first, count):
        one = self.identity
        prefix = f"{one.model}@{one.world_size}@{one.rank}@{one.salt}@"
        return [prefix + facts.key(chain, first + i).hex() for i in range(count)]

    def _places(self, count):
        return [self.base + i * self.page_bytes for i in range(count)], [self.page_bytes] * count

    def save(self, chain, first, pages, limit):
        with self.lock:
            ctypes.memmove(self.base, b"".join(pages), self.page_bytes * len(pages))
            codes = self.store.batch_put_from(self._keys(chain, first, len(pages)), *self._places(len(pages)))
        return [None if code == 0 else f"code {code}" for code in codes]

    def load(self, chain, first, count, limit):
        with self.lock:
            ctypes.memset(self.base, facts.POISON[0], self.page_bytes * count)
            codes = self.store.batch_get_into(self._keys(chain, first, count), *self._places(count))
            return [self._outcome(code, i) for i, code in enumerate(codes)]

    def _outcome(self, code, number):
        if code == self.page_bytes:
            return "page", ctypes.string_at(self.base + number * self.page_bytes, self.page_bytes)
        return ("miss", "not found") if code == NOT_FOUND else ("error", f"code {code}")

    def found(self, chain, count, limit):
        with self.lock:
            there = self.store.batch_is_exist(self._keys(chain, 0, count))
        return next((i for i, code in enumerate(there) if code != 1), count)

    def close(self):
        self.store.close()
