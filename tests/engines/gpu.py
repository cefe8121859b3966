#!/usr/bin/env python3
"""vLLM with its KV cache on a GPU: whether output is that of a run without a connector, with CUDA graphs, and how
long the first token takes, computed, from vLLM's prefix cache, from Troupe's memory and disk, and from vLLM's own
connectors; and the generation rate of other requests meanwhile, and the time of a document beside them, with each.

gpu.py --troupe PROGRAM --library LIBTROUPE.SO --work DIRECTORY [--memory "40 GiB"] [--repeat 2]
       [--tokens 4096,16384,65536] [PART…]

Parts: equal, sync_damaged (the result of each of vLLM's model runners for a synchronous load with a damaged page, also
where Troupe refuses it), tensor_parallel (over two GPUs; skipped with one), lmcache (LMCache's own connector, for
which the node copies; skipped without LMCache), none, troupe, raw (Troupe without encoded pages), when_faster (Troupe,
which loads pages from disk only if that is faster than computing them), SimpleCPUOffloadConnector, OffloadingConnector,
peer and peer_clear (an engine at one node whose pages another node of the cluster has, over the loopback interface,
encrypted and in the clear), decode; all if none is named. It runs in an environment with vLLM for GPUs. Exits with 1 if
an output is wrong.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# vLLM's own connectors to memory of the host.
PEERS = ("SimpleCPUOffloadConnector", "OffloadingConnector")
PARTS = ("equal", "sync_damaged", "tensor_parallel", "lmcache", "none", "troupe", "raw", "when_faster", *PEERS,
         "peer", "peer_clear", "decode")
# The geometry of Llama-3-8B: 128 KiB of KV a token.
SHAPE = {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "head_size": 128}
TOKEN_BYTES = 2 * SHAPE["layers"] * SHAPE["kv_heads"] * SHAPE["head_size"] * 2


def write_large_model(directory):
    """Weights are drawn by vLLM: time does not depend on them."""
    import tiny_model

    config = tiny_model.llama(**SHAPE)
    config.update(intermediate_size=14336, max_position_embeddings=131072, rope_theta=500000.0)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


# Blocks of 16 tokens on GPUs. CUDA graphs of few sizes, which are captured quickly.
WITH_GRAPHS = {"enforce_eager": False, "gpu_memory_utilization": 0.2, "max_num_seqs": 1,
               "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8]}, "dtype": "bfloat16"}


def without_connector(one, prompts, options):
    """Outputs that are computed, and from vLLM's own prefix cache. With bfloat16 a prompt that is computed as a whole
    has other logprobs than its last tokens behind a cached prefix: so loaded pages are compared with vLLM's own prefix
    cache, one request at a time."""
    computed, cached = one.start(lambda e: (e.play(prompts), e.play(prompts)), **options).result()
    again = one.play(prompts, None, **options)[0]
    exact = [x["logprobs"] for x in again] == [x["logprobs"] for x in computed]
    same = [x["tokens"] for x in again] == [x["tokens"] for x in computed]
    print(f"  without a connector twice: tokens equal {same}, logprobs equal {exact}", flush=True)
    return computed, cached


def outputs_are_equal(one, **more):
    """What must hold on a GPU as on a CPU; the experiments on CPUs go further."""
    import engines
    from experiments import external, require, require_equal, wrong

    prompts, options = engines.random_prompts(11, 6, 1500), {**WITH_GRAPHS, **more}
    full = 6 * (1500 // 16 * 16)
    computed, cached = without_connector(one, prompts, options)
    node = one.node(one.current, memory="4 GiB").start()
    for name in ("cold", "engine restarted"):
        outputs, metrics = one.play(prompts, one.connector(node), **options)
        hits = external(metrics)
        require_equal(outputs, computed if name == "cold" else cached)
        require(hits == (0 if name == "cold" else full), f"{name}: {hits} tokens were hit")
        print(f"  {name}: {hits} tokens hit, tokens equal", flush=True)
    node.kill()
    node.start()
    outputs, metrics = one.play(prompts, one.connector(node), **options)
    hits = external(metrics)
    require_equal(outputs, cached)
    require(hits == full, f"node killed: {hits} tokens were hit")
    print(f"  node killed, engine restarted, from disk: {hits} tokens hit, tokens equal", flush=True)
    spoilt, metrics = one.play(prompts, one.connector(node, name="SpoilingConnector", module="spoiling"), **options)
    require(external(metrics) == full, f"spoilt: {external(metrics)} tokens were hit, so nothing was spoilt")
    try:
        require_equal(spoilt, cached)
    except wrong as difference:
        print(f"  blocks spoilt behind the checksum: {difference}", flush=True)
    else:
        raise wrong("spoilt blocks change nothing: this proves nothing")


def synchronous_loads_fail_well(one):
    """One damaged page under three prompts. The second runner is tried although Troupe refuses it: once it has the
    results of the first one, the refusal can be removed (`goes_back` in troupe/vllm.py).

    Requests without damage must have the tokens that vLLM's own prefix cache gives. The damaged one is computed again
    from its page on, and with bfloat16 that rounds otherwise than any other way to compute it: its first token is
    compared, whose logprob is near that of the whole prompt where KV and positions are right, and anywhere else where
    they are not."""
    import engines
    from experiments import external, require, require_equal, wrong

    prompts = engines.random_prompts(13, 3, 1500)
    full, options = 3 * (1500 // 16 * 16), {**WITH_GRAPHS, "async_scheduling": False}
    for number, runner in enumerate(("first", "second")):
        options["environment"] = {"VLLM_USE_V2_MODEL_RUNNER": str(number)}
        computed, cached = without_connector(one, prompts, options)
        node = one.node(f"{one.current}-{runner}", memory="4 GiB").start()
        require_equal(one.play(prompts, one.connector(node), **options)[0], computed)
        node.stop()
        damaged, pages = node.damage_pages(0.01, most=1)
        require(damaged == 1, f"{damaged} of {pages} pages are damaged")
        node.start()
        connector = one.connector(node, load="sync", name="UnrefusingConnector", module="spoiling")
        outputs, metrics = one.play(prompts, connector, **options)
        require(external(metrics) == full, f"{external(metrics)} tokens of {full} were hit")
        # From the log: vLLM 0.24 does not count the last steps of an engine.
        log = one.directory / "logs" / f"{one.runs:02}-{one.current}.log"
        require("Recovered from KV load failure" in log.read_text(), "no load has failed")
        different = [i for i, (x, y) in enumerate(zip(outputs, cached)) if x["tokens"] != y["tokens"]]
        away = [abs(outputs[i]["logprobs"][0] - computed[i]["logprobs"][0]) for i in range(len(prompts))]
        print(f"  {runner} model runner, one of {pages} pages damaged: requests {different} differ from the prefix "
              f"cache; logprobs of first tokens are off by {', '.join(f'{x:.3f}' for x in away)}", flush=True)
        if runner == "first" and len(different) > 1:
            raise wrong("requests differ that had no damage")


def outputs_with_lmcache_are_equal(one):
    """LMCache's connectors as they are, in the mode that GPUs have by default: the node copies blocks out of the
    engine's memory and into it. Prompts end so that their full chunks are those of vLLM's prefix cache."""
    try:
        import lmcache_experiments
        from lmcache.v1.multiprocess import custom_types  # noqa: F401
    except ImportError as missing:
        print(f"  left out: {missing}", flush=True)
        return
    import engines
    from experiments import require, require_equal

    chunks = 5
    prompts = engines.random_prompts(12, 6, chunks * lmcache_experiments.CHUNK + 10)
    full = len(prompts) * chunks * lmcache_experiments.CHUNK
    computed, cached = without_connector(one, prompts, WITH_GRAPHS)
    own = lmcache_experiments.lab(one.program, one.directory / "lmcache")
    own.current = one.current
    try:
        for module in (lmcache_experiments.BUILT_IN, lmcache_experiments.OWN):
            name = module or "built in"
            node = own.node(name.rpartition(".")[2].replace(" ", "-"), memory="4 GiB").start()
            for when, wanted, wanted_hits in (("cold", computed, 0), ("engine restarted", cached, full)):
                outputs, hits = own.played(node, module, prompts, lmcache_experiments.NODE_COPIES, **WITH_GRAPHS)
                require_equal(outputs, wanted)
                require(hits == wanted_hits, f"{name}, {when}: {hits} tokens were hit")
                print(f"  {name}, {when}: {hits} tokens hit, tokens equal", flush=True)
            node.stop()
    finally:
        own.end_nodes()


def outputs_of_two_gpus_are_equal(one):
    """Two workers in processes of their own, each with its half of the heads and a rank of the node. They are forked by
    an engine that has not touched a GPU yet, as vLLM does where it can."""
    import torch

    if torch.cuda.device_count() < 2:
        print("  left out: there are not two GPUs", flush=True)
        return
    # Whether one GPU can access the other's memory is another question, and not the same on each machine.
    outputs_are_equal(one, tensor_parallel_size=2, disable_custom_all_reduce=True)


class stopwatch:
    """Runs inside an engine's process."""

    def __init__(self, one, seed):
        from vllm import SamplingParams

        self.one, self.llm, self.dice = one, one.llm, random.Random(seed)
        self.sampling = SamplingParams(temperature=0, max_tokens=1, detokenize=False, ignore_eos=True)

    def prompt(self, tokens):
        return [self.dice.randrange(10, 31999) for _ in range(tokens)]

    def first_token(self, prompt):
        """The milliseconds, and the number of tokens that were not computed."""
        began = time.perf_counter()
        output = self.llm.generate([{"prompt_token_ids": prompt}], self.sampling, use_tqdm=False)
        return (time.perf_counter() - began) * 1e3, output[0].num_cached_tokens

    def settle(self):
        """Waits for saves, whose end workers report in the steps of other requests."""
        for _ in range(5):
            self.first_token(self.prompt(64))
            time.sleep(0.15)

    def forget(self):
        """The part that vLLM has in its own prefix cache."""
        for _ in range(40):
            # The saves of a step are named as sent in the next one, and until then keep their blocks.
            self.one.idle_steps(3)
            if self.llm.reset_prefix_cache():
                return
        raise RuntimeError("vLLM does not free its prefix cache: blocks are not freed")


