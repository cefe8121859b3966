#!/usr/bin/env python3
"""SGLang on a GPU: how long the first token takes, computed, from its device's cache, from HiCache's host tier, and
from Troupe by its linker, also while the node's memory is full.

gpu_sglang.py --troupe PROGRAM --library LIBTROUPE.SO --work DIRECTORY [--memory "40 GiB"] [--repeat 2]
              [--tokens 4096,16384,65536] [--page 64] [--layer-parts 8] [PART…]

Parts: own (computed, and from the device's cache), hicache (HiCache's host tier), linker (the first pass, which saves;
after flush_cache; and in another engine), full (prompts of 16,384 tokens, of which the node has room for some), timed
(what happens when in loads of up to 16,384 tokens); all if none is named. It runs in an environment with SGLang 0.5.23
for GPUs.
"""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import engines  # noqa: E402
from node import total  # noqa: E402

PARTS = ("own", "hicache", "linker", "full", "timed")
# Of the device's cache: more than the longest prompt, and less than all prompts together.
DEVICE_TOKENS = 98304
FULL_TOKENS, FULL_PROMPTS, FULL_MEMORY = 16384, 14, "12 GiB"


def prepare(library):
    """Before SGLang is imported, also by its processes."""
    models = pathlib.Path(importlib.util.find_spec("sglang").origin).parent / "srt" / "models"
    os.environ["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(
        path.stem for path in models.iterdir() if path.stem not in ("llama", "registry", "utils", "__init__"))
    paths = [str(HERE.parents[1] / "python"), str(HERE)]
    os.environ["PYTHONPATH"] = ":".join([*paths, os.environ.get("PYTHONPATH", "")])
    os.environ["TROUPE_LIBRARY"] = str(pathlib.Path(library).resolve())
    sys.path[:0] = paths


class engine:
    """SGLang's, inside a process of its own: it ends all processes that it finds below that, as a node would be."""

    def __init__(self, model, options, _, pipe):
        import sglang

        self.pipe, self.times = pipe, []
        self.llm = sglang.Engine(
            model_path=model, skip_tokenizer_init=True, attention_backend="triton", sampling_backend="pytorch",
            grammar_backend="none", disable_cuda_graph=True, dtype="bfloat16", random_seed=1, log_level="info",
            enable_cache_report=True, max_running_requests=4, chunked_prefill_size=8192, load_format="dummy",
            mem_fraction_static=0.6, max_total_tokens=DEVICE_TOKENS, **options)
        # The first use of kernels belongs to no request, with a found prefix or without.
        for tokens in (4096, 16384):
            for _ in range(2):
                self.first_token(prompts(tokens, 1, os.getpid())[0])

    def first_token(self, prompt):
        """The milliseconds, and the number of tokens that were not computed."""
        began, first, cached = time.perf_counter(), None, 0
        for output in self.llm.generate(input_ids=prompt, stream=True, sampling_params={
                "temperature": 0, "max_new_tokens": 4, "ignore_eos": True}):
            first = first or (time.perf_counter() - began) * 1e3
            cached = output["meta_info"]["cached_tokens"]
        return first, cached

    def note(self, what, tokens, times):
        self.times.append((what, tokens, times))

    def round(self, what, asked):
        for tokens, texts in asked.items():
            self.note(what, tokens, [self.first_token(text) for text in texts])

    def close(self):
        """The processes of an engine end with its own, which is about to."""


class run(engines.run):
    engine = engine


def print_times(what, tokens, times):
    print(f"  {what}, {tokens} tokens, ms: {statistics.median(ms for ms, _ in times):.1f}; "
          f"{', '.join(f'{ms:.1f}' for ms, _ in times)}; not computed: {'/'.join(str(n) for _, n in times)}",
          flush=True)


def prompts(tokens, count, seed):
    dice = random.Random(1000 * tokens + seed)
    return [[dice.randrange(10, 31999) for _ in range(tokens)] for _ in range(count)]


def settle(node):
    """Waits until no more pages come."""
    before, now = -1, 0
    while before != now:
        time.sleep(1)
        before, now = now, sum(each["keys"] for each in node.namespaces())
    return now


