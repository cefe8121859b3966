#!/usr/bin/env python3
"""Hits of a cluster of nodes, compared with one node that has as many slots as all of them.

A trace is split over engines, each of which plays its part at a node of its own, all at once: in turn, so that
conversations are spread over all nodes, or by conversation, like a prefix-aware router. One node plays the same parts
at once. Nodes are processes of this host and use the loopback interface; every byte is compared. The engines play a
slice of the trace at a time and then wait for each other, so that they stay close together in time. The result is
compared with that of plain LRU for the same parts, see cluster_model.py.

Slab files are in memory where there is /dev/shm: the slot of a page that is being written becomes free when the disk
has finished, and the delay of a disk is not the subject of this benchmark.

With --lookups: the duration of a lookup of 512 keys that no node has, at one node and at one of several, with delayed
messages between them, so that the number of round trips is visible.
"""

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zlib

import cluster_model
from processes import Nodes, free_ports

PAGE_BYTES = 4096
SLOT_BYTES = 8192
LOOKUP_KEYS = 512
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Line:
    """A port that forwards to another one with a delay in both directions."""

    def __init__(self, seconds, to):
        self.seconds, self.to = seconds, to
        self.loop = asyncio.new_event_loop()
        self.port = self.loop.run_until_complete(asyncio.start_server(self.connect, "127.0.0.1", 0)).sockets[
            0].getsockname()[1]
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    async def connect(self, here_reader, here_writer):
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.to)
            await asyncio.gather(self.carry(here_reader, there_writer), self.carry(there_reader, here_writer))
        except OSError:
            # The target does not listen yet, or no longer.
            here_writer.close()

    async def carry(self, reader, writer):
        while data := await reader.read(1 << 20):
            self.loop.call_later(self.seconds, writer.write, data)
        self.loop.call_later(self.seconds, writer.close)


class Cluster(Nodes):
    """Nodes with so many slots each; a single one is no cluster. `late`: seconds by which a message between two of
    them is delayed."""

    def __init__(self, troupe, directory, count, slots, eviction, cluster, late=0.0):
        ports = free_ports(count)
        seeds = [Line(late, port).port for port in ports] if late else ports
        configs = []
        for i in range(count):
            config = {
                "node_name": f"node-{i}", "data_dir": str(directory / f"data-{i}"),
                "actors": {"port": ports[i], "insecure": True},
                "http": {"enabled": True, "port": 0},
                "registry": {"durability": "none", "eviction": eviction},
                "memory": {"bytes": f"{slots * SLOT_BYTES + (64 << 20)} B"},
                "storage": {"ranks": [{"slab_bytes": f"{slots * SLOT_BYTES + 4096} B"}]},
                "namespaces": [{
                    "name": "bench", "model": "bench", "dtype": "bfloat16",
                    "kv_cache": {"layers": 1, "parts": 2, "heads": 1, "head_size": 2, "element_bytes": 2,
                                 "block_tokens": 512}}],
            }
            if count > 1:
                config["remote"] = {"enabled": True}
                config["attach"] = {"always_remote": True}
                config["cluster"] = {"name": "bench", "hello_interval": "500 ms",
                                     "seeds": [{"host": "127.0.0.1", "port": port} for port in seeds]}
                config["cluster"].update(cluster)
            configs.append(config)
        super().__init__(troupe, directory, configs)
        self.urls = [f"http://127.0.0.1:{ready['http']['port']}" for ready in self.ready]
        self.wait_until_connected()

    def peers(self):
        """Counters of fetches: pages that peers sent, pages that did not arrive, late answers, and all
        lookups at peers."""
        out = dict.fromkeys(("pages", "failed", "late", "asked"), 0)
        for url in self.urls:
            with urllib.request.urlopen(url + "/v1/cluster") as answer:
                for node in json.load(answer)["nodes"]:
                    for name in out:
                        out[name] += node[name]
        return out


def split(requests, parts, way):
    """The requests of each engine, with their numbers."""
    out = [[] for _ in range(parts)]
    for number, line in enumerate(requests):
        if way == "in turn":
            out[number % parts].append((number, line))
        else:
            ids = json.loads(line)["hash_ids"]
            # Most requests have the same first block.
            out[zlib.crc32(str((ids + [0])[:2][-1]).encode()) % parts].append((number, line))
    return out


def replay(troupe, directory, nodes, parts):
    """Plays each part at a node, all at once; returns their reports."""
    running = []
    for number, part in enumerate(parts):
        file = directory / f"part-{number}.jsonl"
        file.write_text("".join(part))
        address = nodes.addresses[number % len(nodes.addresses)]
        running.append(subprocess.Popen(
            [troupe, "replay", "--attach", address, "--trace", str(file), "--concurrency", "1", "--json", "--quiet"],
            stdout=subprocess.PIPE, text=True))
    reports = [json.loads(process.communicate()[0]) for process in running]
    wrong = sum(x["verify_failures"] + x["load_failures"] for x in reports)
    if wrong:
        sys.exit(f"{wrong} pages were wrong, or could not be loaded: {reports}")
    return reports


