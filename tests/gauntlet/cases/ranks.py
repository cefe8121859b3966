"""Tensor-parallel ranks that got different answers waited for each other, or went on with pages of another rank."""

from case import Case
from caches.cache import Identity
from verdicts import ERROR, WRONG

PAGES, PROMPTS = 16, 6


def run(trial):
    cache = trial.cache(memory_pages=512, disk_pages=1024, durability="strict")
    ranks = [trial.client(cache, f"rank {n}", owner=f"rank {n}", identity=Identity(world_size=2, rank=n))
             for n in (0, 1)]
    prompts = [f"prompt {number}" for number in range(PROMPTS)]
    # One rank alone makes no hit.
    trial.must_save(ranks[0], "of one rank", PAGES)
    same_answer(trial, ranks, "of one rank", wanted=0)
    for prompt in prompts:
        for rank in ranks:
            trial.must_save(rank, prompt, PAGES)
    right = 0
    for prompt in prompts:
        same_answer(trial, ranks, prompt)
        right += sum(trial.load(rank, prompt, PAGES) for rank in ranks)
    trial.require_hits(right, PAGES, "by both ranks")
    # Some pages of either rank are damaged; then the cache dies between the loads of the two.
    cache.stop()
    damaged = cache.damage_disk(0.2, trial.dice)
    trial.remark(f"{damaged} pages damaged on the disk")
    cache.start()
    for rank in ranks:
        trial.back(rank)
    for number, prompt in enumerate(prompts):
        for rank in ranks:
            trial.load(rank, prompt, PAGES)
            if number == PROMPTS // 2:
                cache.kill()
                cache.start()
                trial.load(ranks[1], prompt, PAGES)
                for each in ranks:
                    trial.back(each)
    for prompt in prompts:
        for rank in ranks:
            trial.save(rank, prompt, PAGES)
        same_answer(trial, ranks, prompt)
        for rank in ranks:
            trial.load(rank, prompt, PAGES)


def same_answer(trial, ranks, prompt, wanted=None):
    """Lookups of ranks have one result while nothing changes: engines whose ranks go different ways hang."""
    found = [rank.call("found", prompt, PAGES) for rank in ranks]
    if wanted is not None and any(each != wanted for each in found):
        trial.tally.note(ERROR, f"lookups found {found} pages, and {wanted} are complete")
    if len(set(found)) != 1:
        trial.tally.note(ERROR, f"ranks got different answers: {found}")


CASE = Case(12, "ranks", "tensor-parallel ranks that could get different answers",
            ("sglang#30760", "sglang#26921", "sglang#38273"), run, needs=("ranks", "found", "damage on disk"),
            defects={"one rank for all": WRONG})
