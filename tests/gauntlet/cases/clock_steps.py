"""The clock of the day is set while the cache runs, and between two runs."""

from case import Case
from faults import DAY, Faults
from verdicts import HANG

PAGES, PROMPTS = 12, 6
STEPS = {"two hours back": -7200, "a day ahead": DAY, "a year back": -365 * DAY, "twenty years ahead": 20 * 365 * DAY,
         "right again": 0}


def run(trial):
    cache = trial.cache(start=False, memory_pages=128, disk_pages=512, durability="relaxed")
    faults = Faults(trial.directory)
    cache.start(faults.environment)
    engine, right = trial.client(cache, "engine"), 0
    for turn in range(trial.length(1, 4)):
        for name, seconds in STEPS.items():
            prompts = [f"{name} {turn} {number}" for number in range(PROMPTS)]
            for prompt in prompts:
                trial.save(engine, prompt, PAGES)
            faults.step_clock(seconds)
            right += work(trial, engine, prompts, f"{name} {turn}")
            if "durable index" in trial.kind.abilities:
                cache.kill()
                faults.step_clock(seconds / 2)
                cache.start(faults.environment)
                engine.close()
                engine = trial.client(cache, f"engine after {name} {turn}")
                right += work(trial, engine, prompts, f"{name} {turn} again")
    trial.require_hits(right, PAGES, "around steps of the clock")


def work(trial, engine, prompts, name):
    right = sum(trial.load(engine, prompt, PAGES) for prompt in prompts)
    for number in range(4):
        trial.save(engine, f"new {name} {number}", PAGES)
    return right + sum(trial.load(engine, f"new {name} {number}", PAGES) for number in range(4))


CASE = Case(16, "clock-steps", "steps of the clock, while the cache runs and between two runs",
            ("Mooncake#3321",), run, needs=("preloads",), defects={"trusts the clock": HANG})
