"""Retrieves that failed because pages had been evicted were reported as success, and engines went on with whatever
was in their memory."""

from case import Case
from verdicts import WRONG

PAGES = 24


def run(trial):
    cache = trial.cache(memory_pages=128, disk_pages=0)
    victim, others = trial.client(cache, "victim"), [trial.client(cache, f"other {n}") for n in range(2)]
    found = right = 0
    for turn in range(trial.length(6, 60)):
        prompt = f"victim {turn}"
        trial.save(victim, prompt, PAGES)
        if "found" in trial.kind.abilities:
            found += victim.call("found", prompt, PAGES) or 0
        # Between the lookup and the load, and while it runs, others need all of the memory.
        for number, other in enumerate(others):
            prompts = [f"other {turn} {number} {n}" for n in range(8)]
            other.begin("work", f"{trial.seed}/{turn}/{number}", prompts, PAGES, 8)
        right += trial.load(victim, prompt, PAGES)
        trial.together(others)
        trial.load(victim, prompt, PAGES)
    trial.require_hits(right, 1, "by loads under overflow")
    trial.remark(f"{found} pages were found by lookups")


CASE = Case(3, "overflow", "retrieves that fail because the memory overflows between lookup and load",
            ("LMCache#3388", "LMCache#2865", "LMCache#4600", "LMCache#2898", "dynamo#15079"), run, needs=("found",),
            defects={"failed load counts": WRONG})
