"""A cache at 100 % of its capacity for an hour: the eviction thread died and the cache froze, or memory grew until the
server was killed."""

import time

from case import Case
from caches.cache import Identity
from verdicts import CRASH, HANG, Stop

PAGES = 24
MIB = 1 << 20
# Private memory may grow by so much after the warm-up: the index has a limit, and allocators keep some.
GROWTH = 64 * MIB
WARM_UP = 2


def run(trial):
    policies = trial.kind.policies if "eviction policies" in trial.kind.abilities else ("",)
    seconds = trial.length(6, 3600) / len(policies)
    for policy in policies:
        at_full(trial, policy, seconds)


def at_full(trial, policy, seconds):
    eviction = {"eviction": policy} if policy else {}
    cache = trial.cache(f"full {policy}".strip(), memory_pages=192, disk_pages=384, **eviction)
    # Three namespaces, two of which have pages of other sizes where the cache allows that.
    identities = [Identity(), Identity(model="model-b"), Identity(model="model-c", layers=4)]
    engines = [trial.client(cache, f"{policy} engine {n}", identity=each, owner=f"engine {n}")
               for n, each in enumerate(identities)]
    prompts = [f"prompt {number}" for number in range(24)]
    warm, deadline, rounds = None, time.monotonic() + seconds, 0
    while rounds < 2 * WARM_UP or time.monotonic() < deadline:
        for number, engine in enumerate(engines):
            engine.begin("work", f"{trial.seed}/{rounds}/{number}", prompts, PAGES, 12)
        trial.together(engines)
        rounds += 1
        trial.check_alive()
        if trial.tally.of(CRASH):
            raise Stop
        if rounds == WARM_UP:
            warm = cache.memory_bytes()
    grown = cache.memory_bytes() - warm
    trial.remark(f"{policy or 'default'}: {rounds} rounds, private memory {warm / MIB:.0f} MiB, "
                 f"{grown / MIB:+.0f} MiB since then")
    if grown > GROWTH:
        trial.tally.note(CRASH, f"{policy}: private memory grew by {grown / MIB:.0f} MiB in {rounds} rounds")
    for each in engines:
        each.close()
    cache.stop()


CASE = Case(17, "full", "full to the last page, with each eviction policy and mixed namespaces",
            ("LMCache#4817", "LMCache#3187"), run, needs=("servers",),
            defects={"stalls when full": HANG, "dies when full": CRASH, "leaks": CRASH})
