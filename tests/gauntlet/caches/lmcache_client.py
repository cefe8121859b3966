"""A client of LMCache's server, as its worker for CPUs (lmcache 0.5.6, transfer_context/worker_transfer.py): look up,
prepare, copy out of the shared memory or into it, commit."""

import hashlib
import itertools
import mmap
import os
import pathlib
import struct
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "engines"))
import lmcache_wire as wire  # noqa: E402

QUERY, FREE_LOCKS, REGISTER, UNREGISTER, PREPARE_STORE, COMMIT_STORE, PREPARE_RETRIEVE, COMMIT_RETRIEVE = \
    9, 12, 14, 15, 16, 17, 18, 19
PLANES = 1
POLL_SECONDS = 0.002


class Client:
    def __init__(self, where, identity):
        self.where, self.identity, self.lock, self.requests = where, identity, threading.RLock(), itertools.count()
        # Engines of the same name have the same number.
        name = f"{identity.instance or os.getpid()} {identity.rank}"
        self.instance = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        self.wire = self.pool = self.shape = self.dtype = None
        self._connect(30)

    def _connect(self, limit):
        self.wire = wire.client(self.where["port"], limit)
        one, chunk = self.identity, self.where["chunk"]
        size = 1 if one.dtype.startswith("float8") else 2
        hidden = one.page_bytes // (one.layers * chunk * size * PLANES)
        self.shape, self.dtype = [one.layers, chunk, hidden], "float8_e4m3fn" if size == 1 else one.dtype
        said = self.wire.call(REGISTER, {
            "instance_id": self.instance, "model_name": one.model, "world_size": one.world_size,
            "block_size": min(one.block_tokens, chunk), "num_layers": one.layers,
            "hidden_dim_size": hidden, "dtype_str": self.dtype, "use_mla": True, "num_physical_slots": chunk})
        if not said["shm_name"]:
            raise RuntimeError("the server has no shared memory")
        with open(pathlib.Path("/dev/shm", said["shm_name"].lstrip("/")), "r+b") as file:
            self.pool = mmap.mmap(file.fileno(), said["pool_size"])

    def _key(self, chain, first, end, request, worker=True):
        chunk, one = self.where["chunk"], self.identity
        tokens = [token for number in range(end) for token in tokens_of(chain, number, chunk)]
        out = wire.key_of(tokens, first * chunk, end * chunk, request, one.rank if worker else None, one.model,
                          one.world_size)
        return {**out, "cache_salt": one.salt}

    def _guarded(self, limit, count, function):
        """The result of the function; failures of the connection are errors, after which it is made anew."""
        with self.lock:
            try:
                if self.wire is None:
                    self._connect(limit)
                return function()
            except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
                self.wire = None
                return [("error", f"{type(error).__name__}: {error}")] * count

    def save(self, chain, first, pages, limit):
        out = self._guarded(limit, len(pages), lambda: self._save(chain, first, pages))
        return [each[1] if isinstance(each, tuple) else each for each in out]

    def _save(self, chain, first, pages):
        key = self._key(chain, first, first + len(pages), self._request())
        prepared = self.wire.call(PREPARE_STORE, key, self.instance)
        slots, places = prepared["context"].get("slots"), prepared["context"].get("chunk_indices", [])
        if slots is None:
            return ["the server did not give a place"] * len(pages)
        if not slots:
            # All of them are stored already.
            self.wire.call(wire.END_SESSION, key["request_id"])
            return [None] * len(pages)
        for slot, place in zip(slots, places):
            page = pages[place]
            if slot["length"] != len(page):
                raise ValueError(f"a place of {slot['length']} bytes for a page of {len(page)}")
            self.pool[slot["offset"]:slot["offset"] + slot["length"]] = page
        done = self.wire.call(COMMIT_STORE, key, self.instance, b"")
        self.wire.call(wire.END_SESSION, key["request_id"])
        return [None if done else "commit_store answers false"] * len(pages)

    def load(self, chain, first, count, limit):
        return self._guarded(limit, count, lambda: self._load(chain, first, count, limit))

    def _load(self, chain, first, count, limit):
        request = self._request()
        found = min(self._hits(chain, first + count, request, limit), first + count)
        if found <= first:
            self.wire.call(wire.END_SESSION, request)
            return [("miss", "not found")] * count
        key = self._key(chain, first, found, request)
        prepared = self.wire.call(PREPARE_RETRIEVE, key, self.instance)
        out = [("error", "prepare_retrieve answers false")] * (found - first)
        if prepared["success"]:
            slots = prepared["context"].get("slots", [])
            out = [self._page(slot) for slot in slots]
            out += [("error", "no place for it in the answer")] * (found - first - len(out))
            held = self.wire.call(COMMIT_RETRIEVE, key, self.instance)
            # LMCache's own worker does not look at this answer.
            if self.where["safest"] and not held:
                out = [("error", "commit_retrieve answers false")] * (found - first)
        self.wire.call(wire.END_SESSION, request)
        return out + [("miss", "not found")] * (count - len(out))

    def _page(self, slot):
        """What lies in a place of the pool. The answer names the shape and dtype that it was stored with, which may be
        those of another engine."""
        described = slot["length"], list(slot["shape"]), slot["dtype"]
        if described != (self.identity.page_bytes, self.shape, self.dtype):
            return "error", f"a page of another shape: {slot['shape']} {slot['dtype']}"
        return "page", bytes(self.pool[slot["offset"]:slot["offset"] + slot["length"]])

    def _hits(self, chain, count, request, limit):
        """Chunks of the prefix that are found, and locked until they are retrieved."""
        self.wire.call(wire.LOOKUP, self._key(chain, 0, count, request, worker=False), self.identity.world_size)
        deadline = time.monotonic() + limit
        while (hits := self.wire.call(QUERY, request)) is None:
            if time.monotonic() > deadline:
                raise RuntimeError("the lookup has no result")
            time.sleep(POLL_SECONDS)
        return hits

    def found(self, chain, count, limit):
        def work():
            request = self._request()
            hits = self._hits(chain, count, request, limit)
            if hits:
                self.wire.call(FREE_LOCKS, self._key(chain, 0, hits, request, worker=False), self.identity.world_size)
            self.wire.call(wire.END_SESSION, request)
            return [hits]

        out = self._guarded(limit, 1, work)[0]
        return out if isinstance(out, int) else 0

    def close(self):
        with self.lock:
            if self.wire is not None:
                self.wire.call(UNREGISTER, self.instance)
                self.wire.close()

    def _request(self):
        return f"request {os.getpid()} {next(self.requests)}"


def tokens_of(chain, number, count):
    """The tokens of a page, which stand for its key."""
    digest = hashlib.shake_128(f"{chain}/{number}".encode()).digest(4 * count)
    return [token & 0x7FFFFFFF for token in struct.unpack(f"{count}I", digest)]
