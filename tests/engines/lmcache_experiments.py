"""Experiments with LMCache's own connectors, unchanged, against a node in the place of LMCache's server."""

import collections.abc
import os
import pathlib
import signal
import time

import engines
from experiments import EXACT, PROMPT, PROMPTS, ROUNDING, collection, gaps, lab as any_lab, play_two_in_turns, require
from experiments import require_equal, usual, wrong

CHUNK = 256
FULL = PROMPTS * (PROMPT // CHUNK * CHUNK)

# Pings every second, so that a node that was started again is noticed soon.
HEARTBEAT_SECONDS = 1.0

# LMCache's connector, and the one inside vLLM, which takes its adapters from the package lmcache.
OWN, BUILT_IN = "lmcache.integration.vllm.lmcache_mp_connector", None

# The mode in which the node copies: the default with GPUs, but not with CPUs. Then workers do.
NODE_COPIES, WORKERS_COPY = "lmcache_driven", "auto"

experiments, experiment = collection()


def prepare():
    """Before an engine starts. vLLM looks through all modules for kernels, and stumbles over libraries of cffi."""
    from vllm.triton_utils import dispatcher

    mapping = collections.abc.Mapping
    dispatcher.vars = lambda x: x.__dict__ if isinstance(x.__dict__, mapping) else {}


class lab(any_lab):
    # The packages of a second version of LMCache.
    beside = None

    def node(self, name, **settings):
        return super().node("lmcache-" + name, lmcache=True, **settings)

    def end_nodes(self, all_of_them=False):
        # Their memory has a name, which they remove when they are asked to stop.
        for each in self.nodes:
            each.stop()
        super().end_nodes(all_of_them)

    def both_versions(self):
        """Where the packages of either version are; None for those of this environment."""
        require(self.beside is not None, "there is no second version of LMCache; --beside names its packages")
        return None, self.beside

    def connector(self, to, module=OWN, policy="recompute", mode="auto"):
        out = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_load_failure_policy": policy,
               "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": to.lmcache_port,
                                             "lmcache.mp.mq_timeout": 20.0,
                                             "lmcache.mp.mp_transfer_mode": mode,
                                             "lmcache.mp.heartbeat_interval": HEARTBEAT_SECONDS}}
        if module:
            out["kv_connector_module_path"] = module
        return out

    def played(self, made, module=OWN, prompts=None, mode="auto", **options):
        if module is BUILT_IN:
            options["disable_hybrid_kv_cache_manager"] = True

        def work(one):
            outputs = one.play(prompts or usual(), 24)
            one.idle_steps(4)
            return outputs, one.hits()

        return self.start(work, self.connector(made, module, mode=mode), **options).result()


def stored_and_found(one, module, mode="auto"):
    made = one.node("restart").start()
    outputs, hits = one.played(made, module, mode=mode)
    require_equal(outputs, one.baseline(usual()))
    require(hits == 0, f"{hits} hits in an empty cache")
    outputs, hits = one.played(made, module, mode=mode)
    require_equal(outputs, one.baseline(usual()))
    require(hits == FULL, f"{hits} tokens of {FULL} were found")
    return hits, "0 when cold, all full chunks after"


@experiment("LMCache's own connector: an empty cache; then another engine finds all full chunks")
def own_connector(one):
    return stored_and_found(one, OWN)


@experiment("the connector inside vLLM: the same")
def built_in_connector(one):
    return stored_and_found(one, BUILT_IN)


@experiment("the node copies blocks itself, in the engine's memory: the same")
def node_copies(one):
    outcome = stored_and_found(one, OWN, mode=NODE_COPIES)
    # The workers are not among them.
    requests = {name: one.nodes[-1].samples().get(f'troupe_lmcache_requests_total{{operation="{name}"}}', 0)
                for name in ("store", "retrieve", "prepare_store", "prepare_retrieve")}
    require(requests["store"] > 0 and requests["retrieve"] > 0, f"the node got no request to copy: {requests}")
    require(requests["prepare_store"] == requests["prepare_retrieve"] == 0, f"workers have copied: {requests}")
    return outcome


