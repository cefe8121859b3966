"""Engines that differ in one part of what a page is shared pages: another block size, layout or dtype, other FP8
scales, another tenant, another adapter or draft model."""

from case import Case
from caches.cache import Identity
from verdicts import WRONG

PAGES = 8
# `layers`: twice as many layers of half as many heads, as pipeline stages instead of tensor parallelism have them.
OTHERS = {
    "model": {"model": "model-b"}, "revision": {"revision": "r2"}, "dtype": {"dtype": "float16"},
    "layout": {"layout": "HND"}, "hash_algorithm": {"hash_algorithm": "xxhash"}, "salt": {"salt": "tenant-b"},
    "block_tokens": {"block_tokens": 32}, "layers": {"layers": 4}, "world_size": {"world_size": 2},
    "fp8": {"dtype": "float8_e4m3", "page_bytes": 8192},
    "fp8 scales": {"dtype": "float8_e4m3", "layout": "NHD scales 2"},
    "adapter": {"salt": "lora-1"}, "draft model": {"model": "model-a draft", "layers": 1},
}
FIRSTS = {"fp8 scales": {"dtype": "float8_e4m3", "layout": "NHD scales 1"}}


def run(trial):
    # Room for a piece of memory in each namespace: a cache may take those of others for a new one, with their pages.
    cache = trial.cache(memory_pages=4096)
    engines, compared, left_out = [trial.client(cache, f"engine {number}") for number in (1, 2)], [], {}
    for part, changes in OTHERS.items():
        one, two = Identity(**FIRSTS.get(part, {})), Identity(**changes)
        unknown = [why for name, why in trial.kind.unknown_parts.items() if getattr(one, name) != getattr(two, name)]
        if unknown:
            left_out.setdefault(unknown[0], []).append(part)
            continue
        compared.append(part)
        apart(trial, cache, engines, part, (one, two))
    trial.remark(f"compared: {', '.join(compared)}")
    for why, parts in left_out.items():
        trial.remark(f"not run: {', '.join(parts)}: {why}")


def apart(trial, cache, engines, part, identities):
    """Both have the same keys and other pages."""
    for number, (engine, identity) in enumerate(zip(engines, identities), 1):
        trial.open(engine, cache, f"engine {number}", identity)
    first, second = engines
    prompt = f"prompt of {part}"
    trial.must_save(first, prompt, PAGES)
    trial.load(second, prompt, PAGES)
    trial.save(second, prompt, PAGES)
    trial.load(second, prompt, PAGES)
    trial.require_hits(trial.load(first, prompt, PAGES), PAGES, f"by the engine that saved them ({part})")


CASE = Case(5, "identity", "two engines on one cache that differ in one part of the identity",
            ("vllm#55904", "vllm#53495", "LMCache#4463", "LMCache#4247", "dynamo#14416", "sglang#37160"), run,
            defects={f"ignores {part}": WRONG
                     for part in ("model", "dtype", "layout", "salt", "block_tokens", "layers")})
