#!/usr/bin/env python3
"""vLLM on a GPU with models whose layers need several KV cache groups: whether output is that of vLLM's own prefix
cache, with CUDA graphs, and how long the first token of a model with windows takes.

gpu_groups.py --troupe PROGRAM --library LIBTROUPE.SO --work DIRECTORY [--memory "40 GiB"] [--repeat 2]
              [--tokens 4096,16384,65536] [PART…]

Parts: of each kind of model (windows, sinks, delta-net, delta-net-mtp, mamba2, convolutions, heads, padded-heads,
large-heads, latent, sparse) that name alone or with -crowd or -preempted behind it; and times: none, troupe, raw
(Troupe without encoded pages), SimpleCPUOffloadConnector, OffloadingConnector; all if none is named. Without an ending:
computed, found by another engine, without a node, from the disk of a node that was killed, and with loaded blocks of
each group spoilt. -crowd: many prompts at once with shared prefixes, and blocks for some of them, in a process of its
own. -preempted: so few blocks that requests are preempted, and come back with pages from the node. It runs in an
environment with vLLM 0.32 for GPUs, and with --without-graphs on CPUs. Exits with 1 if an output is wrong.
"""

import importlib.util
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

KINDS = ("windows", "sinks", "delta-net", "delta-net-mtp", "mamba2", "convolutions", "heads", "padded-heads",
         "large-heads", "latent", "sparse")
# Models for which vLLM has kernels, Triton's, in a variant in which nothing depends on other requests, nor on what was
# found: there outputs are equal to the last bit, however many requests there are at once.
INVARIANT = ("windows", "sinks", "heads", "padded-heads", "large-heads")
PEERS = ("SimpleCPUOffloadConnector", "OffloadingConnector")
TIMES = ("none", "troupe", "raw", *PEERS)
# Ends of names of parts, and methods of `tester`.
ENDINGS = {"": "equal", "-crowd": "crowd", "-preempted": "preempted"}
PARTS = (*(kind + ending for kind in KINDS for ending in ENDINGS), *TIMES)

# Graphs of a few sizes, and nothing that is compiled. Several engines share a GPU for a moment when one ends.
WITH_GRAPHS = {"enforce_eager": False, "gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 1 << 30,
               "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY",
                                      "cudagraph_capture_sizes": [1, 2, 4, 8]},
               # Kernels that vLLM brings along.
               "additional_config": {"gdn_prefill_backend": "triton"}}

# Tokens besides the chosen one, as many as vLLM gives: of a random model many are nearly as likely.
MANY = 19

# A model with windows of the size of Llama-3-8B: full attention in every sixth layer, as in Gemma 3.
SHAPE = {"hidden": 4096, "layers": 36, "heads": 32, "kv_heads": 8, "head_size": 128}
EVERY, WINDOW = 6, 1024
LAYER_TOKEN_BYTES = 2 * SHAPE["kv_heads"] * SHAPE["head_size"] * 2


def hit_bytes(tokens):
    """What a hit of so many tokens loads: all tokens of the full layers, and a window of the others."""
    full = SHAPE["layers"] // EVERY
    return LAYER_TOKEN_BYTES * (full * tokens + (SHAPE["layers"] - full) * min(tokens, WINDOW))


def write_large_model(directory):
    """Weights are drawn by vLLM: time does not depend on them."""
    import tiny_model

    kinds = ["full_attention" if layer % EVERY == EVERY - 1 else "sliding_attention"
             for layer in range(SHAPE["layers"])]
    return tiny_model.write_config(directory, {
        **tiny_model.llama(**SHAPE), "intermediate_size": 14336, "max_position_embeddings": 131072,
        "rope_theta": 500000.0, "layer_types": kinds, "sliding_window": WINDOW})


def prompts():
    """One of them is computed in two steps."""
    import engines

    return engines.random_prompts(21, 3, 1500) + engines.random_prompts(22, 1, 3000)


