"""Two servers on one directory, under one name, at one port: the second one took the memory or the files of the
first."""

from case import Case
from caches.cache import Identity
from verdicts import WRONG

PAGES, PROMPTS = 12, 8


def run(trial):
    for what in ("directory", "port", "name"):
        sharing(trial, what)


def sharing(trial, what):
    first = trial.cache(f"{what} one", memory_pages=128, disk_pages=2048)
    owner = trial.client(first, f"engine of {what} one", owner="engine 1", identity=Identity(model="model-a"))
    prompts = [f"{what} {number}" for number in range(PROMPTS)]
    for prompt in prompts:
        trial.must_save(owner, prompt, PAGES)
    second = trial.cache(f"{what} two", start=False, memory_pages=128, disk_pages=2048)
    if not second.share(what, first):
        trial.remark(f"one {what}: not run, {trial.kind.title} has none that two servers could share")
        return
    refusal = started(second)
    trial.remark(f"one {what}: {'the second server refuses to start' if refusal else 'both servers run'}")
    other = None
    if refusal is None:
        other = trial.client(second, f"engine of {what} two", owner="engine 2", identity=Identity(model="model-b"))
        # Of another model: what it finds is its own.
        for prompt in prompts:
            trial.save(other, prompt, PAGES)
        crowd(trial, other, what)
    crowd(trial, owner, what)
    if other is not None:
        for prompt in prompts:
            trial.load(other, prompt, PAGES)
    right = sum(trial.load(owner, prompt, PAGES) for prompt in prompts)
    trial.require_hits(right, 1, f"by the first of two servers with one {what}")


def crowd(trial, engine, what):
    """Pages that need all of the memory, so that the others come from the disk."""
    for number in range(trial.length(16, 64)):
        trial.save(engine, f"crowd {what} {number}", PAGES)


def started(cache):
    """None if it runs, else why not."""
    try:
        cache.start()
    except RuntimeError as error:
        return str(error) or "it does not start"
    return None


CASE = Case(15, "two-servers", "two servers on one directory, one port, one name",
            ("LMCache#1165", "vllm#54002", "sglang#28027"), run, needs=("servers", "directories"),
            defects={"no lock on the directory": WRONG})
