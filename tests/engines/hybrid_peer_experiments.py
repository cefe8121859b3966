"""Experiments with models of several KV cache groups and two nodes that are peers, as on two hosts: an engine at one
node finds what an engine at the other one has saved."""

import json
import time
import urllib.request

import engines
from experiments import PROMPT, PROMPTS, require, require_equal, usual
from hybrid_experiments import (baseline, namespace, of_each_kind, play, play_spoilt, require_all_found,
                                require_hits, require_none_equal)
from node import total

PATIENCE_SECONDS = 120
# Fewer prompts of other tokens, whose pages make the namespaces of a node.
FEW = 1


def two_peers(this, lab, name):
    """Two nodes of one cluster."""
    made = [lab.node(f"{this.name}-{name}-{which}") for which in ("first", "second")]
    seeds = [{"host": "127.0.0.1", "port": each.port} for each in made]
    for each, which in zip(made, ("first", "second")):
        each.configure({
            "node_name": which, "remote.enabled": True, "attach.always_remote": True, "cluster.name": "hosts",
            "cluster.seeds": seeds, "cluster.hello_interval": "300 ms",
            # A busy machine is no reason for a miss here.
            "cluster.ask_time": "20 s", "cluster.fetch_time": "60 s"})
        each.start()
    return made


def peers_of(made):
    """What the node says about the other ones."""
    with urllib.request.urlopen(f"http://127.0.0.1:{made.metrics_port}/v1/cluster", timeout=60) as answer:
        return [each for each in json.load(answer)["nodes"] if each.get("state") != "self"]


def wait_for_sessions(this, made):
    """Waits until the node can ask the other one about all groups."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        peers = peers_of(made)
        if any(each["namespaces"] == len(this.groups) for each in peers):
            return
        require(time.monotonic() < deadline, f"the node has no session for each group: {peers}")
        time.sleep(0.2)


def fetched_pages(made):
    return int(total(made.samples(), "troupe_peer_pages_total"))


@of_each_kind("two hosts: an engine at one finds what an engine at the other has saved, and without it nothing")
def two_hosts(this, lab):
    first, second = two_peers(this, lab, "hosts")
    # Namespaces are made by engines: each node gets them with a prompt that nothing else plays.
    for seed, made in ((91, first), (92, second)):
        play(lab, this, made, engines.random_prompts(seed, FEW, PROMPT), 4)
    for made in (first, second):
        wait_for_sessions(this, made)
    outputs, metrics = play(lab, this, first, usual())
    require_hits(metrics, 0, "were found in an empty cache")
    require_equal(outputs, baseline(lab, this, usual()), this.gap)
    require(fetched_pages(second) == 0, "pages moved before anything was looked up")
    found = require_all_found(lab, this, second)
    moved = fetched_pages(second)
    require(moved > 0, "no page moved")
    # All that the hits need, and no page more: the states are one for each prompt, and windows end with it.
    most = sum(this.pages(group) for group in this.groups)
    require(moved <= most, f"{moved} pages moved, and the first node has {most}")
    # Every group of what came from the other host matters.
    wanted = baseline(lab, this, usual())
    for group in this.groups:
        outputs, metrics = play_spoilt(lab, this, second, group)
        require_hits(metrics, PROMPTS * this.found())
        require_none_equal(outputs, wanted, f"zeroed blocks of the group {group!r}")
    # Nor is anything found without the other host.
    first.kill()
    for group in this.groups:
        require(second.clear(namespace(second, group)["id"]) > 0, f"no page of the group {group!r} was fetched")
    outputs, metrics = play(lab, this, second, usual())
    require_equal(outputs, wanted, this.gap)
    require_hits(metrics, 0, "were found without the other host")
    return found, f"{moved} pages moved"
