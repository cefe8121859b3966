"""A load takes longer than its lease: pages were evicted under it, and others' pages were read in their place."""

import signal

from case import Case
from caches.cache import Identity
from verdicts import MISS, WRONG

PAGES = 24
LEASE = 0.15


def run(trial):
    cache = trial.cache(memory_pages=128, disk_pages=0, lease_seconds=trial.kind.least_lease or LEASE)
    slow = trial.client(cache, "slow engine", identity=Identity(lease_seconds=LEASE))
    others = [trial.client(cache, f"other {number}") for number in range(2)]
    answered = 0
    for turn in range(trial.length(6, 60)):
        prompt = f"slow {turn}"
        trial.save(slow, prompt, PAGES)
        slow.begin("load", prompt, PAGES)
        # Stopped somewhere in the load for longer than the lease, while others need the memory.
        trial.pause(trial.dice.random() * 0.01)
        slow.signal(signal.SIGSTOP)
        for number, other in enumerate(others):
            prompts = [f"other {turn} {number} {n}" for n in range(8)]
            other.begin("work", f"{trial.seed}/{turn}/{number}", prompts, PAGES, 8)
        trial.together(others)
        trial.pause(trial.kind.least_lease or LEASE)
        slow.signal(signal.SIGCONT)
        outcomes = slow.end() or []
        trial.note(outcomes)
        # A load that ends with an error since its lease has expired is one of those that this is about.
        answered += sum(verdict != MISS for verdict, _ in outcomes)
    trial.require_hits(answered, 1, "by slow loads")


CASE = Case(11, "expired-lease", "a lease that expires during a slow load",
            ("Mooncake#850", "Mooncake#4239", "Mooncake#3076", "Mooncake#4153"), run, needs=("leases",),
            defects={"expired leases": WRONG})
