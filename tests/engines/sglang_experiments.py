"""Experiments with SGLang's own engine and HiCache on CPUs. Each compares tokens and logprobs with those of SGLang's
own cache of the same kind: computed without a prefix cache, from HiCache's host tier, and from its storage in files."""

import shutil
import time

import engines
import sglang_engines
import tiny_model
from experiments import EXACT, PROMPT, PROMPTS, ROUNDING, collection, equal, gaps, lab as any_lab  # noqa: F401
from experiments import require, require_equal, usual, wrong  # noqa: F401

PAGE = sglang_engines.PAGE
# The pages that are found of a prompt, in tokens; the last token is always computed.
FOUND = PROMPT // PAGE * PAGE
FULL = PROMPTS * FOUND
GENERATED = 16
# The pages that are saved of all usual prompts and what follows them; the last token has no KV cache.
SAVED = PROMPTS * ((PROMPT + GENERATED - 1) // PAGE)
# The layout of the host pool, and how SGLang then copies between it and the device.
LAYOUTS = {"page_first": "kernel", "layer_first": "direct", "page_first_direct": "direct"}

experiments, experiment = collection()


def until(holds, sentence, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < deadline, sentence())
        time.sleep(0.1)


def wait_until_saved(pages, wanted):
    """`pages`: function for the number of saved pages. SGLang saves behind the answer."""
    until(lambda: pages() >= wanted, lambda: f"{pages()} of {wanted} pages were saved")


def pages_at(made):
    return sum(each["complete_keys"] for each in made.namespaces())


def require_found(outputs, wanted, tier="storage"):
    """Requires as many tokens of each output from a tier of HiCache, and no other token from any tier."""
    found = [x["tiers"].get(tier, 0) for x in outputs]
    cached = [x["cached"] for x in outputs]
    require(found == [wanted] * len(outputs) and cached == found,
            f"tokens from HiCache's tier {tier!r}: {found}, from all tiers: {cached}, in the place of {wanted} each")


class lab(any_lab):
    def __init__(self, program, directory):
        super().__init__(program, directory)
        # Of a run that was killed.
        shutil.rmtree(self.directory / "files", ignore_errors=True)

    def start(self, work, storage=None, model=None, environment=None, **options):
        return sglang_engines.run(work, self.next_log(), model or self.model, options, storage, environment)

    def node(self, name, **settings):
        return super().node("sglang-" + name, **settings)

    @staticmethod
    def hicache(layout="page_first", policy="wait_complete", **more):
        """Arguments for HiCache; `policy`: when SGLang stops waiting for the storage."""
        return {"enable_hierarchical_cache": True, "hicache_ratio": 8.0, "hicache_mem_layout": layout,
                "hicache_io_backend": LAYOUTS[layout], "hicache_storage_prefetch_policy": policy, **more}

    def storage(self, to, layout="page_first", module="troupe.sglang", name="TroupeStorage", extra=None, **more):
        """Arguments for HiCache with Troupe's storage; `extra`: keys of its extra config."""
        extra = {"backend_name": "troupe", "module_path": module, "class_name": name, "interface_v1": 1,
                 "troupe.address": getattr(to, "address", to), **(extra or {})}
        return self.hicache(layout, hicache_storage_backend="dynamic", hicache_storage_backend_extra_config=extra,
                            **more)

    def play_rounds(self, prompts, storage, rounds=1, pages=None, saved=SAVED, **options):
        """Outputs of each round of one engine, which waits behind the first one until its pages are saved; and its
        run. `pages`: as for `wait_until_saved`."""
        def work(one):
            outputs = [one.play(prompts, GENERATED)]
            if pages is not None:
                wait_until_saved(pages, saved)
            return outputs + [one.play(prompts, GENERATED) for _ in range(rounds - 1)]

        run = self.start(work, storage, **options)
        return run.result(), run

    def warm(self):
        if self.shared is None:
            self.shared = warm_node(self, "warm")
            self.nodes.remove(self.shared)
        return self.shared

    def baseline(self, prompts, **options):
        """Outputs without a prefix cache."""
        key = repr((prompts, sorted(options.items())))
        if key not in self.baselines:
            self.baselines[key] = self.play_rounds(prompts, None, **options)[0][0]
        return self.baselines[key]

    def own(self, layout="page_first", **options):
        """Outputs of the usual prompts with HiCache and SGLang's storage in files, by the tier they are from."""
        key = repr((layout, sorted(options.items())))
        if key not in self.baselines:
            files = self.directory / "files" / str(len(self.baselines))
            files.mkdir(parents=True)
            storage = self.hicache(layout, hicache_storage_backend="file")
            options["environment"] = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(files)}
            pages = SAVED * options.get("tp_size", 1)
            (computed, host), _ = self.play_rounds(usual(), storage, 2, lambda: len(list(files.iterdir())), pages,
                                                   **options)
            (stored,), _ = self.play_rounds(usual(), storage, **options)
            require_found(computed, 0)
            require_found(host, FOUND, "host")
            require_found(stored, FOUND)
            self.baselines[key] = {"computed": computed, "host": host, "storage": stored}
        return self.baselines[key]

    def end_nodes(self, all_of_them=False):
        super().end_nodes(all_of_them)
        if all_of_them:
            shutil.rmtree(self.directory / "files", ignore_errors=True)


