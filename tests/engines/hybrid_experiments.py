"""Experiments with models whose layers need several KV cache groups: windows or states beside full attention.

A hit of such a model takes pages of every group: all blocks of the full layers, the last ones of windows, the one state
that ends at the hit. So each experiment knows the exact length of a hit, and erases, damages or spoils one group alone.
`GroupSpoiling` and its controls show that output depends on every group.
"""

import functools
import os
import signal
import time

import engines
from experiments import (PROMPT, PROMPTS, ROUNDING, SEVERAL_GROUPS, equal, experiments, external, failed_loads, groups_of,
                         halves, play_two_in_turns, require, require_attached, require_equal, runs_apart,
                         schedules_ahead, usual, versions, wrong)
from hybrid_kinds import CONVOLUTIONS, KINDS, MORE_HEADS, PADDED, SEVERAL_SHAPES, SPLIT, kind  # noqa: F401

# How much logprobs of a schedule with bfloat16 differ from those of another one, see `ROUNDING` in experiments.py.
COARSE = 0.1

# Workers in processes of their own never sleep while requests load. On few cores a node beside them gets its turns late.
PATIENT = {"lookup_patience_seconds": 120, "request_timeout_seconds": 60, "lease_seconds": 120,
           "task_deadline_seconds": 120}


def of_each_kind(what, kinds=KINDS):
    """Adds an experiment for each kind of model: a function of the kind and the `lab`."""

    def note(function):
        for each in kinds:
            name = f"{each.name}-{function.__name__.replace('_', '-')}"
            experiments[name] = (f"{each.what}: {what}", functools.partial(function, each))
            versions[name] = (SEVERAL_GROUPS, None)
        return function

    return note


def play(lab, this, made, prompts, generate=24, **options):
    """Outputs and metrics of an engine with Troupe, which keeps this model in several groups."""
    outputs, metrics = lab.play(prompts, lab.connector(made), generate, this.limit, **{**this.engine(lab), **options})
    require_groups(this, made)
    return outputs, metrics


def baseline(lab, this, prompts, generate=24, **options):
    return lab.baseline(prompts, generate, this.limit, **{**this.engine(lab), **options})


def require_groups(this, made):
    """Requires pages of each group in a namespace of its own. Without them the model may have been served as one group,
    which is another experiment."""
    for group in this.groups:
        require(namespace(made, group)["keys"] > 0, f"there is no page of the group {group!r}")


def namespace(made, group):
    named = {each["name"]: each for each in made.namespaces()}
    ours = [name for name in named if name.endswith(group)]
    require(len(ours) == 1, f"of the namespaces {sorted(named)}, {len(ours)} are of the group {group!r}")
    return named[ours[0]]


def require_found(outputs, tokens):
    """Requires so many tokens for each request that were not computed."""
    found = [x["cached"] for x in outputs]
    require(found == list(tokens), f"{found} tokens in the place of {list(tokens)} were found")


def require_hits(metrics, tokens, what="were found"):
    require(external(metrics) == tokens, f"{external(metrics)} tokens in the place of {tokens} {what}")


def warm(lab, this, name):
    """A node with the pages of all usual prompts."""
    made = lab.node(f"{this.name}-{name}").start()
    outputs, metrics = play(lab, this, made, usual())
    require_hits(metrics, 0, "were found in an empty cache")
    require_equal(outputs, baseline(lab, this, usual()), this.gap)
    return made


def require_all_found(lab, this, made):
    """Requires the longest hits that this kind of model can have for all usual prompts, and the right output."""
    outputs, metrics = play(lab, this, made, usual())
    require_equal(outputs, baseline(lab, this, usual()), this.gap)
    require_hits(metrics, PROMPTS * this.found())
    return PROMPTS * this.found()


@of_each_kind("an empty cache; then another engine finds the longest prefix that every group has",
              (*KINDS, CONVOLUTIONS, PADDED, SEVERAL_SHAPES, SPLIT))
def restarted(this, lab):
    made = warm(lab, this, "restarted")
    found = require_all_found(lab, this, made)
    return found, f"{this.found()} of {PROMPT} tokens each"


