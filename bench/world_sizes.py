#!/usr/bin/env python3
"""Hits by world size: the same trace at nodes whose namespaces have 1, 2, 4 and 8 ranks, with as many slots on each.

An evicted key frees a slot on every rank, so a node of eight ranks should keep as many keys as a node of one. Ends
with 1 where the hit ratio of a world size is more than a point below that of the first one. Each node is the replay's
own; pages are neither made nor compared. One request is played at a time, and the order of ranks within it differs
from run to run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
TOLERANCE = 0.01


def play(troupe, trace, slots, ranks, more):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        command = [troupe, "replay", "--trace", trace, "--ranks", str(ranks), "--capacity-pages", str(slots),
                   "--page-bytes", "4096", "--concurrency", "1", "--transfer-only", "--quiet", "--json", *more]
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True, timeout=600)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe", help="the program")
    parser.add_argument("--trace", default="mixed:11,300,20,3,5,5")
    parser.add_argument("--slots", type=int, default=819, help="slots of each rank")
    parser.add_argument("--runs", type=int, default=1, help="runs of each world size")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], help="world sizes; the first is compared")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for each node")
    arguments = parser.parse_args()
    troupe = os.path.abspath(arguments.troupe)
    more = [word for x in arguments.set for word in ("--set", x)]
    print(f"{arguments.trace}, {arguments.slots} slots a rank\n")
    print("| world size | hit ratio | keys evicted |\n|---|---|---|")
    first, wrong = None, []
    for ranks in arguments.ranks:
        reports = [play(troupe, arguments.trace, arguments.slots, ranks, more) for _ in range(arguments.runs)]
        ratios = [x["hit_ratio"] for x in reports]
        evicted = [x["evicted_keys"] for x in reports]
        first = sum(ratios) / len(ratios) if first is None else first
        print(f"| {ranks} | {', '.join(f'{x:.4f}' for x in ratios)} | {', '.join(f'{x:,}' for x in evicted)} |",
              flush=True)
        if any(x < first - TOLERANCE for x in ratios):
            wrong.append(str(ranks))
    if wrong:
        sys.exit(f"more than a point below world size {arguments.ranks[0]}: {' and '.join(wrong)}")


if __name__ == "__main__":
    main()