def require_one_attachment(run, ranks=1, pools=("kv",)):
    """Requires that each rank has attached its pools, and no rank has attached one twice."""
    said = run.log.read_text(errors="replace")
    attached = {pool: said.count(f"Troupe: pool {pool} attached to") for pool in pools}
    require(set(attached.values()) == {ranks}, f"attachments by {ranks} ranks: {attached}")


def stored_and_found(one, layout="page_first", storage=None, extra=None, **options):
    """An engine with an empty cache, and a new one that finds its pages."""
    made = one.node("restart").start()
    own = one.own(layout, **options)
    require_equal(own["computed"], one.baseline(usual(), **options))
    for first in ("computed", "storage"):
        outputs, run = one.play_rounds(usual(), one.storage(made, layout, extra=extra, **(storage or {})), 2,
                                       lambda: pages_at(made), **options)
        require_one_attachment(run, options.get("tp_size", 1))
        require_equal(outputs[0], own[first])
        require_equal(outputs[1], own["host"])
        require_found(outputs[0], FOUND if first == "storage" else 0)
        require_found(outputs[1], FOUND, "host")
    return FULL, "0 when cold, and all of the second round from the host tier"


def find_all(one, made, **options):
    """A new engine finds all pages of the usual prompts."""
    (outputs,), _ = one.play_rounds(usual(), one.storage(made, **options))
    require_found(outputs, FOUND)
    require_equal(outputs, one.own()["storage"])
    return FULL


def warm_node(one, name, **settings):
    """A node with the pages of all usual prompts."""
    made = one.node(name, **settings).start()
    (outputs,), run = one.play_rounds(usual(), one.storage(made), 1, lambda: pages_at(made))
    require_found(outputs, 0)
    require_equal(outputs, one.own()["computed"])
    return made


@experiment("an empty cache, a second round, and another engine, which finds all full pages; layout page_first")
def cold_and_restarted(one):
    return stored_and_found(one)


@experiment("the same with the layout layer_first")
def layer_first(one):
    return stored_and_found(one, "layer_first")


@experiment("the same with the layout page_first_direct")
def page_first_direct(one):
    return stored_and_found(one, "page_first_direct")


@experiment("the same with two tensor-parallel ranks")
def tensor_parallel(one):
    return stored_and_found(one, tp_size=2)


