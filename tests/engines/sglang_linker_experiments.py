"""Experiments with SGLang's unified cache and Troupe as its external linker, on CPUs: no host pool. Tokens and logprobs
are compared with those of SGLang's own cache: computed, and found as far in HiCache's storage in files."""

import re
import signal
import time

import engines
import tiny_model
from experiments import PROMPT, equal, require, require_equal, usual
from sglang_experiments import (FOUND, FULL, GENERATED, PAGE, PROMPTS, SAVED, experiment, find_each_others, pages_at,
                                play_until_found, until, wait_until_saved)

# Tokens that were found by a linker are reported as those of a tier in host memory.
TIER = "host"


def linker(to, module="troupe.sglang_linker", name="TroupeLinker", **extra):
    """Arguments for SGLang; `extra`: options without "troupe."."""
    extra = {"troupe.address": getattr(to, "address", to), **{f"troupe.{key}": value for key, value in extra.items()}}
    return {"enable_unified_cache_external_linker": True, "unified_cache_external_linker_backend": "dynamic",
            "unified_cache_external_linker_config": {"linker": name, "linker_module_path": module,
                                                     "linker_extra_config": extra}}


def found(outputs):
    return [output["tiers"].get(TIER, 0) for output in outputs]


def require_found(outputs, wanted):
    require(found(outputs) == [wanted] * len(outputs),
            f"tokens from the linker: {found(outputs)}, in the place of {wanted} each; all: "
            f"{[output['cached'] for output in outputs]}")


def stored_and_found(one, parts=1, **options):
    """An engine with an empty cache, which finds its pages after it has lost them; and a new one."""
    made, own = one.node(f"linker-{parts}").start(), one.own(**options)
    pages = SAVED * parts

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        wait_until_saved(lambda: pages_at(made), pages)
        this.flush()
        return outputs + [this.play(usual(), GENERATED)]

    for first in ("computed", "storage"):
        run = one.start(work, linker(made, layer_parts=parts), **options)
        outputs = run.result()
        said = run.log.read_text(errors="replace").count("Troupe: linker attached to")
        require(said == options.get("tp_size", 1), f"{said} ranks have attached")
        for each, tier in zip(outputs, (first, "storage")):
            require_found(each, FOUND if tier == "storage" else 0)
            require_equal(each, own[tier])
    return 3 * FULL, ""


@experiment("linker: an empty cache; flushed, and another engine, which finds all full pages")
def linker_cold_and_restarted(one):
    return stored_and_found(one)


@experiment("linker: the same, layer by layer under the forward pass")
def linker_layer_by_layer(one):
    return stored_and_found(one, parts=3)


@experiment("linker: the same with two tensor-parallel ranks")
def linker_tensor_parallel(one):
    return stored_and_found(one, tp_size=2)


@experiment("linker: the same with two tensor-parallel ranks, layer by layer")
def linker_tensor_parallel_by_layer(one):
    return stored_and_found(one, parts=2, tp_size=2)


def warm_node(one, name, parts=1, **settings):
    """A node with the pages of all usual prompts."""
    made = one.node(f"linker-{name}", **settings).start()

    def work(this):
        outputs = this.play(usual(), GENERATED)
        wait_until_saved(lambda: pages_at(made), SAVED * parts)
        return outputs

    outputs = one.start(work, linker(made, layer_parts=parts)).result()
    require_found(outputs, 0)
    require_equal(outputs, one.own()["computed"])
    return made


def find_all(one, made, parts=1):
    """A new engine finds all pages of the usual prompts."""
    outputs = one.start(lambda this: this.play(usual(), GENERATED), linker(made, layer_parts=parts)).result()
    require_found(outputs, FOUND)
    require_equal(outputs, one.own()["storage"])
    return FULL


def require_each_equal(one, outputs):
    """Requires those of as many tokens found: all pages of a prompt, or none. Returns the tokens that were found."""
    for number, output in enumerate(outputs):
        tokens = found([output])[0]
        require(tokens in (0, FOUND), f"{tokens} tokens were found")
        require_equal([output], [one.own()["storage" if tokens else "computed"][number]])
    return sum(found(outputs))