def times_of(one, lengths, repeat, again):
    """Per length: computed, from the prefix cache, from the connector; and again after `again` was said and heard."""
    watch = stopwatch(one, 5)
    watch.first_token(watch.prompt(3000))
    watch.first_token(watch.prompt(3000))
    rows, prompts = {}, {}
    for tokens in lengths:
        columns = {"computed": [], "prefix": [], "connector": []}
        prompts[tokens] = [watch.prompt(tokens) for _ in range(repeat)]
        for prompt in prompts[tokens]:
            columns["computed"].append(watch.first_token(prompt))
            watch.settle()
            columns["prefix"].append(watch.first_token(prompt))
            watch.settle()
            watch.forget()
            columns["connector"].append(watch.first_token(prompt))
        rows[tokens] = columns
    if again:
        one.say("restart")
        one.wait()
        for tokens in lengths:
            rows[tokens]["disk"] = []
            for prompt in prompts[tokens]:
                watch.forget()
                rows[tokens]["disk"].append(watch.first_token(prompt))
    return rows


def nodes_of_a_cluster(one, memory, encrypt):
    """Two nodes with memory only, each on a host of its own as far as the other one knows."""
    made = [one.node(f"{one.current}-{which}", memory=memory, disk="0 B", durability="relaxed")
            for which in ("first", "second")]
    seeds = [{"host": "127.0.0.1", "port": each.port} for each in made]
    for each, which in zip(made, ("first", "second")):
        each.configure({"node_name": which, "remote.enabled": True, "remote.encrypt": encrypt,
                        "attach.always_remote": True, "cluster.name": "hosts", "cluster.seeds": seeds,
                        "cluster.hello_interval": "300 ms", "cluster.fetch_time": "30 s"})
        each.start()
    return made