@experiment("the node copies, and is killed between two engines: what was stored is found")
def node_copies_killed(one):
    return killed_between(one, mode=NODE_COPIES)


@experiment("kill -9 of the node between two engines: what was stored is found")
def node_killed_between(one):
    return killed_between(one)


def killed_between(one, **how):
    made = one.node("killed").start()
    outputs, _ = one.played(made, **how)
    require_equal(outputs, one.baseline(usual()))
    # "relaxed": the newest second may be lost.
    time.sleep(1.5)
    made.kill()
    made.start()
    outputs, hits = one.played(made, **how)
    require_equal(outputs, one.baseline(usual()))
    require(hits == FULL, f"{hits} tokens of {FULL} were found")
    return hits, ""


@experiment("kill -9 of the node under an engine that goes on: every request ends well; then it finds what is there")
def node_killed_under(one):
    made = one.node("under").start()
    others = engines.random_prompts(8, PROMPTS, PROMPT)

    def work(this):
        first = this.play(usual(), 24)
        this.say("stored")
        this.wait()
        second = this.play(others, 24)
        # Until it has registered again: pings fail, then succeed.
        for _ in range(40):
            this.idle_steps(5, 0.1)
            this.llm.reset_prefix_cache()
            before = this.hits()
            third = this.play(usual(), 24)
            if this.hits() > before:
                break
        return first, second, third, this.hits()

    run = one.start(work, one.connector(made), **EXACT)
    require(run.hear() == "stored", "nothing was stored")
    time.sleep(1.5)
    made.kill()
    # Stores of the adapter wait for an answer, and take the engine with them if there is none in mq_timeout.
    run.say("go on")
    made.start()
    first, second, third, hits = run.result()
    for outputs, prompts in ((first, usual()), (second, others), (third, usual())):
        require_equal(outputs, one.baseline(prompts, **EXACT), ROUNDING)
    require(hits >= FULL, f"{hits} tokens of {FULL} were found after the restart")
    return hits, ""


@experiment("two engines at once on one node, each of which finds what the other has stored")
def two_engines(one):
    return play_two_in_turns(one, one.node("two").start(), CHUNK)


@experiment("twelve prompts with shared prefixes at once, twice")
def many_prompts(one):
    made = one.node("many").start()
    prompts = engines.prompts_with_shared_prefixes(3, 12, 1200)
    outputs, _ = one.played(made, prompts=prompts, **EXACT)
    require_equal(outputs, one.baseline(prompts, **EXACT), ROUNDING)
    outputs, hits = one.played(made, prompts=prompts, **EXACT)
    require_equal(outputs, one.baseline(prompts, **EXACT), ROUNDING)
    require(hits > 0, "nothing was found")
    return hits, ""


@experiment("half of the pages damaged on the disk: they are computed anew")
def damaged_pages(one):
    made = one.node("damaged").start()
    one.played(made)
    made.stop()
    damaged, pages = made.damage_pages(0.5)
    require(0 < damaged < pages, f"{damaged} of {pages} pages were damaged")
    made.start()
    outputs, hits = one.played(made)
    require_equal(outputs, one.baseline(usual()))
    require(hits > 0, "nothing was found")
    require("is damaged" in made.log(), "the node does not say that a page is damaged: the damage was not met")
    return hits, f"{damaged} of {pages} pages damaged"


# -- two versions of LMCache at one node -------------------------------------------------------------------------------