class tester:
    """The parts of one kind of model."""

    def __init__(self, one, kind, options, part):
        self.one, self.kind, self.part = one, kind, part
        self.options = {**kind.engine(one), **options, "dtype": "bfloat16", "max_num_batched_tokens": 2048}
        self.graphs = bool(options)
        if kind.name == "sparse":
            import gpu_indexer

            print(f"  products of the indexer by PyTorch: {gpu_indexer.prepare()}", flush=True)
        self.apart = "apart" if options else "fork"
        if options:
            # What CPUs need.
            self.options.pop("cut_prefills", None)
        if options and kind.name in ("heads", "padded-heads") and importlib.util.find_spec("cutlass") is None:
            # vLLM chooses the fourth version for these models, which is a package of its own.
            self.options["attention_config"] = {"flash_attn_version": 3}

    def start(self, work, connector=None, **options):
        """`environment` of an engine, or that of the part."""
        if self.part != "equal":
            options = {**self.invariant(), **options}
        return self.one.start(work, connector, **{**self.options, **options})

    def equal(self):
        """Every comparison is to the last bit."""
        self.computed, self.cached, said = self.start(computed_and_cached).result()
        print(f"  {said}", flush=True)
        self.hits = [x["cached"] for x in self.cached]
        node = self.one.node(self.one.current, memory="1 GiB").start()
        first, again = self.start(lambda e: (play_all(e), again_without_cache(e)), self.one.connector(node)).result()
        self.require(first, self.computed, [0] * len(first), "cold")
        self.require_groups(node)
        self.require(again, self.cached, self.hits, "the same engine, its own cache emptied")
        self.found_and_from_disk(node)
        self.spoilt(node)

    def require(self, outputs, wanted, hits, what):
        from experiments import require, require_equal

        found = [x["cached"] for x in outputs]
        require(found == hits, f"{what}: {found} tokens in the place of {hits} were found")
        require_equal(outputs, wanted)
        print(f"  {what}: {found} tokens found, tokens and logprobs equal", flush=True)

    def require_groups(self, node):
        """Requires a namespace for each group. Prints the number of pages of each."""
        from experiments import require

        pages = {each["name"].rpartition(".")[2]: each["keys"] for each in node.namespaces()}
        require(len(pages) == len(self.kind.groups) and all(pages.values()), f"pages of other groups: {pages}")
        require(len(pages) == 1 or set(pages) == set(self.kind.groups), f"other groups: {pages}")
        print(f"  pages: {pages}", flush=True)

    def found_and_from_disk(self, node):
        """An engine that finds pages of another one; then its node is killed, and has them on disk alone."""
        from experiments import require, require_equal

        run = self.start(found_then_disk, self.one.connector(node))
        run.hear()
        node.kill()
        run.say("without a node")
        run.hear()
        node.start()
        run.say("with a node again")
        found, without, disk = run.result()
        self.require(found, self.cached, self.hits, "engine restarted")
        self.require(without, self.computed, [0] * len(without), "without a node")
        require(any(x["cached"] for x in disk[-1]), "nothing was found on the disk")
        for outputs in disk[:-1]:
            # Some of them before the node was there.
            for each, computed, cached in zip(outputs, self.computed, self.cached, strict=True):
                require_equal([each], [cached if each["cached"] else computed])
        self.require(disk[-1], self.cached, self.hits, "node killed, from disk")

    def spoilt(self, node):
        """The control: with loaded blocks of one group zeroed, all outputs differ."""
        from experiments import equal, require

        connector = self.one.connector(node, name="GroupSpoilingConnector", module="spoiling")
        spoilt = (*self.kind.groups, "layer-indexer") if self.kind.name == "sparse" else self.kind.groups
        played = self.start(lambda e: play_spoilt(e, spoilt), connector,
                            environment={"SPOILT_GROUPS": "none"}).result()
        for group, outputs in played.items():
            require([x["cached"] for x in outputs] == self.hits, f"{group}: not all tokens were found")
            same = sum(equal([x], [y]) for x, y in zip(outputs, self.cached, strict=True))
            require(same == 0, f"zeroed blocks of {group} make no difference to {same} of {len(outputs)} outputs")
            print(f"  zeroed blocks of {group}: all outputs differ", flush=True)

    def crowd(self):
        """Requests at once with blocks for a part of them: EngineCore in a process of its own schedules ahead, and
        blocks are given to others at once."""
        import engines
        from experiments import require

        several = engines.prompts_with_shared_prefixes(23, 24, 3500)
        options = {"multiprocessing": self.apart, "async_scheduling": True}
        wanted, blocks = self.one_at_a_time(several, 24)
        options["num_gpu_blocks_override"] = 6400 * len(blocks) // min(tokens for _, tokens in blocks)
        alone = self.start(lambda e: [e.play(several, alternatives=MANY)], **options).result()
        most = self.print_likeness("without a connector", alone, wanted, several)
        node = self.one.node(self.one.current, memory="4 GiB", durability="relaxed").start()
        for what in ("one engine twice", "another engine"):
            turns, counters, how = self.start(lambda e: crowd_twice(e, several), self.one.connector(node),
                                              **options).result()
            require(all(how), f"EngineCore runs apart, schedules ahead: {how}")
            gap = self.print_likeness(f"{what}, {counters}", turns, wanted, several)
            found, before = (sum(x["cached"] for x in outputs) for outputs in (turns[-1], alone[0]))
            require(found > 2 * before, f"{found} tokens were found, and {before} of them without a connector")
            self.require_like(gap, most)

    def one_at_a_time(self, several, generate):
        """Outputs of requests that are alone, and what kind of blocks the engine has for each group."""
        return self.start(lambda e: (e.play(several, generate, 1, MANY), blocks_of(e))).result()

    def invariant(self):
        """Options for engines of many requests at once. Kernels for latent attention are invariant, too, but go on from
        found blocks in another way than they compute prompts."""
        if not self.graphs or self.kind.name not in (*INVARIANT, "latent"):
            return {}
        triton = {"attention_config": {"backend": "TRITON_ATTN"}} if self.kind.name in INVARIANT else {}
        return {"environment": {"VLLM_BATCH_INVARIANT": "1"}, **triton}

    def require_like(self, gap, most):
        """Elsewhere steps of many requests round otherwise than those of one, so tokens are compared as far as they are
        equally likely, and logprobs with those that vLLM alone gives."""
        from experiments import require

        require(most == 0.0 or not self.graphs or self.kind.name not in INVARIANT,
                f"vLLM alone gives other logprobs for many requests, by {most:.2g}: this decides nothing")
        require(most < float("inf"), "vLLM alone gives tokens of which the others are none: this decides nothing")
        require(gap <= (max(0.1, 2 * most) if most else 0.0),
                f"logprobs differ by {gap:.2g}, and by {most:.2g} without a connector")

    def preempted(self):
        """Requests that need nearly twice the blocks of the engine, most of them while they generate."""
        import engines
        import hybrid_experiments
        from experiments import failed_loads, require

        known = self.kind.crowd if "state" in self.kind.groups else ()
        count, tokens, generate = known[:3] or (6, 250, 300)
        several = engines.random_prompts(9, count, tokens)
        wanted, blocks = self.one_at_a_time(several, generate)
        options = {"max_model_len": 1024, "num_gpu_blocks_override": max(
            int(0.6 * count * needed_blocks(blocks, tokens + generate)), needed_blocks(blocks, 1024) + 8)}

        def play(e):
            said = hybrid_experiments.loads_after_preemption(e)
            outputs = e.play(several, generate, alternatives=MANY)
            return outputs, e.metrics(), sum(said)

        alone = self.start(lambda e: e.play(several, generate, alternatives=MANY), **options).result()
        most = self.print_likeness("without a connector", [alone], wanted, several)
        again, node = 0, self.one.node(self.one.current, memory="1 GiB").start()
        for what in ("cold", "another engine"):
            outputs, metrics, loaded = self.start(play, self.one.connector(node), **options).result()
            preemptions, again = int(metrics.get("vllm:num_preemptions", 0)), again + loaded
            gap = self.print_likeness(f"{what}, {preemptions} preemptions, {failed_loads(metrics)} failed loads, "
                                      f"{loaded} tokens loaded by preempted requests", [outputs], wanted, several)
            require(preemptions > 0, "nothing was preempted")
            self.require_like(gap, most)
        require(again > 0, "no preempted request has loaded anything")

    @staticmethod
    def print_likeness(what, turns, wanted, several):
        gaps = []
        for outputs in turns:
            said = [likeness(x, y) for x, y in zip(outputs, wanted, strict=True)]
            gaps.append(max(gap for gap, _ in said))
            print(f"  {what}: {sum(x['cached'] for x in outputs)} of {sum(map(len, several))} tokens found; of "
                  f"{sum(len(x['tokens']) for x in outputs)} tokens, {sum(count for _, count in said)} are comparable, "
                  f"whose logprobs differ by {gaps[-1]:.3f} at most", flush=True)
        return max(gaps)