def saved_at(one, lengths, repeat):
    """Computes prompts, which are saved."""
    watch = stopwatch(one, 5)
    for tokens in lengths:
        for _ in range(repeat):
            watch.first_token(watch.prompt(tokens))
    watch.settle()


def found_at(one, lengths, repeat):
    """Per length: the first token where another node has all pages, and where this one has them from then on."""
    watch = stopwatch(one, 5)
    prompts = {tokens: [watch.prompt(tokens) for _ in range(repeat)] for tokens in lengths}
    # The engine attaches, and its node finds the peer; neither belongs to a request.
    watch.first_token(watch.prompt(3000))
    watch.settle()
    one.say("ready")
    one.wait()
    rows = {}
    for tokens in lengths:
        rows[tokens] = {"peer": [], "own": []}
        for prompt in prompts[tokens]:
            for column in ("peer", "own"):
                watch.forget()
                rows[tokens][column].append(watch.first_token(prompt))
    return rows


def times_with_a_peer(one, lengths, repeat, memory, options, encrypt):
    from experiments import require
    from node import total

    first, second = nodes_of_a_cluster(one, memory, encrypt)
    one.start(lambda e: saved_at(e, lengths, repeat), one.connector(first), **options).result()
    run = one.start(lambda e: found_at(e, lengths, repeat), one.connector(second), **options)
    run.hear()
    time.sleep(3)  # several hellos, and an attachment
    run.say("go on")
    print_times("cluster, " + ("encrypted" if encrypt else "in the clear"), run.result())
    moved = total(second.samples(), "troupe_peer_pages_total")
    require(moved > 0, "no page came from the other node")
    print(f"  {moved:.0f} pages moved", flush=True)