@of_each_kind("EngineCore in a process of its own, asynchronous scheduling", (*KINDS, SEVERAL_SHAPES, SPLIT))
def own_process(this, lab):
    made = lab.node(f"{this.name}-own-process").start()
    wanted = baseline(lab, this, usual(), **this.exact)
    for expected in (0, PROMPTS * this.found()):
        apart, ahead = find_apart(lab, this, made, wanted, expected, async_scheduling=True)
        require(apart, "EngineCore runs in the front-end's process")
        require(ahead, "scheduling is not asynchronous")
    return PROMPTS * this.found(), ""


def find_apart(lab, this, made, wanted, expected, **options):
    """Requires outputs and hits of `play_apart`. Where loads have failed, the hits of another engine count: loads in
    progress fail if the node has no turn for ten seconds. Returns whether EngineCore runs apart and schedules ahead."""
    for _ in range(3):
        turns, metrics, *how = play_apart(lab, this, made, **options)
        for outputs in turns:
            require_equal(outputs, wanted, this.rounding)
        if failed_loads(metrics) == 0:
            break
    require_hits(metrics, expected)
    return how


def play_apart(lab, this, made, **options):
    """Plays the usual prompts with EngineCore and workers in processes of their own. There, requests that load at the
    same time go on in one step or in several: hence the `exact` options. The processes are killed when the engine ends,
    so it ends when the node has all pages. A node that got no turn for seconds, beside workers that never sleep, has
    lost some: then the prompts are played again. Outputs of all turns, metrics of the first one, and whether EngineCore
    runs apart and schedules ahead."""

    def play_until_saved(one):
        outputs, metrics = [one.play(usual(), limit=this.limit)], one.metrics()
        one.say("played")
        while one.wait() == "again":
            one.llm.reset_prefix_cache()
            outputs.append(one.play(usual(), limit=this.limit))
            one.say("played")
        return outputs, metrics, runs_apart(one), schedules_ahead(one)

    run = lab.start(play_until_saved, lab.connector(made, **PATIENT), multiprocessing="fork",
                    **{**this.engine(lab), **this.apart, **this.exact, **options})
    for answer in ("again", "again", "end"):
        run.hear()
        missing = missing_pages(this, made)
        run.say(answer if missing else "end")
        if not missing:
            break
    out = run.result()
    require(not missing, f"there are not all pages of the groups {missing}")
    return out


def missing_pages(this, made):
    """The groups that do not get all pages of the usual prompts within some seconds."""
    deadline = time.monotonic() + 20
    while True:
        missing = [group for group in this.groups if namespace(made, group)["complete_keys"] != this.pages(group)]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.2)


@of_each_kind("two engines at once on one node, each of which finds what the other has saved")
def two_engines(this, lab):
    made = lab.node(f"{this.name}-two").start()
    out = play_two_in_turns(lab, made, this.unit, this.limit, {**this.engine(lab), **this.exact})
    require_groups(this, made)
    return out


@of_each_kind("blocks run short: requests are preempted, and come back with pages from the node")
def preemption(this, lab):
    made = lab.node(f"{this.name}-preemption").start()
    count, tokens, generate, blocks = this.crowd
    prompts = engines.random_prompts(9, count, tokens)
    options = {**this.engine(lab), **this.exact}
    wanted = lab.baseline(prompts, generate, **options)

    def play_and_note(one):
        said = loads_after_preemption(one)
        return one.play(prompts, generate), one.metrics(), said

    found, again = [], 0
    for _ in range(2):
        outputs, metrics, said = lab.start(play_and_note, lab.connector(made), num_gpu_blocks_override=blocks,
                                           max_model_len=1024, **options).result()
        require_attached(metrics)
        require_groups(this, made)
        require(metrics.get("vllm:num_preemptions", 0) > 0, "nothing was preempted")
        require_like(this, outputs, wanted)
        found.append(external(metrics))
        again += sum(said)
    require(again > 0, "no preempted request has loaded anything")
    require(found == [0, count * this.found(tokens)],
            f"{found[1]} tokens of {count * this.found(tokens)} were found by the second engine, and {found[0]} before")
    if this.limit:
        # Rounding has hidden the last bits; pages must have them.
        outputs, metrics = play(lab, this, made, prompts)
        require_equal(outputs, baseline(lab, this, prompts), this.gap)
        require_hits(metrics, count * this.found(tokens))
    return sum(found) + again, f"{again} of them by preempted requests"


