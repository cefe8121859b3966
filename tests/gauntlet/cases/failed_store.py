"""A store that failed in the middle stayed visible, and every later hit on it was garbage."""

import errno
import os

from case import Case
from faults import Faults
from verdicts import WRONG

PAGES = 24
PROMPTS = 6


def run(trial):
    for error in (errno.ENOSPC, errno.EIO):
        failed_with(trial, error)


def failed_with(trial, error):
    name = errno.errorcode[error]
    cache = trial.cache(name, start=False, memory_pages=64, disk_pages=1024, durability="relaxed", plain_writes=True)
    faults = Faults(cache.directory, cache.disk_files())
    cache.start(faults.environment)
    engine = trial.client(cache, f"engine {name}")
    before, during = [[f"{when} {name} {number}" for number in range(PROMPTS)] for when in ("before", "during")]
    for prompt in before:
        trial.must_save(engine, prompt, PAGES)
    faults.fail_writes(error)
    for prompt in during:
        trial.save(engine, prompt, PAGES)
    look_at(trial, engine, before + during)
    faults.fail_writes(0)
    look_at(trial, engine, before + during)
    # What was lost is computed again, and saved.
    for prompt in during:
        trial.save(engine, prompt, PAGES)
    right = look_at(trial, engine, before + during)
    trial.require_hits(right, PAGES, f"after {os.strerror(error)}")
    if "durable index" in trial.kind.abilities:
        faults.fail_writes(error)
        for prompt in during[:2]:
            trial.save(engine, f"{prompt} again", PAGES)
        cache.kill()
        faults.fail_writes(0)
        cache.start(faults.environment)
        again = trial.client(cache, f"engine {name} again")
        look_at(trial, again, before + during + [f"{prompt} again" for prompt in during[:2]])


def look_at(trial, engine, prompts):
    return sum(trial.load(engine, prompt, PAGES) for prompt in prompts)


CASE = Case(2, "failed-store", "saves that fail in the middle (disk full, EIO), then lookups", ("LMCache#4991",), run,
            needs=("disk", "preloads", "disk faults"), defects={"failed store visible": WRONG})