def decode_rates(one, connector, options):
    """Room for all generating requests, and for three of sixteen documents. Saves and loads take place while other
    requests are generated; without a connector documents are computed twice."""
    import decode

    documents, document_tokens, requests = 16, 16384, 16
    blocks = (requests * 8192 + 3 * document_tokens) // 16
    work = lambda e: decode.rates(e, documents, document_tokens, requests=requests)  # noqa: E731
    return one.start(work, connector, **{**options, "num_gpu_blocks_override": blocks}).result()


def print_rates(name, phases):
    for phase, (rate, seconds, cached) in phases.items():
        beside = ""
        if seconds:
            beside = (f"; a document takes {statistics.median(seconds):.3f} s ({min(seconds):.3f} to "
                      f"{max(seconds):.3f}), {cached:.2f} of it not computed")
        print(f"  {name}, {phase}: {rate:.0f} tokens/s generated{beside}", flush=True)


def peer(name, memory):
    """A connector of vLLM's own, with as much memory as the node has."""
    return {"kv_connector": name, "kv_role": "kv_both",
            "kv_connector_extra_config": {"cpu_bytes_to_use": int(memory.split()[0]) << 30}}


def all_decode_rates(one, memory, options):
    """Measures each in an engine of its own, one after the other. One failure does not end the others."""
    from experiments import wrong

    failed = []
    for name in ("no connector", "Troupe, when_faster", "Troupe, always", "Troupe, raw", *PEERS):
        try:
            connector = None
            if name.startswith("Troupe"):
                rule = name.rpartition(" ")[2]
                node = one.node(f"decode-{rule}", memory=memory, disk=memory, durability="relaxed").start()
                connector = one.connector(node, disk_hits="when_faster" if rule == "raw" else rule,
                                          encoding="raw" if rule == "raw" else "auto")
            elif name in PEERS:
                connector = peer(name, memory)
            print_rates(name, decode_rates(one, connector, options))
        except (wrong, RuntimeError) as error:
            print(f"  {name}: FAILED: {error}", flush=True)
            failed.append(name)
        finally:
            one.end_nodes()
    if failed:
        raise wrong(f"not measured: {', '.join(failed)}")


