"""Experiments with models that have several KV cache groups, and LMCache's own connector: its workers copy themselves."""

import functools

from experiments import PROMPTS, missing, require, require_equal, usual
from hybrid_experiments import KINDS
from lmcache_experiments import experiments, wrong  # noqa: F401


def of_each_kind(what):
    def note(function):
        for each in KINDS:
            experiments[f"groups-{each.name}-{function.__name__.replace('_', '-')}"] = (
                f"{each.what}: {what}", functools.partial(function, each))
        return function

    return note


def new_node(one, this, name):
    from lmcache.v1.multiprocess import custom_types

    if not hasattr(custom_types, "GroupLayout"):
        raise missing("LMCache serves several groups from 0.5.7 on")
    return one.node(f"groups-{this.name}-{name}", more={"lmcache.chunk_tokens": this.unit}).start()


def played(one, this, made, prompts=None):
    """Outputs and hits of an engine."""
    def work(engine):
        outputs = engine.play(prompts or usual(), 24, this.limit)
        engine.idle_steps(4)
        return outputs, engine.hits()

    options = this.engine(one)
    return one.start(work, one.connector(made, mode="engine_driven"), **options).result()


def right(one, this, made, hits):
    """Requires the output of a run without a connector, and so many tokens that were found."""
    outputs, found = played(one, this, made)
    require_equal(outputs, one.baseline(usual(), 24, this.limit, **this.engine(one)))
    require(found == hits, f"{found} tokens in the place of {hits} were found")
    return found


def groups(made):
    """The namespaces of the groups, by what a hit needs of them."""
    out = [x for x in made.namespaces() if ", group " in x["revision"]]
    require(len(out) > 1, f"there are {len(out)} namespaces of groups")
    return out


@of_each_kind("an empty cache; then another engine finds the longest prefix that every group has, also after a kill")
def restarted(this, one):
    made = new_node(one, this, "restarted")
    right(one, this, made, 0)
    require(all(x["complete_keys"] > 0 for x in groups(made)), "a group has no pages")
    found = right(one, this, made, PROMPTS * this.found())
    made.kill()
    made.start()
    right(one, this, made, PROMPTS * this.found())
    return found, f"{this.found()} tokens of each of {PROMPTS} prompts; {len(groups(made))} groups"


@of_each_kind("the pages of one group are erased, each in turn: nothing is found, and all of it is stored again")
def without_one_group(this, one):
    made = new_node(one, this, "one")
    right(one, this, made, 0)
    for each in groups(made):
        require(made.clear(each["id"]) > 0, "there was nothing to erase")
        right(one, this, made, 0)
    return right(one, this, made, PROMPTS * this.found()), f"{len(groups(made))} groups"


@of_each_kind("a third of all pages is damaged: right output")
def damaged(this, one):
    made = new_node(one, this, "damaged")
    right(one, this, made, 0)
    made.stop()
    spoilt, pages = made.damage_pages(0.3)
    require(spoilt > 0, "no page was damaged")
    made.start()
    outputs, found = played(one, this, made)
    require_equal(outputs, one.baseline(usual(), 24, this.limit, **this.engine(one)))
    return found, f"{spoilt} of {pages} pages damaged"