# Inside an engine's process.


def play_all(one):
    return one.play(prompts(), limit=1)


def forget(one):
    """Empties vLLM's own prefix cache, when blocks of saves are free again."""
    for _ in range(100):
        one.idle_steps(3)
        if one.llm.reset_prefix_cache():
            return
    raise RuntimeError("vLLM does not free its prefix cache: blocks are not freed")


def again_without_cache(one):
    forget(one)
    return play_all(one)


def computed_and_cached(one):
    """Outputs that are computed, and from vLLM's own prefix cache; how vLLM keeps this model."""
    first, second = play_all(one), play_all(one)
    one.llm.reset_prefix_cache()
    if [(x["tokens"], x["logprobs"]) for x in play_all(one)] != [(x["tokens"], x["logprobs"]) for x in first]:
        raise RuntimeError("vLLM itself does not compute the same twice")
    return first, second, layout(one)


def found_then_disk(one):
    found = play_all(one)
    one.say("found")
    one.wait()
    without = again_without_cache(one)
    one.say("computed")
    one.wait()
    disk = []
    for _ in range(10):
        disk.append(again_without_cache(one))
        if all(x["cached"] for x in disk[-1]):
            break
        time.sleep(1)
    return found, without, disk


def play_spoilt(one, groups):
    out = {}
    for group in groups:
        one.llm.llm_engine.engine_core.engine_core.scheduler.connector.spoil(group)
        out[group] = again_without_cache(one)
    return out


