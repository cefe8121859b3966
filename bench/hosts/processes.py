"""Measured processes and their resource use, for the benchmarks of this folder."""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from free_ports import free_ports  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(process):
    """Seconds of user and system time so far."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def namespace_of(page_bytes):
    """A geometry with this page size: layers × K and V × tokens × heads × elements of 2 bytes."""
    shape = {"layers": 2, "parts": 2, "heads": page_bytes // (2 * 2 * 64 * 64 * 2), "head_size": 64,
             "element_bytes": 2, "block_tokens": 64}
    return {"name": "bench", "model": "bench", "dtype": "bfloat16", "kv_cache": shape}


class Nodes:
    """A node for each config, with its output until it was ready; `before` precedes each command."""

    def __init__(self, troupe, directory, configs, before=None):
        self.troupe, self.logs = troupe, [directory / f"log-{i}" for i in range(len(configs))]
        self.processes = []
        for i, config in enumerate(configs):
            file = directory / f"node-{i}.json"
            file.write_text(json.dumps(config))
            with open(self.logs[i], "w", encoding="utf-8") as log:
                self.processes.append(subprocess.Popen(
                    (before[i] if before else []) + [troupe, "serve", "--config", str(file)], text=True,
                    stdout=subprocess.PIPE, stderr=log))
        self.ready = []
        for process, log in zip(self.processes, self.logs):
            self.ready.append(json.loads(process.stdout.readline() or "null"))
            if not self.ready[-1]:
                sys.exit("a node did not start: " + log.read_text(encoding="utf-8"))
        self.addresses = [ready["actors"]["socket"] for ready in self.ready]

    def replay(self, i, trace, salt, at_once=1, transfer_only=True):
        """The report of an engine at one of the nodes, whose Unix socket is reachable from any network namespace."""
        done = subprocess.run([self.troupe, "replay", "--attach", self.addresses[i], "--trace", trace, "--json", "--quiet",
                               "--concurrency", str(at_once), "--salt", str(salt)]
                              + ["--transfer-only"] * transfer_only,
                              capture_output=True, text=True, timeout=600, check=True)
        return json.loads(done.stdout)

    def wait_until_connected(self):
        """Waits until each node fetches pages from all others."""
        others = len(self.processes) - 1
        while not all(log.read_text(encoding="utf-8").count("peer session opened") >= others for log in self.logs):
            if any(process.poll() is not None for process in self.processes):
                sys.exit("a node ended")
            time.sleep(0.1)

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)


class Hosts:
    """Two hosts: network namespaces with a virtual cable, or, without `apart`, this host twice."""

    def __init__(self, apart):
        self.apart = apart
        self.names = [f"troupe-bench-{os.getpid()}-{i}" for i in range(2)]
        self.addresses = ["10.231.8.1", "10.231.8.2"] if apart else ["127.0.0.1"] * 2
        self.interface = "cable" if apart else "lo"
        if apart:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("-n", self.names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                    self.names[1])
            for name, address in zip(self.names, self.addresses):
                self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    self.ip("-n", name, "link", "set", device, "up")
            # UCX needs a device that is up, and a cable takes up to a second.
            deadline = time.monotonic() + 10
            while not all(self.is_up(name) for name in self.names) and time.monotonic() < deadline:
                time.sleep(0.05)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    @staticmethod
    def is_up(name):
        said = subprocess.run(["ip", "-n", name, "-o", "link", "show", "cable"], capture_output=True, check=True)
        return b" state UP " in said.stdout

    def on(self, i):
        """The prefix of a command that runs there."""
        return ["ip", "netns", "exec", self.names[i]] if self.apart else []

    def remove(self):
        if self.apart:
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name], check=False)


def may_be_apart():
    """Whether this user may create network namespaces."""
    hosts = Hosts(False)
    hosts.apart = True
    try:
        made = subprocess.run(["ip", "netns", "add", hosts.names[0]], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    subprocess.run(["ip", "netns", "del", hosts.names[0]], capture_output=True, check=False)
    return made.returncode == 0


def perftest(hosts, transports, interfaces, test, message_bytes, total):
    """GB/s of ucx_perftest, and the cores of both ends per GB/s."""
    port = free_ports(1)[0]
    env = dict(os.environ, UCX_TLS=transports, UCX_NET_DEVICES=interfaces)
    before = children_cpu()
    command = ["ucx_perftest", "-p", str(port), "-f"]
    server = subprocess.Popen(hosts.on(0) + command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    count = max(total // message_bytes, 20)
    client = subprocess.run(
        hosts.on(1) + command[:1] + [hosts.addresses[0]] + command[1:]
        + ["-t", test, "-s", str(message_bytes), "-n", str(count), "-w", "10"],
        env=env, capture_output=True, text=True, timeout=300, check=True)
    server.wait(timeout=30)
    final = [line.split() for line in client.stdout.splitlines() if line.split() and line.split()[0] == str(count)]
    # Iterations, latencies, then megabytes per second: of the last interval and overall.
    rate = float(final[-1][-3]) * 2**20 / 1e9
    seconds = count * message_bytes / 1e9 / rate
    return rate, (children_cpu() - before) / max(seconds, 1e-9) / rate


def transfer_engine(hosts, block_bytes, threads, seconds=3):
    """The same of Mooncake's transfer_engine_bench over TCP: each of so many threads reads batches of 16 MiB."""
    blocks = (16 << 20) // block_bytes
    command = ["transfer_engine_bench", "-protocol", "tcp", "-metadata_server", "P2PHANDSHAKE"]
    size = ["-block_size", str(block_bytes), "-batch_size", str(blocks), "-threads", str(threads), "-buffer_size",
            str(2 * threads * blocks * block_bytes)]
    ports = [free_ports(1)[0] for _ in range(2)]
    before = children_cpu()
    with tempfile.NamedTemporaryFile("r") as log:
        with open(log.name, "w", encoding="utf-8") as into:
            target = subprocess.Popen(hosts.on(0) + command + size + ["-mode", "target", "-local_server_name",
                                      f"{hosts.addresses[0]}:{ports[0]}"], stdout=into, stderr=into)
        try:
            listening = None
            for _ in range(300):
                listening = re.search(r"listening on (\S+:\d+)", pathlib.Path(log.name).read_text(encoding="utf-8"))
                if listening or target.poll() is not None:
                    break
                time.sleep(0.1)
            if not listening:
                sys.exit("transfer_engine_bench does not listen: " + pathlib.Path(log.name).read_text(encoding="utf-8"))
            time.sleep(0.5)
            client = subprocess.run(
                hosts.on(1) + command + size
                + ["-mode", "initiator", "-local_server_name", f"{hosts.addresses[1]}:{ports[1]}", "-segment_id",
                   listening[1], "-operation", "read", "-duration", str(seconds)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=True)
        finally:
            target.terminate()
            target.wait(timeout=30)
    found = re.search(r"duration ([\d.]+), .*throughput ([\d.]+) GB/s", client.stdout)
    if not found:
        sys.exit("transfer_engine_bench printed no rate: " + client.stdout)
    taken, rate = float(found[1]), float(found[2])
    return rate, (children_cpu() - before) / max(taken * rate, 1e-9)


def best_threads(hosts, block_bytes):
    """The number of threads with which transfer_engine_bench is quickest here; 12 is its default."""
    return max({1, 2, 4, 12}, key=lambda threads: transfer_engine(hosts, block_bytes, threads)[0])
