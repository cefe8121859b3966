"""A page is damaged where it lies or on its way: what comes back must be the page or nothing."""

from case import Case
from faults import Faults
from verdicts import WRONG

PAGES, PROMPTS = 16, 8


def run(trial):
    parts = (("damage in memory", in_memory), ("damage on disk", on_disk), ("network", on_the_network))
    for ability, part in parts:
        if ability in trial.kind.abilities:
            part(trial)
        else:
            trial.remark(f"{part.__name__.replace('_', ' ')}: not run, since pages of {trial.kind.title} are not "
                         "there, or out of the reach of this program")


def in_memory(trial):
    cache = trial.cache("memory", memory_pages=512)
    engine, prompts = saved(trial, cache)
    damaged = cache.damage_memory(0.25, trial.dice)
    trial.remark(f"{damaged} pages damaged in memory")
    look_at(trial, engine, prompts)
    repaired(trial, cache, engine, prompts)


def on_disk(trial):
    cache = trial.cache("disk", memory_pages=64, disk_pages=1024, durability="strict")
    engine, prompts = saved(trial, cache)
    # Nothing is left in memory.
    cache.stop()
    damaged = cache.damage_disk(0.25, trial.dice)
    trial.remark(f"{damaged} pages damaged on the disk")
    cache.start()
    engine = trial.client(cache, "engine again")
    look_at(trial, engine, prompts)
    repaired(trial, cache, engine, prompts)


def on_the_network(trial):
    # What the client receives is damaged, and what the server receives.
    for_client, for_server = [Faults(trial.directory, name=name) for name in ("client", "server")]
    cache = trial.cache("network", start=False, memory_pages=512, remote=True)
    cache.start(for_server.environment)
    engine = trial.client(cache, "engine elsewhere", extra=for_client.environment)
    prompts, others = ([f"{name} {number}" for number in range(PROMPTS)] for name in ("far", "damaged save"))
    for prompt in prompts:
        trial.must_save(engine, prompt, PAGES)
    for_client.damage(True)
    look_at(trial, engine, prompts)
    for_client.damage(False)
    for_server.damage(True)
    for prompt in others:
        trial.back(engine)
        trial.save(engine, prompt, PAGES)
    for_server.damage(False)
    trial.remark(f"{for_client.damaged} and {for_server.damaged} pieces damaged on the way to client and server")
    repaired(trial, cache, engine, prompts + others)


def saved(trial, cache):
    engine, prompts = trial.client(cache, f"engine {cache.directory.name}"), [f"prompt {n}" for n in range(PROMPTS)]
    for prompt in prompts:
        trial.must_save(engine, prompt, PAGES)
    return engine, prompts


def look_at(trial, engine, prompts):
    right = 0
    for prompt in prompts:
        trial.back(engine)
        right += trial.load(engine, prompt, PAGES)
    return right


def repaired(trial, cache, engine, prompts):
    """What was damaged is computed and saved again."""
    trial.back(engine)
    for prompt in prompts:
        trial.save(engine, prompt, PAGES)
    trial.require_hits(look_at(trial, engine, prompts), 1, f"when {cache.directory.name} was sound again")


CASE = Case(7, "damaged-page", "a page damaged in memory, on the disk, on the network", ("Mooncake#3140",),
            run, defects={"no checksum": WRONG})
