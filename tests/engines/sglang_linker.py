#!/usr/bin/env python3
"""Tests Troupe's linker with SGLang's own unified cache, its wrapper of linkers, its pools and allocators on CPU
tensors, and a real node: what its engine on CPUs does not do, which sglang_linker_experiments.py runs.

sglang_linker.py --troupe PROGRAM --library LIBTROUPE.SO --work DIRECTORY

Runs in the environment with SGLang that scripts/engines makes.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
PAGE, PAGES, LAYERS, HEADS, HEAD_SIZE = 16, 64, 5, 2, 8
MODULE = "troupe.sglang_linker"


class bench:
    """SGLang's classes, and how to make what a test needs of them."""

    def __init__(self, address):
        import torch
        from sglang.srt.mem_cache import hicache_storage, memory_pool, swa_memory_pool
        from sglang.srt.mem_cache.allocator import paged, swa
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker

        from sglang.srt.runtime_context import get_parallel

        self.alone = get_parallel().override(attn_dcp_size=1)
        self.alone.__enter__()
        self.torch, self.storage, self.memory, self.windows = torch, hicache_storage, memory_pool, swa_memory_pool
        self.paged, self.swa, self.params_class, self.kinds = paged, swa, CacheInitParams, ComponentType
        self.create, self.address, self.linkers = create_unified_cache_linker, address, []
        self.checked = self.asked = 0

    def check(self, holds, sentence):
        self.checked += 1
        if not holds:
            raise SystemExit(f"sglang linker: {sentence}")

    def fill(self, buffers, seed):
        dice = self.torch.Generator().manual_seed(seed)
        for buffer in buffers:
            raw = buffer.view(self.torch.uint8)
            raw.copy_(self.torch.randint(0, 256, raw.shape, generator=dice, dtype=self.torch.uint8))

    def equal(self, one, other):
        """By bytes: some of them are no number."""
        return self.torch.equal(one.view(self.torch.uint8), other.view(self.torch.uint8))

    def mha(self, seed):
        made = self.memory.MHATokenToKVPool(
            PAGE * PAGES, PAGE, self.torch.bfloat16, HEADS, HEAD_SIZE, LAYERS, "cpu", False, enable_alt_stream=False)
        self.fill([*made.k_buffer, *made.v_buffer], seed)
        return made

    def mla(self, seed):
        made = self.memory.MLATokenToKVPool(
            size=PAGE * PAGES, page_size=PAGE, dtype=self.torch.bfloat16, kv_lora_rank=24, qk_rope_head_dim=8,
            layer_num=LAYERS, device="cpu", enable_memory_saver=False)
        self.fill(made.kv_buffer, seed)
        return made

    def sliding(self, seed):
        made = self.windows.SWAKVPool(
            size=PAGE * PAGES, size_swa=PAGE * PAGES // 2, page_size=PAGE, dtype=self.torch.bfloat16, head_num=HEADS,
            head_dim=HEAD_SIZE, swa_attention_layer_ids=[0, 1, 3], full_attention_layer_ids=[2, 4], device="cpu",
            enable_alt_stream=False)
        for number, pool in enumerate((made.full_kv_pool, made.swa_kv_pool)):
            self.fill([*pool.k_buffer, *pool.v_buffer], seed + 1000 * number)
        return made

    def params(self, pool, **changes):
        kinds = (self.kinds.FULL,)
        if isinstance(pool, self.windows.SWAKVPool):
            kinds = (self.kinds.FULL, self.kinds.SWA)
            allocator = self.swa.SWATokenToKVPoolAllocator(PAGE * PAGES, PAGE * PAGES // 2, PAGE, pool.dtype, "cpu",
                                                           pool, False)
        else:
            allocator = self.paged.PagedTokenToKVPoolAllocator(PAGE * PAGES, PAGE, pool.dtype, "cpu", pool, False)
        table = self.memory.ReqToTokenPool(8, PAGE * PAGES, "cpu", False)
        return self.params_class(disable=False, req_to_token_pool=table, token_to_kv_pool_allocator=allocator,
                                 page_size=PAGE, tree_components=kinds, sliding_window_size=3 * PAGE, **changes)

    def linker(self, pool, parts=1, model="tiny", params=None, **extra):
        """By SGLang's own factory."""
        params = params or self.params(pool)
        extra = {"troupe.address": self.address, "troupe.layer_parts": parts, **extra}
        arguments = types.SimpleNamespace(served_model_name=model, model_path=model)
        config = {"linker": "TroupeLinker", "linker_module_path": MODULE, "linker_extra_config": extra}
        made = self.create(arguments, params, backend="dynamic", config=config, components=set(params.tree_components))
        self.linkers.append(made)
        return made

    def places(self, pages):
        return self.torch.cat([self.torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])

    def transfer(self, name, keys, pages=None, trailing=False):
        policy = self.storage.PoolHitPolicy
        return self.storage.PoolTransfer(name=name, keys=list(keys), hit_policy=policy.TRAILING_PAGES if trailing
                                         else policy.ALL_PAGES,
                                         device_indices=None if pages is None else self.places(pages))

    def found(self, linker, *transfers):
        """What it finds for another request each time."""
        self.asked += 1
        return linker.lookup(f"request-{self.asked}", list(transfers))

    def kv(self, keys, pages=None):
        return self.transfer(self.storage.PoolName.KV, keys, pages)

    def window(self, keys, pages=None):
        return self.transfer(self.storage.PoolName.SWA, keys, pages, trailing=True)

    def saved(self, linker, *transfers):
        """The result of saving them."""
        self.check(linker.offload(list(transfers)), "a save is refused")
        deadline = time.monotonic() + 60
        while linker.num_completed_offloads() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        return linker.pop_completed_offload()

    def loaded(self, linker, rid, *transfers):
        """Whether SGLang would compute with it, and None where it is a miss before that."""
        if not linker.load(rid, list(transfers)):
            return None
        index = linker.start_layer_wise_loading()
        if index >= 0:
            linker.layer_done_counter.set_consumer(index)
            for layer in range(linker.group.num_layers):
                linker.layer_done_counter.wait_until(layer)
        return linker.finish_layer_wise_loading(index)