@experiment("the host pool in shared memory: \"allocator\": \"shm\"")
def shared_memory(one):
    made = one.node("shm").start()
    for wanted, own in ((0, "computed"), (FOUND, "storage")):
        def work(this):
            outputs = this.play(usual(), GENERATED)
            wait_until_saved(lambda: pages_at(made), SAVED)
            return outputs, this.shares_host_pool()

        outputs, shared = one.start(work, one.storage(made, extra={"allocator": "shm"})).result()
        require(shared, "the host pool is not in shared memory")
        require_found(outputs, wanted)
        require_equal(outputs, one.own()[own])
    return FULL, ""


@experiment("host memory as a buffer only (--hicache-host-memory-mode buffer_only): the second round is from the node")
def buffer_only(one):
    made = one.node("buffer").start()
    own, found = one.own(), []
    for wanted in ((0, FOUND), (FOUND, FOUND)):
        outputs, run = one.play_rounds(usual(), one.storage(made, hicache_host_memory_mode="buffer_only"), 2,
                                       lambda: pages_at(made))
        require_one_attachment(run)
        for each, tokens in zip(outputs, wanted):
            require_found(each, tokens)
            require_equal(each, own["storage" if tokens else "computed"])
            found.append(PROMPTS * tokens)
    return sum(found), "two engines, two rounds each"


@experiment("prefetch policies: timeout waits, and best_effort may find nothing in an idle engine")
def policies(one):
    made = one.warm()
    storage = one.storage(made, policy="timeout", extra={"prefetch_timeout_base": 60})
    (outputs,), _ = one.play_rounds(usual(), storage)
    require_found(outputs, FOUND)
    require_equal(outputs, one.own()["storage"])
    (outputs,), run = one.play_rounds(usual(), one.storage(made, policy="best_effort"))
    require_one_attachment(run)
    require_equal(outputs, one.baseline(usual()))
    found = sum(x["tiers"].get("storage", 0) for x in outputs)
    return FULL + find_all(one, made), f"best_effort: {found} of {FULL}; timeout and wait_complete: all"