def loads_after_preemption(one):
    """The tokens that preempted requests load from now on."""
    connector = one.llm.llm_engine.engine_core.engine_core.scheduler.connector
    said, ask = [], connector.update_state_after_alloc

    def note(request, blocks, tokens):
        if tokens and request.num_preemptions:
            said.append(tokens)
        return ask(request, blocks, tokens)

    connector.update_state_after_alloc = note
    return said


def require_like(this, outputs, wanted):
    """Requires equal outputs, or, where requests of this kind depend on the schedule, outputs that differ by rounding
    alone: tokens are equal up to one that is as likely as another, which is the last that can be compared."""
    if not this.limit:
        require_equal(outputs, wanted, ROUNDING)
        return
    compared = [tokens_like(number, x, y) for number, (x, y) in enumerate(zip(outputs, wanted, strict=True))]
    total = sum(len(x["tokens"]) for x in wanted)
    require(sum(compared) >= total / 2, f"only {sum(compared)} of {total} tokens could be compared")


def tokens_like(number, x, y):
    """The number of tokens that have the wanted logprobs, but for rounding."""
    require(x["finish"] == y["finish"], f"request {number} ended with {x['finish']!r} in the place of {y['finish']!r}")
    for at, (token, wanted) in enumerate(zip(x["tokens"], y["tokens"], strict=True)):
        gap = abs(x["logprobs"][at] - y["likely"][at].get(token, float("-inf")))
        if gap > COARSE:
            raise wrong(f"request {number} differs from token {at} on, by {gap:.2g}")
        if token != wanted:
            return at
    return len(y["tokens"])


@of_each_kind("prompts computed in pieces, and found")
def chunked_prefill(this, lab):
    made = lab.node(f"{this.name}-chunked").start()
    prompts, total = engines.random_prompts(13, 2, 2000), 0
    # With the same pieces where rounding makes a difference.
    pieces = {"max_num_batched_tokens": 384}
    wanted = baseline(lab, this, prompts, 16, **this.exact, **(pieces if this.limit else {}))
    for expected in (0, 2 * this.found(2000)):
        outputs, metrics = play(lab, this, made, prompts, 16, **this.exact, **pieces)
        require_equal(outputs, wanted, this.rounding)
        require_hits(metrics, expected)
        total += expected
    return total, ""


@of_each_kind("requests aborted while their pages are loaded")
def abort(this, lab):
    made = warm(lab, this, "abort")

    def play_and_abort(one):
        begun = sum(abort_while_loading(one, turn) for turn in range(6))
        outputs = one.play(usual(), limit=this.limit)
        one.idle_steps()
        tracked = halves(one)[0].tracked_requests()
        return outputs, tracked, one.llm.reset_prefix_cache(), one.metrics(), begun

    outputs, tracked, free, metrics, begun = lab.start(play_and_abort, lab.connector(made), **this.engine(lab)).result()
    require_equal(outputs, baseline(lab, this, usual()), this.gap)
    require_groups(this, made)
    require(tracked == 0, f"the connector still knows of {tracked} requests")
    require(free, "blocks of aborted requests were never freed")
    require_found(outputs, [this.found()] * PROMPTS)
    return external(metrics), f"{begun} aborted while they loaded, all blocks free after"


def abort_while_loading(one, turn):
    """Begins requests, aborts them when some of them wait for their pages, and waits until all blocks are free. Returns
    how many were loading."""
    from vllm import SamplingParams

    core = one.llm.llm_engine
    scheduler = core.engine_core.engine_core.scheduler
    sampling = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, detokenize=False)
    names = [f"abort-{turn}-{number}" for number in range(PROMPTS)]
    for name, prompt in zip(names, usual()):
        core.add_request(name, {"prompt_token_ids": prompt}, sampling)
    deadline = time.monotonic() + 60
    loading = 0
    while not loading:
        require(time.monotonic() < deadline, "no request has begun to load")
        core.step()
        loading = sum(each.status.name == "WAITING_FOR_REMOTE_KVS" for each in scheduler.requests.values())
    core.abort_request(names)
    core.step()
    while not one.llm.reset_prefix_cache():
        require(time.monotonic() < deadline, "blocks of aborted requests were not freed")
        one.idle_steps(1)
    return loading