def keys(name, count):
    return [f"{name}-{number}" for number in range(count)]


def buffers_of(pool):
    return [*pool.k_buffer, *pool.v_buffer] if hasattr(pool, "k_buffer") else [*pool.kv_buffer]


def same(b, one, page, other, place):
    return all(b.equal(x[page * PAGE:(page + 1) * PAGE], y[place * PAGE:(place + 1) * PAGE])
               for x, y in zip(buffers_of(one), buffers_of(other)))


def round_trip(b):
    for make, parts in ((b.mha, 1), (b.mha, 3), (b.mha, 5), (b.mla, 1), (b.mla, 2)):
        one, other, what = make(1), make(2), f"{make.__name__} in {parts} parts"
        first, second = b.linker(one, parts, what), b.linker(other, parts, what)
        names = keys("k", 12)
        b.check(b.found(first, b.kv(names)) == [], f"{what}: found what was never saved")
        b.check(b.saved(first, b.kv(names[:10], range(3, 13))), f"{what}: not saved")
        b.check(b.found(second, b.kv(names)) == list(range(1, 11)), f"{what}: not all lengths are found")
        b.check(b.found(second, b.kv(names[2:])) == list(range(1, 9)), f"{what}: the rest is not found")
        before = [x.clone() for x in buffers_of(other)]
        b.check(b.loaded(second, "r", b.kv(names[:10], range(40, 50))), f"{what}: not loaded")
        for number in range(10):
            b.check(same(b, one, 3 + number, other, 40 + number), f"{what}: page {number} has wrong bytes")
        b.check(all(b.equal(x[:40 * PAGE], y[:40 * PAGE]) and b.equal(x[50 * PAGE:], y[50 * PAGE:])
                    for x, y in zip(before, buffers_of(other))), f"{what}: other pages were written")
        b.check(b.loaded(second, "r", b.kv(names, range(20, 32))) is None, f"{what}: a page that is missing is no miss")
        b.check(b.saved(first, b.kv(names[:10], range(3, 13))), f"{what}: not saved twice")


