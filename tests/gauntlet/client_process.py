"""A client of a cache in a process of its own: what an engine does, on request of the trial. It judges the pages
that it loads itself, because only a process that has the memory can see what is in it.

client_process.py DESCRIPTOR, a socket on which requests and answers are pickled.
"""

import importlib
import multiprocessing.connection
import pathlib
import random
import sys
import threading
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import facts  # noqa: E402
from verdicts import ERROR, MISS, RIGHT, WRONG, Tally  # noqa: E402


class Client:
    def __init__(self, link):
        self.link, self.lock = link, threading.Lock()
        self.backend = self.owner = self.seed = self.limit = self.identity = None

    def open(self, module, where, identity, owner, seed, limit):
        """Connects, in the place of an earlier connection. `module` has a class `Client`, see caches/cache.py."""
        self.close()
        self.owner, self.seed, self.limit, self.identity = owner, seed, limit, identity
        self.backend = importlib.import_module(module).Client(where, identity)

    def wanted(self, chain, number):
        return facts.page(self.seed, self.owner, chain, number, self.identity.page_bytes)

    def save(self, chain, first, count):
        """Saves pages; the outcome of each is None if it was saved, else a sentence."""
        return self.backend.save(chain, first, [self.wanted(chain, first + i) for i in range(count)], self.limit)

    def found(self, chain, count):
        """The number of leading pages that the cache says it has."""
        return self.backend.found(chain, count, self.limit)

    def load(self, chain, count):
        """Loads and judges pages: (verdict, remark) of each."""
        return [self.judged(outcome, chain, i)
                for i, outcome in enumerate(self.backend.load(chain, 0, count, self.limit))]

    def judged(self, outcome, chain, number):
        kind, content = outcome
        if kind != "page":
            return kind, content
        problem = facts.difference(self.wanted(chain, number), content)
        if problem is None:
            return RIGHT, ""
        return WRONG, f"page {number} of {chain}, loaded by {self.owner}, {problem}"

    def work(self, seed, chains, longest, rounds, least=1, look_up=False):
        """What an engine does with prompts of `least` to `longest` pages that come again: load what is there, compute
        and save the rest. `look_up`: it asks for the prefix first, so that a node fetches it from others. Reports a
        tally after each round."""
        dice = random.Random(seed)
        for _ in range(rounds):
            chain, count, tally = dice.choice(chains), dice.randint(least, longest), Tally()
            missing = []
            if look_up:
                self.found(chain, count)
            for number, (verdict, remark) in enumerate(self.load(chain, count)):
                tally.note(verdict, remark)
                if verdict in (MISS, ERROR):
                    missing.append(number)
            if missing:
                self.save(chain, missing[0], count - missing[0])
            with self.lock:
                self.link.send(("progress", tally))

    def threads(self, seed, shares, longest, rounds, least=1):
        """`work` on several threads, one for each list of prompts."""
        failures = []

        def one(number, chains):
            try:
                self.work(f"{seed}/{number}", chains, longest, rounds, least)
            except BaseException:
                failures.append(traceback.format_exc())

        running = [threading.Thread(target=one, args=each) for each in enumerate(shares)]
        for each in running:
            each.start()
        for each in running:
            each.join()
        if failures:
            raise RuntimeError(failures[0])

    def ready(self):
        """Whether it reaches the cache now, as after a restart of it: a page that is never saved is a miss then."""
        return self.backend.load("never saved", 0, 1, self.limit)[0][0] != "error"

    def close(self):
        if self.backend is not None:
            self.backend.close()
            self.backend = None


def main():
    link = multiprocessing.connection.Connection(int(sys.argv[1]))
    client = Client(link)
    while True:
        try:
            name, arguments = link.recv()
        except EOFError:
            return
        try:
            answer = ("done", getattr(client, name)(*arguments))
        except Exception as error:
            traceback.print_exc()
            answer = ("failed", f"{type(error).__name__}: {error}")
        with client.lock:
            link.send(answer)


if __name__ == "__main__":
    main()
