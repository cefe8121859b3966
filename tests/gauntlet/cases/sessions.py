"""Users got answers with the content of other users' sessions, without an error, when sessions came back from the
disk."""

from case import Case
from verdicts import WRONG

LONG, SHORT = 48, 4


def run(trial):
    cache = trial.cache(memory_pages=256, disk_pages=4096, durability="relaxed")
    count = trial.length(12, 40)
    # Every session is a prompt of its own; some are played by several engines at once.
    sessions = [f"session {number}" for number in range(count)]
    engines = [trial.client(cache, f"engine {number}") for number in range(trial.length(2, 4))]
    for number, engine in enumerate(engines):
        own = [each for place, each in enumerate(sessions) if place % len(engines) == number or place % 5 == 0]
        longs, shorts = own[::2], own[1::2]
        engine.begin("threads", f"{trial.seed}/{number}", [longs, shorts, longs, shorts],
                     LONG, trial.length(25, 400))
    trial.together(engines, patience=trial.patience * trial.length(1, 10))
    for engine in engines:
        for session in trial.dice.sample(sessions, trial.length(4, 20)):
            trial.load(engine, session, SHORT)


CASE = Case(1, "sessions", "long and short sessions at once, through a small memory and the disk", ("LMCache#4385",),
            run, needs=("disk",), defects={"foreign page": WRONG})
