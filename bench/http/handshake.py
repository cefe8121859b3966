#!/usr/bin/env python3
"""Measures the directory of handshakes over HTTP: publishing, heartbeats, fetching, waiting readers, and all engines
publishing while others fetch.

handshake.py --troupe PROGRAM [--engines 1000] [--ranks 8] [--payload 2048] [--seconds 5] [--waiting 5000]
             [--connections 4] [--rate 10000] [--durability none|relaxed|strict]

Many requests at a time are sent on a few persistent connections, so that the client is not the bottleneck. The last
part is an open loop: each fetch has its time, whether earlier ones have been answered or not, and the delay of its
answer is measured from that time. It runs with durability "none" and "relaxed", or with the given one.
"""

import argparse
import json
import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time


def start(program, directory, durability, connections):
    config = {"data_dir": f"{directory}/data", "actors": {"socket": "off"}, "memory": {"bytes": "16 MiB"},
              "registry": {"durability": durability},
              "handshake": {"ttl_default": "10 min", "max_waiting": 100_000},
              "http": {"enabled": True, "port": 0, "limits": {"connections": connections,
                                                              "connections_per_address": connections}}}
    file = f"{directory}/node.json"
    with open(file, "w", encoding="utf-8") as out:
        json.dump(config, out)
    with open(f"{directory}/log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([program, "serve", "--config", file], stdout=subprocess.PIPE, stderr=log, text=True)
    line = process.stdout.readline()
    if not line:
        sys.exit(open(f"{directory}/log", encoding="utf-8").read())
    return process, json.loads(line)["http"]["port"]


def status(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        said = dict(line.split(":", 1) for line in file)
    return int(said["VmRSS"].split()[0]) / 1024, int(said["Threads"])


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connection:
    """Sends batches of requests and counts the answers."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.used = b"", 0

    def ask(self, requests):
        """Status codes of the answers, in their order."""
        sender = threading.Thread(target=self.socket.sendall, args=(b"".join(requests),))
        sender.start()
        codes = [self.answer() for _ in requests]
        sender.join()
        return codes

    def answer(self):
        while (code := self.answer_here()) is None:
            self.receive()
        return code

    def answers(self):
        """Takes the answers that have arrived."""
        while (code := self.answer_here()) is not None:
            yield code

    def answer_here(self):
        """The status of the next answer; nothing if it is incomplete."""
        end = self.buffer.find(b"\r\n\r\n", self.used)
        if end < 0:
            return None
        at = self.buffer.find(b"Content-Length: ", self.used, end)
        length = int(self.buffer[at + 16:self.buffer.find(b"\r\n", at)]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return None
        code, self.used = int(self.buffer[self.used + 9:self.used + 12]), end + 4 + length
        return code

    def receive(self):
        got = self.socket.recv(1 << 18)
        if not got:
            raise ConnectionError("the node closed a connection")
        self.buffer, self.used = self.buffer[self.used:] + got, 0


def request(method, path, body=b""):
    return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def play(port, share, batch, seconds, good, out):
    """Runs in a process of its own: all requests once, or repeatedly for so many seconds."""
    connection, done, wrong, slowest, began = Connection(port), 0, 0, 0.0, time.monotonic()
    while True:
        for i in range(0, len(share), batch):
            sent = time.monotonic()
            codes = connection.ask(share[i:i + batch])
            slowest = max(slowest, time.monotonic() - sent)
            done += len(codes)
            wrong += sum(code not in good for code in codes)
            if seconds and time.monotonic() - began >= seconds:
                break
        if not seconds or time.monotonic() - began >= seconds:
            break
    os.write(out, f"{done} {wrong} {slowest}\n".encode())


def measure(name, node, port, requests, connections, batch, seconds, good):
    before, began, children = cpu_seconds(node.pid), time.monotonic(), []
    for k in range(connections):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                play(port, requests[k::connections], batch, seconds, good, theirs)
            finally:
                os._exit(0)
        os.close(theirs)
        children.append((child, ours))
    done = wrong = 0
    slowest = 0.0
    for child, ours in children:
        with os.fdopen(ours) as pipe:
            fields = pipe.read().split()
        os.waitpid(child, 0)
        if len(fields) != 3:
            sys.exit(f"{name}: a client failed")
        done, wrong, slowest = done + int(fields[0]), wrong + int(fields[1]), max(slowest, float(fields[2]))
    took = time.monotonic() - began
    used = cpu_seconds(node.pid) - before
    memory, threads = status(node.pid)
    print(f"{name:34} {done:>8} {done / took:>10.0f} {used / done * 1e6:>10.1f} {slowest * 1000:>10.0f} {wrong:>6} "
          f"{memory:>8.0f} {threads:>7}", flush=True)
    return wrong


def fetch_in_time(port, targets, rate, seconds, start, out):
    """Runs in a process of its own: a fixed rate of requests, each at its time. Late ones are sent together at once."""
    connection = Connection(port)
    total, late, wrong = int(rate * seconds), [], 0
    connection.socket.setblocking(False)
    answered = sent = 0
    pending, began = b"", start
    while answered < total:
        now = time.monotonic()
        if now > began + seconds + 30:
            break
        due = min(total, max(0, int((now - began) * rate)))
        if due > sent:
            pending += b"".join(targets[i % len(targets)] for i in range(sent, due))
            sent = due
        wants = select.POLLIN | (select.POLLOUT if pending else 0)
        poll = select.poll()
        poll.register(connection.socket, wants)
        # At most until the next request is due.
        ready = poll.poll(max(0.0, (began + (sent + 1) / rate - now) * 1000) if sent < total else 100)
        if any(what & select.POLLOUT for _, what in ready):
            pending = pending[connection.socket.send(pending):]
        if any(what & ~select.POLLOUT for _, what in ready):
            connection.receive()
            now = time.monotonic()
            for code in connection.answers():
                wrong += code not in (200, 404)
                late.append(now - (began + answered / rate))
                answered += 1
    late.sort()
    took = time.monotonic() - began
    middle, tail = (late[len(late) * part // 100] if late else 0.0 for part in (50, 99))
    os.write(out, f"{answered} {total - answered} {wrong} {took} {middle} {tail}\n".encode())


def publish_while_fetching(name, node, port, engines, ranks, payload, connections, batch, rate, seconds):
    """All engines publish new starts repeatedly until the fetches end, which have a `rate` and an open loop."""
    paths = [f"/v1/handshake/engine-{e}/ranks/0/0/{r}" for e in range(engines) for r in range(ranks)]
    fetches = [request("GET", path) for path in paths]
    began, before, pipes = time.monotonic() + 0.5, cpu_seconds(node.pid), []

    def fork(work):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                work(theirs)
            finally:
                os._exit(0)
        os.close(theirs)
        pipes.append((child, ours))

    def publish(k, out):
        connection, done, wrong, incarnation = Connection(port), 0, 0, 1
        while incarnation == 1 or time.monotonic() < began + seconds:
            incarnation += 1
            # Each publisher publishes whole engines: all ranks of one start.
            query = f"?incarnation={incarnation}&tp_size={ranks}&ttl=10min"
            share = [request("PUT", paths[e * ranks + r] + query, payload)
                     for e in range(k, engines, connections) for r in range(ranks)]
            for i in range(0, len(share), batch):
                codes = connection.ask(share[i:i + batch])
                done += len(codes)
                wrong += sum(code != 201 for code in codes)
                if incarnation > 2 and time.monotonic() >= began + seconds:
                    break
        os.write(out, f"{done} {wrong} {time.monotonic() - began}\n".encode())

    for k in range(connections):
        fork(lambda out, k=k: publish(k, out))
    for k in range(connections):
        fork(lambda out, k=k: fetch_in_time(port, fetches[k::connections], rate / connections, seconds, began, out))
    said = []
    for child, ours in pipes:
        with os.fdopen(ours) as pipe:
            said.append([float(field) for field in pipe.read().split()])
        os.waitpid(child, 0)
    publishers, readers = said[:connections], said[connections:]
    if any(len(x) != 3 for x in publishers) or any(len(x) != 6 for x in readers):
        sys.exit(f"{name}: a client failed")
    published, answered = sum(x[0] for x in publishers), sum(x[0] for x in readers)
    missing, wrong = sum(x[1] for x in readers), sum(x[1] for x in publishers) + sum(x[2] for x in readers)
    print(f"{name}: {published / max(x[2] for x in publishers):.0f} publications a second beside "
          f"{answered / max(x[3] for x in readers):.0f} of {rate:.0f} fetches a second that were due (open loop); "
          f"late by {max(x[4] for x in readers) * 1000:.1f} ms (p50), "
          f"{max(x[5] for x in readers) * 1000:.1f} ms (p99); {missing:.0f} without an answer, {wrong:.0f} wrong; "
          f"{cpu_seconds(node.pid) - before:.1f} s of CPU",
          flush=True)
    return int(wrong + missing)


def wait_together(node, port, waiting, seconds):
    """Readers of a rank that is published when all of them wait."""
    before, _ = status(node.pid)
    target = request("GET", "/v1/handshake/late/ranks/0/0/0?wait=60s")
    readers = []
    for _ in range(waiting):
        reader = socket.create_connection(("127.0.0.1", port))
        reader.sendall(target)
        readers.append(reader)
    time.sleep(seconds)
    memory, threads = status(node.pid)
    idle = cpu_seconds(node.pid)
    time.sleep(1)
    idle = cpu_seconds(node.pid) - idle
    began = time.monotonic()
    Connection(port).ask([request("PUT", "/v1/handshake/late/ranks/0/0/0?incarnation=1", b"x" * 2048)])
    left, poll = {reader.fileno(): reader for reader in readers}, select.epoll()
    for number in left:
        poll.register(number, select.EPOLLIN)
    answered = 0
    while left and time.monotonic() - began < 60:
        for number, _ in poll.poll(1):
            answered += left.pop(number).recv(65536).startswith(b"HTTP/1.1 200")
            poll.unregister(number)
    took = time.monotonic() - began
    more = memory - before
    print(f"\n{waiting} readers wait: {more:.1f} MiB more ({more * 1024 / waiting:.1f} KiB each), {threads} threads, "
          f"{idle * 100:.1f} % of a core; {answered} answered {took * 1000:.0f} ms after the rank was published",
          flush=True)
    return waiting - answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--payload", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--waiting", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=10_000, help="fetches per second while all publish; 0: none")
    parser.add_argument("--durability", choices=("none", "relaxed", "strict"))
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    payload = os.urandom(arguments.payload)
    paths = [f"/v1/handshake/engine-{e}/ranks/0/0/{r}" for e in range(arguments.engines)
             for r in range(arguments.ranks)]
    several = (arguments.connections, arguments.batch)
    durability = arguments.durability or "none"
    with tempfile.TemporaryDirectory() as directory:
        node, port = start(arguments.troupe, directory, durability, arguments.waiting + 256)
        try:
            print(f"{arguments.engines} engines of {arguments.ranks} ranks, {arguments.payload} bytes each, durability "
                  f"{durability}, {arguments.connections} connections\n")
            print(f"{'':34} {'requests':>8} {'a second':>10} {'us of CPU':>10} {'slowest ms':>10} {'wrong':>6} "
                  f"{'MiB':>8} {'threads':>7}")
            query = f"?incarnation=1&tp_size={arguments.ranks}&compat=abc&ttl=10min"
            wrong = measure("publish", node, port, [request("PUT", p + query, payload) for p in paths], *several, 0,
                            {201})
            wrong += measure("publish the same again", node, port, [request("PUT", p + query, payload) for p in paths],
                             *several, 0, {200})
            wrong += measure("heartbeat", node, port,
                             [request("POST", f"/v1/handshake/engine-{e}/heartbeat?incarnation=1")
                              for e in range(arguments.engines)], *several, arguments.seconds, {200})
            wrong += measure("fetch a rank", node, port, [request("GET", p + "?compat=abc") for p in paths], *several,
                             arguments.seconds, {200})
            wrong += measure("fetch a rank, another hash", node, port,
                             [request("GET", p + "?compat=xyz") for p in paths], *several, arguments.seconds, {409})
            wrong += measure("fetch all ranks of an engine", node, port,
                             [request("GET", f"/v1/handshake/engine-{e}?complete=true")
                              for e in range(arguments.engines)], *several, arguments.seconds, {200})
            if arguments.waiting:
                wrong += wait_together(node, port, arguments.waiting, 2)
        finally:
            node.terminate()
            node.wait()
    print(flush=True)
    for how in (arguments.durability,) if arguments.durability else ("none", "relaxed"):
        if arguments.rate:
            with tempfile.TemporaryDirectory() as directory:
                node, port = start(arguments.troupe, directory, how, arguments.waiting + 256)
                try:
                    wrong += publish_while_fetching(f"durability {how}", node, port, arguments.engines, arguments.ranks,
                                                    payload, *several, arguments.rate, arguments.seconds)
                finally:
                    node.terminate()
                    node.wait()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
