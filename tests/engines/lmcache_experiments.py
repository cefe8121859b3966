"""Experiments with LMCache's own connectors, unchanged, against a node in the place of LMCache's server."""

import collections.abc
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

# The mode in which the node copies: the default with GPUs, but not with CPUs.
NODE_COPIES = "lmcache_driven"

experiments, experiment = collection()


def prepare():
    """Before an engine starts. vLLM looks through all modules for kernels, and stumbles over libraries of cffi."""
    from vllm.triton_utils import dispatcher

    mapping = collections.abc.Mapping
    dispatcher.vars = lambda x: x.__dict__ if isinstance(x.__dict__, mapping) else {}


class lab(any_lab):
    def node(self, name, **settings):
        return super().node("lmcache-" + name, lmcache=True, **settings)

    def end_nodes(self, all_of_them=False):
        # Their memory has a name, which they remove when they are asked to stop.
        for each in self.nodes:
            each.stop()
        super().end_nodes(all_of_them)

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


__all__ = ["experiments", "gaps", "lab", "prepare", "wrong"]
