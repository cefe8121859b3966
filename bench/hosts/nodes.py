#!/usr/bin/env python3
"""Pages from one node's memory to another node's, compared with ucx_perftest.

An engine saves at one of two nodes, both with pages in memory only. Another one, one request after the other, looks up
the same at the second node, which fetches all of it before it answers. The result is the bytes of a request by the
duration of its lookup, including all messages between engine and nodes before the first page and after the last one.
The two hosts are network namespaces with a virtual cable. Each round has new pages, which are moved in all ways, one
after the other.

In the same round ucx_perftest, whose server is on the first node's host, puts one page at a time over the same cable,
and Mooncake's transfer_engine_bench, where it is installed (mooncake-transfer-engine-non-cuda of PyPI), reads in the
clear and without a checksum.
"""

import argparse
import math
import pathlib
import shutil
import statistics
import tempfile

from processes import (Hosts, Nodes, best_threads, cpu_of, free_ports, may_be_apart, namespace_of, perftest,
                       transfer_engine)


class Pair(Nodes):
    """Two nodes; the second one fetches from the first."""

    def __init__(self, options, directory, hosts, port, page_bytes, pages, remote):
        directory.mkdir()
        ports = [port, port] if hosts.apart else free_ports(2)
        seeds = [{"host": host, "port": port} for host, port in zip(hosts.addresses, ports)]
        configs = []
        for i in range(2):
            config = {
                "node_name": f"node-{i}", "data_dir": str(directory / f"data-{i}"),
                "actors": {"host": hosts.addresses[i], "port": ports[i], "insecure": True},
                "remote": dict(remote, enabled=True), "attach": {"always_remote": hosts.apart},
                "cluster": {"name": "bench", "hello_interval": "500 ms", "ask_time": "10 s",
                            "fetch_time": "30 s", "seeds": seeds},
                "memory": {"bytes": f"{pages * (page_bytes + 8192) + (128 << 20)} B", "write_back": "never",
                           "client_bytes": "256 MiB"},
                "storage": {"ranks": [{"slab_bytes": "0 B"}]},
                "namespaces": [namespace_of(page_bytes)],
            }
            if options.cluster_mebibytes:
                config["cluster"]["memory_bytes"] = f"{options.cluster_mebibytes} MiB"
            configs.append(config)
        super().__init__(options.troupe, directory, configs, [hosts.on(i) for i in range(2)])
        self.wait_until_connected()

    def cpu(self):
        return sum(cpu_of(process.pid) for process in self.processes)

    def round(self, trace, salt, request_bytes):
        """GB/s of the lookups, and the cores that the two nodes use per GB/s."""
        saved = self.replay(0, trace, salt)
        assert saved["save_failures"] == 0, saved
        before = self.cpu()
        found = self.replay(1, trace, salt)
        used = self.cpu() - before
        assert found["load_failures"] == 0 and found["hit_blocks"] == found["blocks"], found
        return (request_bytes / 1e9 / (found["lookup_us"]["p50"] / 1e6),
                used / (found["loaded_bytes"] / 1e9))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=256,
                        help="MiB of pages that are fetched in a round, each way; at least four requests")
    parser.add_argument("--request-mebibytes", type=int, nargs="+", default=[32, 128],
                        help="MiB of pages of one lookup")
    parser.add_argument("--cluster-mebibytes", type=int, help="cluster.memory_bytes")
    parser.add_argument("--streams", type=int, default=0, help="remote.streams")
    parser.add_argument("--page-kibibytes", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--ways", nargs="+", help="ways to measure", default=["encrypted", "clear", "ucx"],
                        choices=["encrypted", "clear", "ucx"])
    options = parser.parse_args()
    options.has_perftest = shutil.which("ucx_perftest") is not None
    if not options.has_perftest:
        print("Left out: UCX, since ucx_perftest is not installed (ucx-utils)")
        options.ways = [way for way in options.ways if way != "ucx"]
    options.has_transfer_engine = shutil.which("transfer_engine_bench") is not None
    if not options.has_transfer_engine:
        print("Left out: transfer_engine_bench, which is not installed (mooncake-transfer-engine-non-cuda)")
    apart = may_be_apart()
    if not apart:
        print("Left out: network namespaces, since `ip netns add` does not work here; hosts are 127.0.0.1")
    print(f"From node to node; hosts are {'network namespaces' if apart else 'this one, twice: no network namespaces'};"
          f" medians of {options.rounds} rounds, GB/s; cores of both ends per GB/s")
    print("| page | request | way | Troupe | least to most | ucx_perftest | ratio | cores per GB/s | of ucx_perftest |")
    print("|---|---|---|---|---|---|---|---|---|")
    far = Hosts(apart)
    try:
        for kibibytes in options.page_kibibytes:
            for mebibytes in options.request_mebibytes:
                measure(options, far, kibibytes << 10, mebibytes << 20)
    finally:
        far.remove()


