#!/usr/bin/env python3
"""Checks the cost of hot paths: instructions and system calls per operation, which depend less on the load of the
machine than times do. So a regression is noticed at once.

Usage: costs.py PROGRAM instructions|calls [--print]

PROGRAM is troupe-costs. Instructions are counted by callgrind, system calls by strace, in all threads. A bound is a
tenth above the measurement when it was last set, with g++ 12 and -O2; a change that is worth more than that sets a new
bound and notes it in docs/performance.md. --print prints the measurements and compares nothing.

Exits with 77 and a message if valgrind or strace is missing or not permitted here.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

SKIPPED = 77
PATIENCE_SECONDS = 900
ATTEMPTS = 3
BATCH = 512
SAVED = 128

BOUNDS = json.loads((pathlib.Path(__file__).parent / "bounds.json").read_text())


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


class connection:
    """A persistent connection with one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def request(path, body):
        text = json.dumps(body, separators=(",", ":"))
        return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(text)}\r\n\r\n{text}").encode()

    def send(self, request):
        self.socket.sendall(request)
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self.receive()
        head = answer[:end].decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        wanted = end + 4 + (int(length[1]) if length else 0)
        while len(answer) < wanted:
            answer += self.receive()
        if not re.match(r"http/1.1 20[04] ", head):
            raise RuntimeError(f"{head.splitlines()[0]}: {answer[end:]!r}")
        return answer[end + 4:]

    def receive(self):
        if not (some := self.socket.recv(1 << 20)):
            raise RuntimeError("the server has closed the connection")
        return some

    def post(self, path, body):
        return self.send(self.request(path, body))


class program:
    """troupe-costs under a tool that counts."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            skip(f"{command[0]} does not work here: {self.process.stderr.read().strip()[-300:]}")
        self.http = connection(int(line))

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline().strip()):
            raise RuntimeError(f"no answer to '{line}': {self.process.stderr.read()}")
        return answer == "done"

    def measure(self, name, run):
        run()  # what is made at the first time is none of the matter
        self.tell("begin")
        run()
        self.tell(f"end {name}")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def key(i):
    return f"{i * 2654435761 % (1 << 64):032x}"


def operations(p, few):
    """Runs all measurements; returns the number of operations for each name."""
    http = p.http
    times = {}
    keys = [key(i) for i in range(BATCH)]
    http.post("/rank/0/initialize", {"num_pages": 100000, "role": "worker"})

    def save(batch):
        given = json.loads(http.post("/keys/batch_allocate", {"rank": 0, "keys": [[x, ""] for x in batch]}))["results"]
        http.post("/keys/confirm_write", {"rank": 0, "confirmations": given})

    def repeat(name, n, run):
        times[name] = n
        p.measure(name, lambda: [run() for _ in range(n)])

    save(keys)
    single = http.request("/keys/batch_exists", {"keys": keys[:1]})
    repeat("exists_1_key", 20 * few, lambda: http.send(single))
    batch = http.request("/keys/batch_exists", {"keys": keys})
    repeat("exists_512_keys", 2 * few, lambda: http.send(batch))
    located = http.request("/keys/get_locations", {"rank": 0, "keys": keys})
    repeat("locate_512_keys", 2 * few, lambda: http.send(located))
    fresh = iter(range(BATCH, 1 << 40))
    repeat("save_128_keys", few, lambda: save([key(next(fresh)) for _ in range(SAVED)]))
    return times


def more_operations(p, few, instructions):
    times = {}

    def repeat(name, command, n):
        if p.tell(f"{command} {n}"):
            times[name] = n
            p.measure(name, lambda: p.tell(f"{command} {n}"))
        else:
            print(f"{name}: skipped, there is no io_uring here")

    if instructions:
        repeat("match_512_keys", "match", few)
        repeat("page_64_kib", "pages", few)
    else:
        repeat("page_64_kib", "transfers", 10 * few)
    return times


def count_instructions(path, folder):
    if not shutil.which("valgrind"):
        skip("valgrind is not installed; scripts/bootstrap --dev installs it")
    p = program(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", path])
    times = {**operations(p, 20), **more_operations(p, 20, True)}
    p.end()
    found = {}
    for dump in pathlib.Path(folder).iterdir():
        text = dump.read_text(errors="replace")
        name = re.search(r"^desc: Trigger: Client Request: (\w+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if name and total and name[1] in times:
            found[name[1]] = {"instructions": int(total[1]) / times[name[1]]}
    if not found and times:
        skip("troupe-costs was built without valgrind's headers")
    return found


def count_calls(path, folder):
    if not shutil.which("strace"):
        skip("strace is not installed; scripts/bootstrap --dev installs it")
    trace = pathlib.Path(folder) / "trace"
    p = program(["strace", "-f", "-qq", "-s", "80", "-o", str(trace), path])
    times = {**operations(p, 20), **more_operations(p, 20, False)}
    p.end()
    found = {}
    counts = None
    for line in trace.read_text(errors="replace").splitlines():
        if re.search(r'read\(0, "begin\\n"|resumed>"begin\\n"', line):
            counts = collections.Counter()
        elif done := re.search(r'(?:read\(0, |resumed>)"end (\w+)\\n"', line):
            found[done[1]] = {name: n / times[done[1]] for name, n in counts.items()}
            counts = None
        elif counts is not None and (call := re.match(r"\d+ +(\w+)\(", line)):
            counts[call[1]] += 1
    return {name: {"calls": sum(x.values()), "of": dict(x)} for name, x in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("what", choices=["instructions", "calls"])
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("this takes too long"))
    signal.alarm(PATIENCE_SECONDS)
    count = count_instructions if options.what == "instructions" else count_calls
    found = {}
    # What threads do in the background meanwhile is counted as well: on a busy machine, where a path takes longer, that
    # is more. So the least of a few counts is what a path costs.
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="troupe-costs-") as folder:
            for name, x in count(os.path.abspath(options.program), folder).items():
                if name not in found or x[options.what] < found[name][options.what]:
                    found[name] = x
        if options.print or all(x[options.what] <= BOUNDS[options.what].get(name, 0) for name, x in found.items()):
            break
    wrong = 0
    for name, x in sorted(found.items()):
        more = "".join(f", {call} {n:.2f}" for call, n in sorted(x.get("of", {}).items()) if n >= 0.05)
        bound = BOUNDS[options.what].get(name)
        is_wrong = not options.print and (bound is None or x[options.what] > bound)
        wrong += is_wrong
        print(f"{'TOO MUCH ' if is_wrong else ''}{name}: {x[options.what]:.1f} {options.what} each, "
              f"bound {bound}{more}")
    if missing := set(BOUNDS[options.what]) - set(found) - {"page_64_kib"}:
        sys.exit(f"not measured: {', '.join(sorted(missing))}")
    if wrong:
        sys.exit(f"{wrong} paths cost more than they may: find what was added to them, or set their bounds anew in "
                 "tests/costs/bounds.json and say why")


if __name__ == "__main__":
    main()
