"""Experiments with vLLM's KV events: what a router learns of blocks in Troupe beside those of the GPU.

The router here is a subscriber of vLLM's own publisher with vLLM's own decoder. Every block that Troupe announces must
be the one that vLLM has announced for its GPU, to the last field; and what is announced must be what a lookup finds.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import engines
import hybrid_experiments
from experiments import (BLOCK, FULL, PROMPT, PROMPTS, SEVERAL_GROUPS, experiment, experiments, external, missing,
                         require, require_attached, require_equal, usual, versions, wait_until_attached, wrong)
from free_ports import free_port

HERE = pathlib.Path(__file__).resolve().parent

SILENCE_SECONDS = 1.0


class router:
    """A view of the blocks of one engine, or node: by medium and group, the hashes that are announced."""

    def __init__(self, lab, publish=None, of_node=None):
        """`publish`: an address at which the messages are published as well. `of_node`: whose events these are."""
        import msgspec
        from vllm.distributed import kv_events

        self.kinds = kv_events
        self.decode = msgspec.msgpack.Decoder(kv_events.KVEventBatch).decode
        self.endpoint = f"connect:{of_node.events_endpoint}" if of_node else f"tcp://127.0.0.1:{free_port()}"
        self.path = lab.next_log().with_suffix(".events")
        self.process = subprocess.Popen([sys.executable, str(HERE / "subscriber.py"), self.endpoint, str(self.path),
                                         *([publish] if publish else [])], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        lab.nodes.append(self)  # its process ends with those of the nodes
        self.directory, self.read = self.path, 0
        self.blocks, self.said, self.ever = {}, {}, {}
        self.cleared = self.removed = 0
        # The numbers of a node begin with the time at which it has started.
        self.next = None if of_node else 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def config(self):
        """Settings of the engine."""
        from vllm.config import KVEventsConfig

        return KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=self.endpoint)

    def listen(self):
        """Takes what has come, until nothing comes for a second."""
        quiet = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < quiet:
            for number, payload in self.messages():
                require(self.next in (number, None), f"batch {number} of events came in the place of {self.next}")
                self.next = number + 1
                for event in self.decode(payload).events:
                    self.take(event)
                quiet = time.monotonic() + SILENCE_SECONDS
            time.sleep(0.05)
        return self

    def messages(self):
        """Those that are complete."""
        data = self.path.read_bytes()
        while len(data) >= self.read + 12:
            number = int.from_bytes(data[self.read:self.read + 8], "big")
            end = self.read + 12 + int.from_bytes(data[self.read + 8:self.read + 12], "big")
            if len(data) < end:
                return
            yield number, data[self.read + 12:end]
            self.read = end

    def take(self, event):
        if isinstance(event, self.kinds.AllBlocksCleared):
            self.cleared += 1
            self.blocks.clear()
            return
        known = self.blocks.setdefault((event.medium, event.group_idx), set())
        if isinstance(event, self.kinds.BlockRemoved):
            if event.medium != "GPU":
                missing = [each for each in event.block_hashes if each not in known]
                require(not missing, f"{len(missing)} blocks are removed that were not announced")
                self.removed += len(event.block_hashes)
            known.difference_update(event.block_hashes)
            return
        size, parent = event.block_size, event.parent_block_hash
        require(event.medium == "GPU" or len(event.token_ids) == size * len(event.block_hashes),
                f"{len(event.token_ids)} tokens for {len(event.block_hashes)} blocks of {size}")
        extra_keys = event.extra_keys or [None] * len(event.block_hashes)
        for number, (each, extra) in enumerate(zip(event.block_hashes, extra_keys, strict=True)):
            if event.medium != "GPU":
                require(each not in known, "a block is announced twice")
            if len(event.token_ids) == size * len(event.block_hashes):
                said = (parent, tuple(event.token_ids[number * size:(number + 1) * size]), extra, size, event.lora_id,
                        event.lora_name, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window)
                self.said.setdefault((event.medium, event.group_idx), {})[each] = said
            known.add(each)
            self.ever.setdefault((event.medium, event.group_idx), set()).add(each)
            parent = each

    def there(self, group=0, media=("CPU", "STORAGE")):
        return set().union(*(self.blocks.get((medium, group), ()) for medium in media))

    def overlap(self, prompt, salt=None, media=("CPU", "STORAGE")):
        """Tokens of the longest prefix of a prompt that is there, found by tokens, parents and salt as routers do it.
        Of models with one group."""
        there, known = self.there(0, media), {}
        for medium in media:
            for each, (parent, tokens, extra, *_) in self.said.get((medium, 0), {}).items():
                known[parent, tokens, extra] = each
        found, parent, extra = 0, None, salt and (salt,)
        while (each := known.get((parent, tuple(prompt[found:found + BLOCK]), extra))) in there:
            found, parent, extra = found + BLOCK, each, None
        return found

    def require_as_on_gpu(self, groups=(0,)):
        """What Troupe has said of a block is what vLLM has said of it."""
        for group in groups:
            own, ours = self.said.get(("GPU", group), {}), {}
            for medium in ("CPU", "STORAGE"):
                ours.update(self.said.get((medium, group), {}))
            require(ours, f"no block of group {group} was announced")
            both = [each for each in ours if each in own]
            require(both, f"no announced block of group {group} is one of the GPU")
            for each in both:
                require(ours[each] == own[each], f"a block of group {group} is announced as {ours[each]}, and on the "
                                                 f"GPU as {own[each]}")


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
            # The node has neither the number of an adapter nor the kind of a layer.
            require(said[each][:4] == gpu[each][:4], f"the node publishes {said[each]}, and vLLM {gpu[each]}")
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


for each in hybrid_experiments.KINDS:
    experiments[f"{each.name}-kv-events"] = (f"{each.what}: KV events, of each of vLLM's groups",
                                             functools.partial(kv_events_of_groups, each))
    versions[f"{each.name}-kv-events"] = (SEVERAL_GROUPS, None)


class indexer:
    """The indexer of NVIDIA Dynamo, which takes events from engines and answers for prompts over HTTP."""

    def __init__(self, lab, publishers):
        """`publishers`: an address for each engine."""
        self.port, self.directory = free_port(), lab.next_log().with_suffix(".dynamo")
        workers = ",".join(f"{number}={address}" for number, address in enumerate(publishers))
        with open(self.directory, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TROUPE_DYNAMO"], "-m", "dynamo.indexer", "--block-size", str(BLOCK), "--port",
                 str(self.port), "--workers", workers], stdout=log, stderr=subprocess.STDOUT)
        lab.nodes.append(self)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/workers", timeout=10)
                return
            except OSError:
                time.sleep(0.1)
        raise wrong("Dynamo's indexer does not answer")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def found(self, prompt):
        """By engine: tokens of the longest prefix on the GPU, and in host memory or on the GPU."""
        body = json.dumps({"token_ids": prompt, "model_name": "default"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/query", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            said = json.load(answer)["instances"]
        return {int(number): (each["gpu"], each["disk"]) for number, each in said.items()}


@experiment("KV events: Dynamo's indexer, fed by two engines, finds of each prompt what a lookup finds")
def kv_events_dynamo(lab):
    if "TROUPE_DYNAMO" not in os.environ:
        raise missing("TROUPE_DYNAMO names no Python with ai-dynamo-runtime")
    made, count = lab.node("dynamo").start(), 2
    publishers = [f"tcp://127.0.0.1:{free_port()}" for _ in range(count)]
    views = [router(lab, publisher) for publisher in publishers]
    dynamo = indexer(lab, publishers)
    prompts = engines.prompts_with_shared_prefixes(21, 40, 900)

    def play(one):
        one.say("ready")
        one.play(one.wait(), 4)
        one.idle_steps()
        return one.metrics()

    runs = [lab.start(play, lab.connector(made), kv_events_config=view.config(), **FEW) for view in views]
    for run in runs:
        run.hear()
    for number, run in enumerate(runs):
        run.say(prompts[number::count])
    for run in runs:
        require_attached(run.result())
    for view in views:
        view.listen().require_as_on_gpu()

    asked = [*prompts, *engines.prompts_with_shared_prefixes(21, 240, 900)[40:]]

    def look_up(one):
        from experiments import answers_to_scheduler

        said, out = answers_to_scheduler(one), []
        for prompt in asked:
            while not one.llm.reset_prefix_cache():  # not while blocks are saved
                one.idle_steps(1)
            del said[:]
            one.play([prompt], 1)
            out.append(max((tokens or 0 for tokens, _ in said), default=0))
        return out

    found = lab.start(look_up, lab.connector(made), max_model_len=1024).result()
    only_there, saved = 0, {0: 0}
    for number, (prompt, hit) in enumerate(zip(asked, found, strict=True)):
        answers = dynamo.found(prompt)
        only_there += any(gpu < total for gpu, total in answers.values())
        # The engine that looks up saves what it has computed. Dynamo has no events of it.
        prefixes = {hash(tuple(prompt[:end])): end for end in range(BLOCK, len(prompt) + 1, BLOCK)}
        known = max([total for _, total in answers.values()] + [end for each, end in prefixes.items() if each in saved],
                    default=0)
        saved.update(prefixes)
        # The block with the last token of a prompt is never looked up.
        known = min(known, (len(prompt) - 1) // BLOCK * BLOCK)
        require(known == hit, f"Dynamo finds {known} tokens of prompt {number}, and a lookup {hit}")
    require(only_there > 0, "all prompts are on a GPU")
    return sum(found), f"{len(asked)} prompts, {sum(hit > 0 for hit in found)} with a hit, {only_there} beyond the GPU"
