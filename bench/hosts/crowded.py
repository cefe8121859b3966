#!/usr/bin/env python3
"""Concurrent requests that are fetched from another node with little memory for them.

One node has all pages, another one has memory for a few requests. An engine looks up and loads requests at the second
node, several at once: each is fetched concurrently with others, and pages of one may be evicted for another. Measures
the share of pages that is found, and the duration of lookups. Each round has new pages.
"""

import argparse
import pathlib
import statistics
import tempfile

from processes import Nodes, free_ports, namespace_of


def pair(troupe, directory, page_bytes, pages):
    ports = free_ports(2)
    configs = [{
        "node_name": f"node-{i}", "data_dir": str(directory / f"data-{i}"),
        "actors": {"host": "127.0.0.1", "port": ports[i], "insecure": True},
        "remote": {"enabled": True},
        "cluster": {"name": "bench", "hello_interval": "500 ms",
                    "seeds": [{"host": "127.0.0.1", "port": port} for port in ports]},
        "memory": {"bytes": f"{count * (page_bytes + 8192)} B", "write_back": "never", "client_bytes": "256 MiB"},
        "storage": {"ranks": [{"slab_bytes": "0 B"}]},
        "namespaces": [namespace_of(page_bytes)],
    } for i, count in enumerate(pages)]
    return Nodes(troupe, directory, configs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=16, help="requests of one round")
    parser.add_argument("--request-mebibytes", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--page-kibibytes", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--room", type=int, nargs="+", default=[16, 8, 4], help="requests that fit into memory")
    options = parser.parse_args()
    print(f"{options.at_once} requests of {options.request_mebibytes} MiB at once, of {options.requests}; medians of"
          f" {options.rounds} rounds")
    print("| page | memory for | found | least | lookups, p50, ms | p99, ms |")
    print("|---|---|---|---|---|---|")
    for kibibytes in options.page_kibibytes:
        for room in options.room:
            measure(options, kibibytes << 10, room)


def measure(options, page_bytes, room):
    length = (options.request_mebibytes << 20) // page_bytes
    trace = f"loogle:{options.requests},{length * 64},1,0"
    with tempfile.TemporaryDirectory() as name:
        nodes = pair(options.troupe, pathlib.Path(name), page_bytes,
                     [2 * options.requests * length, room * length])
        try:
            nodes.wait_until_connected()
            rounds = []
            for salt in range(options.rounds + 1):
                nodes.replay(0, trace, salt)
                found = nodes.replay(1, trace, salt, options.at_once)
                assert found["load_failures"] == 0, found
                if salt > 0:
                    rounds.append((found["hit_blocks"] / found["blocks"], found["lookup_us"]["p50"] / 1e3,
                                   found["lookup_us"]["p99"] / 1e3))
        finally:
            nodes.stop()
    hits, half, most = (statistics.median(column) for column in zip(*rounds))
    print(f"| {page_bytes >> 10} KiB | {room} requests | {hits:.3f} | {min(rounds)[0]:.3f} | {half:.0f} | {most:.0f} |",
          flush=True)


main()
