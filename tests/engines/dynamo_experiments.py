"""Experiments with the KV indexer of NVIDIA Dynamo, which a router asks where the prefix of a prompt is.

The indexer runs as a program of its own, with its own decoder. For each prompt, its answer must be what a lookup finds.
"""

import json
import os
import random
import signal
import subprocess
import time
import urllib.request

import engines
from event_experiments import FEW
from event_router import router
from experiments import BLOCK, experiment, missing, require, require_attached, wrong
from free_ports import free_port

PATIENCE_SECONDS = 120


class indexer:
    """Takes events from engines or from a node, and answers for prompts over HTTP."""

    def __init__(self, lab, publishers=(), node=None):
        """`publishers`: an address for each engine. `node`: one that publishes, and answers requests for events."""
        self.port, self.directory = free_port(), lab.next_log().with_suffix(".dynamo")
        workers = ",".join(f"{number}={address}" for number, address in enumerate(publishers))
        with open(self.directory, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TROUPE_DYNAMO"], "-m", "dynamo.indexer", "--block-size", str(BLOCK), "--port",
                 str(self.port), *(["--workers", workers] if workers else [])], stdout=log, stderr=subprocess.STDOUT)
        lab.nodes.append(self)
        self.wait_until_it_answers()
        if node is not None:
            self.ask("/register", {"worker_id": 1, "instance_id": 1, "model_name": "default", "block_size": BLOCK,
                                   **node.settings["events"]})

    def wait_until_it_answers(self):
        for _ in range(600):
            try:
                self.ask("/workers")
                return
            except OSError:
                time.sleep(0.1)
        raise wrong("Dynamo's indexer does not answer")

    def ask(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def answers(self, prompt):
        return self.ask("/query", {"token_ids": prompt, "model_name": "default"})["instances"]

    def found(self, prompt):
        """By engine: tokens of the longest prefix on the GPU, and in host memory or on the GPU."""
        return {int(number): (each["gpu"], each["disk"]) for number, each in self.answers(prompt).items()}

    def longest(self, prompt):
        """Tokens of the longest prefix in any tier of any engine."""
        return max((each["longest_matched"] for each in self.answers(prompt).values()), default=0)


def settle(one):
    """Runs steps until the engine knows of all its saves how they have ended, and has announced them."""
    scheduler = one.llm.llm_engine.engine_core.engine_core.scheduler
    deadline = time.monotonic() + PATIENCE_SECONDS
    while scheduler.connector._kv_events.saving():
        require(time.monotonic() < deadline, "a save does not end")
        one.idle_steps(1)
    one.idle_steps(2)


def require_indexer():
    if "TROUPE_DYNAMO" not in os.environ:
        raise missing("TROUPE_DYNAMO names no Python with ai-dynamo-runtime")


@experiment("KV events: Dynamo's indexer, fed by two engines, finds of each prompt what a lookup finds")
def kv_events_dynamo(lab):
    require_indexer()
    made, count = lab.node("dynamo").start(), 2
    publishers = [f"tcp://127.0.0.1:{free_port()}" for _ in range(count)]
    views = [router(lab, publisher) for publisher in publishers]
    dynamo = indexer(lab, publishers)
    prompts = engines.prompts_with_shared_prefixes(21, 40, 900)

    def play(one):
        one.say("ready")
        one.play(one.wait(), 4)
        settle(one)
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


def prompts_of_many(seed, count, stems=45, longest=900):
    """Prompts that begin as one of the stems. None ends with a block, of which a lookup leaves out the last one."""
    dice, out = random.Random(seed), []
    beginnings = engines.random_prompts(seed, stems, longest)
    while len(out) < count:
        prompt = dice.choice(beginnings)[:dice.randrange(longest)] + \
            engines.random_prompts(dice.random(), 1, dice.randrange(8, 48))[0]
        if len(prompt) % BLOCK:
            out.append(prompt)
    return out


class lookups:
    """Looks up prompts as an engine does that was just started, without computing, saving or describing anything.

    A lookup says how many tokens it has found, and not in which tier each block is. But where what is on disk only
    counts as missing, a lookup behind the blocks before it says whether the next one is in memory.
    """

    def __init__(self, one):
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        core = one.llm.llm_engine.engine_core.engine_core
        self.hasher, config = core.request_block_hasher, core.vllm_config
        self.everywhere, self.number, self.memory = core.scheduler.connector, 0, {}
        extra = config.kv_transfer_config.kv_connector_extra_config
        before = extra["troupe.disk_hits"]
        extra["troupe.disk_hits"] = "never"
        self.in_memory = type(self.everywhere)(config, KVConnectorRole.SCHEDULER, core.scheduler.kv_cache_config)
        extra["troupe.disk_hits"] = before

    def tokens(self, connector, prompt, computed=0):
        """What the connector finds behind the tokens that are computed."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self.number += 1
        request = Request(f"lookup-{self.number}", prompt, SamplingParams(max_tokens=1), None,
                          block_hasher=self.hasher)
        connector.on_new_request(request)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := connector.get_num_new_matched_tokens(request, computed)[0]) is None:
            require(time.monotonic() < deadline, "a lookup is not answered")
            time.sleep(0.0005)
        connector.request_finished(request, [])
        return found

    def is_in_memory(self, prompt, block):
        prefix = tuple(prompt[:(block + 1) * BLOCK])
        if prefix not in self.memory:
            # One token more, since a lookup leaves out the block with the last one.
            self.memory[prefix] = self.tokens(self.in_memory, [*prefix, prompt[0]], block * BLOCK) > 0
        return self.memory[prefix]

    def expected(self, prompt):
        """Tokens of the longest prefix; those of them that are found by who searches memory, and then the disk from
        there on, and not memory again; and those of them in memory."""
        whole = self.tokens(self.everywhere, prompt)
        blocks = [self.is_in_memory(prompt, block) for block in range(whole // BLOCK)]
        in_memory = next((number for number, there in enumerate(blocks) if not there), len(blocks))
        end = next((number for number in range(in_memory, len(blocks)) if blocks[number]), len(blocks))
        return whole, end * BLOCK, in_memory * BLOCK

    def shutdown(self):
        self.in_memory.shutdown()


@experiment("events of the node: of 500 prompts, Dynamo's indexer finds what lookups find, also after kill -9")
def node_events_dynamo(lab):
    require_indexer()
    made = lab.node("node-dynamo", memory="16 MiB", disk="32 MiB", events=True, more={
        "events.replay_endpoint": f"tcp://127.0.0.1:{free_port()}", "events.heartbeat": "1 s",
        # Lookups must not change what they look at.
        "memory.prefetch_bytes": "0 B"}).start()
    asked, remarks, found = prompts_of_many(31, 500), [], []
    played, later = asked[:110], asked[110:170]
    sure = next(prompt for prompt in reversed(later) if len(prompt) > 3 * BLOCK)

    def play(one):
        one.say("ready")
        while prompts := one.wait():
            before, deadline = one.hits(), time.monotonic() + PATIENCE_SECONDS
            while prompts == [sure] and one.hits() == before:
                require(time.monotonic() < deadline, "an engine finds nothing in the restarted node")
                one.llm.reset_prefix_cache()
                one.play(prompts, 2, limit=1)
            one.llm.reset_prefix_cache()
            one.play(prompts, 2, limit=1)
            settle(one)
            one.say("played")
        return one.metrics()

    def look_up(one):
        one.say("ready")
        while one.wait():
            look = lookups(one)
            one.say([look.expected(prompt) for prompt in asked])
            look.shutdown()

    def start(work, **options):
        run = lab.start(work, lab.connector(made, **options), **FEW)
        run.hear()
        return run

    def divide(prompts):
        for number, run in enumerate(runs):
            run.say(prompts[number::len(runs)])
        for run in runs:
            run.hear()

    def compare(when, described=True):
        """Waits until the indexer has all events. `described`: whether engines have described all pages, so that the
        indexer knows them; otherwise it may know less, and never more."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            oracle.say("look")
            expected = oracle.hear()
            known = [dynamo.longest(prompt) for prompt in asked]
            differ = [number for number, (have, (whole, most, _)) in enumerate(zip(known, expected, strict=True))
                      if (have != most if described else have > whole)]
            if not differ:
                break
            require(time.monotonic() < deadline,
                    f"{when}: Dynamo finds {known[differ[0]]} tokens of prompt {differ[0]}, and a lookup "
                    f"{expected[differ[0]]}, as for {len(differ) - 1} others")
            time.sleep(0.5)
        hits = sum(whole > 0 for whole, _, _ in expected)
        on_disk = sum(most > memory for _, most, memory in expected)
        less = sum(whole > have for have, (whole, _, _) in zip(known, expected))
        remarks.append(f"{when}: {hits} hits, {on_disk} go to the disk, Dynamo knows less of {less}")
        require(0 < hits < len(asked), f"{when}: {hits} of the prompts have a hit")
        found.append(sum(known))
        return hits, on_disk, less

    def complete():
        return sum(each["complete_keys"] + each["evicted_keys"] for each in made.namespaces())

    dynamo = indexer(lab, node=made)
    runs = [start(play) for _ in range(2)]
    oracle = start(look_up, node_events="off")
    divide(played[:20])
    _, _, less = compare("at first")
    require(less == 0, f"Dynamo knows less of {less} prompts, without pages on disk alone")
    divide(played[20:])
    _, on_disk, _ = compare("evictions")
    evicted = sum(each["evicted_keys"] for each in made.namespaces())
    require(evicted > 0 and on_disk > 0, f"{evicted} pages were evicted, and {on_disk} prompts go to the disk")

    dynamo.kill()
    dynamo = indexer(lab, node=made)
    compare("indexer killed")

    before, deadline = complete(), time.monotonic() + PATIENCE_SECONDS
    runs[0].say(later)
    while complete() < before + 5:
        require(time.monotonic() < deadline, "an engine saves nothing")
        time.sleep(0.02)
    os.kill(runs[0].child, signal.SIGKILL)
    require(runs[0].killed(), "the engine has ended before it was killed")
    # It may not have described the last pages that it has saved.
    compare("engine killed", described=False)
    runs[0] = start(play)
    divide(later)
    compare("engine started again")

    made.kill()
    made.start()
    for run in runs:
        run.say([sure])
    for run in runs:
        run.hear()
    # The index has what engines have said about pages.
    compare("node killed")
    divide([*played, *later])
    compare("all played again")
    oracle.say([])
    oracle.result()
    for run in runs:
        run.say([])
        require_attached(run.result())
    return sum(found), "; ".join(remarks)
