#!/usr/bin/env python3
"""Compares the metadata service with the Python server whose wire it speaks, on this machine and in one run.

Usage: run.py TROUPE [--seconds N] [--rounds N] [--server-text FILE] [--fast-python] [--keys N,N,…]

TROUPE is the program. Both servers are loaded by wrk, turn by turn; medians of the rounds count. FILE is a copy of the
documentation page that shows the source of the Python server; without it, the service is measured alone.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 512
PAGES = 1_600_000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server process and one connection to it."""

    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2400):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            sys.exit(f"{name} does not listen")
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def post(self, path, body):
        self.connection.close()  # a server may have closed it while it was idle
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{self.name}: {path} answered {answer.status}: {text[:200]}")
        return json.loads(text) if text else None

    def fill(self, first, count):
        """Makes keys complete; all of one rank."""
        for start in range(first, first + count, 2048):
            keys = [f"key-{i:012d}" for i in range(start, min(start + 2048, first + count))]
            given = self.post("/keys/batch_allocate", {"rank": 0, "keys": [[k, ""] for k in keys]})
            self.post("/keys/confirm_write", {"rank": 0, "confirmations": given["results"], "pages_to_release": []})

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def load(self, path, bodies, connections, seconds):
        """Requests per second and the 99th percentile of their time in microseconds."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(json.dumps(x) for x in bodies) + "\n")
            file.flush()
            out = subprocess.run(
                ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-s", str(HERE / "post.lua"),
                 f"http://127.0.0.1:{self.port}{path}", "--", file.name],
                check=True, capture_output=True, text=True).stdout
        requests, micros, p99, failed = map(int, out.split("RESULT", 1)[1].split()[:4])
        if failed:
            sys.exit(f"{self.name}: {failed} requests to {path} failed")
        return requests / micros * 1e6, p99

    def write_batches(self, first, batches, size):
        """Seconds for one allocate and one confirm of so many new keys, half of which are given back; median."""
        times = []
        for n in range(batches):
            keys = [[f"new-{first + n}-{i}", ""] for i in range(size)]
            started = time.perf_counter()
            given = self.post("/keys/batch_allocate", {"rank": 0, "keys": keys})["results"]
            self.post("/keys/confirm_write", {"rank": 0, "confirmations": given[: size // 2],
                                              "pages_to_release": [page for _, page in given[size // 2:]]})
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    def stop(self):
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start_troupe(program, directory, durability):
    port = free_port()
    config = HERE.parent.parent / "configs" / "hf3fs-metadata.json"
    return Server("troupe", [program, "serve", "--config", str(config), "--set", f"data_dir={directory}",
                             "--set", f"http.port={port}", "--set", f"registry.durability={durability}",
                             "--set", "log_level=off"], port)


def start_python(text, fast):
    port = free_port()
    command = ["/usr/bin/python3", str(HERE / "python_server.py"), text, str(port)]
    return Server("python", command + (["fast"] if fast else []), port)


def bodies(endpoint, keys, size, count=64):
    out = []
    for _ in range(count):
        first = random.randrange(max(1, keys - size))
        names = [f"key-{i:012d}" for i in range(first, first + size)]
        out.append({"keys": names} if endpoint == "batch_exists" else {"rank": 0, "keys": names})
    return out


def compare(servers, args):
    keys = 10_240
    for server in servers:
        server.post("/rank/0/initialize", {"num_pages": PAGES})
        server.fill(0, keys)
    print(f"{keys} keys of one rank with {PAGES} pages; medians of {args.rounds} rounds of {args.seconds} s\n")
    print(f"  {'':44}{'troupe':>22}{'python':>22}{'times as many':>15}{'p99 ratio':>11}")
    for endpoint, size in (("batch_exists", 1), ("batch_exists", BATCH), ("get_locations", BATCH)):
        asked = bodies(endpoint, keys, size)
        rates = {s.name: [] for s in servers}
        for _ in range(args.rounds):
            for server in servers:
                rates[server.name].append(server.load(f"/keys/{endpoint}", asked, 8, args.seconds))
        line = f"  {f'{endpoint}, {size} keys, 8 connections':44}"
        median = {}
        for server in servers:
            rate = statistics.median(r for r, _ in rates[server.name])
            p99 = statistics.median(p for _, p in rates[server.name])
            median[server.name] = (rate, p99)
            line += f"{rate:10.0f}/s {p99:7.0f} µs"
        if len(servers) == 2:
            (ours, our_p99), (theirs, their_p99) = median["troupe"], median["python"]
            line += f"{ours / theirs:15.1f}{their_p99 / our_p99:11.1f}"
        print(line, flush=True)
    line = f"  {'allocate + confirm and release, 128 keys':44}"
    taken = {}
    for server in servers:
        taken[server.name] = server.write_batches(0, 60 if server.name == "troupe" else 5, 128)
        line += f"{taken[server.name] * 1e3:19.2f} ms"
    if len(servers) == 2:
        line += f"{taken['python'] / taken['troupe']:15.1f}"
    print(line, flush=True)


def grow(program, args):
    """One service with ever more keys: rate, memory, and how long it takes to come back after kill -9. So many
    different batches that they do not stay in the processor's caches; answers get longer, as page numbers do."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        server = start_troupe(program, directory, "relaxed")
        try:
            server.post("/rank/0/initialize", {"num_pages": 12_000_000})
            before, have = server.resident(), 0
            print(f"\n  {'keys':>12}{'batch_exists, 512':>20}{'get_locations, 512':>20}{'bytes of answer':>17}"
                  f"{'bytes/key':>11}{'recovery':>11}")
            for keys in args.keys:
                server.fill(have, keys - have)
                have = keys
                rates = [server.load(f"/keys/{e}", bodies(e, keys, BATCH, 1024), 8, args.seconds)[0]
                         for e in ("batch_exists", "get_locations")]
                answers = [len(json.dumps(server.post("/keys/get_locations", body), separators=(",", ":")))
                           for body in bodies("get_locations", keys, BATCH)]
                resident = (server.resident() - before) / keys
                server.process.kill()
                server.process.wait()
                started = time.perf_counter()
                server = start_troupe(program, directory, "relaxed")
                recovery = time.perf_counter() - started
                print(f"  {keys:12}{rates[0]:18.0f}/s{rates[1]:18.0f}/s{statistics.mean(answers):17.0f}{resident:11.0f}"
                      f"{recovery:9.2f} s", flush=True)
        finally:
            server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server-text")
    parser.add_argument("--fast-python", action="store_true", help="uvicorn on uvloop and httptools")
    parser.add_argument("--keys", type=lambda x: [int(y) for y in x.split(",")], default=[10_240, 102_400, 1_024_000])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        servers = [start_troupe(args.program, directory, "strict")]
        try:
            if args.server_text:
                servers.append(start_python(args.server_text, args.fast_python))
            else:
                print("no source of the Python server: the service is measured alone (--server-text)")
            compare(servers, args)
        finally:
            for server in servers:
                server.stop()
    grow(args.program, args)


if __name__ == "__main__":
    main()
