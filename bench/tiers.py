#!/usr/bin/env python3
"""Hits by sizes of memory and disk: a trace at nodes with memory much larger than the disk, as large, and smaller.

Each node is the replay's own, with one rank, pages of 4 KiB and ordinary eviction. Pages are neither made nor compared,
and one request is played at a time. "In memory" are the hits that were found in memory. With a second program, its
numbers come first: an earlier version, to compare with.
"""

import argparse
import json
import os
import subprocess
import tempfile

SLOT = 8192  # a page of 4 KiB and its header
EXTENT_PART = 4 << 20
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def config(directory, memory, disk, eviction):
    geometry = {"layers": 1, "parts": 2, "heads": 1, "head_size": 64, "element_bytes": 2, "block_tokens": 16}
    return {
        "node_name": "tiers",
        "data_dir": os.path.join(directory, "data"),
        "memory": {"bytes": -(-memory * SLOT // EXTENT_PART) * EXTENT_PART, "huge_pages": "off", "eviction": eviction},
        "registry": {"eviction": eviction},
        "storage": {"ranks": [{"slab_bytes": disk * SLOT + 4096}]},
        "namespaces": [{"name": "played", "model": "m", "dtype": "bfloat16", "world_size": 1, "kv_cache": geometry}],
    }


def play(troupe, trace, memory, disk, eviction):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        path = os.path.join(directory, "node.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config(directory, memory, disk, eviction), file)
        command = [troupe, "replay", "--config", path, "--trace", trace, "--concurrency", "1", "--transfer-only",
                   "--quiet", "--json"]
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True, timeout=900)
    x = json.loads(done.stdout)
    loaded = max(x["loaded_pages"], 1)
    return x["hit_ratio"], x["hit_ratio"] * x["loaded_from_memory"] / loaded


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe", help="the program")
    parser.add_argument("--before", help="an earlier program")
    parser.add_argument("--trace", default="mixed:11,300,20,3,5,5")
    parser.add_argument("--sizes", nargs="+", default=["1000,250", "500,500", "250,1000"], metavar="MEMORY,DISK",
                        help="in pages")
    parser.add_argument("--eviction", default="lru")
    arguments = parser.parse_args()
    programs = [os.path.abspath(x) for x in (arguments.before, arguments.troupe) if x]
    print(f"{arguments.trace}, {arguments.eviction}\n")
    columns = ["hits before", "in memory before"] if arguments.before else []
    print("| pages of memory | of disk | " + " | ".join(columns + ["hits", "in memory"]) + " |")
    print("|---" * (len(columns) + 4) + "|")
    for size in arguments.sizes:
        memory, disk = (int(x) for x in size.split(","))
        cells = [f"{x:.3f}" for program in programs
                 for x in play(program, arguments.trace, memory, disk, arguments.eviction)]
        print(f"| {memory:,} | {disk:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