def measure(options, count, slices, slots, cluster):
    """The hit ratio, the p99 of lookups in µs, and the nodes' counters for their peers."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        directory = pathlib.Path(name)
        nodes = Cluster(options.troupe, directory, count, slots // count, options.eviction, cluster)
        try:
            reports = [x for parts in slices for x in replay(options.troupe, directory, nodes, parts)]
            hits = sum(x["hit_blocks"] for x in reports) / sum(x["blocks"] for x in reports)
            return hits, statistics.median(x["lookup_us"]["p99"] for x in reports), nodes.peers()
        finally:
            nodes.stop()


def measure_hits(options):
    requests = pathlib.Path(options.trace).read_text(encoding="utf-8").splitlines(keepends=True)[:options.limit]
    blocks = sum(len(json.loads(line)["hash_ids"]) for line in requests)
    print(f"{len(requests)} requests of {pathlib.Path(options.trace).name}, pages of {PAGE_BYTES} bytes,"
          f" registry.eviction {options.eviction}, cluster.ask_time {options.ask_time}")
    print("| slots | nodes | requests go | copies stay | hits of one node | of the cluster | | predicted, LRU |"
          " fetched | late answers | p99 of lookups, ms |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for slots in options.slots:
        for count in options.nodes:
            for way in options.way:
                parts = split(requests, count, way)
                modelled = [[(number, json.loads(line)["hash_ids"]) for number, line in part] for part in parts]
                slices = [[[line for number, line in part if number // options.slice == at] for part in parts]
                          for at in range(-(-len(requests) // options.slice))]
                alone, alone_late, _ = measure(options, 1, slices, slots, {})
                whole = cluster_model.play([sum(modelled, [])], slots, "both")[0]
                for copies in options.copies:
                    cluster = {"ask_time": options.ask_time, "keep_copies": copies == "here"}
                    ratio, late, peers = measure(options, count, slices, slots, cluster)
                    expected = cluster_model.play(modelled, slots, copies)[0]
                    print(f"| {slots} | {count} | {way} | {copies} | {alone:.4f} | {ratio:.4f} |"
                          f" {100 * (ratio - alone):+.1f} points | {100 * (expected - whole):+.1f} points |"
                          f" {100 * peers['pages'] / blocks:.1f} % of blocks | {peers['late']} of {peers['asked']} |"
                          f" {alone_late / 1000:.1f} → {late / 1000:.1f} |", flush=True)


def measure_lookups(options):
    """Looks up keys that no node has: the extra time in a cluster is that of asking peers."""
    requests = [json.dumps({"timestamp": n, "input_length": LOOKUP_KEYS * 512, "output_length": 0,
                            "hash_ids": list(range(n * LOOKUP_KEYS, (n + 1) * LOOKUP_KEYS))}) + "\n"
                for n in range(options.lookups)]
    print(f"Lookups of {LOOKUP_KEYS} keys that no node has, median of {options.lookups}")
    print("| a round trip between nodes takes | of one node, ms |"
          + "".join(f" of {count}, ms | more |" for count in options.nodes))
    print("|---|---|" + "---|---|" * len(options.nodes))
    for trip in (0.0, 0.01):
        taken = []
        for count in [1] + options.nodes:
            with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
                directory = pathlib.Path(name)
                nodes = Cluster(options.troupe, directory, count, (options.lookups + 2) * LOOKUP_KEYS, options.eviction,
                                {"ask_time": options.ask_time}, trip / 2)
                try:
                    taken.append(replay(options.troupe, directory, nodes, [requests])[0]["lookup_us"]["p50"] / 1e6)
                finally:
                    nodes.stop()
        row = f"| {f'{1000 * trip:.0f} ms' if trip else 'as it does on this host'} | {taken[0] * 1e3:.2f} |"
        for seconds in taken[1:]:
            more = f"{(seconds - taken[0]) / trip:.2f} round trips" if trip else f"{(seconds - taken[0]) * 1e3:.2f} ms"
            row += f" {seconds * 1e3:.2f} | {more} |"
        print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--trace", help="JSON lines in Mooncake's format; without it, no hits are counted")
    parser.add_argument("--slots", type=int, nargs="+", default=[10000, 30000], help="slots of all nodes together")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--way", nargs="+", default=["in turn", "by conversation"], help="how requests are spread")
    parser.add_argument("--copies", nargs="+", choices=["here", "home"], default=["here"],
                        help="values of cluster.keep_copies: true or false")
    parser.add_argument("--eviction", default="reuse", help="registry.eviction")
    parser.add_argument("--ask-time", default="50 ms", help="cluster.ask_time")
    parser.add_argument("--slice", type=int, default=600, help="requests between two synchronisations of all engines")
    parser.add_argument("--limit", type=int, help="number of requests of the trace")
    parser.add_argument("--lookups", type=int, default=0, help="number of lookups")
    options = parser.parse_args()
    if options.lookups:
        measure_lookups(options)
    if options.trace:
        measure_hits(options)


main()