# What each of two engines plays first; then it plays what the other one has played.
HALVES = [engines.random_prompts(seed, 2, PROMPT) for seed in (21, 22)]
FULL_HALF = len(HALVES[0]) * (PROMPT // CHUNK * CHUNK)


def versions_at(made):
    """The versions that the messages of connected clients have shown."""
    known = {each["version"] for each in made.status().get("lmcache", {}).get("clients", [])}
    return known - {"0.5.6 or 0.5.7"}


def require_both_versions(made):
    known = versions_at(made)
    require(known == {"0.5.6", "0.5.7"}, f"the node has seen clients of {', '.join(sorted(known)) or 'no version'}")


def number_at(made, name):
    return int(made.samples().get(f"troupe_lmcache_{name}", 0))


def requests_at(made, operation):
    return number_at(made, f'requests_total{{operation="{operation}"}}')


def require_copier(made, mode):
    """Requires that the node has copied, or that workers have: not both, and not neither."""
    by_node = {name: requests_at(made, name) for name in ("store", "retrieve")}
    by_workers = {name: requests_at(made, name) for name in ("prepare_store", "prepare_retrieve")}
    wanted, others = (by_node, by_workers) if mode == NODE_COPIES else (by_workers, by_node)
    require(sum(wanted.values()) > 0 and sum(others.values()) == 0, f"requests to copy: {by_node}, {by_workers}")


def until(holds, sentence, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < deadline, sentence)
        time.sleep(0.2)


def play_until_found(one, prompts):
    """Outputs of all attempts; more than one if the worker has not registered again. The engine's own prefix cache is
    empty in each."""
    attempts, before = [], one.hits()
    for _ in range(40):
        one.llm.reset_prefix_cache()
        attempts.append(one.play(prompts, 24))
        one.idle_steps(5, 0.1)
        if one.hits() > before:
            break
    return attempts, one.hits() - before


def versions_in_turns(one, mode, restarts=False):
    """An engine of each version at one node. Each of them finds what the other one has stored, all of it."""
    made = one.node("versions").start()

    def work(this):
        this.say("ready")
        first = this.play(this.wait(), 24)
        this.idle_steps()
        this.say(this.hits())
        return first, *play_until_found(this, this.steps_until_said())

    runs = [one.start(work, one.connector(made, mode=mode), packages=packages, **EXACT)
            for packages in one.both_versions()]
    for each, prompts in zip(runs, HALVES):
        require(each.hear() == "ready", "an engine is not ready")
        each.say(prompts)
    early = [each.hear() for each in runs]
    require(early == [0, 0], f"{early} hits in an empty cache")
    require_both_versions(made)
    stored = number_at(made, "stored_pages_total")
    chunks = 2 * FULL_HALF // CHUNK
    require(stored == chunks, f"{stored} pages of {chunks} were stored")
    if restarts:
        made.kill()
        made.start()
        until(lambda: number_at(made, "instances") == len(runs), "workers do not register again")
        time.sleep(2 * HEARTBEAT_SECONDS)
    for each, prompts in zip(runs, reversed(HALVES)):
        each.say(prompts)
    results = [each.result() for each in runs]
    for number, (first, attempts, _) in enumerate(results):
        require_equal(first, one.baseline(HALVES[number], **EXACT), ROUNDING)
        for outputs in attempts:
            require_equal(outputs, one.baseline(HALVES[1 - number], **EXACT), ROUNDING)
    hits = [found for _, _, found in results]
    require(hits == [FULL_HALF] * 2, f"{hits} tokens of {FULL_HALF} each were found")
    # Nothing was stored since, so each engine has found pages of the other one.
    stored = number_at(made, "stored_pages_total") - (0 if restarts else stored)
    require(stored == 0, f"{stored} pages were stored a second time")
    retrieved = number_at(made, "retrieved_pages_total")
    require(retrieved == chunks, f"{retrieved} pages of {chunks} were read")
    require_copier(made, mode)
    return sum(hits), f"{hits[0]} and {hits[1]}; {retrieved} pages read, none stored twice"


@experiment("LMCache 0.5.6 and 0.5.7 at one node: each finds what the other has stored")
def versions(one):
    return versions_in_turns(one, WORKERS_COPY)


@experiment("the same where the node copies")
def versions_copies(one):
    return versions_in_turns(one, NODE_COPIES)


@experiment("both versions, and kill -9 of the node between storing and finding: the engines continue")
def versions_restart(one):
    return versions_in_turns(one, WORKERS_COPY, restarts=True)


@experiment("the same where the node copies")
def versions_restart_copies(one):
    return versions_in_turns(one, NODE_COPIES, restarts=True)


def remove_memory_of(process):
    """The KV cache that LMCache puts into shared memory where the node copies: 1 GiB, which outlives a killed worker."""
    for each in pathlib.Path("/dev/shm").glob(f"lmcache_kv_{process}_*"):
        each.unlink()


def die_while_storing(mode, pause):
    """In the engine's process: kills it when its worker has filled frames for its first store and is about to commit
    them; or, where the node copies, with its second store, so many seconds after it was given to the thread that sends:
    by then the first one was sent."""
    if mode == NODE_COPIES:
        from lmcache.v1.multiprocess.transfer_context.worker_transfer import LMCacheDrivenTransferContext as context

        send, sent = context.submit_store, []

        def send_and_die(*arguments, **named):
            sent.append(send(*arguments, **named))
            if len(sent) > 1:
                time.sleep(pause)
                os.kill(os.getpid(), signal.SIGKILL)
            return sent[-1]

        context.submit_store = send_and_die
    else:
        from lmcache.v1.multiprocess.transfer_context.shm import EngineDrivenContextShm as context

        context.commit_store = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def killed_while_storing(one, mode):
    """For each version: its worker dies while it stores. The other version finds no page that was not published, and
    stores what is missing; then the first one finds all of it."""
    made = one.node("killed").start()
    found, remarks = 0, []
    both = one.both_versions()
    store = "store" if mode == NODE_COPIES else "prepare_store"
    for number, packages in enumerate(both):
        prompts = HALVES[number]

        before, stored = requests_at(made, store), number_at(made, "stored_pages_total")
        # A busy machine may not send the store in time.
        for pause in (0, 0.002, 0.02):
            def dies(this, prompts=prompts, pause=pause):
                die_while_storing(mode, pause)
                this.play(prompts, 24)

            run = one.start(dies, one.connector(made, mode=mode), packages=packages, **EXACT)
            killed = run.killed()
            remove_memory_of(run.process)
            require(killed, "the engine was not killed: it has stored nothing")
            if requests_at(made, store) > before:
                break
        require(requests_at(made, store) > before, "no worker was killed while it stored")
        until(lambda: number_at(made, "instances") == 0, "the worker that was killed is registered still")
        left = number_at(made, "stored_pages_total") - stored
        require(mode == NODE_COPIES or left == 0, f"{left} pages were published that no worker had committed")
        hits = []
        for each in (both[1 - number], packages):
            outputs, got = one.played(made, prompts=prompts, mode=mode, packages=each, **EXACT)
            require_equal(outputs, one.baseline(prompts, **EXACT), ROUNDING)
            hits.append(got)
        require(hits[0] == left * CHUNK, f"{hits[0]} tokens were found, and {left} pages were stored")
        require(hits[1] == FULL_HALF, f"{hits[1]} tokens of {FULL_HALF} were found")
        found += hits[1]
        remarks.append(str(left))
    require_copier(made, mode)
    return found, f"{' and '.join(remarks)} pages by those that were killed"


@experiment("a worker of either version dies by kill -9 before it commits: nothing of it is found")
def versions_killed(one):
    return killed_while_storing(one, WORKERS_COPY)


@experiment("a worker of either version dies by kill -9 when the node copies for it: right, or not found")
def versions_killed_copies(one):
    return killed_while_storing(one, NODE_COPIES)


__all__ = ["experiments", "gaps", "lab", "prepare", "wrong"]
