"""Clients that save and load pages at two nodes of a cluster, and subscribers to their events. All of them come and
go, one of the nodes too, in good order and by SIGKILL."""

import pathlib
import random
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / each) for each in ("gauntlet", "routing")] + [str(ROOT / "python")]

import streams  # noqa: E402
import traffic  # noqa: E402
from caches.cache import Identity  # noqa: E402
from processes import ClientProcess  # noqa: E402
from verdicts import BAD, ERROR, Stop, Tally  # noqa: E402

# How long one call of a client may take. Only a client that hangs takes so long.
PATIENCE = 180.0
PROMPTS, PAGES, ERRORS = 160, 24, 500


class PageClients:
    """Threads, each of which plays one kind of client again and again until `over` is set. `failure` is the first wrong
    byte, hang or crash, as a sentence."""

    def __init__(self, watched, peer, library, directory, seed):
        self.watched, self.peer, self.library = watched, peer, library
        self.directory, self.seed = pathlib.Path(directory), seed
        self.over, self.lock, self.failure = threading.Event(), threading.Lock(), None
        self.tally = Tally()
        self.lives = {"engines": 0, "killed engines": 0, "describing engines": 0, "subscribers": 0, "stalled": 0,
                      "peers": 0, "killed peers": 0}
        directly = str(watched.directory / "data")
        roles = (("in memory", self.engine, lambda: directly, True),
                 ("over TCP", self.engine, lambda: watched.address, False),
                 ("at the peer", self.engine, lambda: str(peer.directory / "data"), False),
                 ("describing", self.describing), ("subscriber", self.subscriber), ("stalled", self.stalled),
                 ("peer", self.restarting_peer))
        self.threads = [threading.Thread(target=self.guarded, args=each, name=each[0]) for each in roles]

    def start(self):
        for thread in self.threads:
            thread.start()

    def guarded(self, name, role, *arguments):
        dice = random.Random(f"{self.seed} {name}")
        try:
            while not self.over.is_set():
                role(name, dice, *arguments)
        except Exception as error:  # noqa: BLE001  whatever it is, it ends the run and is printed
            self.fail(f"{name}: {type(error).__name__}: {error}")

    def fail(self, text):
        with self.lock:
            self.failure = self.failure or text
        self.over.set()

    def count(self, what):
        with self.lock:
            self.lives[what] += 1

    # ---------------------------------------------------------------------------------------------------- the engines

    def engine(self, name, dice, where, passing):
        """One life of an engine: it loads what is there, saves the rest, and ends or is killed in the middle. Some have
        a model of their own, whose namespace is removed behind them."""
        model = f"passing-{dice.randrange(10**9)}" if passing and dice.random() < 0.3 else "model-a"
        tally = Tally()
        client = ClientProcess(tally, name, self.directory / f"client {name}.log", PATIENCE,
                               extra={"TROUPE_LIBRARY": str(self.library), "PYTHONPATH": str(ROOT / "python")})
        try:
            client.call("open", "caches.troupe_client", {"address": where()}, Identity(model=model), model, self.seed,
                        60.0)
            prompts = [f"{model} prompt {number}" for number in range(PROMPTS)]
            killed = dice.random() < 0.5
            client.begin("work", dice.random(), prompts, PAGES, 10**6 if killed else dice.randint(10, 200), 1, True)
            until = time.monotonic() + dice.uniform(2, 25)
            while not (ended := client.answered()[0]) and not self.over.is_set():
                # An engine whose node has ended does so soon.
                if (killed and time.monotonic() > until) or tally.of(ERROR) > ERRORS:
                    break
                client.link.poll(0.2)
            if ended:
                client.close()
            else:
                client.kill()
                self.count("killed engines")
        except Stop:
            pass
        finally:
            if client.process.poll() is None:
                client.kill()
            self.judge(name, tally)
        self.count("engines")
        if model != "model-a":
            self.remove(model)

    def judge(self, name, tally):
        with self.lock:
            self.tally.add(tally)
        for verdict in BAD:
            if tally.of(verdict):
                self.fail(f"{name}: {verdict}: {'; '.join(tally.remarks[verdict])}")

    def remove(self, model):
        for ns in self.watched.namespaces():
            if ns["name"] == model or ns.get("model") == model:
                path = f"http://127.0.0.1:{self.watched.metrics_port}/v1/namespaces/{ns['id']}?force=true"
                urllib.request.urlopen(urllib.request.Request(path, method="DELETE"), timeout=PATIENCE).close()

    def describing(self, _, dice):
        """An engine that describes its pages, so that they are in the events of the node."""
        engine = traffic.Engine(str(self.watched.directory / "data"), 24)
        documents = traffic.documents(random.Random(self.seed), 60)
        until = time.monotonic() + dice.uniform(5, 30)
        while time.monotonic() < until and not self.over.is_set():
            engine.serve(traffic.beginning(dice, documents))
        engine.close()
        self.count("describing engines")

    # ------------------------------------------------------------------------------------------- events, and the peer

    def subscriber(self, _, dice):
        """Follows the stream for a while, loses a part of it and catches up."""
        settings, sockets, seen = self.watched.settings["events"], streams.Sockets(), Seen()
        stream = streams.Stream(sockets, settings["endpoint"], settings["replay_endpoint"], seen, topic=b"kv@")
        stream.lose_every = dice.choice((0, 7))
        try:
            until = time.monotonic() + dice.uniform(1, 10)
            while time.monotonic() < until and not self.over.is_set():
                stream.receive()
        finally:
            stream.close()
            sockets.end()
        self.count("subscribers")

    def stalled(self, _, dice):
        """Subscribes, takes nothing, and goes."""
        sockets = streams.Sockets()
        socket = sockets.connect(streams.SUB, self.watched.settings["events"]["endpoint"], b"kv@", most=1)
        self.over.wait(dice.uniform(10, 60))
        sockets.close(socket)
        sockets.end()
        self.count("stalled")

    def restarting_peer(self, _, dice):
        """The other node of the cluster goes, and comes back with what it has stored."""
        self.over.wait(dice.uniform(30, 90))
        killed = dice.random() < 0.5
        if killed:
            self.peer.kill()
        else:
            self.peer.stop()
        self.over.wait(dice.uniform(1, 15))
        if not self.over.is_set():
            self.peer.start()
        self.count("killed peers" if killed else "peers")

    # ------------------------------------------------------------------------------------------------------------ end

    def end(self):
        """Ends all clients; sentences about those that did not end."""
        self.over.set()
        for thread in self.threads:
            thread.join(2 * PATIENCE)
        return [f"the thread of '{each.name}' did not end" for each in self.threads if each.is_alive()]

    def nothing_happened(self):
        """Sentences about what was to be played and was not."""
        out = [f"no {what} came and went" for what, count in self.lives.items() if count == 0]
        return out + [f"no page was a {verdict}" for verdict in ("right", "miss") if not self.tally.of(verdict)]


class Seen:
    """Checks nothing but that events can be read: their content has tests of its own."""

    def take(self, event):
        if event["type"] not in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
            raise ValueError(f"an event has the type {event['type']}")
