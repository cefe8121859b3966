#!/usr/bin/env python3
"""Pages through the C interface at a node in another process: puts into fresh and into used memory, gets, and lookups
of one key.

run.py TROUPE LOAD [--before TROUPE LIBRARY_DIRECTORY] [--rounds N] [--gigabytes G] [--sizes BYTES,…] [--threads N]
       [--callers N,…]

LOAD is troupe-bench-pages. --before names another build of troupe and the directory of its libtroupe.so.1: both are
measured in turns, with a node of their own each time. The first puts of a node meet fresh memory, later ones used
memory, as the node has room for the pages of one round. Numbers are medians.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PASSES = 4
SIZES = {65536: 2, 2 << 20: 2, 8 << 20: 2}


def node_of(place, memory_bytes):
    config = pathlib.Path(place) / "node.json"
    config.write_text(json.dumps({
        "node_name": "bench", "data_dir": f"{place}/data", "log_level": "error",
        "actors": {"socket": "troupe.sock", "make_namespaces": True},
        "memory": {"bytes": f"{memory_bytes} B"}, "storage": {"disk_bytes": "0 B", "ranks": []},
        "registry": {"durability": "relaxed", "eviction": "lru"}}))
    return config


def measured(troupe, load, library, page_bytes, callers, given):
    pages = max(given.gigabytes * 10**9 // page_bytes, 8)
    slots = 64 * 1024 * 1024 // (page_bytes + 4096)  # of an extent
    memory = (-(-pages // slots) + 2) * (64 << 20)
    environment = dict(os.environ, **({"LD_LIBRARY_PATH": library} if library else {}))
    with tempfile.TemporaryDirectory(prefix="troupe-bench-pages-") as place:
        config = node_of(place, memory)
        node = subprocess.Popen([troupe, "serve", "--config", str(config)], stdout=subprocess.PIPE, text=True)
        try:
            if not node.stdout.readline():
                raise SystemExit(f"{troupe} did not start")
            done = subprocess.run(
                [load, f"{place}/data", str(pages), str(page_bytes), str(SIZES.get(page_bytes, 1)), str(callers),
                 str(PASSES), str(given.threads)], stdout=subprocess.PIPE, text=True, check=True, env=environment,
                timeout=600)
        finally:
            node.terminate()
            node.wait(60)
    return json.loads(done.stdout)


def columns(results):
    """Medians: puts into fresh memory, into used memory, gets, lookups (p50, p99)."""
    middle = statistics.median
    if any(each["missing"] or each["wrong"] for each in results):
        raise SystemExit(f"missing or wrong pages: {results}")
    return (middle(each["put"][0] for each in results), middle(x for each in results for x in each["put"][1:]),
            middle(x for each in results for x in each["get"]), middle(each["exist_us"][0] for each in results),
            middle(each["exist_us"][1] for each in results))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("load")
    parser.add_argument("--before", nargs=2, metavar=("TROUPE", "LIBRARY_DIRECTORY"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=int, default=1)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--callers", default="1,2")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    builds = {"now": (given.troupe, None)}
    if given.before:
        builds = {"before": tuple(given.before), **builds}
    print("page bytes, callers, build: put fresh, put, get in GB/s; one key p50, p99 in µs", flush=True)
    for page_bytes in map(int, given.sizes.split(",")):
        for callers in map(int, given.callers.split(",")):
            found = {name: [] for name in builds}
            for _ in range(given.rounds):
                for name, (troupe, library) in builds.items():
                    found[name].append(measured(troupe, given.load, library, page_bytes, callers, given))
            for name, results in found.items():
                rates = " ".join(f"{each:7.2f}" for each in columns(results))
                print(f"{page_bytes:>8} {callers:>2} {name:>6}: {rates}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
