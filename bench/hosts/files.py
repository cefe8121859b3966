#!/usr/bin/env python3
"""Pages of another node, from its slab files compared with the network.

Two nodes have their slab files in one directory, and two more share nothing. An engine saves at the first node of each
pair and waits until everything is on disk; another one loads the same at the second, which has to fetch everything.
Each round measures both ways, one after the other, with new pages; every byte is compared.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
import urllib.request

from processes import Nodes, free_ports, namespace_of


class Pair(Nodes):
    """Two nodes; the second one fetches from the first."""

    def __init__(self, troupe, directory, page_bytes, pages, shared, encrypt):
        directory.mkdir()
        slot = page_bytes + 4096
        ports = free_ports(2)
        configs = []
        for i in range(2):
            config = {
                "node_name": f"node-{i}", "data_dir": str(directory / f"data-{i}"),
                "actors": {"port": ports[i], "insecure": True}, "http": {"enabled": True, "port": 0},
                "remote": {"enabled": True, "encrypt": encrypt}, "attach": {"always_remote": True},
                "cluster": {"name": "bench", "hello_interval": "500 ms", "fetch_time": "20 s",
                            "seeds": [{"host": "127.0.0.1", "port": port} for port in ports]},
                "memory": {"bytes": f"{pages * slot + (256 << 20)} B"},
                "storage": {"ranks": [{"slab_bytes": f"{pages * slot + 4096} B"}], "shared": shared},
                "namespaces": [namespace_of(page_bytes)],
            }
            configs.append(config)
        super().__init__(troupe, directory, configs)
        self.urls = [f"http://127.0.0.1:{ready['http']['port']}" for ready in self.ready]
        while not all(x["state"] != "unreachable" and (x["state"] == "self" or x["namespaces"]) for x in self.peers()):
            time.sleep(0.1)

    def get(self, i, path):
        with urllib.request.urlopen(self.urls[i] + path, timeout=30) as answer:
            return answer.read().decode()

    def peers(self):
        return json.loads(self.get(1, "/v1/cluster"))["nodes"]

    def counter(self, i, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get(i, "/metrics").splitlines()
                   if line.startswith(name))

    def round(self, trace, salt):
        """GB/s of a replay that fetched all of its pages, and the share of pages from files."""
        saved = self.replay(0, trace, salt, at_once=4, transfer_only=False)
        while self.counter(0, "troupe_memory_dirty_bytes") > 0:
            time.sleep(0.05)
        before = [sum(x[key] for x in self.peers()) for key in ("bytes", "file_bytes")]
        found = self.replay(1, trace, salt, at_once=4, transfer_only=False)
        after = [sum(x[key] for x in self.peers()) for key in ("bytes", "file_bytes")]
        assert found["verify_failures"] == 0 and found["hit_blocks"] == found["blocks"], found
        assert saved["save_failures"] == 0
        fetched = after[0] - before[0]
        return fetched / 1e9 / found["seconds"], (after[1] - before[1]) / max(fetched, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=256, help="MiB of pages that are fetched in a round")
    parser.add_argument("--page-kibibytes", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--directory", help="directory to measure; by default that of temporary files")
    options = parser.parse_args()
    print(f"Fetched by one node from another of the same host; medians of {options.rounds} rounds")
    print("| page | way | GB/s | least to most | pages from files |")
    print("|---|---|---|---|---|")
    for kibibytes in options.page_kibibytes:
        measure(options, kibibytes << 10)


def measure(options, page_bytes):
    blocks = (options.mebibytes << 20) // page_bytes
    length = min(blocks, 32)
    trace = f"loogle:{blocks // length},{length * 64},1,0"
    ways = {"files": (True, True), "network, encrypted": (False, True), "network, in the clear": (False, False)}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        pairs = {}
        try:
            for i, (name, (shared, encrypt)) in enumerate(ways.items()):
                pairs[name] = Pair(options.troupe, pathlib.Path(directory) / str(i), page_bytes,
                                   blocks * (options.rounds + 2), shared, encrypt)
            rates = {name: [] for name in ways}
            shares = {name: [] for name in ways}
            for salt in range(options.rounds + 1):
                for name, pair in pairs.items():
                    rate, share = pair.round(trace, salt)
                    if salt > 0:  # the first one is a warm-up
                        rates[name].append(rate)
                        shares[name].append(share)
            for name in ways:
                print(f"| {page_bytes >> 10} KiB | {name} | {statistics.median(rates[name]):.2f} |"
                      f" {min(rates[name]):.2f} to {max(rates[name]):.2f} | {statistics.mean(shares[name]):.0%} |")
        finally:
            for pair in pairs.values():
                pair.stop()


if __name__ == "__main__":
    main()
