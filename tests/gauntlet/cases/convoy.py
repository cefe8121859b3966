"""Fifty requests with one prefix that is in no engine waited for one another, each for the load of the one before."""

import time

from case import Case
from verdicts import HANG

PAGES, REQUESTS = 32, 50


def run(trial):
    cache = trial.cache(memory_pages=512)
    processes = trial.length(5, 10)
    engines = [trial.client(cache, f"engine {number}") for number in range(processes)]
    prefix, each = "one prefix", REQUESTS // processes
    # All of them find nothing, compute the same pages, and save them at once.
    at_once(trial, engines, prefix, each)
    missed = trial.tally.counts["miss"]
    trial.require_hits(trial.load(engines[0], prefix, PAGES), PAGES, "when fifty requests had computed the prefix")
    began = time.monotonic()
    trial.load(engines[0], prefix, PAGES)
    alone = time.monotonic() - began
    began = time.monotonic()
    at_once(trial, engines, prefix, each)
    together = time.monotonic() - began
    trial.remark(f"{REQUESTS} loads of one prefix at once take {together / max(alone, 1e-3):.0f} times one load; "
                 f"{missed} pages were computed more than once or for the first time")


def at_once(trial, engines, prefix, each):
    for number, engine in enumerate(engines):
        engine.begin("threads", f"{trial.seed}/{number}", [[prefix]] * each, PAGES, 2, PAGES)
    trial.together(engines)


CASE = Case(14, "convoy", "fifty requests with one cold prefix", ("vllm#44294",), run,
            defects={"one load at a time": HANG})
