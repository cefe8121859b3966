"""Experiments with SGLang's own engine and HiCache on CPUs. Each compares tokens and logprobs with those of SGLang's
own cache of the same kind: computed without a prefix cache, from HiCache's host tier, and from its storage in files."""

import shutil
import time

import sglang_engines
from experiments import PROMPT, PROMPTS, collection, gaps, lab as any_lab, require, require_equal, usual  # noqa: F401
from experiments import wrong  # noqa: F401

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


def attachments(run):
    """How often an engine has attached a pool to its node, by its log."""
    return run.log.read_text(errors="replace").count("attached to")


def require_found(outputs, wanted, tier="storage"):
    """Requires as many tokens of each output from a tier of HiCache, and no other token from any tier."""
    found = [x["tiers"].get(tier, 0) for x in outputs]
    cached = [x["cached"] for x in outputs]
    require(found == [wanted] * len(outputs) and cached == found,
            f"tokens from HiCache's tier {tier!r}: {found}, from all tiers: {cached}, in the place of {wanted} each")


class lab(any_lab):
    def start(self, work, storage=None, model=None, environment=None, **options):
        self.runs += 1
        logs = self.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{self.runs:02}-{self.current}.log"
        return sglang_engines.run(work, log, model or self.model, options, storage, environment)

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


def stored_and_found(one, layout="page_first", attached=1, storage=None, **options):
    """An engine with an empty cache, and a new one that finds its pages."""
    made = one.node("restart").start()
    own, storage = one.own(layout, **options), storage or one.storage(made, layout)
    require_equal(own["computed"], one.baseline(usual(), **options))
    for first in ("computed", "storage"):
        outputs, run = one.play_rounds(usual(), storage, 2, lambda: pages_at(made), **options)
        require_equal(outputs[0], own[first])
        require_equal(outputs[1], own["host"])
        require_found(outputs[0], FOUND if first == "storage" else 0)
        require_found(outputs[1], FOUND, "host")
    return FULL, "0 when cold, and all of the second round from the host tier"


@experiment("an empty cache, a second round, and another engine, which finds all full pages; layout page_first")
def cold_and_restarted(one):
    return stored_and_found(one)
