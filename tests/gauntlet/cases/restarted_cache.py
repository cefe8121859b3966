"""The cache is killed and started again in each phase of its work, and with other settings than before."""

from case import Case
from verdicts import WRONG

PAGES, PROMPTS = 16, 10
PHASES = ("idle", "saving", "loading", "evicting", "starting")
SETTINGS = ({"memory_pages": 96}, {"memory_pages": 256, "durability": "strict"}, {"disk_pages": 96},
            {"disk_pages": 1024}, {"durability": "none"}, {"durability": "relaxed"}, {"eviction": "lru"},
            {"eviction": "s3-fifo"}, {"eviction": "reuse"})


def run(trial):
    cache = trial.cache(memory_pages=128, disk_pages=512, durability="relaxed")
    right = 0
    rounds = trial.length(len(PHASES), 4 * len(PHASES))
    for turn in range(rounds):
        phase, prompts = PHASES[turn % len(PHASES)], [f"prompt {turn // 2} {number}" for number in range(PROMPTS)]
        engine = trial.client(cache, f"engine {turn}")
        for prompt in prompts[:5]:
            trial.save(engine, prompt, PAGES)
        right += killed_while(trial, cache, engine, phase, turn, prompts)
        # Half of the time with another setting.
        chosen = trial.dice.choice([each for each in SETTINGS if each.get("eviction", "") in trial.kind.policies
                                    or "eviction" not in each])
        if turn % 2:
            cache.settings.update(chosen)
        cache.start()
        again = trial.client(cache, f"engine {turn} again")
        for prompt in prompts:
            right += trial.load(again, prompt, PAGES)
        for prompt in prompts:
            trial.save(again, prompt, PAGES)
        for prompt in prompts:
            right += trial.load(again, prompt, PAGES)
        engine.close()
        again.close()
    trial.require_hits(right, PAGES, "after restarts")


def killed_while(trial, cache, engine, phase, turn, prompts):
    """Kills the cache in this phase; the number of right pages that were loaded meanwhile."""
    right = 0
    if phase == "loading":
        right += sum(trial.load(engine, prompt, PAGES) for prompt in prompts[:5])
    if phase in ("saving", "evicting", "loading"):
        chains = [f"load {turn} {n}" for n in range(40)] if phase == "evicting" else prompts
        engine.begin("work", f"{trial.seed}/{turn}", chains, PAGES, 60)
        trial.progress(engine, trial.dice.randint(1, 40))
    cache.kill()
    if phase == "starting":
        # Killed again while it reads what the one before has left.
        for _ in range(2):
            cache.start()
            cache.kill()
    if engine.busy:
        # It works without a cache, and must come to an end.
        trial.together([engine])
    return right


CASE = Case(8, "restarted-cache", "the cache killed and started again in each phase, with other settings",
            ("Mooncake#1871", "Mooncake#3561", "vllm#54002", "vllm#51579", "vllm#57303", "LMCache#4711"), run,
            needs=("disk", "durable index"), defects={"index off after a restart": WRONG})
