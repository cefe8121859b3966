"""A router over a node with two engines, and a third engine on another host: hits of requests that it routes by the
node's events, and hits of an oracle that asks the node before each request.

router_test.py TROUPE LIBTROUPE.SO

The two engines are pools of pages through the C interface, each with a small prefix cache of its own, as on a GPU. The
memory of the node is too small for all pages, so it evicts some. The third engine has no node, and keeps more itself.
For each request, a router prefers the engine with the longest prefix: in its own cache, and from there on in the node.
Both routers must find the same number of blocks at each engine for each request, and choose the same engine. Routers
that ignore a part of the events must get fewer hits: otherwise the traffic would not depend on them.
"""

import collections
import ctypes
import hashlib
import json
import pathlib
import random
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "engines"), str(ROOT / "tests")]

import node as engines_node  # noqa: E402
import streams  # noqa: E402
from free_ports import free_ports  # noqa: E402
from troupe import _halves, _interface, _library  # noqa: E402

PROGRAM = None
BLOCK, PAGE_BYTES, LIMIT = 16, 16384, 60.0
DOCUMENTS, LONGEST = 60, 12
OWN_BLOCKS, OWN_BLOCKS_ELSEWHERE = 24, 200
VOCABULARY = 50_000


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


class View:
    """The blocks that a node has, according to its events."""

    def __init__(self, ignored=()):
        self.there, self.ignored = set(), ignored
        self.counts = collections.Counter()

    def take(self, event):
        kind = event["type"]
        self.counts[kind] += len(event.get("block_hashes", "1"))
        if kind in self.ignored:
            return
        if kind == "AllBlocksCleared":
            self.there.clear()
        elif kind == "BlockRemoved":
            self.there.difference_update(event["block_hashes"])
        elif kind == "BlockStored":
            self.check(event)
            self.there.update(event["block_hashes"])
        else:
            raise ValueError(f"an event has the type {kind}")

    @staticmethod
    def check(event):
        """The hashes are those that the parent and the tokens have, so a router may go by either."""
        parent, tokens = event["parent_block_hash"], event["token_ids"]
        for number, block in enumerate(event["block_hashes"]):
            said = repr((parent, tokens[number * BLOCK:(number + 1) * BLOCK])).encode()
            if block != int.from_bytes(hashlib.sha256(said).digest()[:8], "big"):
                raise ValueError(f"block {block} is published with the parent and the tokens of another one")
            parent = block
        if event["block_size"] != BLOCK or len(tokens) != BLOCK * len(event["block_hashes"]):
            raise ValueError("an event has more or fewer tokens than its blocks")

    def has(self, blocks):
        return [block in self.there for block in blocks]


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

    def __init__(self, address):
        super().__init__(OWN_BLOCKS)
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


def leading(values):
    count = 0
    for value in values:
        if not value:
            break
        count += 1
    return count


class Router:
    """Chooses an engine; `source` says which blocks the node has."""

    def __init__(self, source):
        self.source, self.hits, self.mistakes = source, 0, 0

    def found(self, engines, blocks):
        """Blocks that each engine would not have to compute."""
        in_node = self.source.has(blocks)
        own = [engine.own_prefix(blocks) for engine in engines]
        return [count + (leading(in_node[count:]) if engine.uses_node else 0) for engine, count in zip(engines, own)]

    def choose(self, engines, blocks):
        """The engine with the longest prefix, and of several the one that had the fewest requests."""
        found = self.found(engines, blocks)
        return max(range(len(engines)), key=lambda number: (found[number], -engines[number].requests, -number))


class Nothing:
    @staticmethod
    def has(blocks):
        return [False] * len(blocks)