@experiment("prompts below the prefetch threshold are computed, and found with a lower one")
def threshold(one):
    made, prompts = one.node("threshold").start(), [prompt[:200] for prompt in usual()]
    pages = PROMPTS * ((200 + GENERATED - 1) // PAGE)
    wanted = one.baseline(prompts)
    for extra, found in (({}, 0), ({}, 0), ({"prefetch_threshold": PAGE}, 200 // PAGE * PAGE)):
        (outputs,), run = one.play_rounds(prompts, one.storage(made, extra=extra), 1, lambda: pages_at(made), pages)
        require_one_attachment(run)
        require_found(outputs, found)
        require_equal(outputs, wanted)
    return PROMPTS * found, "0 with the default of 256 tokens"


@experiment("another salt, and another model of the same shape, share nothing")
def another_model(one):
    made = one.warm()
    (salted,), run = one.play_rounds(usual(), one.storage(made, extra={"troupe.salt": "other"}))
    require_one_attachment(run)
    require_found(salted, 0)
    require_equal(salted, one.baseline(usual()))
    other = tiny_model.write(one.directory / "other-llama", seed=77)
    (outputs,), run = one.play_rounds(usual(), one.storage(made), model=other)
    require_one_attachment(run)
    require_found(outputs, 0)
    require(not equal(outputs, one.baseline(usual())), "two models say the same")
    require_equal(outputs, one.baseline(usual(), model=other))
    # Not because there is nothing to be found.
    find_all(one, made)
    return 0, "the model itself finds all"


@experiment("requests with another cache_salt share nothing")
def request_salts(one):
    made, found = one.node("salts").start(), []
    for number, (salt, wanted) in enumerate((("a", 0), ("b", 0), ("a", FOUND), ("b", FOUND), (None, 0))):
        def work(this):
            more = {"cache_salt": salt} if salt else {}
            outputs = this.play(usual(), GENERATED, **more)
            wait_until_saved(lambda: pages_at(made), SAVED * min(number + 1, 2))
            return outputs

        run = one.start(work, one.storage(made))
        outputs = run.result()
        require_one_attachment(run)
        require_found(outputs, wanted)
        require_equal(outputs, one.own()["storage" if wanted else "computed"])
        found.append(PROMPTS * wanted)
    return sum(found), "each salt finds its own"


@experiment("LoRA adapters share nothing with each other and with the model; each finds its own pages")
def adapters(one):
    made, names = one.node("adapters").start(), ("one", "two", None)
    paths = {name: tiny_model.write_adapter(one.directory / f"adapter-{name}", seed)
             for seed, name in enumerate(names[:2])}
    options = {"enable_lora": True, "lora_backend": "torch_native", "max_loras_per_batch": 4,
               "lora_paths": [f"{name}={path}" for name, path in paths.items()]}

    def play(this, name):
        return this.play(usual(), GENERATED, lora_path=name)

    wanted = one.start(lambda this: [play(this, name) for name in names], None, **options).result()
    require(not any(equal(x, y) for x, y in zip(wanted, wanted[1:])), "an adapter makes no difference")
    # Each in an engine of its own: it finds nothing of those before.
    for number, name in enumerate(names):
        def work(this):
            outputs = play(this, name)
            wait_until_saved(lambda: pages_at(made), (number + 1) * SAVED)
            return outputs

        run = one.start(work, one.storage(made), **options)
        outputs = run.result()
        require_one_attachment(run)
        require_found(outputs, 0)
        require_equal(outputs, wanted[number])
    for outputs, own in zip(one.start(lambda this: [play(this, name) for name in names], one.storage(made),
                                      **options).result(), wanted):
        require_found(outputs, FOUND)
        require_equal(outputs, own)
    return len(names) * FULL, "two adapters and the model itself"


@experiment("sliding windows in a pool of their own (interface v2): both pools are found, and spoiling either shows")
def sliding_windows(one):
    made, window = one.node("windows").start(), 256
    model = tiny_model.write(one.directory / "tiny-mellum", config=tiny_model.mellum(window=window),
                             weights=tiny_model.shapes_of_mellum)
    # Of each prompt also the pages of its last window, and one more.
    pages = SAVED + PROMPTS * (window // PAGE + 1)
    files = one.directory / "files" / "windows"
    files.mkdir(parents=True)
    environment = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(files)}
    own = [one.play_rounds(usual(), one.hicache(hicache_storage_backend="file"), 1, lambda: len(list(files.iterdir())),
                           pages, model=model, environment=environment)[0][0] for _ in range(2)]
    require_equal(own[0], one.baseline(usual(), model=model))
    for outputs, found in zip(own, (0, FOUND)):
        require_found(outputs, found)
    for number, found in enumerate((0, FOUND)):
        (outputs,), run = one.play_rounds(usual(), one.storage(made), 1, lambda: pages_at(made), pages, model=model)
        require_one_attachment(run, pools=("kv", "swa"))
        require_found(outputs, found)
        require_equal(outputs, own[number])
    for pool in ("kv", "swa"):
        storage = one.storage(made, module="sglang_spoiling", name="SpoilingStorage")
        (outputs,), _ = one.play_rounds(usual(), storage, model=model, environment={"SPOILT_POOL": pool})
        require_found(outputs, FOUND)
        different = sum(not equal([x], [y]) for x, y in zip(outputs, own[1]))
        require(different == PROMPTS, f"only {different} of {PROMPTS} outputs differ with spoilt pages of pool {pool}")
    return FULL, "a spoilt pool shows in each output"


@experiment("kill -9 of the node between two engines: what was saved is found")
def node_killed_between(one):
    made = warm_node(one, "between")
    made.kill()
    made.start()
    return find_all(one, made), ""


@experiment("kill -9 of the node under an engine, which computes meanwhile, and finds its pages when it is back")
def node_killed(one):
    made = one.node("killed").start()

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        wait_until_saved(lambda: pages_at(made), SAVED)
        this.say("saved")
        this.wait()
        this.flush()
        outputs.append(this.play(usual(), GENERATED))
        this.say("played without a node")
        this.wait()
        return outputs, play_until_found(this)

    run = one.start(work, one.storage(made, extra={"troupe.request_timeout_seconds": 5.0}))
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
        require_equal(each, one.own()["storage"])
    require_found(attempts[-1], FOUND)
    return FULL + find_all(one, made), "half of them by the engine that had lost its node"


def play_until_found(this, seconds=60, tier="storage"):
    """Outputs of all attempts, with empty caches of the engine's own."""
    attempts, deadline = [], time.monotonic() + seconds
    while not attempts or (attempts[-1][-1]["tiers"].get(tier, 0) == 0 and time.monotonic() < deadline):
        this.flush()
        attempts.append(this.play(usual(), GENERATED))
        time.sleep(1)
    if sum(x["tiers"].get(tier, 0) for x in attempts[-1]) < FULL:
        # It attached between two requests.
        this.flush()
        attempts.append(this.play(usual(), GENERATED))
    return attempts


@experiment("no node when the engine starts: its host tier works, and it attaches when there is a node")
def node_absent(one):
    made = one.node("absent")

    def work(this):
        outputs = [this.play(usual(), GENERATED) for _ in range(2)]
        this.say("played without a node")
        this.wait()
        deadline = time.monotonic() + 60
        # It attaches between two requests, whose pages before that are not saved.
        while pages_at(made) < SAVED and time.monotonic() < deadline:
            this.flush()
            outputs.append(this.play(usual(), GENERATED))
            time.sleep(1)
        wait_until_saved(lambda: pages_at(made), SAVED)
        return outputs

    run = one.start(work, one.storage(made, extra={"troupe.wait_for_node_seconds": 1.0}))
    run.hear()
    said = run.log.read_text(errors="replace")
    require("no node at" in said and "attached to" not in said, "it did not say that there is no node")
    made.start()
    run.say("there is one")
    without, again, *later = run.result()
    require_found(without, 0)
    require_found(again, FOUND, "host")
    require_equal(again, one.own()["host"])
    for each in (without, *later):
        require_equal(each, one.own()["computed"])
    return find_all(one, made), "saved after the node had come"


@experiment("bytes changed on the disk: pages before them are found, the rest is computed and saved again")
def damaged_pages(one):
    made = warm_node(one, "damaged")
    made.stop()
    damaged, pages = made.damage_pages(0.15)
    require(0 < damaged < pages, f"{damaged} of {pages} pages are damaged")
    made.start()
    (outputs,), _ = one.play_rounds(usual(), one.storage(made), 1, lambda: pages_at(made))
    require_equal(outputs, one.baseline(usual()))
    found = sum(x["tiers"].get("storage", 0) for x in outputs)
    require(0 < found < FULL, f"{found} of {FULL} tokens were found")
    require("is damaged" in made.log(), "the node does not say that a page is damaged: the damage was not met")
    return found + find_all(one, made), f"{damaged} of {pages} pages damaged, saved anew"


@experiment("a memory too small for the prompts: pages leave while others come")
def eviction(one):
    made = one.node("small", memory="16 MiB", disk="0 B", durability="none").start()
    prompts, found = engines.random_prompts(12, 16, PROMPT), []
    wanted = one.baseline(prompts)
    # The newest first: they are there.
    for order in (1, -1):
        (outputs,), run = one.play_rounds(prompts[::order], one.storage(made))
        require_one_attachment(run)
        require_equal(outputs, wanted[::order])
        found.append(sum(x["tiers"].get("storage", 0) for x in outputs))
    full = len(prompts) * FOUND
    require(found[0] == 0 and 0 < found[1] < full, f"{found[1]} of {full} tokens were found, some should have left")
    return found[1], f"of {full} that had been saved"


def find_each_others(one, made, arguments, require_found_here):
    """Two engines at once on one node, each of which finds what the other has saved."""
    halves = [usual()[:2], engines.random_prompts(8, 2, PROMPT)]
    pages = 2 * SAVED // PROMPTS * 2

    def work(this):
        this.say("ready")
        first = this.play(this.wait(), GENERATED)
        this.say("played")
        return first, this.play(this.wait(), GENERATED)

    runs = [one.start(work, arguments) for _ in halves]
    for prompts, saved in ((halves, 0), (halves[::-1], pages)):
        for each in runs:
            each.hear()
        wait_until_saved(lambda: pages_at(made), saved)
        for each, mine in zip(runs, prompts):
            each.say(mine)
    for number, run in enumerate(runs):
        for outputs, which, found in zip(run.result(), (number, 1 - number), (0, FOUND)):
            require_found_here(outputs, found)
            require_equal(outputs, one.baseline(halves[which]))
    return 4 * FOUND, ""


@experiment("two engines at once on one node, each of which finds what the other has saved")
def two_engines(one):
    made = one.node("two").start()
    return find_each_others(one, made, one.storage(made), require_found)


@experiment("twelve prompts with shared prefixes at once, twice")
def many_prompts(one):
    made = one.node("many").start()
    prompts = engines.prompts_with_shared_prefixes(3, 12, 1200)
    wanted, found = one.start(lambda this: this.play_together(prompts), None, **EXACT).result(), []
    for _ in range(2):
        run = one.start(lambda this: (this.play_together(prompts), time.sleep(2))[0], one.storage(made), **EXACT)
        outputs = run.result()
        require_one_attachment(run)
        require_equal(outputs, wanted, ROUNDING)
        found.append(sum(x["tiers"].get("storage", 0) for x in outputs))
    require(found[1] > found[0], f"{found} tokens were found")
    return sum(found), ""


@experiment("the server by HTTP: flushed, found again; its metrics count it; the storage is cleared")
def http_server(one):
    made = one.node("http").start()

    def work(this):
        outputs = [this.play(usual(), GENERATED)]
        wait_until_saved(lambda: pages_at(made), SAVED)
        this.flush()
        outputs.append(this.play(usual(), GENERATED))
        # It saves behind the answer.
        time.sleep(3)
        metrics = this.llm.request("GET", "/metrics")
        require(this.llm.request("POST", "/hicache/storage-backend/clear") is not None, "the storage was not cleared")
        left = pages_at(made)
        this.flush()
        outputs.append(this.play(usual(), GENERATED))
        wait_until_saved(lambda: pages_at(made), SAVED)
        return outputs, metrics, left

    outputs, metrics, left = one.start(work, one.storage(made), server=True, enable_metrics=True).result()
    require(left == 0, f"{left} pages are left after the storage was cleared")
    for each, found in zip(outputs, (0, FOUND, 0)):
        require_found(each, found)
        require_equal(each, one.own()["storage" if found else "computed"])
    # The last page of a prompt is computed, and saved a second time.
    for name, wanted in (("prefetch_pgs_sum", FULL // PAGE), ("backup_pgs_sum", SAVED + PROMPTS)):
        counted = sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines()
                      if line.startswith(f"sglang:{name}"))
        require(counted == wanted, f"SGLang's metrics have {counted:.0f} pages as {name}, in the place of {wanted}")
    return FULL + find_all(one, made), "0 after it was cleared"


@experiment("control: loaded pages are spoilt behind the checksum, and the output differs")
def control(one):
    made = one.warm()
    storage = one.storage(made, module="sglang_spoiling", name="SpoilingStorage")
    (outputs,), _ = one.play_rounds(usual(), storage)
    require_found(outputs, FOUND)
    different = sum(not equal([x], [y]) for x, y in zip(outputs, one.own()["storage"]))
    require(different == PROMPTS, f"only {different} of {PROMPTS} outputs differ: nothing here proves anything")
    return FULL, "differs, as it must"
