#!/usr/bin/env python3
"""Hits of a trace at equal bytes of memory: pages as they are beside encoded ones, of which more fit.

Each node is the replay's own, with memory only, one rank, and pages of 256 KiB of BF16 values. One request is played at
a time. A capacity is the number of pages as they are that fit into the memory.
"""

import argparse
import json
import os
import subprocess
import tempfile

PAGE = 262144
SLOT = PAGE + 4096
EXTENT = 8 << 20
TOKENS = 64


def memory_bytes(pages):
    """Memory that holds so many pages as they are, in whole extents."""
    return -(-pages // (EXTENT // SLOT)) * EXTENT


def config(directory, pages, eviction):
    geometry = {"layers": 1, "parts": 2, "heads": 8, "head_size": 128, "element_bytes": 2, "block_tokens": TOKENS}
    return {
        "node_name": "equal-bytes",
        "data_dir": os.path.join(directory, "data"),
        "memory": {"bytes": memory_bytes(pages), "huge_pages": "off", "eviction": eviction},
        "registry": {"eviction": eviction, "durability": "none"},
        "storage": {"ranks": [{"slab_bytes": 0}]},
        "namespaces": [{"name": "played", "model": "m", "dtype": "bfloat16", "world_size": 1, "kv_cache": geometry}],
    }


def play(troupe, trace, pages, eviction, encoding):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "node.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config(directory, pages, eviction), file)
        command = [troupe, "replay", "--config", path, "--trace", trace, "--concurrency", "1", "--transfer-only",
                   "--bf16-values", "--quiet", "--json", "--set", f"transfer.encoding={encoding}"]
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True, timeout=1800)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe", help="the program")
    parser.add_argument("--trace", default="mixed:11,300,20,3,5,5")
    parser.add_argument("--pages", nargs="+", type=int, default=[500, 1000], help="capacities")
    parser.add_argument("--eviction", nargs="+", default=["lru", "reuse"])
    arguments = parser.parse_args()
    troupe = os.path.abspath(arguments.troupe)
    print(f"{arguments.trace}, pages of 256 KiB\n")
    print("| `registry.eviction` | memory, MiB | pages as they are | hits | hits with encoded pages | keys evicted "
          "| with encoded pages |")
    print("|---" * 7 + "|")
    for eviction in arguments.eviction:
        for pages in arguments.pages:
            raw, encoded = (play(troupe, arguments.trace, pages, eviction, x) for x in ("raw", "bf16"))
            evicted = [x.get("evicted_keys", 0) for x in (raw, encoded)]
            print(f"| {eviction} | {memory_bytes(pages) >> 20:,} | {pages:,} | {raw['hit_ratio']:.3f} | "
                  f"{encoded['hit_ratio']:.3f} | {evicted[0]:,} | {evicted[1]:,} |", flush=True)


if __name__ == "__main__":
    main()
