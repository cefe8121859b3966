"""One case against one cache: its clients, its dice, its tally."""

import pathlib
import random
import shutil
import time

from caches.cache import ABILITIES, Identity
from processes import ClientProcess
from verdicts import CRASH, HANG, RIGHT, WRONG, NotRun, Stop, Tally


# How often pages are saved that must be there.
SAVES = 5


class Trial:
    def __init__(self, kind, directory, seed, short, patience, settings=None):
        """`kind`: the class of the cache, see caches/cache.py; `short`: a reduced length."""
        self.kind, self.directory, self.seed, self.short = kind, pathlib.Path(directory), seed, short
        self.patience, self.settings = patience, dict(settings or {})
        self.dice, self.tally, self.remarks = random.Random(seed), Tally(), []
        self.caches, self.clients, self.used = [], [], {}
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    # ------------------------------------------------------------------------------------------------- what is played

    def length(self, short, full):
        return short if self.short else full

    def cache(self, name="cache", start=True, **settings):
        """A cache with these settings (see caches/cache.py) in a directory of its own."""
        made = self.kind(self.directory / name, {**settings, **self.settings})
        made.patience = self.patience
        self.caches.append(made)
        self.used = {**self.used, **made.described()}
        if start:
            made.start()
        return made

    def client(self, cache, name=None, owner="engine", identity=None, extra=None):
        """A client in a process of its own, connected. `owner`: whose facts it saves and expects."""
        name = name or f"client {len(self.clients) + 1}"
        log = self.directory / f"{name.replace(' ', '-')}.log"
        more = {**cache.environment(), **(extra or {})}
        made = ClientProcess(self.tally, name, log, self.patience, cache.python(), more)
        self.clients.append(made)
        self.open(made, cache, owner, identity)
        return made

    def open(self, client, cache, owner="engine", identity=None):
        """Connects a client, in the place of an earlier connection."""
        # A call of the cache ends by its own limit, well before the patience of the trial.
        client.call("open", cache.client_module, cache.where(), identity or Identity(), owner, self.seed,
                    self.patience / 4)

    def back(self, client):
        """Waits until a client reaches the cache again. One that never does is a hang."""
        deadline = time.monotonic() + self.patience
        while not client.call("ready"):
            if time.monotonic() > deadline:
                self.tally.note(HANG, f"{client.name} does not reach the cache again within {self.patience:.0f} s")
                raise Stop
            time.sleep(0.05)

    def save(self, client, chain, count):
        """Saves pages and returns how many were saved. Saves that fail are no verdict: later loads are."""
        outcomes = client.call("save", chain, 0, count) or []
        return sum(each is None for each in outcomes)

    def must_save(self, client, chain, count):
        """The same where nothing is in the way. A cache may refuse for a moment, as while it moves memory to a new
        namespace. `NotRun` if not all are saved then either, because nothing would be shown."""
        for _ in range(SAVES):
            outcomes = client.call("save", chain, 0, count) or ["the save has failed"]
            bad = [each for each in outcomes if each is not None]
            if not bad:
                return
            self.remark(f"{len(bad)} of {len(outcomes)} pages were refused where nothing was in the way: {bad[0]}")
            time.sleep(0.2)
        raise NotRun(f"{len(bad)} of {len(outcomes)} pages were not saved where nothing was in the way: {bad[0]}")

    def load(self, client, chain, count):
        """Loads pages, notes their verdicts, and returns how many were right."""
        return self.note(client.call("load", chain, count) or [])

    def note(self, outcomes):
        for verdict, remark in outcomes:
            self.tally.note(verdict, remark)
        return sum(verdict == RIGHT for verdict, _ in outcomes)

    def require_hits(self, right, wanted, what):
        """A case in which nothing was found shows nothing."""
        if right < wanted:
            raise NotRun(f"{right} pages were found {what}, and the case needs {wanted} to show anything")

    def together(self, clients, patience=None):
        """Waits for clients that have begun a call."""
        deadline = time.monotonic() + (patience or self.patience)
        waiting = list(clients)
        while waiting:
            waiting = [each for each in waiting if each.busy and not each.answered()[0]]
            if waiting and time.monotonic() > deadline:
                for each in waiting:
                    each.kill()
                names = ", ".join(each.name for each in waiting)
                self.tally.note(HANG, f"{names}: no end within {patience or self.patience:.0f} s")
                raise Stop
            if waiting:
                time.sleep(0.005)

    def progress(self, client, outcomes):
        """Takes the reports of a client that works until there are so many more outcomes, or its work has ended."""
        wanted = sum(self.tally.counts.values()) + outcomes
        deadline = time.monotonic() + self.patience
        while client.busy and sum(self.tally.counts.values()) < wanted:
            if client.answered()[0]:
                return
            if time.monotonic() > deadline:
                client.kill()
                self.tally.note(HANG, f"{client.name}: no progress within {self.patience:.0f} s")
                raise Stop
            time.sleep(0.001)

    @staticmethod
    def pause(seconds):
        """Lets time pass where that is what the case is about."""
        time.sleep(seconds)

    def remark(self, sentence):
        """Something that the report says beside the verdict, such as a part that was not run."""
        self.remarks.append(sentence)

    # -------------------------------------------------------------------------------------------------------- the end

    def check_alive(self):
        """Notes servers that have ended by themselves."""
        for each in self.caches:
            problem = each.died()
            if problem:
                self.tally.note(CRASH, problem)

    def close(self):
        for each in self.clients:
            each.close()
        for each in self.caches:
            each.close()

    def play(self, case):
        """Runs the case: the reason why it was not run, or None."""
        try:
            lacking = [ABILITIES[each] for each in case.needs if each not in self.kind.abilities]
            if lacking:
                return (f"the case needs {', '.join(lacking)}, which this program does not have for "
                        f"{self.kind.title}")
            case.run(self)
        except Stop:
            pass
        except (NotRun, RuntimeError) as reason:
            # What was seen until then counts. RuntimeError: a server that does not start.
            self.check_alive()
            if self.tally.verdict() in (HANG, CRASH, WRONG):
                self.remark(str(reason))
            else:
                return str(reason)
        finally:
            self.check_alive()
            self.close()
        if not self.tally.of(RIGHT) and self.tally.verdict() not in (HANG, CRASH, WRONG):
            return "no page was ever found, so nothing is shown"
        return None
