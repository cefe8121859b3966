#!/usr/bin/env python3
"""Pages through a node's memory to a client and back over the network, compared with ucx_perftest.

A node in a process of its own, with pages in memory only, and `troupe replay --transfer-only` as a client on another
host: first all pages are saved, then all are loaded, repeatedly. Rounds of both sides alternate.
"""

import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from processes import Hosts, children_cpu, cpu_of, namespace_of, perftest

class Node:
    def __init__(self, troupe, directory, page_bytes, pages, variant):
        config = {
            "data_dir": str(directory / "data"), "log_level": "warn",
            "actors": {"port": 0, "insecure": True},
            "remote": dict(variant, enabled=True),
            "memory": {"bytes": f"{pages * (page_bytes + 8192) + (256 << 20)} B", "write_back": "never",
                       "client_bytes": "512 MiB"},
            "storage": {"ranks": [{"slab_bytes": "0 B"}]},
            "namespaces": [namespace_of(page_bytes)],
        }
        file = directory / "node.json"
        file.write_text(json.dumps(config))
        self.process = subprocess.Popen([troupe, "serve", "--config", str(file)], stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.address = f"127.0.0.1:{ready['actors']['port']}"

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def replay(troupe, node, trace, variant, salt=0):
    """The report, and the cores that both ends used meanwhile."""
    settings = {f"remote.{key}": str(value).lower() for key, value in variant.items()}
    settings["attach.always_remote"] = "true"
    before = children_cpu() + cpu_of(node.process.pid)
    begun = time.monotonic()
    done = subprocess.run(
        [troupe, "replay", "--attach", node.address, "--trace", trace, "--transfer-only", "--json", "--quiet",
         "--concurrency", "4", "--salt", str(salt)]
        + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")],
        capture_output=True, text=True, timeout=600, check=True)
    seconds = time.monotonic() - begun
    report = json.loads(done.stdout)
    return report, (children_cpu() + cpu_of(node.process.pid) - before) / seconds


def rates(report, kind):
    return report[{"load": "loaded_bytes", "save": "saved_bytes"}[kind]] / 1e9 / report["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--transports", default="tcp,self", help="of UCX")
    parser.add_argument("--interfaces", default="lo", help="of UCX")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=512, help="MiB of pages saved, and loaded, in a round")
    parser.add_argument("--alone", action="store_true", help="measure TCP only, without ucx_perftest")
    parser.add_argument("--page-kibibytes", type=int, nargs="+", default=[256, 2048])
    options = parser.parse_args()
    if not options.alone and not shutil.which("ucx_perftest"):
        print("Left out: UCX, since ucx_perftest is not installed (ucx-utils)")
        options.alone = True
    variants = {
        "tcp, encrypted": {"transport": "tcp", "encrypt": True},
        "tcp, in the clear": {"transport": "tcp", "encrypt": False},
        "ucx": {"transport": "ucx", "ucx_transports": options.transports, "ucx_interfaces": options.interfaces},
    }
    print(f"Over loopback; ucx_perftest over {options.transports} on {options.interfaces}; medians of"
          f" {options.rounds} rounds, GB/s; cores of both ends per GB/s")
    print("| page | remote.transport | | Troupe | ucx_perftest | ratio | cores per GB/s | of ucx_perftest |")
    print("|---|---|---|---|---|---|---|---|")
    if options.alone:
        del variants["ucx"]
    for kibibytes in options.page_kibibytes:
        for name, variant in variants.items():
            measure(options, kibibytes << 10, name, variant)


def measure(options, page_bytes, name, variant):
    total = options.mebibytes << 20
    blocks = total // page_bytes
    # As many requests without a common prefix, of 64 blocks each at most.
    length = min(blocks, 64)
    trace = f"loogle:{blocks // length},{length * 64},1,0"
    found = {kind: ([], [], [], []) for kind in ("load", "save")}
    with tempfile.TemporaryDirectory() as directory:
        node = Node(options.troupe, pathlib.Path(directory), page_bytes, blocks * 3, variant)
        try:
            replay(options.troupe, node, trace, variant)
            for round_number in range(1, options.rounds + 1):
                for kind, test, salt in (("load", "ucp_put_bw", 0), ("save", "ucp_get", round_number)):
                    report, cores = replay(options.troupe, node, trace, variant, salt)
                    assert report[f"{kind}_failures"] == 0, report
                    ours = rates(report, kind)
                    theirs, their_cores = math.nan, math.nan
                    if not options.alone:
                        theirs, their_cores = perftest(Hosts(False), options.transports, options.interfaces, test,
                                                      page_bytes, total)
                    for into, value in zip(found[kind], (ours, theirs, cores / ours, their_cores)):
                        into.append(value)
        finally:
            node.stop()
    for kind, test in (("load", "put_bw"), ("save", "get")):
        ours, theirs, cores, their_cores = (statistics.median(x) for x in found[kind])
        theirs = ("–", "–", "–") if options.alone else (
            f"{theirs:.2f}", f"{ours / theirs:.2f}", f"{their_cores:.1f}")
        print(f"| {page_bytes >> 10} KiB | {name} | {kind}, beside {test} | {ours:.2f} | {theirs[0]} | {theirs[1]} |"
              f" {cores:.1f} | {theirs[2]} |", flush=True)


main()
