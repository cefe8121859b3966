"""An engine that was killed in the middle of a save left pages that were half of it, and its memory was used again
while copies were still on the way."""

from case import Case
from verdicts import WRONG

PAGES, PROMPTS = 24, 8


def run(trial):
    cache = trial.cache(memory_pages=256, disk_pages=1024)
    reader = trial.client(cache, "reader")
    right = 0
    for life in range(trial.length(5, 60)):
        prompts = [f"prompt {life} {number}" for number in range(PROMPTS)]
        victim = trial.client(cache, f"victim {life}")
        # Mostly saves in the even lives; loads as well in the odd ones.
        if life % 2:
            trial.save(victim, prompts[0], PAGES)
        victim.begin("work", f"{trial.seed}/{life}", prompts, PAGES, 10 ** 6)
        trial.progress(victim, trial.dice.randint(1, 4))
        trial.pause(trial.dice.random() * 0.02)
        victim.kill()
        for prompt in prompts:
            right += trial.load(reader, prompt, PAGES)
        # What is saved now is saved into the memory that the dead engine used.
        for number in range(3):
            trial.save(reader, f"after {life} {number}", PAGES)
        for prompt in [*prompts, f"after {life} 0"]:
            right += trial.load(reader, prompt, PAGES)
    trial.require_hits(right, PAGES, "after engines were killed")


CASE = Case(6, "killed-engine", "engines killed in the middle of saves and loads, and their memory used again",
            ("vllm#45704", "vllm#31210"), run, defects={"half saved pages": WRONG})
