"""Experiments with a real engine. Each compares tokens and logprobs with those of an engine without a connector."""

import pathlib
import shutil
import time

import engines
import tiny_model
from node import node

BLOCK = 128
PROMPT, PROMPTS = 700, 3
# The last token of a prompt is always computed.
FULL = PROMPTS * (PROMPT // BLOCK * BLOCK)

# vLLM's own logprobs depend on how it cuts prompts and on what it decodes beside a request, because matrices of other
# shapes are summed up in another order: with bfloat16 by 0.06 in these experiments, without any connector. Where the
# schedule can differ from the baseline's, numbers have 32 bits, and logprobs may differ by so much. Tokens never may.
# Elsewhere logprobs are the same to the last bit.
ROUNDING = 1e-4
EXACT = {"dtype": "float32"}


def collection():
    """Experiments by name, in their order; and the decorator that adds one, with a description: a function of the
    `lab` that raises `wrong`, or returns its hits and a remark."""
    known = {}

    def experiment(what):
        def note(function):
            known[function.__name__.replace("_", "-")] = (what, function)
            return function

        return note

    return known, experiment


experiments, experiment = collection()

# The first version of vLLM with several KV cache groups in Troupe.
SEVERAL_GROUPS = "0.32"

# By name of an experiment: the first version of vLLM that it is for, and the first one that it is not for any more.
# Those without an entry are for all versions.
versions = {}


# The gaps of all logprobs that the running experiment has compared.
gaps = []


class wrong(Exception):
    """An expected result of an experiment that did not occur. Without its node no experiment may pass: one that
    expects no hit requires an engine that has its node, or a hit of another one. tests/scripts/experiments_test.py
    runs them all without one."""


class missing(Exception):
    """What an experiment needs beside the engine, and is not installed."""


def require(holds, sentence):
    if not holds:
        raise wrong(sentence)


def equal(outputs, wanted):
    return [(x["tokens"], x["logprobs"], x["finish"]) for x in outputs] == \
        [(x["tokens"], x["logprobs"], x["finish"]) for x in wanted]


def require_equal(outputs, wanted, rounding=0.0):
    for number, (x, y) in enumerate(zip(outputs, wanted, strict=True)):
        if x["finish"] != y["finish"]:
            raise wrong(f"request {number} ended with {x['finish']!r} in the place of {y['finish']!r}")
        if x["tokens"] != y["tokens"]:
            first = next(i for i, (a, b) in enumerate(zip(x["tokens"], y["tokens"])) if a != b)
            raise wrong(f"request {number} differs from token {first} on")
        gap = max((abs(a - b) for a, b in zip(x["logprobs"], y["logprobs"], strict=True)), default=0.0)
        if gap > rounding:
            raise wrong(f"logprobs of request {number} differ by {gap:.2g}")
        gaps.append(gap)


class lab:
    """Models, nodes and runs without a connector, each of which is created once."""

    def __init__(self, program, directory):
        self.program, self.directory = program, pathlib.Path(directory)
        self.model = tiny_model.write(self.directory / "tiny-llama")
        self.baselines, self.nodes, self.runs, self.shared = {}, [], 0, None
        shutil.rmtree(self.directory / "logs", ignore_errors=True)

    def node(self, name, **settings):
        place = self.directory / "nodes" / name
        shutil.rmtree(place, ignore_errors=True)
        made = node(self.program, place, **settings)
        self.nodes.append(made)
        return made

    def warm(self):
        """A node that has all of the usual prompts, for experiments that add nothing to it and take nothing away."""
        if self.shared is None:
            self.shared = warm_node(self)
            self.nodes.remove(self.shared)
        return self.shared

    def end_nodes(self, all_of_them=False):
        """After an experiment; `all_of_them`: also that which experiments share."""
        if all_of_them and self.shared is not None:
            self.nodes.append(self.shared)
        for each in self.nodes:
            each.kill()
            shutil.rmtree(each.directory / "data", ignore_errors=True)
        self.nodes = []

    @staticmethod
    def connector(to, policy="recompute", name="TroupeConnector", module="troupe.vllm", **extra):
        """Pages on disk are loaded unless set otherwise: the speed of the machine must not decide the result of an
        experiment."""
        address = getattr(to, "address", to)
        extra = {"disk_hits": "always", **extra}
        out = {"kv_connector": name, "kv_connector_module_path": module, "kv_role": "kv_both",
               "kv_connector_extra_config": {"troupe.address": address,
                                             **{f"troupe.{key}": value for key, value in extra.items()}}}
        if policy:
            out["kv_load_failure_policy"] = policy
        return out

    def next_log(self):
        """The file for the output of the next engine."""
        self.runs += 1
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return logs / f"{self.runs:02}-{self.current}.log"

    def start(self, work, connector=None, model=None, environment=None, **options):
        return engines.run(work, self.next_log(), model or self.model, options, connector, environment)

    def play(self, prompts, connector, generate=24, limit=None, **options):
        """Outputs and metrics of one engine, which has its node if it has a connector."""
        outputs, metrics = self.start(lambda one: (one.play(prompts, generate, limit), one.metrics()), connector,
                                      **options).result()
        if connector:
            require_attached(metrics)
        return outputs, metrics

    def baseline(self, prompts, generate=24, limit=None, **options):
        key = repr((prompts, generate, limit, sorted(options.items())))
        if key not in self.baselines:
            self.baselines[key] = self.play(prompts, None, generate, limit, **options)[0]
        return self.baselines[key]


def external(metrics):
    return int(metrics[engines.HITS])


def require_attached(metrics):
    """Requires the node, as otherwise pages might exist that were not found. A hit proves it as well: the gauge is set
    on a change, which in an engine of few steps may be before it has its node."""
    require(metrics.get("vllm:troupe_attached", 0) >= 1 or external(metrics) > 0,
            "the engine has played without its node")


def failed_loads(metrics):
    return int(metrics.get("vllm:hf3fs_num_failed_load", 0))


def usual():
    return engines.random_prompts(7, PROMPTS, PROMPT)


def warm_node(lab, name="warm", **settings):
    """A node with the pages of all usual prompts."""
    made = lab.node(name, **settings).start()
    outputs, metrics = lab.play(usual(), lab.connector(made))
    require(external(metrics) == 0, f"{external(metrics)} hits in an empty cache")
    require_equal(outputs, lab.baseline(usual()))
    return made


@experiment("an empty cache; then another engine finds all full blocks; then by the path of the node's socket")
def cold_and_restarted(lab):
    made = lab.warm()
    outputs, metrics = lab.play(usual(), lab.connector(made))
    require_equal(outputs, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found")
    by_socket, metrics = lab.play(usual(), lab.connector(made.socket_path))
    require_equal(by_socket, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found by the socket")
    return 2 * FULL, "0 when cold, all full blocks after"


@experiment("loads that vLLM waits for before the forward pass")
def synchronous_loads(lab):
    made = lab.warm()

    def play_and_note(one):
        said = answers_to_scheduler(one)
        return one.play(usual()), one.hits(), [beside for tokens, beside in said if tokens]

    outputs, hits, beside = lab.start(play_and_note, lab.connector(made, load="sync"), async_scheduling=False).result()
    require_equal(outputs, lab.baseline(usual()))
    require(hits == FULL, f"{hits} tokens of {FULL} were found")
    require(beside and not any(beside), "loads were reported beside forward passes")
    return FULL, ""


def answers_to_scheduler(one):
    """The hits that the connector reports to vLLM from now on: tokens, and whether they are loaded beside forward
    passes."""
    connector = one.llm.llm_engine.engine_core.engine_core.scheduler.connector
    said, ask = [], connector.get_num_new_matched_tokens

    def note(*arguments):
        said.append(ask(*arguments))
        return said[-1]

    connector.get_num_new_matched_tokens = note
    return said


@experiment("EngineCore in a process of its own, asynchronous scheduling")
def own_process(lab):
    made = lab.warm()

    def play_and_look(one):
        return one.play(usual()), one.hits(), runs_apart(one), schedules_ahead(one)

    outputs, hits, apart, ahead = lab.start(play_and_look, lab.connector(made), multiprocessing="fork",
                                            async_scheduling=True).result()
    require_equal(outputs, lab.baseline(usual()))
    require(hits == FULL, f"{hits} tokens of {FULL} were found")
    require(apart, "EngineCore runs in the front-end's process")
    require(ahead, "scheduling is not asynchronous")
    return FULL, ""


def runs_apart(one):
    """Whether EngineCore runs in another process."""
    return not hasattr(one.llm.llm_engine.engine_core, "engine_core")


def schedules_ahead(one):
    return bool(one.llm.llm_engine.vllm_config.scheduler_config.async_scheduling)


def play_two_in_turns(lab, made, piece, limit=None, options=EXACT):
    """Two engines at once, each with half of the prompts, and then with the other half; `piece`: tokens that are found
    as a unit."""
    mine, others = usual()[:2], engines.random_prompts(8, 2, PROMPT)

    def play_in_turns(one):
        one.say("ready")
        first = one.play(one.wait(), 24, limit)
        one.idle_steps()
        one.say("played")
        second = one.play(one.wait(), 24, limit)
        return first, second, one.hits()

    runs = [lab.start(play_in_turns, lab.connector(made), **options) for _ in range(2)]
    for prompts_of_all in ((mine, others), (others, mine)):
        for each in runs:
            each.hear()
        for each, prompts in zip(runs, prompts_of_all):
            each.say(prompts)
    results = [each.result() for each in runs]
    wanted = [lab.baseline(mine, limit=limit, **options), lab.baseline(others, limit=limit, **options)]
    found = 0
    for number, (first, second, hits) in enumerate(results):
        require_equal(first, wanted[number], ROUNDING)
        require_equal(second, wanted[1 - number], ROUNDING)
        found += hits
    full = 2 * 2 * (PROMPT // piece * piece)
    require(found == full, f"{found} tokens of {full} were found")
    return found, ""


@experiment("two engines at once on one node, each of which finds what the other has saved")
def two_engines(lab):
    return play_two_in_turns(lab, lab.node("two").start(), BLOCK)


@experiment("blocks run short: requests are preempted and come back")
def preemption(lab):
    made = lab.node("preemption").start()
    # All of them fit while they are prompts, and not any more when they have grown.
    prompts = engines.random_prompts(9, 4, 600)
    wanted, found = lab.baseline(prompts, 100, **EXACT), []
    for _ in range(2):
        outputs, metrics = lab.play(prompts, lab.connector(made), 100, num_gpu_blocks_override=24, max_model_len=2048,
                                    **EXACT)
        require_equal(outputs, wanted, ROUNDING)
        require(metrics.get("vllm:num_preemptions", 0) > 0, "nothing was preempted")
        found.append(external(metrics))
    full = 4 * (600 // BLOCK * BLOCK)
    require(found[1] >= full, f"{found[1]} tokens of {full} were found by the second engine")
    return sum(found), f"{int(metrics['vllm:num_preemptions'])} preempted"


@experiment("requests aborted while they wait, load, compute and generate")
def abort(lab):
    made = lab.warm()

    def play_and_abort(one):
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, detokenize=False)
        core = one.llm.llm_engine
        prompts = usual() + engines.random_prompts(10, 3, PROMPT)
        for steps in (0, 1, 2, 3, 5, 8):
            names = [f"{steps}-{number}" for number in range(len(prompts))]
            for name, prompt in zip(names, prompts):
                core.add_request(name, {"prompt_token_ids": prompt}, sampling)
            for _ in range(steps):
                core.step()
            core.abort_request(names)
            core.step()
        outputs = one.play(usual())
        one.idle_steps()
        tracked = halves(one)[0].tracked_requests()
        return outputs, tracked, one.llm.reset_prefix_cache(), one.hits()

    outputs, tracked, free, hits = lab.start(play_and_abort, lab.connector(made)).result()
    require_equal(outputs, lab.baseline(usual()))
    require(tracked == 0, f"the connector still knows of {tracked} requests")
    require(free, "blocks of aborted requests were never freed")
    require(hits >= FULL, f"{hits} tokens were found, where each of the prompts is loaded at least once: {FULL}")
    return hits, "36 aborted, all blocks free after"


def halves(one):
    """Handles of scheduler and worker inside an engine of one process."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    scheduler = one.llm.llm_engine.engine_core.engine_core.scheduler
    return scheduler.connector._half, get_kv_transfer_group()._half


def wait_until_attached(one, seconds=30):
    deadline = time.monotonic() + seconds
    while any(half.absence() for half in halves(one)):
        require(time.monotonic() < deadline, f"not attached after {seconds} s")
        time.sleep(0.1)


@experiment("two tensor-parallel workers in processes of their own; once forked, once as new interpreters")
def tensor_parallel(lab):
    made = lab.node("two-workers").start()
    options = {"tensor_parallel_size": 2, "multiprocessing": "fork"}
    wanted = lab.baseline(usual(), **options)
    outputs, metrics = lab.play(usual(), lab.connector(made), **options)
    require_equal(outputs, wanted)
    require(external(metrics) == 0, f"{external(metrics)} hits in an empty cache")
    outputs, metrics = lab.play(usual(), lab.connector(made), **{**options, "multiprocessing": "spawn"})
    require_equal(outputs, wanted)
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found")
    return FULL, ""


def play_windows(lab, **options):
    """A model with windows, kept in one KV cache group."""
    made = lab.node("windows").start()
    options["model"] = tiny_model.write(lab.directory / "tiny-windows", config=tiny_model.windows())
    # Without a connector, vLLM gives the model several groups.
    wanted, several = lab.start(lambda one: (one.play(usual()), groups_of(one)), model=options["model"]).result()
    require(several > 1, "this vLLM makes one KV cache group of it in any case: nothing is shown")
    for expected in (0, FULL):
        run = lab.start(lambda one: (one.play(usual()), one.metrics(), groups_of(one)), lab.connector(made), **options)
        outputs, metrics, groups = run.result()
        require_attached(metrics)
        require_equal(outputs, wanted)
        require(external(metrics) == expected, f"{external(metrics)} tokens in the place of {expected} were found")
        require(groups == 1, f"this vLLM makes {groups} KV cache groups of it with Troupe")
    return FULL, f"{several} KV cache groups without a connector"


@experiment("layers with a sliding window between full ones (as in Gemma 3 and gpt-oss), with the documented command")
def windows(lab):
    return play_windows(lab)


versions["windows"] = (None, SEVERAL_GROUPS)


@experiment("the same with --disable-hybrid-kv-cache-manager: one KV cache group")
def one_group(lab):
    return play_windows(lab, disable_hybrid_kv_cache_manager=True)


def groups_of(one):
    return len(one.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups)


@experiment("state layers between those of attention (as in Qwen3-Next): a sentence that offers nothing that fails")
def state_layers(lab):
    model = tiny_model.write_config(lab.directory / "tiny-convolutions", tiny_model.convolutions())
    run = lab.start(lambda one: one.play(usual()), lab.connector("127.0.0.1:9"), model=model, load_format="dummy")
    try:
        run.result()
    except RuntimeError:
        said = run.log.read_text()
        # Versions that do not ask connectors before they group layers say it in words of their own.
        own = "this model has state layers" in said
        require(own or "unified type" in said, "it did not say why it does not start")
        return 0, "refused when vLLM starts" if own else "refused by vLLM itself"
    raise wrong("vLLM has started")


versions["state-layers"] = (None, SEVERAL_GROUPS)


def damaged_node(lab, name):
    made = warm_node(lab, name)
    made.stop()
    damaged, pages = made.damage_pages(0.4)
    require(0 < damaged < pages, f"{damaged} of {pages} pages are damaged")
    return made.start(), damaged, pages


@experiment("latent attention (MLA), which vLLM cannot continue on a CPU: a sentence in the place of wrong tokens")
def latent_attention(lab):
    model = tiny_model.write(lab.directory / "tiny-deepseek", config=tiny_model.deepseek())
    run = lab.start(lambda one: one.play(usual()), lab.connector("127.0.0.1:9"), model=model)
    try:
        run.result()
    except RuntimeError:
        said = run.log.read_text()
        if "MLA is not supported on CPU" in said:
            return 0, "refused by vLLM itself"
        require("cannot go on from what was loaded" in said, "it did not say why it does not start")
        return 0, "refused when vLLM starts"
    raise wrong("vLLM has started")


@experiment("bytes changed on the disk: those blocks are computed again")
def damaged_pages(lab):
    made, damaged, pages = damaged_node(lab, "damaged")
    outputs, metrics = lab.play(usual(), lab.connector(made))
    require_equal(outputs, lab.baseline(usual()))
    require(external(metrics) > 0, "nothing was found")
    require(failed_loads(metrics) > 0, "no load has failed: the damage was not met")
    again, metrics = lab.play(usual(), lab.connector(made))
    require_equal(again, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} of {FULL} tokens were found after they were saved anew")
    return external(metrics), f"{damaged} of {pages} pages damaged, saved anew"


@experiment("the same with vLLM's default policy: an error for the request, and no wrong token")
def default_failure_policy(lab):
    made, damaged, pages = damaged_node(lab, "default")
    outputs, metrics = lab.play(usual(), lab.connector(made, policy=None))
    failed = 0
    for output, wanted in zip(outputs, lab.baseline(usual())):
        if output["finish"] == "error":
            failed += 1
            require(output["tokens"] == wanted["tokens"][:len(output["tokens"])], "tokens of a failed load came out")
        else:
            require_equal([output], [wanted])
    require(failed > 0, "no request has failed")
    return external(metrics), f"{failed} of {len(outputs)} ended with \"error\", as vLLM says"


@experiment("what the node has on disk only is computed, where that is wanted, and else loaded")
def disk_hits(lab):
    made = warm_node(lab, "disk")
    hits = 0
    # Before it has measured, "when_faster" loads one of the prompts at least, to measure, and computes others.
    for wanted, least, most in (("never", 0, 0), ("when_faster", FULL // PROMPTS, FULL), ("always", FULL, FULL)):
        # Its memory is empty then.
        made.stop()
        made.start()
        outputs, metrics = lab.play(usual(), lab.connector(made, disk_hits=wanted))
        require_equal(outputs, lab.baseline(usual()))
        found, passed_over = external(metrics), int(metrics.get("vllm:troupe_passed_over_tokens", 0))
        require(least <= found <= most, f"{wanted}: {found} tokens were loaded, and should be {least} to {most}")
        require(found + passed_over == FULL, f"{wanted}: {found} tokens loaded and {passed_over} computed are not {FULL}")
        hits += found
    return hits, "0 of them where nothing was to come from the disk"


@experiment("the node is killed while an engine runs, is down, and comes back with its pages")
def node_killed(lab):
    made = warm_node(lab, "killed")
    others = engines.random_prompts(11, 2, PROMPT)

    def play_meanwhile(one):
        first = one.play(others)
        one.say("played")
        one.wait()
        one.llm.reset_prefix_cache()
        outputs = [one.play(usual())]
        one.say("played alone")
        one.wait()
        # It comes back to its node within a second or two, and finds what it knew then.
        deadline = time.monotonic() + 30
        while one.hits() == 0 and time.monotonic() < deadline:
            one.llm.reset_prefix_cache()
            outputs.append(one.play(usual()))
        return first, outputs, one.hits()

    run = lab.start(play_meanwhile, lab.connector(made))
    run.hear()
    made.kill()
    run.say("alone")
    run.hear()
    made.start()
    run.say("with a node again")
    first, outputs, hits = run.result()
    require_equal(first, lab.baseline(others))
    for each in outputs:
        require_equal(each, lab.baseline(usual()))
    require(hits > 0, "the engine that had lost its node has found nothing since")
    again, metrics = lab.play(usual(), lab.connector(made))
    require_equal(again, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} of {FULL} tokens were found after the node was killed")
    return hits + external(metrics), f"{hits} of them by the engine that had lost its node"


@experiment("no node when the engine starts; it attaches when there is one")
def node_absent(lab):
    made = lab.node("absent")

    def play_before_and_after(one):
        before = one.play(usual())
        one.say("started without a node")
        one.wait()
        wait_until_attached(one)
        one.llm.reset_prefix_cache()
        return before, one.play(usual())

    run = lab.start(play_before_and_after, lab.connector(made, wait_for_node_seconds=1.0))
    run.hear()
    made.start()
    run.say("there is one")
    for outputs in run.result():
        require_equal(outputs, lab.baseline(usual()))
    outputs, metrics = lab.play(usual(), lab.connector(made))
    require_equal(outputs, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} of {FULL} tokens were saved after the node had come")
    return external(metrics), ""


@experiment("a memory too small for the prompts: pages leave while others come")
def eviction(lab):
    made = lab.node("small", memory="16 MiB", disk="0 B", durability="none").start()
    prompts = engines.random_prompts(12, 16, PROMPT)
    wanted, found = lab.baseline(prompts, 8, **EXACT), 0
    for _ in range(2):
        outputs, metrics = lab.play(prompts, lab.connector(made), 8, **EXACT)
        require_equal(outputs, wanted, ROUNDING)
        found += external(metrics)
    full = len(prompts) * (PROMPT // BLOCK * BLOCK)
    require(0 < found < full, f"{found} of {full} tokens were found, where some should have left")
    return found, f"of {full} that had been saved"


@experiment("prompts computed in pieces, and found")
def chunked_prefill(lab):
    made = lab.node("chunked").start()
    prompts, found = engines.random_prompts(13, 2, 2000), 0
    options = {"max_num_batched_tokens": 384}
    wanted = lab.baseline(prompts, 16, **EXACT)
    for _ in range(2):
        outputs, metrics = lab.play(prompts, lab.connector(made), 16, **EXACT, **options)
        require_equal(outputs, wanted, ROUNDING)
        found += external(metrics)
    full = 2 * (2000 // BLOCK * BLOCK)
    require(found == full, f"{found} of {full} tokens were found")
    return found, ""


@experiment("200 prompts that share prefixes, in blocks of 32 tokens, with few blocks")
def shared_prefixes(lab):
    made = lab.node("shared").start()
    prompts = engines.prompts_with_shared_prefixes(14, 200, 320)
    wanted, found = lab.baseline(prompts, 4, block_size=32, **EXACT), []
    for _ in range(2):
        outputs, metrics = lab.play(prompts, lab.connector(made), 4, block_size=32, num_gpu_blocks_override=96,
                                    max_model_len=1024, **EXACT)
        require_equal(outputs, wanted, ROUNDING)
        found.append(external(metrics))
    require(found[1] > found[0], f"{found} tokens were found")
    return sum(found), f"of {sum(map(len, prompts)) * 2} in all prompts"


@experiment("an engine that cannot map the node's memory, as on another host: pages go over TCP, encrypted")
def elsewhere(lab):
    made = lab.node("elsewhere", remote=True).start()
    for wanted in (0, FULL):
        outputs, metrics = lab.play(usual(), lab.connector(made), elsewhere=True)
        require_equal(outputs, lab.baseline(usual()))
        require(external(metrics) == wanted, f"{external(metrics)} tokens in the place of {wanted} were found")
    samples = made.samples()
    for direction in ("from_client", "to_client"):
        moved = sum(value for name, value in samples.items()
                    if name.startswith("troupe_remote_pages_total{") and f'direction="{direction}"' in name)
        require(moved >= FULL // BLOCK, f"{moved:.0f} of {FULL // BLOCK} pages went over TCP, {direction}")
    outputs, metrics = lab.play(usual(), lab.connector(made.socket_path))
    require_equal(outputs, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found by an engine on its host")
    return 2 * FULL, "and by an engine on the node's host"


@experiment("another model of the same shape shares nothing")
def another_model(lab):
    made = lab.warm()
    other = tiny_model.write(lab.directory / "other-llama", seed=77)
    outputs, metrics = lab.play(usual(), lab.connector(made), model=other)
    require(external(metrics) == 0, f"{external(metrics)} tokens of another model were found")
    require(not equal(outputs, lab.baseline(usual())), "two models say the same")
    require_equal(outputs, lab.baseline(usual(), model=other))
    salted, metrics = lab.play(usual(), lab.connector(made, salt="other"))
    require(external(metrics) == 0, f"{external(metrics)} tokens of another salt were found")
    require_equal(salted, lab.baseline(usual()))
    # Not because there is nothing to be found.
    outputs, metrics = lab.play(usual(), lab.connector(made))
    require_equal(outputs, lab.baseline(usual()))
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found by the model that saved them")
    return 0, "nor does another salt; the model itself finds all"


@experiment("control: loaded blocks are spoilt behind the checksum, and the output differs")
def control(lab):
    made = lab.warm()
    connector = lab.connector(made, name="SpoilingConnector", module="spoiling")
    outputs, metrics = lab.play(usual(), connector)
    require(external(metrics) == FULL, f"{external(metrics)} tokens of {FULL} were found")
    require(not equal(outputs, lab.baseline(usual())), "spoilt blocks make no difference: nothing here proves anything")
    different = sum(not equal([x], [y]) for x, y in zip(outputs, lab.baseline(usual())))
    require(different == PROMPTS, f"only {different} of {PROMPTS} outputs differ")
    return FULL, "differs, as it must"
