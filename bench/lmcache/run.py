#!/usr/bin/env python3
"""LMCache's own server and a node as its replacement, one after the other on this machine, under the same load: lookups
with their status and the end of the request, and stores and retrieves: by workers through shared memory, and by the
node in memory of workers. A third server answers without parsing requests: it shows the upper bound that ZeroMQ and the
load leave for a server.

run.py TROUPE LOAD [--lmcache PROGRAM] [--seconds SECONDS]
run.py TROUPE LOAD --before TROUPE [--rounds ROUNDS] [--seconds SECONDS] [--transfers-only]

LOAD is troupe-bench-lmcache; --lmcache names the program `lmcache` of an environment with LMCache 0.5.6, without which
the node is measured alone. --before names another build of troupe: both are measured in turns. Compared are the
medians of
all rounds, and the best rounds.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from free_ports import free_port  # noqa: E402

READY_SECONDS = 120
LOADS = [(clients, tokens) for tokens in (1024, 100 * 1024) for clients in (1, 64)]
# Chunks of a prompt, values of a token in a layer (2,048 bytes of a chunk for each), and prompts.
SIZES = {"2 chunks of 64 KiB": (2, 32, 200), "16 chunks of 4 MiB": (16, 2048, 3)}
WAYS = ("worker-copies", "node-copies")
TRANSFERS = [(way, size) for way in WAYS for size in SIZES]


def wait_for(port, process):
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{process.args[0]} does not listen after {READY_SECONDS} s")


class server:
    def __init__(self, name, command, port, environment=None):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, **(environment or {})}, start_new_session=True)
        wait_for(port, self.process)
        # It may listen before it can serve.
        time.sleep(2)

    def cpu_seconds(self):
        after_name = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def troupe(program, directory, **more):
    port = free_port()
    config = pathlib.Path(directory) / "node.json"
    config.write_text(json.dumps({
        "node_name": "bench", "data_dir": str(pathlib.Path(directory) / "data"),
        "lmcache": {"enabled": True, "port": port}, "memory": {"bytes": "3 GiB", "client_bytes": "2 GiB"}, **more}))
    return server("troupe", [program, "serve", "--config", str(config)], port)


def lmcache(program):
    port, page = free_port(), free_port()
    name = f"lmcache_bench_{os.getpid()}"
    # The defaults, except for serving shared memory without a GPU.
    return server("lmcache", [program, "server", "--transport", "zmq", "--host", "127.0.0.1", "--port", str(port),
                              "--chunk-size", "256", "--l1-size-gb", "3", "--l1-init-size-gb", "3",
                              "--no-l1-use-lazy", "--shm-name", name, "--supported-transfer-mode", "engine_driven",
                              "--eviction-policy", "LRU", "--http-host", "127.0.0.1", "--http-port", str(page)],
                  port, {"LMCACHE_DISABLE_BANNER": "1"})


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], stdout=subprocess.PIPE, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(map(str, words))} failed")
    return done.stdout


def echoed(program, clients, tokens, seconds):
    port = free_port()
    with server("echo", [program, "echo", str(port), str(tokens)], port):
        return json.loads(run(program, "lookup-echo", port, clients, tokens, seconds))


def measured(given, port, key, number=0):
    """`number`: how often the server was measured before. Each time it stores other prompts."""
    if key in LOADS:
        return json.loads(run(given.load, "lookup", port, *key, given.seconds))
    way, size = key
    # Prompts of their own: LMCache's server looks at tokens alone, and would find chunks of another size.
    first = 10000 * TRANSFERS.index(key) + number * SIZES[size][2]
    return json.loads(run(given.load, way, port, *SIZES[size], first))


@contextlib.contextmanager
def folder():
    place = tempfile.mkdtemp(prefix="troupe-bench-lmcache-")
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remark(found):
    return "" if found["wrong"] == 0 else f"   {found['wrong']} wrong answers"


def compare_builds(given):
    """Both in turns, with memory alone, so that what else the machine does meets both. Times vary with that; the CPU
    time of the node varies less."""
    memory_alone = {"storage": {"disk_bytes": 0, "ranks": []}}
    keys = TRANSFERS if given.transfers_only else LOADS + TRANSFERS
    before, after = [{key: [] for key in keys} for _ in range(2)]
    with folder() as place, folder() as other, troupe(given.before, place, **memory_alone) as old, \
            troupe(given.troupe, other, **memory_alone) as new:
        for number in range(given.rounds):
            for key in before:
                for one, found in ((old, before), (new, after)):
                    spent = one.cpu_seconds()
                    got = measured(given, one.port, key, number)
                    count = got["per_second"] * given.seconds if key in LOADS else SIZES[key[1]][2]
                    found[key].append({**got, "node_cpu_ms": 1e3 * (one.cpu_seconds() - spent) / max(count, 1)})
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    print(f"{'load':34} {'what':>17} {'before':>9} {'after':>9} {'ratio':>6}   {'best':>6} {'after':>9} {'ratio':>6}")
    for key in before:
        name = f"{key[0]} clients, {key[1]} tokens" if key in LOADS else ", ".join(key)
        wrong = sum(each["wrong"] for each in before[key] + after[key])
        for what in before[key][0]:
            if what == "wrong":
                continue
            values = [[each[what] for each in found[key]] for found in (before, after)]
            pairs = [list(map(kind, values)) for kind in (statistics.median, max if "per_s" in what else min)]
            (x, y), (best_x, best_y) = pairs
            print(f"{name:34} {what:>17} {x:9.3f} {y:9.3f} {y / max(x, 1e-9):6.2f}   {best_x:6.3f} {best_y:9.3f} "
                  f"{best_y / max(best_x, 1e-9):6.2f}{f'   {wrong} wrong answers' if wrong else ''}")


def compare_servers(given):
    servers = {}
    if given.lmcache:
        with lmcache(given.lmcache) as one:
            # Its node copies for GPUs alone.
            servers["lmcache"] = {key: measured(given, one.port, key) for key in LOADS + TRANSFERS
                                  if key[0] != "node-copies"}
    with folder() as place, troupe(given.troupe, place) as one:
        servers["troupe"] = {key: measured(given, one.port, key) for key in LOADS + TRANSFERS}
    servers["echo"] = {pair: echoed(given.load, *pair, given.seconds) for pair in LOADS}
    ours, theirs, least = servers["troupe"], servers.get("lmcache"), servers["echo"]
    print(f"{'clients':>8} {'tokens':>8} {'server':>9} {'lookups/s':>11} {'p50 ms':>9} {'p99 ms':>9}")
    for clients, tokens in LOADS:
        for name, found in servers.items():
            x = found[clients, tokens]
            print(f"{clients:8} {tokens:8} {name:>9} {x['per_second']:11.0f} {x['p50_ms']:9.3f} {x['p99_ms']:9.3f}"
                  f"{remark(x)}")
        share = ours[clients, tokens]["per_second"] / max(least[clients, tokens]["per_second"], 1e-9)
        print(f"{'':26} {share:10.2f} of what an echo makes")
        if theirs:
            mine, other = ours[clients, tokens], theirs[clients, tokens]
            print(f"{'':26} {mine['per_second'] / max(other['per_second'], 1e-9):10.1f} times as many, p99 "
                  f"{mine['p99_ms'] / max(other['p99_ms'], 1e-9):.3f} of theirs")
    print(f"{'one worker':>34} {'server':>8} {'store GB/s':>11} {'p50 ms':>8} {'retrieve GB/s':>14} {'p50 ms':>8}")
    for key in ours:
        if key in LOADS:
            continue
        for name, found in servers.items():
            if key in found:
                x = found[key]
                print(f"{', '.join(key):>34} {name:>8} {x['store_gb_per_s']:11.2f} {x['store_p50_ms']:8.2f} "
                      f"{x['retrieve_gb_per_s']:14.2f} {x['retrieve_p50_ms']:8.2f}{remark(x)}")
        if theirs and key in theirs:
            ratios = [ours[key][what] / max(theirs[key][what], 1e-9)
                      for what in ("store_gb_per_s", "retrieve_gb_per_s")]
            print(f"{'':34} {'ratio':>8} {ratios[0]:11.2f} {'':8} {ratios[1]:14.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("load")
    parser.add_argument("--lmcache")
    parser.add_argument("--before")
    parser.add_argument("--transfers-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    compare_builds(given) if given.before else compare_servers(given)


if __name__ == "__main__":
    main()