@experiment("linker: another salt and another model of the same shape share nothing, nor do requests by cache_salt")
def linker_shares_nothing(one):
    made = warm_node(one, "salts")
    salted = one.start(lambda this: this.play(usual(), GENERATED), linker(made, salt="other")).result()
    other = tiny_model.write(one.directory / "other-llama", seed=77)
    theirs = one.start(lambda this: this.play(usual(), GENERATED), linker(made), model=other).result()
    require_equal(theirs, one.baseline(usual(), model=other))
    requests = one.start(lambda this: this.play(usual(), GENERATED, cache_salt="a"), linker(made)).result()
    for outputs in (salted, theirs, requests):
        require_found(outputs, 0)
    for outputs in (salted, requests):
        require_equal(outputs, one.own()["computed"])
    return find_all(one, made), "the model itself finds all"


@experiment("linker: sliding windows in a pool of their own: both pools are found, and spoiling either shows")
def linker_sliding_windows(one):
    window = 256
    model = tiny_model.write(one.directory / "tiny-mellum", config=tiny_model.mellum(window=window),
                             weights=tiny_model.shapes_of_mellum)
    files = one.directory / "files" / "linker-windows"
    files.mkdir(parents=True)
    environment = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(files)}
    pages = SAVED + PROMPTS * (window // PAGE + 1)
    own = [one.play_rounds(usual(), one.hicache(hicache_storage_backend="file"), 1, lambda: len(list(files.iterdir())),
                           pages, model=model, environment=environment)[0][0] for _ in range(2)]
    for parts in (1, 2):
        made = one.node(f"linker-windows-{parts}").start()

        def work(this):
            outputs = this.play(usual(), GENERATED)
            settle(lambda: pages_at(made))
            return outputs

        for number, tokens in enumerate((0, FOUND)):
            outputs = one.start(work, linker(made, layer_parts=parts), model=model).result()
            require_found(outputs, tokens)
            require_equal(outputs, own[number])
    for pool in ("kv", "swa"):
        outputs = one.start(lambda this: this.play(usual(), GENERATED), spoiling(made, layer_parts=2), model=model,
                            environment={"SPOILT_POOL": pool}).result()
        require_found(outputs, FOUND)
        different = sum(not equal([x], [y]) for x, y in zip(outputs, own[1]))
        require(different == PROMPTS, f"only {different} of {PROMPTS} outputs differ with spoilt pages of pool {pool}")
    return 2 * FULL, "a spoilt pool shows in each output"


def settle(number, seconds=2.0):
    """Waits until the number is not 0 and has not changed for some time."""
    before, since = 0, time.monotonic()

    def steady():
        nonlocal before, since
        now = number()
        if now != before:
            before, since = now, time.monotonic()
        return now > 0 and time.monotonic() > since + seconds

    until(steady, lambda: f"{before} pages, and still more")


def spoiling(made, **extra):
    return linker(made, "sglang_spoiling_linker", "SpoilingLinker", **extra)


@experiment("linker: kill -9 of the node between two engines: what was saved is found")
def linker_node_killed_between(one):
    made = warm_node(one, "between")
    made.kill()
    made.start()
    return find_all(one, made), ""


def killed_and_back(one, parts):
    """The node is killed under an engine, which computes meanwhile, and finds its pages when it is back."""
    made = one.node(f"linker-killed-{parts}").start()

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        wait_until_saved(lambda: pages_at(made), SAVED * parts)
        this.say("saved")
        this.wait()
        this.flush()
        outputs.append(this.play(usual(), GENERATED))
        this.say("played without a node")
        this.wait()
        return outputs, play_until_found(this, tier=TIER)

    run = one.start(work, linker(made, layer_parts=parts, request_timeout_seconds=5.0))
    run.hear()
    made.kill()
    run.say("alone")
    run.hear()
    made.start()
    run.say("with a node again")
    outputs, attempts = run.result()
    for each in outputs:
        require_found(each, 0)
        require_equal(each, one.own()["computed"])
    for each in attempts:
        require_each_equal(one, each)
    require_found(attempts[-1], FOUND)
    return FULL + find_all(one, made, parts)


@experiment("linker: kill -9 of the node under an engine, which computes meanwhile, and finds all when it is back")
def linker_node_killed(one):
    return killed_and_back(one, 1), "half of them by the engine that had lost its node"


@experiment("linker: the same, layer by layer")
def linker_node_killed_by_layer(one):
    return killed_and_back(one, 2), ""


@experiment("linker: the node is killed and started again and again while prompts are looked up, loaded and saved")
def linker_node_killed_often(one):
    made, rounds = warm_node(one, "often", durability="strict"), 12
    prompts = [engines.random_prompts(40 + number, 1, 700)[0] for number in range(rounds)]

    def work(this):
        this.say("ready")
        outputs = []
        for number in range(rounds):
            this.flush()
            outputs.append((this.play(usual(), GENERATED), this.play([prompts[number]], GENERATED)))
        this.say("played")
        return outputs

    run = one.start(work, linker(made, wait_for_node_seconds=1.0))
    run.hear()
    kills = 0
    while not run.pipe.poll(0.7):
        made.kill()
        made.start()
        kills += 1
    run.hear()
    computed, tokens = one.baseline(prompts), 0
    for number, (outputs, own) in enumerate(run.result()):
        tokens += require_each_equal(one, outputs)
        require_equal(own, computed[number:number + 1])
    require(kills >= 3, f"the node was killed only {kills} times")
    return tokens + find_all(one, made), f"killed {kills} times; the last {FULL} by a new engine"


@experiment("linker: a node that has stopped answering (SIGSTOP): SGLang computes, and finds all when it answers again")
def linker_node_hangs(one):
    made = warm_node(one, "hangs")

    def work(this):
        this.say("ready")
        this.wait()
        began, outputs = time.monotonic(), this.play(usual(), GENERATED)
        this.say(time.monotonic() - began)
        this.wait()
        return outputs, play_until_found(this, tier=TIER)

    run = one.start(work, linker(made, task_deadline_seconds=3.0))
    run.hear()
    made.process.send_signal(signal.SIGSTOP)
    try:
        run.say("it hangs")
        seconds = run.hear()
    finally:
        made.process.send_signal(signal.SIGCONT)
    run.say("it answers again")
    outputs, attempts = run.result()
    require_found(outputs, 0)
    require_equal(outputs, one.own()["computed"])
    for each in attempts:
        require_each_equal(one, each)
    require_found(attempts[-1], FOUND)
    return FULL, f"three prompts took {seconds:.1f} s meanwhile"


@experiment("linker: no node when the engine starts: it attaches when there is one")
def linker_node_absent(one):
    made = one.node("linker-absent")

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        this.say("played without a node")
        this.wait()
        deadline = time.monotonic() + 60
        while pages_at(made) < SAVED and time.monotonic() < deadline:
            this.flush()
            outputs.append(this.play(usual(), GENERATED))
            time.sleep(1)
        wait_until_saved(lambda: pages_at(made), SAVED)
        return outputs

    run = one.start(work, linker(made, wait_for_node_seconds=1.0))
    run.hear()
    said = run.log.read_text(errors="replace")
    require("no node at" in said and "attached to" not in said, "it did not say that there is no node")
    made.start()
    run.say("there is one")
    for each in run.result():
        require_each_equal(one, each)
    return find_all(one, made), "saved after the node had come"


@experiment("linker: bytes changed on the disk: prompts with such a page are computed, and saved again")
def linker_damaged_pages(one):
    made = warm_node(one, "damaged")
    made.stop()
    damaged, pages = made.damage_pages(1.0, most=1, after=4)
    require(damaged == 1, f"{damaged} of {pages} pages are damaged")
    made.start()

    def work(this):
        outputs = this.play(usual(), GENERATED)
        wait_until_saved(lambda: pages_at(made), SAVED)
        return outputs

    outputs = one.start(work, linker(made)).result()
    tokens = require_each_equal(one, outputs)
    require(tokens == FULL - FOUND, f"{tokens} of {FULL} tokens were found")
    require("is damaged" in made.log(), "the node does not say that a page is damaged: the damage was not met")
    return tokens + find_all(one, made), "one page damaged, saved anew"


@experiment("linker: layer by layer, a damaged page of later layers ends its request with an error of SGLang")
def linker_damaged_by_layer(one):
    made, parts = warm_node(one, "damaged-layers", parts=2), 2
    run = one.start(lambda this: None, linker(made, layer_parts=parts))
    run.result()
    name = re.search(r"part 1 of 2, .*: namespace (\S+)", run.log.read_text(errors="replace")).group(1)
    late = next(each["id"] for each in made.namespaces() if each["name"] == name)
    made.stop()
    damaged, pages = made.damage_pages(1.0, most=1, after=4, namespace=late)
    require(damaged == 1, f"{damaged} of {pages} pages are damaged")
    made.start()

    def work(this):
        outputs = []
        for prompt in usual():
            try:
                outputs += this.play([prompt], GENERATED)
            except Exception as error:  # of SGLang's HTTP server, whose class is not imported here
                outputs.append(str(error))
        again = this.play(usual(), GENERATED)
        wait_until_saved(lambda: pages_at(made), SAVED * parts)
        return outputs, again

    outputs, again = one.start(work, linker(made, layer_parts=parts)).result()
    ended = [output for output in outputs if isinstance(output, str) or output["finish"] == "abort"]
    require(len(ended) == 1 and "External KV cache load failed" in str(ended[0]), f"ended with an error: {ended}")
    for number, output in enumerate(outputs):
        if output not in ended:
            require_found([output], FOUND)
            require_equal([output], [one.own()["storage"][number]])
    for number, output in enumerate(again):
        require(output["finish"] == "length", "the engine does not go on")
    return 2 * FOUND + find_all(one, made, parts), "one request of three"


@experiment("linker: a memory too small for the prompts: pages leave while others come")
def linker_eviction(one):
    made = one.node("linker-small", memory="16 MiB", disk="0 B", durability="none").start()
    prompts, tokens = engines.random_prompts(12, 16, 700), []
    wanted = one.baseline(prompts)
    for order in (1, -1):
        outputs = one.start(lambda this: this.play(prompts[::order], GENERATED), linker(made)).result()
        require_equal(outputs, wanted[::order])
        tokens.append(sum(found(outputs)))
    require(tokens[0] == 0 and 0 < tokens[1] < len(prompts) * FOUND, f"{tokens} tokens were found")
    return tokens[1], f"of {len(prompts) * FOUND} that had been saved"


@experiment("linker, storage: pages of 256 tokens, in memory that is exactly full of them: all found; then some leave")
def exactly_full(one):
    size, tokens, said = 256, 0, []
    full = PROMPT // size * size
    for name, arguments, tier in (("linker", linker, TIER), ("storage", one.storage, "storage")):
        made = one.node(f"full-{name}", memory="16 MiB", disk="0 B", durability="none").start()
        prompts = engines.random_prompts(13, 40, PROMPT)

        def fill(this):
            """Plays prompts until there is room for no other page. A prompt of one page may be the last."""
            played, saved, room = [], 0, None
            while room is None or saved < room:
                pages = full // size if room is None else min(full // size, room - saved)
                played.append(prompts[len(played)][:pages * size + 100])
                this.play(played[-1:], GENERATED)
                saved += pages
                wait_until_saved(lambda: pages_at(made), saved)
                room = room or made.status()["namespaces"][0]["capacity"]["keys"]
            return played, room

        played, room = one.start(fill, arguments(made), page_size=size).result()
        require(pages_at(made) == room, f"{pages_at(made)} pages in room for {room}")

        def more(this):
            outputs = this.play(played, GENERATED)
            before = pages_at(made)
            others = this.play(prompts[len(played):][:2], GENERATED)
            time.sleep(3)
            return outputs, before, others

        outputs, before, others = one.start(more, arguments(made), page_size=size).result()
        require_equal(outputs + others, one.baseline(played + prompts[len(played):][:2], page_size=size))
        hits = [output["tiers"].get(tier, 0) for output in outputs]
        require(hits == [len(prompt) // size * size for prompt in played], f"{name}: found {hits}")
        require(before == room and room - 4 <= pages_at(made) <= room, f"{name}: {pages_at(made)} of {room} pages")
        tokens += sum(hits)
        said.append(f"{room} pages of the {name}")
    return tokens, ", ".join(said)


@experiment("linker: two engines at once on one node, each of which finds what the other has saved")
def linker_two_engines(one):
    made = one.node("linker-two").start()
    return find_each_others(one, made, linker(made), require_found)


@experiment("linker: requests are cancelled while they wait, load and compute; the others are right")
def linker_cancelled(one):
    made, tokens = warm_node(one, "cancelled"), 0
    prompts = usual() + engines.random_prompts(9, 9, 700)
    for parts in (1, 1, 2, 2):
        def work(this):
            this.flush()
            kept = this.play_and_cancel(prompts, GENERATED, lambda number: number % 3 != 0)
            this.flush()
            return kept, this.play(usual(), GENERATED)

        run = one.start(work, linker(made, layer_parts=parts))
        kept, later = run.result()
        require(len(kept) == sum(number % 3 == 0 for number in range(len(prompts))), f"{len(kept)} outputs were kept")
        require(all(len(output["tokens"]) == GENERATED for output in kept), "an output is not whole")
        tokens += require_each_equal(one, later)
        require("memory leak" not in run.log.read_text(errors="replace"), "SGLang has lost memory")
    return tokens, "8 of 12 requests cancelled at once, in each of four engines"


@experiment("linker: the server by HTTP: flushed, and found again; its metrics count it; it refuses to clear")
def linker_http_server(one):
    parts = 2
    made = one.node("linker-http").start()

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        wait_until_saved(lambda: pages_at(made), SAVED * parts)
        this.flush()
        outputs.append(this.play(usual(), GENERATED))
        # It saves behind the answer.
        time.sleep(3)
        metrics = this.llm.request("GET", "/metrics")
        require(this.llm.request("POST", "/hicache/storage-backend/clear") is None, "SGLang clears linkers now")
        return outputs, metrics

    outputs, metrics = one.start(work, linker(made, layer_parts=parts), server=True, enable_metrics=True).result()
    for each, tokens in zip(outputs, (0, FOUND)):
        require_found(each, tokens)
        require_equal(each, one.own()["storage" if tokens else "computed"])
    for name, wanted in (("found_tokens_total", FULL), ("loaded_tokens_total", FULL), ("load_seconds_count", PROMPTS),
                         ("failed_loads_total", 0), ("failed_saves_total", 0)):
        counted = sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines()
                      if line.startswith(f"sglang:troupe_{name}"))
        require(counted == wanted, f"the metrics have {counted:.0f} as {name}, in the place of {wanted}")
    require("sglang:troupe_saved_tokens_total" in metrics, "the metrics do not count what was saved")
    return FULL + find_all(one, made, parts), "pages are still there after it was to clear"


@experiment("linker control: loaded pages are spoilt behind the checksum, and the output differs")
def linker_control(one):
    made = warm_node(one, "control")
    outputs = one.start(lambda this: this.play(usual(), GENERATED), spoiling(made)).result()
    require_found(outputs, FOUND)
    different = sum(not equal([x], [y]) for x, y in zip(outputs, one.own()["storage"]))
    require(different == PROMPTS, f"only {different} of {PROMPTS} outputs differ: nothing here proves anything")
    return FULL, "differs, as it must"