class World:
    """A node, engines, routers, and requests for beginnings of documents."""

    def __init__(self, directory, seed):
        endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        self.node = engines_node.node(PROGRAM, directory, memory="4 MiB", disk="0 B", durability="none", more={
            "events.endpoint": endpoint, "events.replay_endpoint": replay, "events.heartbeat": "10 ms",
            # A subscriber that misses a few batches gets these, and a snapshot only if it misses more.
            "events.buffer_batches": 64}).start()
        self.sockets = streams.Sockets()
        self.engines = [*(Engine(self.node.address) for _ in range(2)), LoneEngine(OWN_BLOCKS_ELSEWHERE)]
        self.view, self.unaware = View(), View(ignored=("BlockRemoved",))
        self.stream = streams.Stream(self.sockets, endpoint, replay, self.view, self.unaware)
        self.endpoints = endpoint, replay
        oracle = Oracle(self.node)
        self.routers = {"events": Router(self.view), "oracle": Router(oracle),
                        "without removals": Router(self.unaware), "without events": Router(Nothing)}
        self.dice, self.requests, self.asked = random.Random(seed), 0, 0
        self.documents = [[self.dice.randrange(VOCABULARY) for _ in range(LONGEST * BLOCK)] for _ in range(DOCUMENTS)]

    def close(self):
        for engine in self.engines:
            engine.close()
        self.stream.close()
        self.sockets.end()
        self.node.kill()

    def tokens(self):
        return self.dice.choice(self.documents)[:self.dice.randrange(2, LONGEST + 1) * BLOCK]

    def play(self, test, requests):
        """Routes by events, and compares with the other routers before each request."""
        for _ in range(requests):
            tokens = self.tokens()
            blocks = hashes_of(tokens)
            self.stream.catch_up(self.node)
            real = self.routers["oracle"].found(self.engines, blocks)
            test.assertEqual(self.routers["events"].found(self.engines, blocks), real)
            for router in self.routers.values():
                router.hits += real[router.choose(self.engines, blocks)]
                router.mistakes += router.found(self.engines, blocks) != real
            chosen = self.routers["events"].choose(self.engines, blocks)
            test.assertEqual(self.engines[chosen].serve(tokens), real[chosen])
            self.requests, self.asked = self.requests + 1, self.asked + len(blocks)

    def ratios(self):
        return {name: router.hits / self.asked for name, router in self.routers.items()}

    def wait_for_node(self, test):
        """Until its engines have the restarted node."""
        deadline = time.monotonic() + LIMIT
        for engine in self.engines[:2]:
            # No document has this block, and it is not described.
            while not engine.pool.put(key_of(0), [0], LIMIT)[0] == 0:
                test.assertLess(time.monotonic(), deadline, "an engine does not attach to the restarted node")
                time.sleep(0.05)


class RouterTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.world = World(self.directory.name, seed=20)
        self.addCleanup(self.world.close)

    def require_equal(self):
        world, ratios = self.world, self.world.ratios()
        said = ", ".join(f"{name} {ratio:.4f} ({world.routers[name].mistakes} wrong)" for name, ratio in ratios.items())
        print(f"\n{world.requests} requests, {world.view.counts['BlockRemoved']} blocks removed; hit ratios: {said}",
              file=sys.stderr)
        self.assertEqual(ratios["events"], ratios["oracle"])
        # The control: a part of the events is not enough.
        self.assertGreater(world.routers["without removals"].mistakes, 10)
        self.assertGreater(world.routers["without events"].mistakes, 10)
        self.assertGreater(world.view.counts["BlockRemoved"], 100)
        return ratios

    def test_hits_by_events_are_those_of_an_oracle(self):
        self.world.play(self, 400)
        ratios = self.require_equal()
        self.assertLess(ratios["without removals"], ratios["oracle"])
        self.assertLess(ratios["without events"], ratios["oracle"])
        self.assertEqual(self.world.stream.requests, 1)

    def test_also_with_lost_batches_a_late_subscriber_and_a_killed_node(self):
        world = self.world
        world.stream.lose_every = 7
        world.play(self, 150)
        self.assertGreater(world.stream.lost, 10)
        self.assertGreater(world.stream.requests, 10)

        late = View()
        stream = streams.Stream(world.sockets, *world.endpoints, late)
        self.addCleanup(stream.close)
        stream.catch_up(world.node)
        world.stream.catch_up(world.node)
        self.assertEqual(late.there, world.view.there)

        world.node.kill()
        world.node.start()
        world.wait_for_node(self)
        world.stream.catch_up(world.node)
        self.assertEqual(world.view.there, set())
        world.play(self, 150)
        self.require_equal()
        stream.catch_up(world.node)
        world.stream.catch_up(world.node)
        self.assertEqual(late.there, world.view.there)


if __name__ == "__main__":
    PROGRAM, library = sys.argv[1:3]
    _library.candidates = lambda: [library]
    unittest.main(argv=sys.argv[:1], warnings="ignore")