def sliding_windows(b):
    one, other = b.sliding(3), b.sliding(4)
    first, second = b.linker(one, 2, "windows"), b.linker(other, 2, "windows")
    names = keys("w", 12)
    # SGLang saves the nodes of its tree, with windows as far as they are there.
    b.check(b.saved(first, b.kv(names[:6], range(1, 7)), b.window(names[3:6], range(1, 4))), "a node is not saved")
    b.check(b.saved(first, b.kv(names[6:10], range(7, 11)), b.window(names[8:10], range(4, 6))), "a node is not saved")
    asked = [b.kv(names), b.window(names[-3:])]
    b.check(b.found(first, *asked) == [6], f"windows of 3 pages: {b.found(first, *asked)}")
    asked = [b.kv(names), b.window(names[-2:])]
    b.check(b.found(second, *asked) == [5, 6, 10], f"windows of 2 pages: {b.found(second, *asked)}")
    b.check(b.loaded(second, "r", b.kv(names[:6], range(20, 26)), b.window(names[3:6], range(11, 14))), "not loaded")
    for number in range(6):
        b.check(same(b, one.full_kv_pool, 1 + number, other.full_kv_pool, 20 + number), "wrong bytes of full attention")
    for number in range(3):
        b.check(same(b, one.swa_kv_pool, 1 + number, other.swa_kv_pool, 11 + number), "wrong bytes of windows")
    # SGLang may load a window alone.
    b.check(b.loaded(second, "r", b.kv([]), b.window(names[8:10], range(14, 16))), "a window alone is not loaded")
    b.check(same(b, one.swa_kv_pool, 4, other.swa_kv_pool, 14), "wrong bytes of a window alone")


def cancelled(b):
    for parts in (1, 3):
        pool = b.mha(5)
        linker, names = b.linker(pool, parts, f"cancelled {parts}"), keys("c", 4)
        b.saved(linker, b.kv(names, range(1, 5)))
        for rid, pages in (("a", range(10, 14)), ("b", range(14, 18))):
            b.check(linker.load(rid, [b.kv(names, pages)]), "not queued")
        b.check(linker.cancel_queued_load("a"), "a queued load is not cancelled")
        b.check(not linker.cancel_queued_load("a"), "a load is cancelled twice")
        # Its pages are another request's.
        b.fill([buffer[10 * PAGE:14 * PAGE] for buffer in buffers_of(pool)], 6)
        wanted = [buffer[10 * PAGE:14 * PAGE].clone() for buffer in buffers_of(pool)]
        index = linker.start_layer_wise_loading()
        b.check((index >= 0) == (parts > 1), f"{parts} parts: index {index}")
        b.check(linker.finish_layer_wise_loading(index), "not loaded")
        b.check(not linker.cancel_queued_load("b"), "a load is cancelled that has started")
        b.check(all(b.equal(x, y[10 * PAGE:14 * PAGE]) for x, y in zip(wanted, buffers_of(pool))),
                "a cancelled load has written")
        b.check(all(same(b, pool, 1 + number, pool, 14 + number) for number in range(4)), "wrong bytes")
        b.check(linker.start_layer_wise_loading() == -1, "a batch without loads has an index")


