#!/usr/bin/env python3
"""Hits of a cluster of nodes beside one node that has as many slots as all of them.

A trace is split over engines, each of which plays its part at a node of its own, all at once: in turn, so that what
belongs together is spread over all nodes, or by conversation, as a router does that looks at prefixes. One node plays
the same parts at once. Nodes are processes of this host and talk over the loopback interface; every byte is compared.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib

PAGE_BYTES = 4096
SLOT_BYTES = 8192


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Nodes:
    """So many nodes, each with so many slots; one of them is no cluster."""

    def __init__(self, troupe, directory, count, slots, eviction):
        ports = free_ports(count)
        self.processes, self.addresses, self.urls = [], [], []
        logs = [directory / f"log-{i}" for i in range(count)]
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
                                     "seeds": [{"host": "127.0.0.1", "port": port} for port in ports]}
            file = directory / f"node-{i}.json"
            file.write_text(json.dumps(config))
            with open(logs[i], "w", encoding="utf-8") as log:
                self.processes.append(subprocess.Popen([troupe, "serve", "--config", str(file)], text=True,
                                                       stdout=subprocess.PIPE, stderr=log))
        for process in self.processes:
            ready = json.loads(process.stdout.readline() or "null")
            if not ready:
                sys.exit("a node does not start")
            self.addresses.append(ready["actors"]["socket"])
            self.urls.append(f"http://127.0.0.1:{ready['http']['port']}")
        while not all(log.read_text(encoding="utf-8").count("are fetched from") >= count - 1 for log in logs):
            if any(process.poll() is not None for process in self.processes):
                sys.exit("a node has ended")
            time.sleep(0.1)

    def fetched(self):
        """Pages that came from other nodes."""
        pages = 0
        for url in self.urls:
            with urllib.request.urlopen(url + "/v1/cluster") as answer:
                pages += sum(node["pages"] for node in json.load(answer)["nodes"])
        return pages

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)


def split(requests, parts, way):
    """Files of requests, in their order."""
    out = [[] for _ in range(parts)]
    for number, line in enumerate(requests):
        if way == "in turn":
            out[number % parts].append(line)
        else:
            ids = json.loads(line)["hash_ids"]
            # The first block is the same for most.
            out[zlib.crc32(str((ids + [0])[:2][-1]).encode()) % parts].append(line)
    return out


def play(troupe, directory, nodes, parts):
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
    hits = sum(x["hit_blocks"] for x in reports)
    blocks = sum(x["blocks"] for x in reports)
    slowest = max(x["seconds"] for x in reports)
    return hits / blocks, blocks, slowest, max(x["lookup_us"]["p99"] for x in reports)


def measure(options, count, parts, slots):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        nodes = Nodes(options.troupe, directory, count, slots // count, options.eviction)
        try:
            ratio, blocks, seconds, late = play(options.troupe, directory, nodes, parts)
            return ratio, nodes.fetched() / blocks, seconds, late
        finally:
            nodes.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--trace", required=True, help="JSON lines, as those published with Mooncake")
    parser.add_argument("--slots", type=int, nargs="+", default=[10000, 30000], help="of all nodes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--eviction", default="reuse", help="registry.eviction")
    parser.add_argument("--limit", type=int, help="requests of the trace")
    options = parser.parse_args()
    requests = pathlib.Path(options.trace).read_text(encoding="utf-8").splitlines(keepends=True)[:options.limit]
    print(f"{len(requests)} requests of {pathlib.Path(options.trace).name}, pages of {PAGE_BYTES} bytes,"
          f" registry.eviction {options.eviction}")
    print("| slots | nodes | requests go | hits of one node | of the cluster | | fetched | p99 of lookups, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for slots in options.slots:
        for count in options.nodes:
            for way in ("in turn", "by conversation"):
                parts = split(requests, count, way)
                alone, _, _, alone_late = measure(options, 1, parts, slots)
                ratio, fetched, _, late = measure(options, count, parts, slots)
                print(f"| {slots} | {count} | {way} | {alone:.4f} | {ratio:.4f} | {100 * (ratio - alone):+.1f} points |"
                      f" {100 * fetched:.1f} % of blocks | {alone_late / 1000:.1f} → {late / 1000:.1f} |", flush=True)


main()
