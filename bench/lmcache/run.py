#!/usr/bin/env python3
"""LMCache's own server and a node as its replacement, one after the other on this machine, under the same load: lookups
with their status and the end of the request, and stores and retrieves through shared memory. A third server answers
without parsing requests: it shows the upper bound that ZeroMQ and the load leave for a server.

run.py TROUPE LOAD [--lmcache PROGRAM] [--seconds SECONDS]

LOAD is troupe-bench-lmcache; --lmcache names the program `lmcache` of an environment with LMCache 0.5.6, without which
the node is measured alone.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from free_ports import free_port  # noqa: E402

READY_SECONDS = 120
LOADS = [(clients, tokens) for tokens in (1024, 100 * 1024) for clients in (1, 64)]


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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def troupe(program, directory):
    port = free_port()
    config = pathlib.Path(directory) / "node.json"
    config.write_text(json.dumps({
        "node_name": "bench", "data_dir": str(pathlib.Path(directory) / "data"),
        "lmcache": {"enabled": True, "port": port}, "memory": {"bytes": "3 GiB", "client_bytes": "2 GiB"}}))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("load")
    parser.add_argument("--lmcache")
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    servers = {"troupe": None}
    if given.lmcache:
        servers = {"lmcache": None, "troupe": None}
    place = tempfile.mkdtemp(prefix="troupe-bench-lmcache-")
    try:
        for name in servers:
            with (troupe(given.troupe, place) if name == "troupe" else lmcache(given.lmcache)) as one:
                found = {pair: json.loads(run(given.load, "lookup", one.port, *pair, given.seconds)) for pair in LOADS}
                found["transfer"] = json.loads(run(given.load, "transfer", one.port, 16))
                servers[name] = found
        servers["echo"] = {pair: echoed(given.load, *pair, given.seconds) for pair in LOADS}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    ours, theirs, least = servers["troupe"], servers.get("lmcache"), servers["echo"]
    print(f"{'clients':>8} {'tokens':>8} {'server':>9} {'lookups/s':>11} {'p50 ms':>9} {'p99 ms':>9}")
    for clients, tokens in LOADS:
        for name, found in servers.items():
            x = found[clients, tokens]
            remark = "" if x["wrong"] == 0 else f"   {x['wrong']} wrong answers"
            print(f"{clients:8} {tokens:8} {name:>9} {x['per_second']:11.0f} {x['p50_ms']:9.3f} {x['p99_ms']:9.3f}"
                  f"{remark}")
        share = ours[clients, tokens]["per_second"] / max(least[clients, tokens]["per_second"], 1e-9)
        print(f"{'':26} {share:10.2f} of what an echo makes")
        if theirs:
            mine, other = ours[clients, tokens], theirs[clients, tokens]
            print(f"{'':26} {mine['per_second'] / max(other['per_second'], 1e-9):10.1f} times as many, p99 "
                  f"{mine['p99_ms'] / max(other['p99_ms'], 1e-9):.3f} of theirs")
    print(f"{'server':>8} {'store GB/s':>11} {'retrieve GB/s':>14}   (prompts of 16 chunks of 4 MiB, one worker)")
    for name, found in servers.items():
        if name == "echo":
            continue
        x = found["transfer"]
        print(f"{name:>8} {x['store_gb_per_s']:11.2f} {x['retrieve_gb_per_s']:14.2f}")
    if theirs:
        mine, other = ours["transfer"], theirs["transfer"]
        ratios = [mine[key] / max(other[key], 1e-9) for key in ("store_gb_per_s", "retrieve_gb_per_s")]
        print(f"{'ratio':>8} {ratios[0]:11.2f} {ratios[1]:14.2f}")


if __name__ == "__main__":
    main()