def by_layer(b):
    """Layers are complete in order, and a page that is missing in a later part fails the batch, not the thread."""
    pool = b.mha(7)
    linker, names = b.linker(pool, 5, "layers"), keys("l", 6)
    b.saved(linker, b.kv(names, range(1, 7)))
    for attempt in range(2):
        b.check(linker.load("r", [b.kv(names, range(20, 26))]), "not queued")
        index = linker.start_layer_wise_loading()
        futures = linker.layer_done_counter.futures[index]
        b.check(futures[0].done(), "the first layers are not complete at once")
        b.check(linker.finish_layer_wise_loading(index), "not loaded")
        b.check(all(future.done() for future in futures), "a layer is not complete")
    broken = linker.pool_parts["kv"].parts[3][0]
    get, broken.get = broken.get, lambda keys, blocks, limit: [0, 3] + [0] * (len(blocks) - 2)
    b.check(b.loaded(linker, "r", b.kv(names, range(20, 26))) is False, "a failure of later layers is not told")
    broken.get = get
    b.check(b.loaded(linker, "r", b.kv(names, range(20, 26))) is True, "the next load does not work")
    first = linker.pool_parts["kv"].parts[0][0]
    get, first.get = first.get, lambda *_: 1 / 0
    b.check(b.loaded(linker, "r", b.kv(names, range(20, 26))) is None, "a failure of the first layers is no miss")
    first.get = get


def namespaces(b):
    names, pool = keys("n", 3), b.mha(8)
    one = b.linker(pool, 1, "one")
    b.saved(one, b.kv(names, range(1, 4)))
    for other in (b.linker(pool, 1, "two"), b.linker(pool, 2, "one"), b.linker(pool, 1, "one", **{"troupe.salt": "x"})):
        b.check(b.found(other, b.kv(names)) == [], "pages are shared that are not the same")
    least = b.linker(pool, 1, "one", **{"troupe.min_load_tokens": 2 * PAGE})
    b.check(b.found(least, b.kv(names)) == [2, 3], "shorter hits than the least are found")


def refusals(b):
    for changes, sentence in (({"pp_size": 2}, "pipeline stages"), ({"attn_cp_size": 2}, "context parallelism"),
                              ({"mtp_draft_device_pools": (1,)}, "draft")):
        pool = b.mha(9)
        try:
            b.linker(pool, params=b.params(pool, **changes))
        except ValueError as error:
            b.check(sentence in str(error), f"{changes}: {error}")
        else:
            b.check(False, f"{changes} is not refused")
    try:
        b.linker(b.mha(9), **{"troupe.load": "sync"})
    except ValueError as error:
        b.check("for vLLM alone" in str(error), str(error))
    else:
        b.check(False, "an option of vLLM is not refused")


def tree(b):
    """SGLang's tree and its wrapper: computed, saved, flushed, found, loaded, cancelled."""
    from array import array

    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache import unified_radix_cache
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    unified_radix_cache.get_disagg = lambda: types.SimpleNamespace(disaggregation_mode="null")
    for parts in (1, 3):
        pool = b.mha(10)
        params = b.params(pool)
        cache = UnifiedRadixCache(params)
        cache.init_cache_linker(b.linker(pool, parts, f"tree {parts}", params))
        allocator, tokens = params.token_to_kv_pool_allocator, array("q", range(100, 100 + 5 * PAGE))
        free = allocator.available_size()
        slots = allocator.alloc(5 * PAGE)
        wanted = [buffer[slots].clone() for buffer in buffers_of(pool)]
        cache.insert(InsertParams(key=RadixKey(tokens), value=slots))
        deadline = time.monotonic() + 60
        while cache.linker.pending_offloads and time.monotonic() < deadline:
            cache.check_hicache_events()
            time.sleep(0.01)
        b.check(not cache.linker.pending_offloads, "the tree's pages were not saved")
        cache.reset()
        allocator.clear()
        b.check(allocator.available_size() == free, "the pool is not empty")
        b.fill(buffers_of(pool), 11)
        for ending in ("loaded", "cancelled"):
            req = request(f"{ending} {parts}")
            found = cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens), req=req))
            b.check((found.device_prefix_len, found.host_hit_length) == (0, 5 * PAGE), f"found: {found}")
            req.last_node = found.last_device_node
            length, _ = cache.linker.load_back(req)
            b.check(length == 5 * PAGE, f"{length} tokens are loaded back")
            places = cache.linker.private_load_indices[req.rid]
            if ending == "cancelled":
                cache.linker.release_request(req.rid)
                b.check(not cache.linker.inflight_load_rids, "a cancelled load is still there")
            index = cache.linker.start_layer_wise_loading()
            if ending == "loaded":
                cache.linker.layer_done_counter.set_consumer(index)
                keys_of_last = pool.get_key_buffer(LAYERS - 1)
                b.check(cache.linker.finish_loads() == [], "not loaded")
                b.check(b.equal(keys_of_last[places], wanted[LAYERS - 1]), "wrong bytes in the last layer")
                b.check(all(b.equal(buffer[places], x) for buffer, x in zip(buffers_of(pool), wanted)),
                        "wrong bytes")
            allocator.free(places)
        b.check(allocator.available_size() == free, "slots were lost")
        pages = cache.linker.cache_linker.pool_parts["kv"].parts[0][0]
        pages.get = lambda keys, blocks, limit: [0] * (len(blocks) - 1) + [3]
        req = request("damaged")
        cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens), req=req))
        b.check(cache.linker.load_back(req)[0] == 0, "a damaged page is no miss")
        b.check(allocator.available_size() == free, "slots of a miss were lost")
        cache.linker.close()