@of_each_kind("bytes changed on the disk in one group and then the other: shorter hits or none, and saved anew",
              (*KINDS, SEVERAL_SHAPES))
def damaged_pages(this, lab):
    made = warm(lab, this, "damaged")
    hits, remarks = 0, []
    for group in this.groups:
        # One page of the full layers, which takes a part of one prompt's hit; all pages of the others.
        most = 1 if group == "full" else None
        damaged, pages = damage(made, group, most, after=3 if most else 0)
        outputs, metrics = play(lab, this, made, usual())
        require_equal(outputs, baseline(lab, this, usual()), this.gap)
        require(failed_loads(metrics) > 0, f"{group}: no load has failed: the damage was not met")
        found = [x["cached"] for x in outputs]
        if most is None:
            require(not any(found), f"{group}: {found} tokens were found, where all pages are damaged")
        else:
            shorter = [tokens for tokens in found if tokens != this.found()]
            require(len(shorter) == 1 and shorter[0] < this.found() and shorter[0] % this.unit == 0,
                    f"{group}: {found} tokens were found, where one page of one prompt is damaged")
            require(this.keeps_all or shorter == [0], f"{shorter[0]} tokens were found, where there is no state")
        hits += sum(found) + require_all_found(lab, this, made)
        remarks.append(f"{damaged} of {pages} of {group}: {', '.join(map(str, found))}")
    return hits, f"damaged {'; '.join(remarks)}; saved anew"


def damage(made, group, most, after):
    """Damages pages of a group on disk. Returns the number of damaged pages, and of all pages of the group."""
    place = namespace(made, group)["id"]
    made.stop()
    damaged, pages = made.damage_pages(1.0, most=most, namespace=place, after=after)
    require(damaged == (most or pages) > 0, f"{damaged} of {pages} pages of the group {group!r} are damaged")
    made.start()
    return damaged, pages


@of_each_kind("one group is erased and then the other: nothing is found, and all is saved again")
def erased_group(this, lab):
    made = warm(lab, this, "erased")
    hits = 0
    for group in this.groups:
        erased = made.clear(namespace(made, group)["id"])
        require(erased > 0, f"there was no page of the group {group!r}")
        outputs, metrics = play(lab, this, made, usual())
        require_equal(outputs, baseline(lab, this, usual()), this.gap)
        require_hits(metrics, 0, f"were found without the group {group!r}")
        hits += require_all_found(lab, this, made)
    return hits, "0 where a group was missing"


@of_each_kind("a memory too small for the prompts: pages of each group leave while others come")
def eviction(this, lab):
    made = lab.node(f"{this.name}-small", memory="32 MiB", disk="0 B", durability="none").start()
    prompts = engines.random_prompts(12, this.many, PROMPT)
    wanted, found = baseline(lab, this, prompts, 4, **this.exact), 0
    for _ in range(3):
        outputs, metrics = play(lab, this, made, prompts, 4, **this.exact)
        require_equal(outputs, wanted, this.rounding)
        found += external(metrics)
        # In turns of the same order each prompt would have left when it comes.
        prompts, wanted = prompts[::-1], wanted[::-1]
    kept = {group: namespace(made, group)["complete_keys"] for group in this.groups}
    for group, count in kept.items():
        require(count < this.pages(group, this.many), f"no page of the group {group!r} has left")
    full = 2 * this.many * this.found()
    require(0 < found < full, f"{found} of {full} tokens were found, where some should have left")
    kept = ", ".join(f"{count} of {this.pages(group, this.many)} of {group}" for group, count in kept.items())
    return found, f"of {full}; kept {kept}"


