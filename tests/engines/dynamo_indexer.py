"""Compares what Dynamo's KV indexer learns from a node's events with what lookups find there.

Usage: PYTHONPATH=python TROUPE_LIBRARY=build/release/libtroupe.so PYTHON tests/engines/dynamo_indexer.py build/release/troupe

PYTHON has ai-dynamo-runtime. An engine with a pool of pages saves and describes chains of 16 pages, more than there is
room for. Then the indexer, and then the node, are killed and started again. Fails where the indexer knows a page that
is not there; answers may be shorter where pages of a chain are in memory behind others that are on disk.
"""

import ctypes
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from troupe import _interface, _library

PAGE_BYTES, BLOCKS, TOKENS, CHAIN, MODEL = 16384, 64, 16, 16, "test/dynamo"
PORT = 18092


def sized(kind, **values):
    out = kind()
    out.size = ctypes.sizeof(kind)
    for name, value in values.items():
        setattr(out, name, value)
    return out


def call(name, *arguments):
    error = sized(_interface.Error)
    if getattr(_library.load(), name)(*arguments, ctypes.byref(error)):
        raise RuntimeError(f"{name}: {error.text.decode()}")


def key(n):
    return (n + 1).to_bytes(8, "big") + (77).to_bytes(8, "big")


def tokens(n):
    return [(n * TOKENS + i) % 50000 for i in range(TOKENS)]


class Pool:
    def __init__(self, address):
        self.connection, self.pages = ctypes.c_void_p(), ctypes.c_void_p()
        options = sized(_interface.ConnectOptions, address=address.encode(), wait_for_node_seconds=10)
        call("troupe_connect", ctypes.byref(options), ctypes.byref(self.connection))
        self.memory = ctypes.create_string_buffer(PAGE_BYTES * BLOCKS)
        geometry = sized(_interface.Geometry, layers=1, page_tokens=TOKENS, opaque_block_bytes=PAGE_BYTES)
        ns = sized(_interface.Namespace, model=MODEL.encode(), dtype=b"bfloat16", world_size=1,
                   geometry=ctypes.pointer(geometry))
        layer = _interface.Layer(ctypes.addressof(self.memory), PAGE_BYTES * BLOCKS, PAGE_BYTES)
        call("troupe_pages_create", self.connection, ctypes.byref(ns), ctypes.byref(sized(_interface.PagesOptions)),
             ctypes.byref(layer), 1, BLOCKS, ctypes.byref(self.pages))

    def save(self, numbers):
        keys, done = b"".join(map(key, numbers)), ctypes.c_size_t()
        blocks = (ctypes.c_uint32 * len(numbers))(*range(len(numbers)))
        call("troupe_pages_put", self.pages, keys, blocks, len(numbers), 20.0, None, ctypes.byref(done))
        count = len(numbers)
        parts = {"keys": ctypes.create_string_buffer(keys, len(keys)),
                 "hashes": (ctypes.c_uint64 * count)(*(n + 10**12 for n in numbers)),
                 "parents": (ctypes.c_uint64 * count)(*(n + 10**12 - 1 for n in numbers)),
                 "has_parent": (ctypes.c_uint8 * count)(*(int(n % CHAIN > 0) for n in numbers)),
                 "tokens": (ctypes.c_uint32 * (TOKENS * count))(*(t for n in numbers for t in tokens(n)))}
        described = sized(_interface.Descriptions, block_tokens=TOKENS, group_idx=-1, count=count,
                          **{name: ctypes.cast(part, ctypes.c_void_p) for name, part in parts.items()})
        call("troupe_pages_describe", self.pages, ctypes.byref(described))

    def leading(self, numbers):
        found = ctypes.c_size_t()
        call("troupe_pages_exist", self.pages, b"".join(map(key, numbers)), len(numbers), 10.0, ctypes.byref(found))
        return found.value


def serve(program, config):
    node = subprocess.Popen([program, "serve", "--config", str(config)], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    return node, json.loads(node.stdout.readline())


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def start_indexer(events):
    indexer = subprocess.Popen([sys.executable, "-m", "dynamo.indexer", "--port", str(PORT)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(150):
        try:
            ask("/workers")
            break
        except OSError:
            time.sleep(0.2)
    ask("/register", {"worker_id": 1, "instance_id": 1, "model_name": MODEL, "block_size": TOKENS, **events})
    time.sleep(3)
    return indexer


def compare(what, pool, pages, prompts=300):
    shorter = longer = found = 0
    for _ in range(prompts):
        first = random.randrange(pages // CHAIN) * CHAIN
        chain = range(first, first + CHAIN)
        real = pool.leading(chain) * TOKENS
        answer = ask("/query", {"token_ids": [t for n in chain for t in tokens(n)], "model_name": MODEL})
        known = max((x["longest_matched"] for x in answer["instances"].values()), default=0)
        found, shorter, longer = found + real, shorter + (known < real), longer + (known > real)
    print(f"{what}: {prompts} prompts, {found} tokens found; the indexer knows less for {shorter}, more for {longer}")
    return longer == 0


def main(program):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        config = folder / "node.json"
        values = {"data_dir": str(folder / "data"), "namespaces": [], "memory": {"bytes": "16 MiB"},
                  "storage": {"ranks": [], "disk_bytes": "64 MiB"}, "actors": {"socket": str(folder / "socket")},
                  "events": {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0",
                             "heartbeat": "1 s"}}
        config.write_text(json.dumps(values))
        node, ready = serve(program, config)
        values["events"].update(ready["events"])
        config.write_text(json.dumps(values))
        pool, indexer = Pool(str(folder / "socket")), start_indexer(ready["events"])
        try:
            pool.save(range(BLOCKS))
            time.sleep(2)
            good = compare("before evictions", pool, BLOCKS)
            pages = 100 * BLOCKS
            for first in range(BLOCKS, pages, BLOCKS):
                pool.save(range(first, first + BLOCKS))
            time.sleep(3)
            good &= compare("after evictions", pool, pages)
            indexer.kill()
            indexer.wait()
            indexer = start_indexer(ready["events"])
            good &= compare("after kill -9 of the indexer", pool, pages)
            node.send_signal(signal.SIGKILL)
            node.wait()
            node, ready = serve(program, config)
            time.sleep(6)
            good &= compare("after kill -9 of the node", pool, pages)
            pool.save(range(BLOCKS))
            time.sleep(2)
            good &= compare("after pages were saved again", pool, BLOCKS)
        finally:
            indexer.kill()
            node.kill()
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
