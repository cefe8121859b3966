#!/usr/bin/env python3
"""Compares the metadata service with the Python server whose protocol it implements, on this machine in one run.

Usage: run.py TROUPE [--seconds N] [--rounds N] [--server-text FILE] [--python NAME=PROGRAM[,plain]]… [--keys N,…]

TROUPE is the program. All servers are loaded by wrk in turn; the median of the rounds counts. FILE has the source of
the Python server: hf3fs_metadata_server.py, or a copy of the documentation page that contains it; without it, the
service is measured alone. It runs once with each PROGRAM, a Python: on uvloop and httptools, or with `plain` on asyncio
and h11. The cores that the server and wrk used are printed with each rate: they show the bottleneck.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from free_ports import free_port  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 512
PAGES = 1_600_000


class Load:
    """A server's results under load: requests per second, 99th percentile in microseconds, cores used."""

    def __init__(self, rate, p99, server_cores, load_cores):
        self.rate, self.p99, self.server_cores, self.load_cores = rate, p99, server_cores, load_cores

    @staticmethod
    def median(loads):
        return Load(*(statistics.median(getattr(x, name) for x in loads)
                      for name in ("rate", "p99", "server_cores", "load_cores")))


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
        """Completes keys of one rank."""
        for start in range(first, first + count, 2048):
            keys = [f"key-{i:012d}" for i in range(start, min(start + 2048, first + count))]
            given = self.post("/keys/batch_allocate", {"rank": 0, "keys": [[k, ""] for k in keys]})
            self.post("/keys/confirm_write", {"rank": 0, "confirmations": given["results"], "pages_to_release": []})

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, path, bodies, connections, seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(json.dumps(x) for x in bodies) + "\n")
            file.flush()
            before, wrk_before = self.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
            out = subprocess.run(
                ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-s", str(HERE / "post.lua"),
                 f"http://127.0.0.1:{self.port}{path}", "--", file.name],
                check=True, capture_output=True, text=True).stdout
        requests, micros, p99, failed = map(int, out.split("RESULT", 1)[1].split()[:4])
        if failed:
            sys.exit(f"{self.name}: {failed} requests to {path} failed")
        wrk = resource.getrusage(resource.RUSAGE_CHILDREN)
        wrk_seconds = wrk.ru_utime + wrk.ru_stime - wrk_before.ru_utime - wrk_before.ru_stime
        wall = micros / 1e6
        return Load(requests / wall, p99, (self.cpu_seconds() - before) / wall, wrk_seconds / wall)

    def write_batches(self, first, batches, size):
        """The median seconds of one allocate and one confirm of so many new keys, half of which are released."""
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


def start_python(text, name, program, how):
    port = free_port()
    return Server(name, [program, str(HERE / "python_server.py"), text, str(port), how], port)


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
    print(f"{keys} keys of one rank with {PAGES} pages, 8 connections; medians of {args.rounds} rounds of "
          f"{args.seconds} s; {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before\n")
    print(f"  {'':52}{'rate':>12}{'p99':>10}{'server':>12}{'wrk':>8}{'troupe has':>13}{'goal':>7}{'per core':>10}"
          f"{'p99 ratio':>11}")
    for endpoint, size, goal in (("batch_exists", 1, 15), ("batch_exists", BATCH, 10), ("get_locations", BATCH, 10)):
        asked = bodies(endpoint, keys, size)
        loads = {s.name: [] for s in servers}
        for _ in range(args.rounds):
            for server in servers:
                loads[server.name].append(server.load(f"/keys/{endpoint}", asked, 8, args.seconds))
        title = f"{endpoint}, {size} keys"
        ours = Load.median(loads["troupe"])
        for server in servers:
            x = Load.median(loads[server.name])
            line = f"  {title:28}{server.name:24}{x.rate:10.0f}/s{x.p99:7.0f} µs"
            line += f"{x.server_cores:6.2f} cores{x.load_cores:8.2f}"
            if server.name != "troupe":
                per_core = ours.rate / ours.server_cores / (x.rate / x.server_cores)
                line += f"{ours.rate / x.rate:12.1f}x{goal:6}x{per_core:9.1f}x{x.p99 / ours.p99:11.1f}"
            print(line, flush=True)
            title = ""
    ours = None
    title = "allocate + confirm, 128 keys"
    for server in servers:
        taken = server.write_batches(0, 60 if server.name == "troupe" else 5, 128)
        ours = ours or taken
        more = "" if server.name == "troupe" else f"{taken / ours:42.1f}x"
        print(f"  {title:28} {server.name:23}{taken * 1e3:9.2f} ms{more}", flush=True)
        title = ""
    say_limits()


def say_limits():
    cores = os.cpu_count()
    print(f"""
  The Python server is one process with one event loop: 1.00 cores are its limit, however many the machine has.
  Troupe has threads, and shares the {cores} cores with wrk, which is one thread: where the two use {cores:.2f}
  cores together, the machine is the bottleneck, and where wrk uses 1.00, wrk is; Troupe alone could do more then.
  Otherwise other programs used the rest of the machine, and only `per core` is meaningful: requests per core
  used.""", flush=True)


def grow(program, args):
    """One service with a growing number of keys: rate, memory, and the recovery time after kill -9. There are so many
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
                rates = [server.load(f"/keys/{e}", bodies(e, keys, BATCH, 1024), 8, args.seconds).rate
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
    parser.add_argument("--python", action="append", default=[], help="NAME=PROGRAM or NAME=PROGRAM,plain")
    parser.add_argument("--keys", type=lambda x: [int(y) for y in x.split(",")], default=[10_240, 102_400, 1_024_000])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        servers = [start_troupe(args.program, directory, "strict")]
        try:
            for python in args.python if args.server_text else []:
                name, _, program = python.partition("=")
                program, _, how = program.partition(",")
                servers.append(start_python(args.server_text, name, program, how or "fast"))
            if len(servers) == 1:
                print("no Python server (--server-text, --python): the service is measured alone")
            compare(servers, args)
        finally:
            for server in servers:
                server.stop()
    grow(args.program, args)


if __name__ == "__main__":
    main()
