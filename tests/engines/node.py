"""A node of Troupe for the time of an experiment: `troupe serve` on the loopback interface."""

import json
import pathlib
import random
import select
import signal
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from free_ports import free_port  # noqa: E402

# Patience with a machine that does much else at once.
START_SECONDS, STOP_SECONDS = 300, 300
MAGIC = b"TRPPAGE1"
PAGE_HEADER = 4096


def total(samples, name):
    """The sum of a metric over its labels. `name` may end with a label, as 'troupe_memory_frames{state="dirty"'."""
    metric, _, label = name.partition("{")
    return sum(value for each, value in samples.items()
               if each.partition("{")[0] == metric and label in each.partition("{")[2])


class node:
    """A node that is not started yet. After a restart it has the same address and its stored data."""

    def __init__(self, program, directory, memory="256 MiB", disk="1 GiB", durability="strict", lmcache=False,
                 remote=False, events=False, more=None):
        """`more`: further keys of the config by path, as "io.engine"; they win over the others."""
        self.program, self.directory = program, pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self.lmcache_port, self.process = free_port(), free_port() if lmcache else None, None
        self.metrics_port = free_port()
        self.events_endpoint = f"tcp://127.0.0.1:{free_port()}" if events else ""
        self.remote = remote
        self.config = self.directory / "node.json"
        self.settings = {
            "node_name": "engines",
            "data_dir": str(self.directory / "data"),
            "actors": {"host": "127.0.0.1", "port": self.port, "insecure": True, "make_namespaces": True},
            "http": {"enabled": True, "host": "127.0.0.1", "port": self.metrics_port},
            **({"lmcache": {"enabled": True, "port": self.lmcache_port}} if lmcache else {}),
            "remote": {"enabled": remote},
            **({"events": {"endpoint": self.events_endpoint}} if events else {}),
            "memory": {"bytes": memory},
            "storage": {"disk_bytes": disk, "ranks": []},
            "registry": {"durability": durability},
        }
        self.configure(more or {})

    def configure(self, more):
        """Changes keys of the config, for the next start."""
        for path, value in more.items():
            *tables, name = path.split(".")
            place = self.settings
            for table in tables:
                place = place.setdefault(table, {})
            place[name] = value
        self.config.write_text(json.dumps(self.settings, indent=1))

    @property
    def address(self):
        """The address for an engine on its host, or for any engine if it moves pages over the network."""
        return f"127.0.0.1:{self.port}" if self.remote else str(self.directory / "data")

    @property
    def socket_path(self):
        return str(self.directory / "data" / "troupe.sock")

    def start(self, environment=None):
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen([self.program, "serve", "--config", str(self.config)],
                                            stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        if not line or json.loads(line).get("event") != "ready":
            self.kill()
            raise RuntimeError(f"the node is not ready after {START_SECONDS} s: {self.log_tail()}")
        return self

    def samples(self):
        """Its metrics, by sample as in the text: name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                for line in lines if line and not line.startswith("#")}

    def status(self):
        """The document that `troupe status --json` prints."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/v1/status", timeout=60) as answer:
            return json.load(answer)

    def log(self):
        return (self.directory / "log").read_text(errors="replace")

    def log_tail(self):
        return self.log()[-2000:]

    def kill(self):
        """Dies as in a power cut: nothing is written any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_SECONDS)
            self.process = None

    def namespaces(self):
        """Its namespaces, as its HTTP API describes them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/v1/namespaces", timeout=60) as answer:
            return json.load(answer)["namespaces"]

    def clear(self, namespace):
        """Erases all pages of the namespace of this id; returns their number."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.metrics_port}/v1/namespaces/{namespace}/clear",
                                         data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["pages"]

    def damage_pages(self, share, seed=1, most=None, namespace="", after=0):
        """Flips a byte in the payload of a share of the pages on disk, with an upper limit; `namespace`: only in that
        of this id; `after`: not in so many pages at the beginning. Returns the number of damaged pages and of all
        pages."""
        dice, damaged, all_pages = random.Random(seed), 0, 0
        for path in sorted((self.directory / "data" / "namespaces").rglob(f"{namespace}*")):
            if not path.is_file():
                continue
            content = path.read_bytes()
            places = []
            at = content.find(MAGIC)
            while at >= 0:
                if at % PAGE_HEADER == 0:
                    places.append(at + PAGE_HEADER)
                at = content.find(MAGIC, at + 1)
            spared = max(0, after - all_pages)
            all_pages += len(places)
            with open(path, "r+b") as file:
                for place in places[spared:]:
                    if dice.random() < share and (most is None or damaged < most):
                        file.seek(place + 100)
                        file.write(bytes([content[place + 100] ^ 0xFF]))
                        damaged += 1
        return damaged, all_pages
