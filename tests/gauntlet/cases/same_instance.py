"""After the restart of one of two engines its output was wrong: the server still used what it knew of the instance of
that name."""

from case import Case
from caches.cache import Identity
from verdicts import WRONG

PAGES, PROMPTS = 12, 6


def run(trial):
    cache = trial.cache(memory_pages=512)
    named = Identity(instance="engine-7")
    prompts = [f"prompt {number}" for number in range(PROMPTS)]
    stays = trial.client(cache, "engine that stays", identity=Identity(instance="engine-8"))
    restarted = trial.client(cache, "engine, life 0", identity=named)
    for prompt in prompts:
        trial.must_save(restarted, prompt, PAGES)
    right = 0
    for life in range(1, trial.length(4, 16)):
        # It dies at work, and its successor of the same name has other memory.
        restarted.begin("work", f"{trial.seed}/{life}", prompts + [f"own {life} {n}" for n in range(4)], PAGES, 10 ** 6)
        right += trial.load(stays, trial.dice.choice(prompts), PAGES)
        restarted.kill()
        restarted = trial.client(cache, f"engine, life {life}", identity=named)
        for prompt in trial.dice.sample(prompts, 3):
            right += trial.load(restarted, prompt, PAGES)
            right += trial.load(stays, prompt, PAGES)
        trial.save(restarted, f"life {life}", PAGES)
        right += trial.load(stays, f"life {life}", PAGES)
    trial.require_hits(right, PAGES, "by the engines")


CASE = Case(4, "same-instance", "restart of one of two engines under the same instance id", ("LMCache#4492",), run,
            needs=("servers",), defects={"stale instance": WRONG})