def blocks_of(one):
    """Of each group: its kind, and the tokens of its blocks."""
    import spoiling

    cache = one.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config
    return [(spoiling.kind_of(group.kv_cache_spec), group.kv_cache_spec.block_size) for group in cache.kv_cache_groups]


def needed_blocks(blocks, tokens):
    """Of a request that has computed so many tokens."""
    out = 0
    for kind, size in blocks:
        if kind == "state":
            out += 3
            continue
        window = int(kind.removeprefix("window-")) + size if kind != "full" else tokens
        out += -(-min(tokens, window) // size)
    return out


def crowd_twice(one, several):
    """Outputs; preemptions and failed loads; whether EngineCore runs apart and schedules ahead."""
    from experiments import failed_loads, runs_apart, schedules_ahead

    turns = [one.play(several, alternatives=MANY)]
    for _ in range(100):
        # Blocks of saves are held until these have ended.
        if one.llm.reset_prefix_cache():
            break
        time.sleep(0.2)
        one.play([several[0][:50]], 1)
    turns.append(one.play(several, alternatives=MANY))
    metrics = one.metrics()
    time.sleep(1)
    counters = (f"{metrics.get('vllm:num_preemptions', 0):.0f} preemptions, {failed_loads(metrics)} failed loads")
    return turns, counters, (runs_apart(one), schedules_ahead(one))


def likeness(x, y):
    """The largest difference of logprobs up to the first token that differs, and the number of tokens up to there."""
    gap = 0.0
    for at, (token, wanted) in enumerate(zip(x["tokens"], y["tokens"], strict=True)):
        gap = max(gap, abs(x["logprobs"][at] - y["likely"][at].get(token, float("-inf"))))
        if token != wanted:
            return gap, at
    return gap, len(y["tokens"])


def layout(one):
    """How vLLM keeps the KV cache of this model."""
    config = one.llm.llm_engine.vllm_config
    cache = one.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config
    groups = [f"{len(group.layer_names)} x {type(group.kv_cache_spec).__name__} of {group.kv_cache_spec.block_size} "
              f"tokens, {group.kv_cache_spec.page_size_bytes} bytes" for group in cache.kv_cache_groups]
    return (f"layout {getattr(config.cache_config, 'kv_cache_layout', None)}, second model runner "
            f"{getattr(config, 'use_v2_model_runner', None)}, asynchronous {config.scheduler_config.async_scheduling}; "
            f"{'; '.join(groups)}")


def memory_of_gpu():
    """MiB of the GPU that are in use by all processes."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


def times(one, part, arguments):
    """Prints the times of a connector of vLLM's own, of Troupe, or of none."""
    import gpu

    options = {"model": write_large_model(one.directory / "windows-8b"), "load_format": "dummy",
               "max_model_len": max(arguments.lengths) + 4096, "max_num_seqs": 64, "max_num_batched_tokens": 8192,
               "gpu_memory_utilization": 0.5}
    connector, node = None, None
    if part in ("troupe", "raw"):
        node = one.node(part, memory=arguments.memory, disk="0 B", durability="none").start()
        connector = one.connector(node, encoding="raw" if part == "raw" else "auto")
    elif part in PEERS:
        connector = gpu.peer(part, arguments.memory)

    def work(e):
        rows = gpu.times_of(e, arguments.lengths, arguments.repeat, False)
        return rows, memory_of_gpu(), layout(e)

    rows, memory, said = one.start(work, connector, **options).result()
    gpu.print_times(part, rows, hit_bytes)
    print(f"  {memory} MiB of the GPU in use; {said}", flush=True)
    if node:
        print(f"  pages: { {each['name']: each['keys'] for each in node.namespaces()} }", flush=True)


def main():
    import gpu
    import gpu_kinds

    arguments = gpu.read_arguments(__doc__, PARTS, without_graphs="for CPUs")

    import engines

    engines.prepare(pathlib.Path(arguments.library).resolve())
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    # Kernels that are tuned anew in each process would round otherwise.
    os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
    import play
    import vllm
    import workplace
    from experiments import SEVERAL_GROUPS, lab

    if not play.played_with(vllm.__version__, SEVERAL_GROUPS, None):
        print(f"left out: Troupe has several KV cache groups from vLLM {SEVERAL_GROUPS} on", flush=True)
        return 0
    one = lab(str(pathlib.Path(arguments.troupe).resolve()), workplace.take(arguments.work))
    print(f"vLLM {vllm.__version__}; logs in {one.directory}/logs", flush=True)

    def play_part(part):
        if part in TIMES:
            return times(one, part, arguments)
        ending = next(each for each in reversed(ENDINGS) if part.endswith(each))
        test = tester(one, gpu_kinds.named()[part.removesuffix(ending)],
                      {} if arguments.without_graphs else WITH_GRAPHS, ENDINGS[ending])
        return getattr(test, ENDINGS[ending])()

    return gpu.play_parts(one, arguments.parts or PARTS, play_part)


if __name__ == "__main__":
    sys.exit(main())