@of_each_kind("the node is killed while pages are saved, and while they are loaded; it comes back with all groups")
def node_killed(this, lab):
    made = warm(lab, this, "killed")
    others = engines.random_prompts(11, 2, PROMPT)

    def play_meanwhile(one):
        outputs, killed, free = [], [], []
        for prompts, moment in ((others, "saves"), (usual(), "loads")):
            noted = kill_node(one, moment, one.wait())
            # It comes back to its node within a second or two.
            deadline = time.monotonic() + 30
            while not noted and time.monotonic() < deadline:
                outputs.append((prompts, one.play(prompts, limit=this.limit)))
                free.append(all_free(one))
            killed.append(len(noted))
            one.say("played")
        outputs.append((usual(), one.play(usual(), limit=this.limit)))
        failed, before = failed_loads(one.metrics()), one.hits()
        one.say("played alone")
        one.wait()
        deadline = time.monotonic() + 30
        while one.hits() == before and time.monotonic() < deadline:
            one.llm.reset_prefix_cache()
            outputs.append((usual(), one.play(usual(), limit=this.limit)))
        return outputs, killed, free, failed, one.hits() - before

    run = lab.start(play_meanwhile, lab.connector(made), **this.engine(lab))
    run.say(made.process.pid)
    run.hear()
    made.kill()
    # Its memory is empty, so that loads need it for the disk.
    made.start()
    run.say(made.process.pid)
    run.hear()
    made.kill()
    run.hear()
    made.start()
    run.say("with a node again")
    outputs, killed, free, failed, hits = run.result()
    require(all(killed), f"the node was killed in {killed} steps with saves and with loads")
    require(all(free), "blocks of saves and loads that the node's end has interrupted were never freed")
    for prompts, each in outputs:
        require_equal(each, baseline(lab, this, prompts), this.gap)
    require(failed > 0, "no load has failed")
    require(hits > 0 and hits % this.unit == 0, f"{hits} tokens were found by the engine that had lost its node")
    return hits + require_all_found(lab, this, made), f"{failed} loads failed; {hits} by the engine that lost its node"


def kill_node(one, moment, number):
    """Kills the process of a node once, when the scheduler has decided on saves or on a load, before workers begin.
    Returns what is not empty any more then."""
    connector = one.llm.llm_engine.engine_core.engine_core.scheduler.connector
    noted = []

    def kill():
        if not noted:
            noted.append(moment)
            os.kill(number, signal.SIGKILL)

    if moment == "saves":
        build = connector.build_connector_meta

        def build_and_kill(step):
            out = build(step)
            if connector.has_pending_push_work():
                kill()
            return out

        connector.build_connector_meta = build_and_kill
    else:
        take = connector.update_state_after_alloc

        def take_and_kill(request, blocks, tokens):
            take(request, blocks, tokens)
            if tokens:
                kill()

        connector.update_state_after_alloc = take_and_kill
    return noted


def all_free(one):
    """Whether all blocks are free within a minute, also those that were held for saves. Empties the prefix cache."""
    connector = one.llm.llm_engine.engine_core.engine_core.scheduler.connector
    deadline = time.monotonic() + 60
    while connector.has_pending_push_work() or not one.llm.reset_prefix_cache():
        if time.monotonic() > deadline:
            return False
        one.idle_steps(1)
    return True


@of_each_kind("two tensor-parallel workers, each with its share of every group",
              (*KINDS[:3], MORE_HEADS, SEVERAL_SHAPES))
def tensor_parallel(this, lab):
    made = lab.node(f"{this.name}-two-workers").start()
    wanted = baseline(lab, this, usual(), tensor_parallel_size=2, multiprocessing="fork", **this.apart, **this.exact)
    for expected in (0, PROMPTS * this.found()):
        find_apart(lab, this, made, wanted, expected, tensor_parallel_size=2)
    for group in this.groups:
        ranks = [rank["live"] for rank in namespace(made, group)["ranks"]]
        require(ranks == [this.pages(group)] * 2, f"the group {group!r} has {ranks} pages of its ranks")
    return PROMPTS * this.found(), ""


