"""Experiments with vLLM's KV events: what a router learns of blocks in Troupe beside those of the GPU.

The router here is a subscriber of vLLM's own publisher with vLLM's own decoder. Every block that Troupe announces must
be the one that vLLM has announced for its GPU, to the last field; and what is announced must be what a lookup finds.
"""

import functools

import engines
import hybrid_experiments
from event_router import router
from experiments import (BLOCK, FULL, PROMPT, PROMPTS, SEVERAL_GROUPS, experiment, experiments, external, require,
                         require_attached, require_equal, usual, versions, wait_until_attached)

# Few blocks in the engine's own cache, so that a prompt that was played is looked up again.
FEW = {"max_model_len": 1024, "num_gpu_blocks_override": 12}


@experiment("KV events: a router knows the blocks in Troupe as those of the GPU, by hash, tokens and parent")
def kv_events(lab):
    made = lab.node("events").start()
    first, second = router(lab), router(lab)

    def play(one):
        outputs = one.play(usual(), 24)
        one.idle_steps()
        return outputs, one.metrics()

    def play_with_salt(one):
        from vllm import SamplingParams

        out = play(one)
        one.llm.generate({"prompt_token_ids": usual()[0], "cache_salt": "tenant"},
                         SamplingParams(max_tokens=1, detokenize=False), use_tqdm=False)
        one.idle_steps()
        return out

    def play_twice(one):
        out = play(one)
        one.llm.reset_prefix_cache()  # says that all blocks are cleared, in the name of all media
        return out, play(one)

    outputs, metrics = lab.start(play_with_salt, lab.connector(made), kv_events_config=first.config()).result()
    require_attached(metrics)
    require_equal(outputs, lab.baseline(usual()))
    first.listen().require_as_on_gpu()
    full, whole = FULL // BLOCK, PROMPT // BLOCK
    require(len(first.there()) == full + whole, f"{len(first.there())} blocks of {full + whole} were announced")
    mine, other = usual()[0], engines.random_prompts(8, 1, PROMPT)[0]
    found = [first.overlap(mine), first.overlap(mine, "tenant"), first.overlap(mine, "other tenant"), first.overlap(other)]
    require(found == [whole * BLOCK, whole * BLOCK, 0, 0], f"the router finds {found} tokens")

    (outputs, metrics), (again, _) = lab.start(play_twice, lab.connector(made),
                                               kv_events_config=second.config()).result()
    require_equal(outputs, lab.baseline(usual()))
    require_equal(again, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found")
    second.listen().require_as_on_gpu()
    require(second.cleared == 1, f"vLLM has cleared all blocks {second.cleared} times")
    require(len(second.there()) == full and second.there() < first.there(),
            "the second engine does not announce what it has found, or not again")
    return 2 * FULL, f"{len(first.there())} blocks"


@experiment("KV events: what the node has erased or lost is withdrawn, and what it still has is announced again")
def kv_events_removed(lab):
    made, view = lab.node("removed").start(), router(lab)

    def play(one):
        while True:
            prompts = one.wait()
            if not prompts:
                return one.metrics()
            one.play(prompts, 4, limit=1)
            one.idle_steps(10)
            one.say("played")

    run = lab.start(play, lab.connector(made), kv_events_config=view.config(), **FEW)

    def played(prompts):
        run.say(prompts)
        run.hear()
        return view.listen()

    full = FULL // BLOCK
    played(usual())
    require((len(view.there()), view.removed) == (full, 0), f"{len(view.there())} blocks of {full} were announced")
    for ns in made.namespaces():
        made.clear(ns["id"])
    # The first prompt is not in the engine's own cache any more. It is missed, computed, and saved again.
    played(usual()[:1])
    require((len(view.there()), view.removed) == (full, full // PROMPTS), f"{view.removed} blocks were withdrawn")
    played(usual()[1:])
    require((len(view.there()), view.removed) == (full, full), f"{view.removed} blocks were withdrawn")

    made.kill()
    for seed in range(20):
        if played(engines.random_prompts(50 + seed, 1, PROMPT)).there() == set():
            break
    require(view.there() == set(), f"{len(view.there())} blocks are announced of a node that is lost")
    made.start()
    for seed in range(20):
        if played([usual()[seed % PROMPTS]]).there():
            break
    played(usual())
    run.say([])
    require_attached(run.result())
    view.require_as_on_gpu()
    _, metrics = lab.play(usual(), lab.connector(made), 4)
    known = [view.overlap(prompt) for prompt in usual()]
    require(external(metrics) == sum(known) > 0, f"{sum(known)} tokens are announced, and {external(metrics)} found")
    return external(metrics), f"{view.removed} blocks were withdrawn"


@experiment("events of the node: it publishes vLLM's blocks as vLLM does those of its GPU, and withdraws what it evicts")
def node_events(lab):
    made = lab.node("publisher", memory="16 MiB", disk="0 B", durability="none", events=True).start()
    own, view = router(lab), router(lab, of_node=made)

    def play(one):
        from vllm import SamplingParams

        one.say("ready")
        while prompts := one.wait():
            one.play(prompts, 24)
            one.llm.generate({"prompt_token_ids": prompts[0], "cache_salt": "tenant"},
                             SamplingParams(max_tokens=1, detokenize=False), use_tqdm=False)
            one.idle_steps()
            one.say("played")
        return one.metrics()

    def require_as_on_gpu():
        gpu, said = own.listen().said["GPU", 0], view.listen().said.get(("CPU", 0), {})
        for each in view.there():
            require(each in gpu, "the node publishes a block that vLLM never had")
            # The node has no number of an adapter.
            require(said[each][:4] + said[each][5:] == gpu[each][:4] + gpu[each][5:],
                    f"the node publishes {said[each]}, and vLLM {gpu[each]}")
        pages = sum(each["complete_keys"] for each in made.namespaces())
        require(len(view.there()) == pages, f"the node publishes {len(view.there())} blocks, and has {pages}")
        return pages

    run = lab.start(play, lab.connector(made), kv_events_config=own.config())
    run.hear()
    run.say(usual())
    run.hear()
    first = require_as_on_gpu()
    require(view.there() == own.there() and view.removed == 0, "the node publishes others than the plug-in, or not all")
    mine = usual()[0]
    found = [view.overlap(mine), view.overlap(mine, "tenant"), view.overlap(mine, "other tenant")]
    require(found == [PROMPT // BLOCK * BLOCK] * 2 + [0], f"the router finds {found} tokens")
    run.say(engines.random_prompts(77, 12, PROMPT))
    run.hear()
    require_as_on_gpu()
    require(view.removed > 0, "nothing was evicted")
    run.say([])
    require_attached(run.result())

    # An engine without events of its own finds that the node publishes events.
    for ns in made.namespaces():
        made.clear(ns["id"])
    view.listen()
    require(view.there() == set(), f"{len(view.there())} blocks are announced of an empty node")
    run = lab.start(play, lab.connector(made))
    run.hear()
    run.say(usual())
    run.hear()
    again = require_as_on_gpu()
    require(again == first, f"{again} blocks are published, and {first} with vLLM's events")
    run.say([])
    require_attached(run.result())
    return 0, f"{first} blocks, {view.removed} withdrawn"


@experiment("events of the node: it gets descriptions of an engine that has started before it")
def node_events_later(lab):
    made = lab.node("later", events=True)
    view = router(lab, of_node=made)

    def play(one):
        one.play(usual(), 4)
        one.say("started without a node")
        one.wait()
        wait_until_attached(one)
        one.llm.reset_prefix_cache()
        one.play(usual(), 4)
        one.idle_steps()
        return one.metrics()

    run = lab.start(play, lab.connector(made, wait_for_node_seconds=1.0))
    run.hear()
    made.start()
    run.say("there is one")
    require_attached(run.result())
    view.listen()
    pages = sum(each["complete_keys"] for each in made.namespaces())
    require(len(view.there()) == pages == FULL // BLOCK, f"{len(view.there())} blocks are published of {pages}")
    found = [view.overlap(prompt) for prompt in usual()]
    require(sum(found) == FULL, f"the router finds {found} tokens")
    return 0, f"{pages} blocks"


def kv_events_of_groups(this, lab):
    made, view = lab.node(f"{this.name}-events").start(), router(lab)
    outputs, metrics = lab.play(usual(), lab.connector(made), 24, this.limit, kv_events_config=view.config(),
                                **this.engine(lab))
    require_attached(metrics)
    hybrid_experiments.require_groups(this, made)
    view.listen()
    stored = {hybrid_experiments.namespace(made, group)["complete_keys"] for group in this.groups}
    groups = sorted(group for medium, group in view.said if medium == "CPU")
    for group in groups:
        ours, own = view.said["CPU", group], view.ever["GPU", group]
        if this.keeps_all:  # hashes are the same in all groups
            own = set().union(*(blocks for (medium, _), blocks in view.ever.items() if medium == "GPU"))
        size, kind = next(iter(ours.values()))[3], next(iter(ours.values()))[6]
        require(set(ours) <= own, f"blocks of group {group} are announced that the GPU never had")
        require(len(view.there(group)) in {keys * (this.unit // size) for keys in stored},
                f"{len(view.there(group))} blocks of group {group} are announced, and the node has {stored} pages")
        if kind == "full_attention":
            view.require_as_on_gpu([group])
    require(len(groups) > 1, f"only the groups {groups} are announced")
    return 0, ", ".join(f"{len(view.there(group))} blocks of group {group}" for group in groups)


def node_events_of_groups(this, lab):
    """The node publishes the blocks of each of vLLM's groups as the plug-in does, and withdraws what it evicts of one."""
    made = lab.node(f"{this.name}-publisher", memory="24 MiB", disk="0 B", durability="none", events=True).start()
    own, view = router(lab), router(lab, of_node=made)

    def play(one):
        one.say("ready")
        while prompts := one.wait():
            one.play(prompts, 24, limit=this.limit)
            one.idle_steps()
            one.say("played")
        return one.metrics()

    def require_as_in_the_node():
        view.listen()
        pages = {hybrid_experiments.namespace(made, group)["complete_keys"] for group in this.groups}
        groups = sorted({group for medium, group in view.said if view.blocks.get((medium, group))})
        for group in groups:
            size = next(iter(view.said["CPU", group].values()))[3]
            require(len(view.there(group)) // (this.unit // size) in pages,
                    f"{len(view.there(group))} blocks of group {group} are published, and the node has {pages} pages")
        return groups

    run = lab.start(play, lab.connector(made), kv_events_config=own.config(), **this.engine(lab))
    run.hear()
    run.say(usual())
    run.hear()
    hybrid_experiments.require_groups(this, made)
    own.listen()
    groups = require_as_in_the_node()
    require(len(groups) > 1, f"only the groups {groups} are published")
    for group in groups:
        require(view.there(group) == own.there(group), f"of group {group} the node publishes others than the plug-in")
        ours, theirs = own.said["CPU", group], view.said["CPU", group]
        for each in theirs:
            require(theirs[each] == ours[each], f"the node publishes {theirs[each]}, and the plug-in {ours[each]}")
    kinds = {view.said["CPU", group][next(iter(view.there(group)))][6] for group in groups}
    require("full_attention" in kinds and len(kinds) > 1, f"the kinds of the groups are {kinds}")
    run.say(engines.random_prompts(77, 24, PROMPT))
    run.hear()
    require_as_in_the_node()
    require(view.removed > 0, "nothing was evicted")
    run.say([])
    require_attached(run.result())
    return 0, f"groups {groups}, {view.removed} blocks withdrawn"


for each in hybrid_experiments.KINDS:
    experiments[f"{each.name}-kv-events"] = (f"{each.what}: KV events, of each of vLLM's groups",
                                             functools.partial(kv_events_of_groups, each))
    versions[f"{each.name}-kv-events"] = (SEVERAL_GROUPS, None)
    experiments[f"{each.name}-node-events"] = (f"{each.what}: events of the node, of each of vLLM's groups",
                                               functools.partial(node_events_of_groups, each))
    versions[f"{each.name}-node-events"] = (SEVERAL_GROUPS, None)
