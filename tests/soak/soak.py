#!/usr/bin/env python3
"""Runs a node that is full for a while, under clients of all kinds that come and go, and watches its resources.

- Engines in processes of their own save and load pages in shared memory and over TCP, and compare every byte; some end
  in good order, others by SIGKILL, and some have a namespace of their own, which is removed behind them. The memory and
  the disk together are too small for the pages, so pages are evicted all the time.
- A second node of the cluster, which shares the prompts, is stopped or killed and started again.
- Subscribers of KV events come and go, lose messages and catch up; one takes nothing.
- Clients of the HTTP protocols create namespaces, save, load, lease, erase and clear in them, and remove them, with and
  without open leases. Beside them, one namespace stays and is always full.

Fails if memory, descriptors, threads, disk, leases or pinned frames grow beyond the bounds after the warm-up; if
anything is held when all clients have left; or if an answer or a byte is wrong.
"""

import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "engines"), str(ROOT / "tests"), str(ROOT / "python")]

import node as engines_node  # noqa: E402
from free_ports import free_ports  # noqa: E402
from http_clients import HttpClients  # noqa: E402
from page_clients import PageClients  # noqa: E402
from resources import MIB, RESOURCES, growth, still_held, used  # noqa: E402
from troupe import _library  # noqa: E402

# Leases of clients that were killed run out in less, on a busy machine too.
QUIET_SECONDS = 180


def make_nodes(options, directory):
    """The watched node and its peer, not started yet. Small, so that they are full within seconds."""
    stream, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    nodes = [engines_node.node(options.troupe, pathlib.Path(directory) / name, memory=options.memory,
                               disk=options.disk, durability="relaxed", remote=True) for name in ("watched", "peer")]
    seeds = [{"host": "127.0.0.1", "port": each.port} for each in nodes]
    for name, each in zip(("watched", "peer"), nodes):
        each.configure({"node_name": name, "log_level": "warn", "memory.huge_pages": "off", "cluster.name": "soak",
                        "cluster.seeds": seeds})
    nodes[0].configure({
        "hf3fs": {"vllm": True, "sglang": True, "world_size": "auto"},
        # Small namespaces, all of whose keys one caller leases, and leases that are left to run out.
        "http.limits": {"leased_share": 1, "leases": 16384},
        "events": {"endpoint": stream, "replay_endpoint": replay, "heartbeat": "100 ms", "buffer_batches": 64,
                   "topic": "kv@{node}@{model}"}})
    for setting in options.set:
        path, _, value = setting.partition("=")
        nodes[0].configure({path: value})
    return nodes