@of_each_kind("the beginning of a long prompt in pieces, without and with --prefix-cache-retention-interval")
def retention_interval(this, lab):
    document = engines.random_prompts(15, 1, 2000)[0]
    question = document[:1100] + engines.random_prompts(16, 1, 100)[0]
    # States are kept where a prompt ends, and with the option where a piece of it ends at a multiple.
    hits = [1024 if this.keeps_all else 0, 1024]
    for interval, expected in zip((None, 512), hits):
        made = lab.node(f"{this.name}-interval-{interval}").start()
        options = {**this.exact, "max_num_batched_tokens": 512}
        if interval:
            options["prefix_cache_retention_interval"] = interval
        outputs, metrics = play(lab, this, made, [document], **options)
        require_equal(outputs, baseline(lab, this, [document], **options), this.rounding)
        require_hits(metrics, 0)
        outputs, metrics = play(lab, this, made, [question], **options)
        require_equal(outputs, baseline(lab, this, [question], **options), this.rounding)
        require_hits(metrics, expected, f"of 1100 were found with the option {interval}")
        # Not because nothing can be found.
        outputs, metrics = play(lab, this, made, [document], **options)
        require_equal(outputs, baseline(lab, this, [document], **options), this.rounding)
        require_hits(metrics, this.found(2000), f"of the document were found with the option {interval}")
    return sum(hits), f"{hits[0]} without it, {hits[1]} with it"


@of_each_kind("control: loaded blocks of one group and then the other are zeroed, and each output differs",
              (*KINDS, CONVOLUTIONS, PADDED, SPLIT))
def control(this, lab):
    made = warm(lab, this, "control")
    wanted = baseline(lab, this, usual())
    for group in this.groups:
        outputs, metrics = play_spoilt(lab, this, made, group)
        require_hits(metrics, PROMPTS * this.found())
        require_none_equal(outputs, wanted, f"zeroed blocks of the group {group!r}")
    return len(this.groups) * PROMPTS * this.found(), "differs, as it must"


@of_each_kind("control: loaded blocks of a layer with a window and then of full attention are zeroed: outputs differ",
              (SEVERAL_SHAPES,))
def layer_control(this, lab):
    made = warm(lab, this, "layers")
    wanted = baseline(lab, this, usual())
    layers = ("layer-.layers.1.", "layer-.layers.2.")
    for layer in layers:
        outputs, metrics = play_spoilt(lab, this, made, layer, groups=1)
        require_hits(metrics, PROMPTS * this.found())
        require_none_equal(outputs, wanted, f"zeroed blocks of {layer}")
    return len(layers) * PROMPTS * this.found(), "differs, as it must"


@of_each_kind("control: a hit of the full layers, other blocks as the last request left them: the output differs",
              (*KINDS, CONVOLUTIONS, PADDED))
def naive_control(this, lab):
    """What a connector gives that takes the hit of one group for that of all: such a hit is as long, and no load fails.
    So few blocks that all of them were used before make no difference to an engine that loads all groups."""
    made = warm(lab, this, "naive")
    wanted = baseline(lab, this, usual())
    others = engines.random_prompts(17, 3 * PROMPTS, PROMPT)
    options = {"num_gpu_blocks_override": 48, "max_model_len": 1024}
    outputs, metrics = play_spoilt(lab, this, made, "left", others, **options)
    require_hits(metrics, PROMPTS * this.found())
    require_none_equal(outputs, wanted, "blocks that nothing was loaded into")
    outputs, metrics = play_spoilt(lab, this, made, "none", others, **options)
    require_hits(metrics, (PROMPTS + len(others)) * this.found())
    require_equal(outputs, wanted, this.gap)
    return PROMPTS * this.found(), "differs, as it must; not with all groups"


def play_spoilt(lab, this, made, what, before=(), groups=2, **options):
    """Outputs of the usual prompts, and metrics, of an engine that spoils loaded blocks, see `GroupSpoiling`; `before`:
    prompts that are played first, one at a time."""

    def play_and_count(one):
        one.play(before, limit=1)
        return one.play(usual(), limit=this.limit), one.metrics(), groups_of(one)

    connector = lab.connector(made, name="GroupSpoilingConnector", module="spoiling")
    outputs, metrics, seen = lab.start(play_and_count, connector, environment={"SPOILT_GROUPS": what},
                                         **{**this.engine(lab), **options}).result()
    require(min(seen, 2) == groups, f"vLLM makes {seen} KV cache groups of this model")
    return outputs, metrics


def require_none_equal(outputs, wanted, what):
    same = sum(equal([x], [y]) for x, y in zip(outputs, wanted, strict=True))
    require(same == 0, f"{what} make no difference to {same} of {PROMPTS} outputs")