def print_times(name, rows, hit_bytes=lambda tokens: tokens * TOKEN_BYTES):
    for tokens, columns in rows.items():
        bus = hit_bytes(tokens) / 55e9 * 1e3
        cells = [f"{column} {statistics.median(ms for ms, _ in values):.1f} ({'/'.join(str(n) for _, n in values)})"
                 for column, values in columns.items()]
        print(f"  {name}, {tokens} tokens, ms (tokens not computed): {', '.join(cells)}; bytes alone {bus:.0f}",
              flush=True)


def read_arguments(description, all_parts, **flags):
    """Of a program that plays parts on a GPU; `flags`: further ones, with what they do, or with a default number."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--memory", default="40 GiB", help="of the node, and of connectors with memory of their own")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--tokens", default="4096,16384,65536")
    for name, effect in flags.items():
        if isinstance(effect, int):
            parser.add_argument("--" + name.replace("_", "-"), type=int, default=effect)
        else:
            parser.add_argument("--" + name.replace("_", "-"), action="store_true", help=effect)
    parser.add_argument("parts", nargs="*", help="all, if none is named")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in all_parts:
            parser.error(f"there is no part {part}")
    arguments.lengths = [int(x) for x in arguments.tokens.split(",")]
    return arguments


def play_parts(one, parts, play):
    """Calls `play` with each part, also after one that failed; the exit code."""
    from experiments import wrong

    failed = []
    for part in parts:
        one.current, began = part, time.monotonic()
        print(f"{part}:", flush=True)
        try:
            play(part)
        except (wrong, RuntimeError) as error:
            print(f"  FAILED: {error}", flush=True)
            failed.append(part)
        finally:
            one.end_nodes()
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


def main():
    arguments = read_arguments(__doc__, PARTS)
    lengths = arguments.lengths

    import engines

    engines.prepare(pathlib.Path(arguments.library).resolve())
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    import vllm
    import workplace
    from experiments import lab

    one = lab(str(pathlib.Path(arguments.troupe).resolve()), workplace.take(arguments.work))
    print(f"vLLM {vllm.__version__}; logs in {one.directory}/logs", flush=True)
    large = write_large_model(one.directory / "large")
    options = {"model": large, "load_format": "dummy", "max_model_len": max(lengths) + 4096, "max_num_seqs": 64,
               "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.5}

    def play(part):
        if part == "equal":
            outputs_are_equal(one)
        elif part == "sync_damaged":
            synchronous_loads_fail_well(one)
        elif part == "tensor_parallel":
            outputs_of_two_gpus_are_equal(one)
        elif part == "lmcache":
            outputs_with_lmcache_are_equal(one)
        elif part in ("peer", "peer_clear"):
            times_with_a_peer(one, lengths, arguments.repeat, arguments.memory, options, part == "peer")
        elif part == "decode":
            all_decode_rates(one, arguments.memory, options)
        else:
            connector, node = None, None
            if part in ("troupe", "raw", "when_faster"):
                node = one.node(part, memory=arguments.memory, disk=arguments.memory, durability="relaxed").start()
                connector = one.connector(node, disk_hits=part if part == "when_faster" else "always",
                                          encoding="raw" if part == "raw" else "auto")
            elif part != "none":
                connector = peer(part, arguments.memory)
            run = one.start(lambda e, again=node is not None: times_of(e, lengths, arguments.repeat, again),
                            connector, **options)
            if node is not None:
                run.hear()
                node.stop()  # what is dirty is written
                node.start()
                time.sleep(3)
                run.say("go on")
            print_times(part, run.result())

    return play_parts(one, arguments.parts or PARTS, play)


if __name__ == "__main__":
    sys.exit(main())
