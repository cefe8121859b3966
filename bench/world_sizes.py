#!/usr/bin/env python3
"""Hits by world size: the same trace at nodes whose namespaces have 1, 2, 4 and 8 ranks, with as many slots on each.

An evicted key frees a slot on every rank, so a node of eight ranks should keep as many keys as a node of one. Ends
with 1 where the mean hit ratio of a world size is more than half a point below that of the first one, by more than two
standard errors. Each node is the replay's own; pages are neither made nor compared. One request is played at a time,
and the order of ranks within it differs from run to run.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
TOLERANCE = 0.005


def play(troupe, trace, slots, ranks, more):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        command = [troupe, "replay", "--trace", trace, "--ranks", str(ranks), "--capacity-pages", str(slots),
                   "--page-bytes", "4096", "--concurrency", "1", "--transfer-only", "--quiet", "--json", *more]
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, check=True, timeout=600)
    return json.loads(done.stdout)


def mean_and_error(values):
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe", help="the program")
    parser.add_argument("--traces", nargs="+", default=[f"mixed:{seed},300,20,3,5,5" for seed in range(1, 13)],
                        help="one says little: twelve by default")
    parser.add_argument("--slots", type=int, default=819, help="slots of each rank")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], help="world sizes; the first is compared")
    parser.add_argument("--jobs", type=int, default=1, help="nodes at once")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for each node")
    arguments = parser.parse_args()
    troupe = os.path.abspath(arguments.troupe)
    more = [word for x in arguments.set for word in ("--set", x)]
    print(f"{len(arguments.traces)} traces, {arguments.slots} slots a rank; with standard errors\n")
    print("| world size | hit ratio | difference | keys evicted |\n|---|---|---|---|")
    first, wrong = None, []
    for ranks in arguments.ranks:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            reports = list(pool.map(lambda trace, n=ranks: play(troupe, trace, arguments.slots, n, more),
                                    arguments.traces))
        ratios = [x["hit_ratio"] for x in reports]
        first = first or ratios
        mean, error = mean_and_error(ratios)
        apart, apart_error = mean_and_error([x - y for x, y in zip(ratios, first)])
        evicted = statistics.fmean(x["evicted_keys"] for x in reports)
        print(f"| {ranks} | {mean:.4f} ± {error:.4f} | {apart:+.4f} ± {apart_error:.4f} | {evicted:,.0f} |", flush=True)
        if apart < -TOLERANCE - 2 * apart_error:
            wrong.append(str(ranks))
    if wrong:
        sys.exit(f"more than half a point below world size {arguments.ranks[0]}: {' and '.join(wrong)}")


if __name__ == "__main__":
    main()
