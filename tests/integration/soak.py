#!/usr/bin/env python3
"""Runs a node under load over HTTP, with namespaces that are created and removed, and watches its resources.

Each client thread creates a namespace with a new name, registers ranks, saves, loads, leases, erases and clears in it,
and removes it, with and without open leases; over the native API and over both protocols of slot clients in turn.
Beside them, one namespace stays and is always full, so that keys are evicted all the time.

Fails if memory, descriptors, threads or disk grow beyond the bounds after the warm-up, or if an answer is wrong.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIB, MIB = 1024, 1024 * 1024


class wrong_answer(Exception):
    pass


class connection:
    """A persistent connection, like that of a client."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, wanted=(200, 201, 204)):
        text = None if body is None else json.dumps(body)
        self.http.request(method, path, text, {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        content = answer.read()
        if answer.status not in wanted:
            raise wrong_answer(f"{method} {path} answers {answer.status}: {content[:300]!r}")
        return json.loads(content) if content and answer.status != 204 else None


class node:
    def __init__(self, program, directory, settings):
        command = [program, "serve", "--config", str(ROOT / "configs" / "hf3fs-metadata.json")]
        # Small namespaces, all of whose keys one caller leases, and leases that are left to run out.
        bounds = ("http.limits.leased_share=1", "http.limits.leases=16384")
        for setting in (f"data_dir={directory}", "http.port=0", "log_level=warn", *bounds, *settings):
            command += ["--set", setting]
        self.directory = directory
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the node does not start; it ended with {self.process.wait(30)}")
        self.port = json.loads(line)["http"]["port"]

    def sample(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = dict(line.split(":", 1) for line in file if ":" in line)
        disk = 0
        for path in pathlib.Path(self.directory).rglob("*"):
            try:
                disk += path.stat().st_blocks * 512
            except FileNotFoundError:
                pass  # the store removes its files as it goes
        return {"rss": int(status["VmRSS"].split()[0]) * KIB, "threads": int(status["Threads"]),
                "fds": len(os.listdir(f"/proc/{pid}/fd")), "disk": disk}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "nothing: it had to be killed"


def expect(what, got, wanted):
    if got != wanted:
        raise wrong_answer(f"{what}: got {got!r}, expected {wanted!r}")


def native_life(ask, name, draw):
    """The life of a namespace of the native API."""
    slots = draw.choice([10, 100, 1000])
    ask("POST", "/v1/namespaces", {"name": name, "model": name, "world_size": 2})
    path = f"/v1/namespaces/{name}"
    for rank in (0, 1):
        ask("POST", f"{path}/ranks", {"rank": rank, "slots": slots})
    keys = [f"{name} {i}" for i in range(min(slots // 2, draw.randint(1, 64)))]
    parents = [None, *keys[:-1]]
    for rank in (0, 1):
        given = ask("POST", f"{path}/reserve", {"rank": rank, "keys": keys, "parents": parents})
        pages = [{"key": key, "slot": x["slot"], "generation": x["generation"]}
                 for key, x in zip(keys, given["results"])]
        # The last one is cancelled.
        done = ask("POST", f"{path}/commit", {"rank": rank, "token": given["token"], "pages": pages[:-1]})
        expect("commit", {x["status"] for x in done["results"]} - {"ok"}, set())
        ask("POST", f"{path}/abort", {"rank": rank, "token": given["token"]})
    found = ask("POST", f"{path}/match", {"keys": keys, "lease_for_ms": 20000})
    expect("matched", found["matched"], len(keys) - 1)
    if found["matched"] > 0:
        where = ask("POST", f"{path}/locate", {"rank": 1, "keys": keys[:-1], "lease": found["lease"]})
        expect("located", {x["status"] for x in where["results"]}, {"ok"})
        ask("POST", f"{path}/renew", {"lease": found["lease"], "lease_for_ms": 30000})
        if draw.random() < 0.5:
            ask("POST", f"{path}/release", {"lease": found["lease"]})
        ask("GET", f"{path}/keys/{keys[0].replace(' ', '%20')}")
        ask("POST", f"{path}/erase", {"keys": keys[:2]})
    if draw.random() < 0.5:
        ask("POST", f"{path}/clear")
    ask("DELETE", f"{path}?force=true")


def hf3fs_life(ask, name, draw):
    """A namespace of vLLM's HF3FS protocol."""
    pages = draw.choice([10, 100, 1000])
    for rank in (0, 1):
        ask("POST", f"/hf3fs/{name}/rank/{rank}/initialize", {"num_pages": pages})
    keys = [f"{name} {i}" for i in range(min(pages // 2, draw.randint(1, 64)))]
    for rank in (0, 1):
        given = ask("POST", f"/hf3fs/{name}/keys/batch_allocate", {"rank": rank, "keys": [[x, ""] for x in keys]})
        ask("POST", f"/hf3fs/{name}/keys/confirm_write",
            {"rank": rank, "confirmations": given["results"], "pages_to_release": []})
    expect("exists", ask("POST", f"/hf3fs/{name}/keys/batch_exists", {"keys": keys})["exists"], [True] * len(keys))
    notified = ask("POST", f"/hf3fs/{name}/keys/get_locations", {"rank": 0, "keys": [*keys, "nothing"]})["locations"]
    expect("a page for each", (notified[-1], None in notified[:-1]), (None, False))
    if draw.random() < 0.5:
        ask("POST", f"/hf3fs/{name}/clear")
    ask("DELETE", f"/v1/namespaces/hf3fs-{name}?force=true")


def sglang_life(ask, name, draw):
    """A namespace of SGLang's HF3FS protocol."""
    more = {"namespace": name}
    ask("POST", "/0/initialize", {"num_pages": draw.choice([10, 100, 1000]), **more})
    keys = [f"{name} {i}" for i in range(draw.randint(1, 5))]
    given = ask("POST", "/0/reserve_and_allocate_page_indices", {"keys": [[x, ""] for x in keys], **more})["indices"]
    ask("POST", "/0/confirm_write", {"written_keys_to_confirm": [[key, page] for key, (_, page) in zip(keys, given)],
                                     "pages_to_release": [], **more})
    expect("exists", ask("POST", "/0/exists", {"keys": keys, **more})["exists"], [True] * len(keys))
    ask("POST", "/0/delete_keys", {"keys": keys[:1], **more})
    ask("DELETE", f"/v1/namespaces/sglang-{name}?force=true")


class clients:
    """Threads that use the node until they are stopped, and the first error of one of them."""

    def __init__(self, port, seed, threads, pace):
        self.port, self.seed, self.pace = port, seed, pace
        self.over = threading.Event()
        self.failure = None
        self.lives = [0] * threads
        self.batches = 0
        self.threads = [threading.Thread(target=self.guarded, args=(self.churn, i)) for i in range(threads)]
        self.threads.append(threading.Thread(target=self.guarded, args=(self.stay, threads)))

    def guarded(self, what, number):
        try:
            what(connection(self.port).ask, number)
        except Exception as e:  # noqa: BLE001  whatever it is, it ends the run and is printed
            if not self.over.is_set() or isinstance(e, wrong_answer):
                self.failure = self.failure or f"{type(e).__name__}: {e}"
            self.over.set()

    def churn(self, ask, number):
        draw = random.Random(f"{self.seed} {number}")
        while not self.over.wait(self.pace):
            life = (native_life, hf3fs_life, sglang_life)[self.lives[number] % 3]
            life(ask, f"soak-{number}-{self.lives[number]}", draw)
            self.lives[number] += 1

    def stay(self, ask, _):
        """Saves more keys than fit: the oldest are evicted, the newest are found."""
        pages = 5000
        ask("POST", "/hf3fs/stays/rank/0/initialize", {"num_pages": pages})
        while not self.over.wait(self.pace):
            first = self.batches * 64
            keys = [f"stays {i}" for i in range(first, first + 64)]
            given = ask("POST", "/hf3fs/stays/keys/batch_allocate", {"rank": 0, "keys": [[x, ""] for x in keys]})
            good = [[key, page] for key, page in given["results"] if page >= 0]
            ask("POST", "/hf3fs/stays/keys/confirm_write",
                {"rank": 0, "confirmations": good, "pages_to_release": []})
            there = ask("POST", "/hf3fs/stays/keys/batch_exists", {"keys": [key for key, _ in good]})["exists"]
            expect("what was just confirmed exists", False in there, False)
            self.batches += 1


def drift(samples, name):
    """Growth between the first and the last quarter of what follows the warm-up; medians, because single samples
    depend on what the store is doing."""
    quarter = max(1, len(samples) // 4)
    values = [x[name] for x in samples]
    return statistics.median(values[-quarter:]) - statistics.median(values[:quarter])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--minutes", type=float, default=12)
    # In 12 minutes, the store has compacted for the first time, and keeps the memory that it used for it.
    parser.add_argument("--warm-up", type=float, help="minutes; three fifths of the time if not given")
    parser.add_argument("--clients", type=int, default=3, help="threads that make and remove namespaces")
    parser.add_argument("--pace", type=float, default=0.005, help="seconds between two lives of namespaces")
    parser.add_argument("--seed", default=str(random.randrange(10**9)))
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the node's config")
    parser.add_argument("--rss-drift", type=float, default=4, help="MiB of growth that are fine")
    parser.add_argument("--disk-drift", type=float, default=64, help="MiB of growth that are fine")
    options = parser.parse_args()
    seconds = options.minutes * 60
    warm_up = seconds * 3 / 5 if options.warm_up is None else options.warm_up * 60
    if warm_up >= seconds:
        parser.error("nothing is left behind the warm-up")
    interval = max(0.5, min(10.0, (seconds - warm_up) / 40))
    print(f"seed {options.seed}; {options.minutes:g} minutes, of which {warm_up / 60:g} are the warm-up")

    samples = []
    with tempfile.TemporaryDirectory(prefix="troupe-soak-") as directory:
        server = node(options.troupe, directory, options.set)
        try:
            load = clients(server.port, options.seed, options.clients, options.pace)
            for thread in load.threads:
                thread.start()
            started = time.monotonic()
            printed = -1
            print(f"{'time':>8}{'RSS MiB':>10}{'fds':>6}{'threads':>9}{'disk MiB':>10}{'namespaces':>12}{'batches':>9}")
            while time.monotonic() - started < seconds and not load.over.wait(interval):
                if server.process.poll() is not None:
                    load.failure = f"the node ended with {server.process.returncode}"
                    break
                passed = time.monotonic() - started
                now = server.sample()
                if passed >= warm_up:
                    samples.append(now)
                if int(passed // 15) != printed:
                    printed = int(passed // 15)
                    print(f"{passed:6.0f} s{now['rss'] / MIB:10.1f}{now['fds']:6}{now['threads']:9}"
                          f"{now['disk'] / MIB:10.1f}{sum(load.lives):12}{load.batches:9}", flush=True)
            load.over.set()
            for thread in load.threads:
                thread.join(90)
            code = server.stop()
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()

    wrong = [load.failure] if load.failure else []
    if code != 0 and not wrong:
        wrong.append(f"the node ended with {code}")
    if len(samples) < 8 and not wrong:
        wrong.append("too short to say anything")
    if not wrong:
        for name, bound, unit, text in (("rss", options.rss_drift, MIB, "MiB of memory"),
                                        ("disk", options.disk_drift, MIB, "MiB of disk"),
                                        ("fds", 4, 1, "descriptors"), ("threads", 2, 1, "threads")):
            grown = drift(samples, name) / unit
            print(f"after the warm-up: {grown:+.1f} {text}, {bound:g} are fine")
            if grown > bound:
                wrong.append(f"{text}: {grown:+.1f} after the warm-up, which is more than {bound:g}")
        made = sum(load.lives)
        print(f"{made} namespaces made and removed, {load.batches} batches of keys written where nothing is removed")
        if made == 0 or load.batches == 0:
            wrong.append("nothing happened")
    for text in wrong:
        print(f"FAILED: {text}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