class Watch:
    """Readings of a node's resources, a line of them every 15 seconds, and what is wrong with them in the end."""

    def __init__(self, watched, warm_up):
        self.watched, self.warm_up = watched, warm_up
        self.readings, self.printed, self.fetched = [], -1, 0
        print(f"{'time':>8}{'RSS MiB':>10}{'fds':>6}{'threads':>9}{'disk MiB':>10}{'leases':>8}{'pinned':>8}"
              f"{'engines':>9}{'namespaces':>12}{'right':>9}{'miss':>9}{'error':>8}{'from peers':>12}")

    def read(self, passed, pages, over_http):
        samples = self.watched.samples()
        now = used(self.watched.process, self.watched.directory / "data", samples)
        self.fetched = max(self.fetched, engines_node.total(samples, "troupe_peer_pages_total"))
        if passed >= self.warm_up:
            self.readings.append(now)
        if int(passed // 15) != self.printed:
            self.printed = int(passed // 15)
            of = pages.tally.of
            print(f"{passed:6.0f} s{now['rss'] / MIB:10.1f}{now['fds']:6}{now['threads']:9}{now['disk'] / MIB:10.1f}"
                  f"{now['leases']:8g}{now['pinned']:8g}{pages.lives['engines']:9}{sum(over_http.lives):12}"
                  f"{of('right'):9}{of('miss'):9}{of('error'):8}{self.fetched:12g}", flush=True)

    def wrong(self, bounds):
        if len(self.readings) < 8:
            return ["too short to say anything"]
        out = []
        for name, unit, text in RESOURCES:
            grown = growth(self.readings, name) / unit
            print(f"after the warm-up: {grown:+.1f} {text}, {bounds[name]:g} are fine")
            if grown > bounds[name]:
                out.append(f"{text}: {grown:+.1f} after the warm-up, which is more than {bounds[name]:g}")
        return out


def wait_until_quiet(watched):
    """What is still held some time after all clients have left; empty if nothing is."""
    until = time.monotonic() + QUIET_SECONDS
    while (held := still_held(watched)) and time.monotonic() < until:
        time.sleep(1)
    return held


def play(options, directory, seconds, warm_up):
    """Sentences about what is wrong."""
    watched, peer = make_nodes(options, directory)
    watched.start()
    peer.start()
    before = used(watched.process, watched.directory / "data", watched.samples())
    over_http = HttpClients(watched.metrics_port, options.seed, options.clients, options.pace)
    pages = PageClients(watched, peer, options.library, directory, options.seed)
    wrong = []
    try:
        pages.start()
        for thread in over_http.threads:
            thread.start()
        watch, started = Watch(watched, warm_up), time.monotonic()
        interval = max(0.5, min(10.0, (seconds - warm_up) / 40))
        while (passed := time.monotonic() - started) < seconds and not pages.over.wait(interval):
            if watched.process.poll() is not None:
                pages.fail(f"the node ended with {watched.process.returncode}: {watched.log_tail()}")
            elif over_http.over.is_set():
                pages.over.set()
            else:
                watch.read(passed, pages, over_http)
    finally:
        over_http.over.set()
        wrong += pages.end()
        for thread in over_http.threads:
            thread.join(90)
        peer.kill()
    wrong += [each for each in (pages.failure, over_http.failure) if each]
    if not wrong:
        wrong += watch.wrong({"rss": options.rss_drift, "disk": options.disk_drift, "fds": options.fds_drift,
                              "threads": options.threads_drift, "leases": options.leases_drift,
                              "pinned": options.pinned_drift})
        wrong += wait_until_quiet(watched) + pages.nothing_happened()
        after = used(watched.process, watched.directory / "data", watched.samples())
        print("without clients, before and after: " + ", ".join(
            f"{before[name] / unit:.0f} and {after[name] / unit:.0f} {text}" for name, unit, text in RESOURCES[:4]))
        if watch.fetched == 0:
            wrong.append("no page came from the peer")
        print("; ".join(f"{count} {name}" for name, count in pages.lives.items()) + "; "
              f"{sum(over_http.lives)} namespaces over HTTP, {over_http.batches} batches where nothing is removed")
        for verdict, remarks in pages.tally.remarks.items():
            print(f"{verdict}: {'; '.join(remarks)}")
        if sum(over_http.lives) == 0 or over_http.batches == 0:
            wrong.append("nothing happened over HTTP")
    if watched.process.poll() is None:
        process = watched.process
        watched.stop()
        if process.returncode != 0:
            wrong.append(f"the node ended with {process.returncode}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--library", help="libtroupe.so; beside the program if not given")
    parser.add_argument("--minutes", type=float, default=12)
    # In 12 minutes, the store has compacted for the first time, and keeps the memory that it used for it.
    parser.add_argument("--warm-up", type=float, help="minutes; three fifths of the time if not given, 30 at most")
    parser.add_argument("--clients", type=int, default=3, help="threads that make and remove namespaces over HTTP")
    parser.add_argument("--pace", type=float, default=0.05, help="seconds between two lives of such namespaces")
    parser.add_argument("--seed", default=str(random.randrange(10**9)))
    parser.add_argument("--memory", default="16 MiB", help="of each node")
    parser.add_argument("--disk", default="32 MiB", help="of each node")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the watched node's config")
    for name, default, unit in (("rss", 8, "MiB"), ("disk", 64, "MiB"), ("fds", 16, "descriptors"),
                                ("threads", 12, "threads"), ("leases", 64, "leases"), ("pinned", 64, "frames")):
        parser.add_argument(f"--{name}-drift", type=float, default=default, help=f"{unit} of growth that are fine")
    options = parser.parse_args()
    options.troupe = str(pathlib.Path(options.troupe).resolve())
    options.library = options.library or str(pathlib.Path(options.troupe).parent / "libtroupe.so")
    _library.candidates = lambda: [options.library]
    # Ends its nodes and clients, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seconds = options.minutes * 60
    warm_up = min(1800, seconds * 3 / 5) if options.warm_up is None else options.warm_up * 60
    if warm_up >= seconds:
        parser.error("nothing is left behind the warm-up")
    print(f"seed {options.seed}; {options.minutes:g} minutes, of which {warm_up / 60:g} are the warm-up")
    with tempfile.TemporaryDirectory(prefix="troupe-soak-") as directory:
        wrong = play(options, directory, seconds, warm_up)
    for text in wrong:
        print(f"FAILED: {text}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