def measure(options, hosts, page_bytes, request_bytes):
    blocks = max(options.mebibytes << 20, 4 * request_bytes) // page_bytes
    length = request_bytes // page_bytes
    trace = f"loogle:{blocks // length},{length * 64},1,0"
    ucx = {"transport": "ucx", "ucx_transports": "tcp,self", "ucx_interfaces": hosts.interface}
    tcp = {"transport": "tcp"}
    if options.streams:
        tcp["streams"] = options.streams
    ways = {
        "encrypted": ("tcp, encrypted", dict(tcp, encrypt=True)),
        "clear": ("tcp, in the clear", dict(tcp, encrypt=False)),
        "ucx": ("ucx over tcp", ucx),
    }
    ways = {name: ways[name] for name in options.ways}
    with tempfile.TemporaryDirectory() as name:
        pairs = {}
        rates = {way: [] for way in ways}
        beside, engine = [], []
        threads = best_threads(hosts, page_bytes) if options.has_transfer_engine else 0
        try:
            # Room for two rounds, the warm-up. From then on pages of an older round are evicted, as in a node that has
            # been running for a while, and no memory is touched for the first time.
            for port, (way, (_, remote)) in enumerate(ways.items(), 7001):
                pairs[way] = Pair(options, pathlib.Path(name) / way, hosts, port, page_bytes,
                                  2 * blocks, remote)
            for salt in range(options.rounds + 3):
                for way, pair in pairs.items():
                    found = pair.round(trace, salt, length * page_bytes)
                    if salt > 2:
                        rates[way].append(found)
                if salt > 2 and options.has_perftest:
                    beside.append(perftest(hosts, "tcp,self", hosts.interface, "ucp_put_bw", page_bytes, 512 << 20))
                if salt > 2 and options.has_transfer_engine:
                    engine.append(transfer_engine(hosts, page_bytes, threads))
        finally:
            for pair in pairs.values():
                pair.stop()
    for way, (title, _) in ways.items():
        ours, cores = (statistics.median(column) for column in zip(*rates[way]))
        theirs, their_cores = (statistics.median(column) for column in zip(*beside)) if beside else (math.nan, math.nan)
        print(f"| {page_bytes >> 10} KiB | {request_bytes >> 20} MiB | {title} | {ours:.2f} |"
              f" {min(rates[way])[0]:.2f} to {max(rates[way])[0]:.2f} | {theirs:.2f} |"
              f" {ours / theirs:.2f} | {cores:.1f} | {their_cores:.1f} |", flush=True)
    if engine:
        theirs, their_cores = (statistics.median(column) for column in zip(*engine))
        print(f"| {page_bytes >> 10} KiB | {request_bytes >> 20} MiB | transfer_engine_bench, {threads} threads |"
              f" {theirs:.2f} | {min(engine)[0]:.2f} to {max(engine)[0]:.2f} | | | {their_cores:.1f} | |", flush=True)


main()
