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
import hashlib
import pathlib
import random
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "engines"), str(ROOT / "tests")]

import node as engines_node  # noqa: E402
import streams  # noqa: E402
from free_ports import free_ports  # noqa: E402
from traffic import (BLOCK, LIMIT, Engine, LoneEngine, Oracle, beginning, documents, hashes_of, key_of,  # noqa: E402
                     leading)
from troupe import _library  # noqa: E402

PROGRAM = None
DOCUMENTS, OWN_BLOCKS, OWN_BLOCKS_ELSEWHERE = 60, 24, 200


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

    def __init__(self, directory, seed, topic="kv@{node}@{model}"):
        endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        self.node = engines_node.node(PROGRAM, directory, memory="4 MiB", disk="0 B", durability="none", more={
            "events.endpoint": endpoint, "events.replay_endpoint": replay, "events.heartbeat": "10 ms",
            "events.topic": topic,
            # A subscriber that misses a few batches gets these, and a snapshot only if it misses more.
            "events.buffer_batches": 64}).start()
        self.sockets = streams.Sockets()
        self.engines = [*(Engine(self.node.address, OWN_BLOCKS) for _ in range(2)), LoneEngine(OWN_BLOCKS_ELSEWHERE)]
        self.view, self.unaware = View(), View(ignored=("BlockRemoved",))
        self.stream = streams.Stream(self.sockets, endpoint, replay, self.view, self.unaware, topic=topic[:3].encode())
        self.endpoints = endpoint, replay
        oracle = Oracle(self.node)
        self.routers = {"events": Router(self.view), "oracle": Router(oracle),
                        "without removals": Router(self.unaware), "without events": Router(Nothing)}
        self.dice, self.requests, self.asked = random.Random(seed), 0, 0
        self.documents = documents(self.dice, DOCUMENTS)

    def close(self):
        for engine in self.engines:
            engine.close()
        self.stream.close()
        self.sockets.end()
        self.node.kill()

    def play(self, test, requests):
        """Routes by events, and compares with the other routers before each request."""
        for _ in range(requests):
            tokens = beginning(self.dice, self.documents)
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

    def start(self, **settings):
        self.world = World(self.directory.name, seed=20, **settings)
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
        self.start()
        self.world.play(self, 400)
        ratios = self.require_equal()
        self.assertLess(ratios["without removals"], ratios["oracle"])
        self.assertLess(ratios["without events"], ratios["oracle"])
        self.assertEqual(self.world.stream.requests, 1)

    def test_also_with_lost_batches_a_late_subscriber_and_a_killed_node(self):
        # The topic that vLLM has by default.
        self.start(topic="")
        world = self.world
        world.stream.lose_every = 7
        world.play(self, 150)
        self.assertGreater(world.stream.lost, 10)
        self.assertGreater(world.stream.requests, 10)

        late = View()
        stream = streams.Stream(world.sockets, *world.endpoints, late, topic=b"")
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
