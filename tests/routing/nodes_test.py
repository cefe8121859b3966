"""Events of the nodes of a cluster: each says what it holds itself, also pages that it has fetched from the other one,
and what it still holds after a crash.

nodes_test.py TROUPE LIBTROUPE.SO

Each node has an engine and is too small for all pages. What a subscriber knows of a node must be what the node has of
all blocks that were ever saved, with the tokens and parents that the engines have said.
"""

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
from router_test import View  # noqa: E402
from traffic import LIMIT, Engine, Oracle, beginning, documents, hashes_of  # noqa: E402
from troupe import _library  # noqa: E402

PROGRAM = None


class Host:
    """A node, an engine, and a subscriber that loses every seventh batch."""

    def __init__(self, directory, name, sockets):
        endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        self.node = engines_node.node(PROGRAM, directory / name, memory="4 MiB", disk="6 MiB", remote=True, more={
            "node_name": name, "events.endpoint": endpoint, "events.replay_endpoint": replay,
            "events.heartbeat": "10 ms", "memory.huge_pages": "off"})
        self.view, self.engine = View(), None
        self.stream = streams.Stream(sockets, endpoint, replay, self.view, topic=f"kv@{name}@".encode())
        self.stream.lose_every = 7

    def join(self, hosts):
        self.node.configure({"cluster.name": "routed", "cluster.seeds": [
            {"host": "127.0.0.1", "port": each.node.port} for each in hosts]})
        self.node.start()

    def attach(self):
        self.engine = Engine(str(self.node.directory / "data"), 0)

    def detach(self):
        if self.engine is not None:
            self.engine.close()
        self.engine = None

    def fetched(self):
        return engines_node.total(self.node.samples(), "troupe_peer_pages_total")

    def require_known(self, test, blocks):
        """Waits until the subscriber knows what the node has of these blocks: moves between tiers come with time."""
        deadline = time.monotonic() + LIMIT
        while True:
            self.stream.catch_up(self.node)
            there = {block for block, has in zip(blocks, Oracle(self.node).has(blocks)) if has}
            if self.view.there == there or time.monotonic() > deadline:
                break
        test.assertEqual(self.view.there, there)
        return there


class NodesOfACluster(unittest.TestCase):
    def test_each_publishes_what_it_holds_also_after_a_crash(self):
        directory = tempfile.TemporaryDirectory(prefix="troupe-routing-")
        self.addCleanup(directory.cleanup)
        sockets = streams.Sockets()
        self.addCleanup(sockets.end)
        hosts = [Host(pathlib.Path(directory.name), name, sockets) for name in ("one", "two")]
        for each in hosts:
            self.addCleanup(each.node.kill)
            self.addCleanup(each.stream.close)
            each.join(hosts)
        for each in hosts:
            each.attach()
            self.addCleanup(each.detach)
        one, two = hosts
        dice, said = random.Random(41), {}
        texts = documents(dice, 40)

        def serve(host, count):
            for _ in range(count):
                tokens = beginning(dice, texts)
                said.update((block, None) for block in hashes_of(tokens))
                host.engine.serve(tokens)

        serve(one, 30)
        before = one.require_known(self, list(said))
        self.assertGreater(len(before), 50)
        self.assertEqual(two.require_known(self, list(said)), set())
        # What the other node fetches and its engine describes is in both streams.
        deadline = time.monotonic() + LIMIT
        while two.fetched() <= 20 and time.monotonic() < deadline:
            serve(two, 10)
        self.assertGreater(two.fetched(), 20)
        there = [each.require_known(self, list(said)) for each in hosts]
        self.assertGreater(len(there[0] & there[1]), 20)
        for _ in range(4):
            for each in hosts:
                serve(each, 25)
        there = [each.require_known(self, list(said)) for each in hosts]
        self.assertGreater(one.view.counts["BlockRemoved"], 50)
        # The index has what engines have said: no engine has to describe anything again.
        one.detach()
        one.node.kill()
        one.node.start()
        again = one.require_known(self, list(said))
        self.assertGreater(len(again), 50)
        self.assertLessEqual(again, there[0])
        self.assertEqual(two.require_known(self, list(said)), there[1])
        one.attach()
        serve(one, 60)
        one.require_known(self, list(said))


if __name__ == "__main__":
    PROGRAM, library = sys.argv[1:3]
    _library.candidates = lambda: [library]
    unittest.main(argv=sys.argv[:1], warnings="ignore")
