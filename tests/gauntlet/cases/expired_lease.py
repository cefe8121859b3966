"""A load takes longer than its lease: pages were evicted under it, and others' pages were read in their place."""

import signal

from case import Case
from caches.cache import Identity
from verdicts import MISS, WRONG

PAGES = 24
LEASE = 0.15
# The latest time, in seconds from its beginning, at which a load is stopped.
SOON = 0.01


def run(trial):
    lease = trial.kind.least_lease or LEASE
    cache = trial.cache(memory_pages=128, disk_pages=0, lease_seconds=lease)
    slow = trial.client(cache, "slow engine", identity=Identity(lease_seconds=LEASE))
    others = [trial.client(cache, f"other {number}") for number in range(2)]
    answered, latest, turns = 0, SOON, trial.length(6, 60)
    for turn in range(3 * turns):
        if turn >= turns and answered:
            break
        prompt = f"slow {turn}"
        trial.save(slow, prompt, PAGES)
        slow.begin("load", prompt, PAGES)
        # Stopped somewhere in the load for longer than the lease; others need the memory before its end and after.
        trial.pause(trial.dice.random() * latest)
        slow.signal(signal.SIGSTOP)
        need_memory(trial, others, f"{turn} before")
        trial.pause(lease)
        need_memory(trial, others, f"{turn} after")
        slow.signal(signal.SIGCONT)
        outcomes = slow.end() or []
        trial.note(outcomes)
        # A load that ends with an error since its lease has expired is one of those that this is about.
        found = sum(verdict != MISS for verdict, _ in outcomes)
        answered += found
        # Nothing was found: on a busy machine a load is stopped before it has a lease.
        latest = SOON if found else min(2 * latest, LEASE)
    trial.require_hits(answered, 1, "by slow loads")


def need_memory(trial, others, when):
    for number, other in enumerate(others):
        prompts = [f"other {when} {number} {n}" for n in range(8)]
        other.begin("work", f"{trial.seed}/{when}/{number}", prompts, PAGES, 8)
    trial.together(others)


CASE = Case(11, "expired-lease", "a lease that expires during a slow load",
            ("Mooncake#850", "Mooncake#4239", "Mooncake#3076", "Mooncake#4153"), run, needs=("leases",),
            defects={"expired leases": WRONG})