def request(rid):
    return types.SimpleNamespace(rid=rid, last_node=None, kv=None, swa_branching_seqlen=None, session=None)


def node_lost(b, node):
    pool, names = b.mha(12), keys("lost", 3)
    linker = b.linker(pool, 2, "lost", **{"troupe.request_timeout_seconds": 1.0, "troupe.task_deadline_seconds": 2.0})
    b.check(b.saved(linker, b.kv(names, range(1, 4))), "not saved")
    node.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    b.check(b.found(linker, b.kv(names)) == [], "found at a node that hangs")
    b.check(b.found(linker, b.kv(names)) == [], "found at a node that hangs")
    b.check(b.loaded(linker, "r", b.kv(names, range(20, 23))) is None, "loaded from a node that hangs")
    b.check(not b.saved(linker, b.kv(keys("new", 3), range(1, 4))), "saved to a node that hangs")
    b.check(time.monotonic() - began < 8, f"SGLang waits {time.monotonic() - began:.1f} s for a node that hangs")
    node.process.send_signal(signal.SIGCONT)
    node.kill()
    b.check(b.found(linker, b.kv(names)) == [], "found without a node")
    b.check(not b.saved(linker, b.kv(names, range(1, 4))), "saved without a node")
    linker.reset()
    node.start()
    deadline = time.monotonic() + 60
    while b.found(linker, b.kv(names)) != [1, 2, 3] and time.monotonic() < deadline:
        time.sleep(0.2)
    b.check(b.loaded(linker, "r", b.kv(names, range(20, 23))), "not loaded when the node is back")
    b.check(all(same(b, pool, 1 + number, pool, 20 + number) for number in range(3)), "wrong bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("troupe", "library", "work"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import sglang_engines
    sglang_engines.prepare(pathlib.Path(arguments.library).resolve())
    import workplace
    from node import node

    place = workplace.take(arguments.work) / "nodes" / "sglang-linker"
    b = bench(str(place / "data"))
    for work in (round_trip, sliding_windows, cancelled, by_layer, namespaces, refusals, tree, node_lost):
        # Each with a node of its own: namespaces divide its disk.
        shutil.rmtree(place, ignore_errors=True)
        made, began, before = node(arguments.troupe, place).start(), time.monotonic(), b.checked
        try:
            work(b, made) if work is node_lost else work(b)
            for linker in b.linkers:
                linker.close()
            b.linkers.clear()
        finally:
            made.kill()
        print(f"{work.__name__:18} {b.checked - before:4} checks {time.monotonic() - began:6.1f} s", flush=True)
    shutil.rmtree(place / "data", ignore_errors=True)
    # SGLang has changed how processes end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
