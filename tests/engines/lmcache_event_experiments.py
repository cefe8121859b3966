"""Experiments with the KV events of LMCache's own workers, which subscribe to those of their server: here, a node."""

import time

import engines
from event_router import router
from experiments import PROMPT, PROMPTS, require, usual
from lmcache_experiments import CHUNK, FULL, experiment

PATIENCE_SECONDS = 120


@experiment("KV events: workers of both versions report what the node stores, evicts and loses, of either engine")
def kv_events(one):
    made = one.node("kv-events", memory="16 MiB", disk="0 B", durability="none", events=True).start()
    views, of_node = [router(one) for _ in one.both_versions()], [router(one, of_node=made)]
    short = engines.random_prompts(90, 1, 20)

    def play(engine):
        engine.say("ready")
        while prompts := engine.wait():
            engine.llm.reset_prefix_cache()
            engine.play(prompts, 4, limit=1)
            engine.say("played")

    runs = [one.start(play, one.connector(made), packages=packages, kv_events_config=view.config())
            for packages, view in zip(one.both_versions(), views, strict=True)]
    for run in runs:
        run.hear()

    def played(run, prompts):
        run.say(prompts)
        run.hear()

    def there(view):
        return view.there(None, ("CPU",))

    def settled(when, enough=lambda chunks: True):
        """What the node has, once its own events, and those of all engines, say the same."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for run in runs:
                played(run, short)  # workers hand on in steps what they have received
            known = [len(there(view.listen())) for view in (*of_node, *views)]
            pages = sum(each["complete_keys"] for each in made.namespaces())
            if all(there(view) == there(of_node[0]) for view in views) and known[0] == pages and enough(pages):
                return pages
            require(time.monotonic() < deadline, f"{when}: {known} chunks are published by the node and the two "
                                                 f"engines, and the node has {pages}")

    full = FULL // CHUNK
    played(runs[0], usual())
    require(settled("stored by one engine") == full, f"not {full} chunks are there")
    said = [view.said["CPU", None] for view in (*of_node, *views)]
    for chunk in there(of_node[0]):
        first, *others = [each[chunk][:4] for each in said]
        require(all(other == first for other in others), f"a chunk is announced as {first}, and as {others}")
    for prompt in usual():
        parent = None
        for start in range(0, PROMPT // CHUNK * CHUNK, CHUNK):
            found = [chunk for chunk, (before, tokens, *_) in said[1].items()
                     if (before, tokens) == (parent, tuple(prompt[start:start + CHUNK]))]
            require(len(found) == 1, f"{len(found)} chunks are announced for tokens from {start} of a prompt")
            parent = found[0]

    played(runs[1], engines.random_prompts(91, 20, PROMPT))
    pages = settled("evicted", lambda pages: pages > full)
    removed = [view.removed for view in views]
    require(min(removed) > 0, f"{removed} chunks were withdrawn")
    require(20 * (PROMPT // CHUNK) + full > pages, "nothing was evicted")

    for ns in made.namespaces():
        made.clear(ns["id"])
    require(settled("erased", lambda pages: pages == 0) == 0, "something is left")
    played(runs[1], usual())
    settled("stored again", lambda pages: pages == full)
    asked = made.samples().get('troupe_lmcache_requests_total{operation="subscribe_kv_events"}', 0)
    require(asked >= len(views), f"{asked:.0f} of {len(views)} workers have subscribed")

    made.kill()
    made.start()
    of_node[0] = router(one, of_node=made)
    settled("killed", lambda pages: pages == 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(each["complete_keys"] for each in made.namespaces()) == 0:
        require(time.monotonic() < deadline, "nothing is stored in the node that was started again")
        played(runs[0], usual())
    settled("stored in the node that was started again", lambda pages: pages > 0)
    for run in runs:
        run.say([])
        run.result()
    return 0, f"{full} chunks of {PROMPTS} prompts, {removed[0]} and {removed[1]} withdrawn"