class tester:
    def __init__(self, one, arguments):
        import gpu

        self.one, self.page, self.layer_parts = one, arguments.page, arguments.layer_parts
        self.memory = arguments.memory
        self.model = gpu.write_large_model(one.directory / "large")
        self.asked = {tokens: prompts(tokens, arguments.repeat if tokens < 60000 else 2, 7)
                      for tokens in arguments.lengths}

    def play(self, work, environment=None, **options):
        def timed(this):
            work(this)
            return this.times

        for each in run(timed, self.one.next_log(), self.model, {"page_size": self.page, **options}, None,
                        environment).result():
            print_times(*each)

    def play_linked(self, work, node, module="troupe.sglang_linker", name="TroupeLinker", environment=None):
        self.play(work, environment, enable_unified_cache_external_linker=True,
                  unified_cache_external_linker_backend="dynamic", unified_cache_external_linker_config={
                      "linker": name, "linker_module_path": module, "linker_extra_config": {
                          "troupe.address": node.address, "troupe.layer_parts": self.layer_parts}})

    def node(self, memory):
        return self.one.node(self.one.current, memory=memory, disk="0 B", durability="none").start()

    def own(self):
        def work(this):
            for tokens, texts in self.asked.items():
                pairs = [(this.first_token(text), this.first_token(text)) for text in texts]
                for what, times in zip(("computed", "device's cache"), zip(*pairs)):
                    this.note(what, tokens, times)

        self.play(work)

    def hicache(self):
        def work(this):
            this.round("HiCache, first pass", self.asked)
            time.sleep(3)
            this.round("HiCache's host tier", self.asked)

        self.play(work, enable_hierarchical_cache=True, hicache_mem_layout="page_first", hicache_io_backend="kernel",
                  hicache_size=36)

    def linker(self):
        node, what = self.node(self.memory), f"linker, {self.layer_parts} parts"

        def save_and_find(this):
            this.round(f"{what}, first pass", self.asked)
            settle(node)
            find(this)

        def find(this):
            for turn in ("found", "found again"):
                this.llm.flush_cache()
                this.round(f"{what}, {turn}", self.asked)

        self.play_linked(save_and_find, node)
        print("  another engine:", flush=True)
        self.play_linked(find, node)

    def full(self):
        """Prompts for more memory than the node has. Then the last ones are found, also each behind another one that is
        new and still being saved, for which others leave."""
        node, asked = self.node(FULL_MEMORY), prompts(FULL_TOKENS, FULL_PROMPTS, 8)

        def work(this):
            this.note("first pass, memory fills up and stays full", FULL_TOKENS, [this.first_token(x) for x in asked])
            settle(node)
            for turn in ("found, the last ones first", "found again"):
                this.llm.flush_cache()
                this.note(turn, FULL_TOKENS, [this.first_token(x) for x in reversed(asked[-4:])])
            this.llm.flush_cache()
            times = []
            for new, old in zip(prompts(FULL_TOKENS, 4, 9), reversed(asked[-4:])):
                this.first_token(new)
                times.append(this.first_token(old))
            this.note("found while others are saved and evicted", FULL_TOKENS, times)

        self.play_linked(work, node)
        print(f"  {total(node.samples(), 'troupe_evicted_keys_total'):.0f} keys were evicted", flush=True)

    def timed(self):
        node, times = self.node(self.memory), self.one.directory / "times.json"
        asked = {tokens: prompts(tokens, 4, 10) for tokens in self.asked if tokens <= FULL_TOKENS}

        def work(this):
            this.round("timed, first pass", asked)
            settle(node)
            for turn in ("found", "found again"):
                times.unlink(missing_ok=True)
                this.llm.flush_cache()
                this.round(f"timed, {turn}", asked)

        self.play_linked(work, node, "sglang_timed_linker", "TimedLinker", {"LINKER_TIMES": str(times)})
        for line in times.read_text().splitlines():
            print("  " + "; ".join(f"{at} {what}" for at, what in json.loads(line)), flush=True)


def main():
    import gpu

    arguments = gpu.read_arguments(__doc__, PARTS, page=64, layer_parts=8)
    prepare(arguments.library)
    import workplace
    from experiments import lab

    one = lab(str(pathlib.Path(arguments.troupe).resolve()), workplace.take(arguments.work))
    # SGLang itself would take a GPU, of which forked processes can then not make use.
    print(f"SGLang {importlib.metadata.version('sglang')}, pages of {arguments.page} tokens", flush=True)
    test = tester(one, arguments)
    return gpu.play_parts(one, arguments.parts or PARTS, lambda part: getattr(test, part)())


if __name__ == "__main__":
    sys.exit(main())
