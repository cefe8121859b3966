"""Engines without a model, which save, describe and load pages of a node through the C interface, and their requests."""

import collections
import ctypes
import hashlib
import json
import urllib.request

from troupe import _halves, _interface, _library

BLOCK, PAGE_BYTES, LONGEST, LIMIT = 16, 16384, 12, 60.0
VOCABULARY = 50_000


def documents(dice, count):
    return [[dice.randrange(VOCABULARY) for _ in range(LONGEST * BLOCK)] for _ in range(count)]


def beginning(dice, of):
    """A request: whole blocks of one of the documents."""
    return dice.choice(of)[:dice.randrange(2, LONGEST + 1) * BLOCK]


def hashes_of(tokens):
    """The hash of each full block, which depends on all tokens before it. Engines and routers compute the same ones."""
    out = []
    for first in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
        said = repr((out[-1] if out else None, list(tokens[first:first + BLOCK]))).encode()
        out.append(int.from_bytes(hashlib.sha256(said).digest()[:8], "big"))
    return out


def key_of(block):
    return hashlib.sha256(b"page %d" % block).digest()[:16]


def page_of(block):
    return block.to_bytes(8, "big") * (PAGE_BYTES // 8)


def leading(values):
    count = 0
    for value in values:
        if not value:
            break
        count += 1
    return count


class Oracle:
    """The blocks that a node has, according to the node. Looking has no effect on it."""

    def __init__(self, node):
        self.node = node

    def has(self, blocks):
        path = f"/v1/namespaces/{self.node.namespaces()[0]['id']}/exists"
        body = json.dumps({"keys": [key_of(block).hex() for block in blocks]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.node.metrics_port}{path}", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return [each["status"] == "ok" for each in json.load(answer)["results"]]


class LoneEngine:
    """Keeps the last blocks itself, and has no node."""

    uses_node = False

    def __init__(self, own_blocks):
        self.own, self.own_blocks, self.requests = collections.OrderedDict(), own_blocks, 0

    def own_prefix(self, blocks):
        return leading(block in self.own for block in blocks)

    def serve(self, tokens):
        """Blocks that need not be computed."""
        blocks = hashes_of(tokens)
        own = self.own_prefix(blocks)
        loaded = self.load_and_save(blocks, tokens, own)
        # The ends of prefixes are dropped before their beginnings.
        for block in reversed(blocks):
            self.own[block] = True
            self.own.move_to_end(block)
        while len(self.own) > self.own_blocks:
            self.own.popitem(last=False)
        self.requests += 1
        return own + loaded

    def load_and_save(self, blocks, tokens, own):
        return 0

    def close(self):
        pass


class Engine(LoneEngine):
    """Also loads blocks from a node, and saves and describes there those that it has computed."""

    uses_node = True

    def __init__(self, address, own_blocks):
        super().__init__(own_blocks)
        self.memory = ctypes.create_string_buffer(PAGE_BYTES * LONGEST)
        connection = _halves.Connection({"address": address.encode(), "wait_for_node_seconds": LIMIT})
        ns = _halves.Namespace({"layers": 1, "page_tokens": BLOCK, "opaque_block_bytes": PAGE_BYTES}, world_size=1,
                               model="test/routing", dtype="bfloat16")
        # The lease of what is found need not outlive the load behind it.
        self.pool = _halves.Pages(connection, ns, {"lease_seconds": 0.2, "copy_threads": 1},
                                  [{"base": ctypes.addressof(self.memory), "bytes": len(self.memory),
                                    "block_stride": PAGE_BYTES}], LONGEST)

    def load_and_save(self, blocks, tokens, own):
        loaded = self.load(blocks[own:])
        self.save(blocks[own + loaded:])
        self.describe(blocks, tokens, own)
        return loaded

    def load(self, blocks):
        keys = b"".join(map(key_of, blocks))
        found = self.pool.exist(keys, len(blocks), LIMIT) if blocks else 0
        codes = self.pool.get(keys[:16 * found], range(found), LIMIT) if found else []
        for number, code in enumerate(codes):
            if code == 0 and self.memory[number * PAGE_BYTES:(number + 1) * PAGE_BYTES] != page_of(blocks[number]):
                raise ValueError("a page was loaded that is not the one of its key")
        return leading(code == 0 for code in codes)

    def save(self, blocks):
        if blocks:
            for number, block in enumerate(blocks):
                self.memory[number * PAGE_BYTES:(number + 1) * PAGE_BYTES] = page_of(block)
            self.pool.put(b"".join(map(key_of, blocks)), range(len(blocks)), LIMIT)

    def describe(self, blocks, tokens, first):
        """What it has saved or found, as the plug-in for vLLM does."""
        count = len(blocks) - first
        if not count:
            return
        keys = b"".join(map(key_of, blocks[first:]))
        parts = {"keys": ctypes.create_string_buffer(keys, len(keys)),
                 "hashes": (ctypes.c_uint64 * count)(*blocks[first:]),
                 "parents": (ctypes.c_uint64 * count)(*([0, *blocks][first:first + count])),
                 "has_parent": (ctypes.c_uint8 * count)(*(int(n > 0) for n in range(first, len(blocks)))),
                 "tokens": (ctypes.c_uint32 * (BLOCK * count))(*tokens[first * BLOCK:len(blocks) * BLOCK])}
        _library.call("troupe_pages_describe", self.pool.handle, ctypes.byref(_interface.Descriptions(
            block_tokens=BLOCK, group_idx=-1, count=count,
            **{name: ctypes.addressof(part) for name, part in parts.items()})))
        # Descriptions are not answered. A lookup of the same connection is, after them.
        self.pool.exist(keys, count, LIMIT)

    def close(self):
        self.pool.shutdown()
