"""Troupe as an external linker of SGLang's unified cache, for 0.5.23: pages move between its device's pools and a node,
without a tier in host memory.

    python -m sglang.launch_server --model MODEL --page-size 64 --enable-unified-cache-external-linker
        --unified-cache-external-linker-backend dynamic --unified-cache-external-linker-config '{
            "linker": "TroupeLinker", "linker_module_path": "troupe.sglang_linker",
            "linker_extra_config": {"troupe.address": "/var/lib/troupe"}}'

SGLang looks up the rest of a prompt, has it loaded into memory of the request, and has what it computed saved. A load
that fails before SGLang's forward pass is a miss, on all ranks. docs/sglang.md is the guide.
"""

import collections
import logging
import os
import queue
import threading
import time
from concurrent import futures

import torch
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler, linker_pool_assembler
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter, UnifiedCacheLinker
from sglang.srt.runtime_context import get_parallel

from troupe import _device_pools, _halves, _interface, _sglang_metrics
from troupe._device_pools import DoesNotFit
from troupe._library import load
from troupe._options import Options
from troupe.sglang import KEY_BYTES, digests, restorable

logger = logging.getLogger(__name__)

# SGLang's scheduler waits for lookups and loads, so they have shorter limits than in other plug-ins.
LOOKUP_SECONDS, LOAD_SECONDS, SAVE_SECONDS = 1.0, 5.0, 10.0

OF_OTHERS = {key: "vLLM" for key in ("load", "save", "keys", "disk_hits", "page_tokens", "node_events", "traces",
                                     "traces_ratio")}
WITHOUT = "start SGLang without the linker"

# What a request has loaded: (pool, keys, pages) of each pool, the tokens of its longest one, and when it began.
Load = collections.namedtuple("Load", "plan tokens clock")


class Place:
    """This process among those that hold the same tokens: `size` different pages of each key, and its rank."""

    def __init__(self, params, replicated):
        self.groups = []
        self.number, self.rank, self.size = 0, 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            group = params.attn_tp_cache_group or params.tp_cache_group
            self.rank, self.size = (torch.distributed.get_rank(group=group),
                                    torch.distributed.get_world_size(group=group))
            self.number = self.rank
            # Those with which SGLang agrees on what was found.
            self.groups = [each for each in (params.attn_tp_cache_group, params.tp_cache_group)
                           if each is not None and torch.distributed.get_world_size(group=each) > 1][:1]
        self.writes = not replicated or self.rank == 0
        if replicated:
            self.rank, self.size = 0, 1

    def agreed(self, well):
        """Whether it went well on all ranks. Each of them has to call this."""
        for group in self.groups:
            verdict = torch.tensor([int(well)], dtype=torch.int)
            torch.distributed.all_reduce(verdict, op=torch.distributed.ReduceOp.MIN, group=group)
            well = bool(verdict.item())
        return well


class Pool:
    """One of SGLang's pools. `parts`: for each part of the layers, its pages, by the size of their pieces."""

    def __init__(self, entry, ranges, make):
        self.entry = entry
        _device_pools.require_all_buffers(entry, ranges[-1].stop)
        self.parts = []
        for number, layers in enumerate(ranges):
            by_size = _device_pools.views_by_size(entry, layers)
            self.parts.append([make(entry, (number, len(ranges), piece, len(by_size)), size, views)
                               for piece, (size, views) in enumerate(by_size.items())])
        self.all = [pages for part in self.parts for pages in part]

    def leading(self, joined, count, left, each_of):
        """The number of leading keys that exist. `left`: function for the seconds that are left; `each_of`: `map`, or
        one that asks for all at once."""
        return min(each_of(lambda pages: pages.exist(joined[:count * KEY_BYTES], count, left()), self.all))

    def present(self, joined, count, left, each_of):
        """For each key whether it exists."""
        there = each_of(lambda pages: pages.exist_each(joined, count, left()), self.all)
        return [all(parts) for parts in zip(*there)]


class Clock:
    """The seconds that are left of a limit."""

    def __init__(self, limit):
        self.limit, self.began = limit, time.monotonic()

    def took(self):
        return time.monotonic() - self.began

    def left(self):
        return max(0.0, self.limit - self.took())


class TroupeLinker(UnifiedCacheLinker):
    def __init__(self, server_args, params, *, components, extra_config=None, forward_stream=None):
        self.forward_stream, self.options = forward_stream, Options(extra_config, "linker_extra_config", OF_OTHERS)
        self.page_size = params.page_size
        refuse_what_does_not_work(params)
        self.group = device_pools(params, components)
        self.place = Place(params, self.group.rank_replicated)
        self.ranges = _device_pools.ranges(self.group.num_layers, self.options.layer_parts)
        self.limits = (self.options.lookup_patience_seconds or LOOKUP_SECONDS,
                       self.options.synchronous_load_seconds or LOAD_SECONDS,
                       self.options.task_deadline_seconds or SAVE_SECONDS)
        self.patience, self.answers = _device_pools.Patience(time.monotonic), _device_pools.Answers(time.monotonic)
        self.unmoved = {direction: _device_pools.Seldom(time.monotonic) for direction in ("get", "put")}
        self.layer_done_counter = LayerWiseLoadCounter(self.group.num_layers)
        self.metrics = _sglang_metrics.Metrics(
            getattr(server_args, "enable_metrics", False),
            {"model_name": server_args.served_model_name or server_args.model_path, "tp_rank": self.place.number})
        self._attach(server_args)
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self.pending, self.results, self.closed = {}, queue.Queue(), False
        self.loads, self.saves = Turns("troupe-load", self._load_rest), Turns("troupe-save", self._save)
        # Parts of one lookup, and of a load: the second one is prepared while the first one is copied.
        self.asking, self.loading = (futures.ThreadPoolExecutor(most, "troupe-parts") for most in (len(self.ranges), 2))
        self._map = self.asking.map if len(self.ranges) > 1 else map

    def _attach(self, server_args):
        options = self.options.connection(f"sglang-linker-{os.getpid()}")
        self.connection, absence = _halves.connection(options), None

        def make(entry, place, size, views):
            nonlocal absence
            buffer, name = entry.components[0][0], self.options.namespace
            ns = _halves.Namespace(
                {"layers": len(views), "opaque_block_bytes": size}, world_size=self.place.size,
                name=f"{name}.{entry.name}.{'-'.join(map(str, place))}" if name else "",
                model=server_args.served_model_name or server_args.model_path,
                dtype=str(buffer.dtype).removeprefix("torch."), hash_algorithm="sglang", salt=self.options.salt,
                layout=f"sglang device {entry.name} part {place[0]} of {place[1]} piece {place[2]} of {place[3]} page "
                       f"{entry.page_size} of {self.page_size}")
            # A namespace is cleared and removed by its name.
            logger.info("Troupe: pool %s, part %d of %d, piece %d of %d: namespace %s", entry.name, *place,
                        ns.identity()[1])
            made = {"rank": self.place.rank, "key_bytes": KEY_BYTES, "lease_seconds": self.options.lease_seconds,
                    "copy_threads": self.options.copy_threads, "device": device_number(buffer.device)}
            pages = _halves.Pages(self.connection, ns, made, views, _device_pools.pages_of(entry))
            if absence is None:
                absence = pages.absence()
                if absence is not None:
                    # It was waited for, once.
                    self.connection = _halves.connection({**options, "wait_for_node_seconds": -1.0})
            return pages

        self.pool_parts = {entry.name: Pool(entry, self.ranges, make) for entry in self.group.entries}
        self.pools = self.group.entry_map
        what = f"{', '.join(str(name) for name in self.pools)}; parts of layers: {len(self.ranges)}"
        if absence is None:
            logger.info("Troupe: linker attached to %s, pools %s", self.options.address, what)
        else:
            logger.warning("Troupe: no node at %s yet (%s); SGLang computes, and the linker attaches when one is "
                           "available. Pools: %s", self.options.address, absence, what)

    # ------------------------------------------------------------------------------------------------------- lookups

    def lookup(self, rid, transfers):
        expanded = self.group.resolve_transfers(transfers)
        keys = next((list(each.keys or ()) for each in transfers if each.name == PoolName.KV), [])
        if not expanded or not keys:
            return []
        found = self.answers.get(rid, keys)
        if found is None and self.patience.asks():
            clock = Clock(self.limits[0])
            found = guarded(lambda: self._restorable(digests(keys), len(keys), expanded, clock.left), [])
            self.patience.took(clock.took(), clock.limit)
            self.answers.put(rid, keys, found)
            self.metrics.looked_up(len(keys) * self.page_size, max(found, default=0) * self.page_size)
        return [pages for pages in found or () if pages * self.page_size >= self.options.min_load_tokens]

    def _restorable(self, joined, count, expanded, left):
        for each in expanded:
            if each.hit_policy != PoolHitPolicy.TRAILING_PAGES:
                count = self.pool_parts[each.name].leading(joined, count, left, self._map)
        usable = list(range(1, count + 1))
        for each in expanded:
            if each.hit_policy == PoolHitPolicy.TRAILING_PAGES and usable:
                there = self.pool_parts[each.name].present(joined[:count * KEY_BYTES], count, left, self._map)
                ends = set(restorable(there, each))
                usable = [end for end in usable if end in ends]
        return usable

    # --------------------------------------------------------------------------------------------------------- loads

    def load(self, rid, transfers):
        """The first part of the layers, for which this waits; the others with `start_layer_wise_loading`."""
        expanded = self.group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        if not expanded:
            return False
        self.answers.forget(rid)
        clock, plan, tokens = Clock(self.limits[1]), [], self._tokens_of(transfers)

        def work():
            # The pages may have been another request's, of which a forward pass in progress knows.
            wait_for(self.record_offload_ready())
            plan.extend(self._plan(expanded))
            return self._move("get", plan, 0, clock)

        well = guarded(work, False) if self.patience.asks() else False
        well = self.place.agreed(well)
        if not well or len(self.ranges) == 1:
            self.metrics.moved("get", well, tokens, clock.took())
        if well:
            self.pending[rid] = Load(plan, tokens, clock)
        return well

    def _tokens_of(self, transfers):
        return max(len(each.keys or ()) for each in transfers) * self.page_size

    def start_layer_wise_loading(self):
        pending, self.pending = self.pending, {}
        if not pending or len(self.ranges) == 1:
            return -1
        index = self.layer_done_counter.update_producer()
        for layer in self.ranges[0]:
            self.layer_done_counter.complete(index, layer)
        self.loads.put((index, list(pending.values())))
        return index

    def _load_rest(self, index, loads):
        clock = Clock(self.limits[1])

        def work(number):
            return all(guarded(lambda plan=each.plan: self._move("get", plan, number, clock), False) for each in loads)

        turns = [self.loading.submit(work, number) for number in range(1, len(self.ranges))]
        for turn, layers in zip(turns, self.ranges[1:]):
            if not turn.result():
                # The memory is another request's as soon as this is known.
                for each in turns:
                    each.cancel()
                futures.wait(turns)
                logger.error("Troupe: pages of layers from %d on could not be read under a forward pass", layers.start)
                self.layer_done_counter.fail(index, RuntimeError("a page could not be read"))
                break
            for layer in layers:
                self.layer_done_counter.complete(index, layer)
        for each in loads:
            self.metrics.moved("get", turn.result(), each.tokens, each.clock.took())

    def finish_layer_wise_loading(self, counter_index):
        return self.layer_done_counter.finish(counter_index)

    def cancel_queued_load(self, rid):
        return self.pending.pop(rid, None) is not None

    def _plan(self, expanded):
        """(pool, keys, pages) of each pool."""
        out = []
        for each in expanded:
            pool = self.pool_parts[each.name]
            pages = _device_pools.page_numbers(pool.entry, each.host_indices)
            if len(pages) != len(each.keys):
                raise ValueError(f"{len(each.keys)} keys, but places for {len(pages)} pages of pool {each.name}")
            out.append((pool, digests(each.keys), pages))
        return out

    def _move(self, direction, plan, part, clock):
        """Whether all pages of one part of the layers were moved, or another engine saves them now."""
        done = {0, _interface.BUSY} if direction == "put" else {0}
        for pool, joined, numbers in plan:
            for pages in pool.parts[part]:
                codes = set(getattr(pages, direction)(joined, numbers, clock.left())) - done
                if codes:
                    self._note(direction, codes, clock)
                    return False
        return True

    def _note(self, direction, codes, clock):
        if _interface.TIMEOUT in codes:
            self.patience.took(clock.limit, clock.limit)
        number = self.unmoved[direction].count(1)
        if number is not None:
            logger.warning("Troupe: %s with pages that were not moved: %d since the last such line (%s)",
                           "loads" if direction == "get" else "saves", number,
                           ", ".join(load().troupe_code_name(code).decode() for code in sorted(codes)))

    # --------------------------------------------------------------------------------------------------------- saves

    def offload(self, transfers, session_id=None):
        expanded = self.group.resolve_transfers(transfers, allow_partial=True)
        if not expanded:
            return False
        if self.place.writes:
            self.saves.put((expanded, self._tokens_of(transfers), self.record_offload_ready()))
        else:
            self.results.put(True)
        return True

    def _save(self, expanded, tokens, ready):
        clock = Clock(self.limits[2])

        def work():
            wait_for(ready)
            plan = self._plan(expanded)
            return all(self._move("put", plan, part, clock) for part in range(len(self.ranges)))

        well = guarded(work, False) if self.patience.asks() else False
        self.metrics.moved("put", well, tokens, clock.took())
        self.results.put(well)

    def num_completed_offloads(self):
        return self.results.qsize()

    def pop_completed_offload(self):
        return self.results.get_nowait()

    # ----------------------------------------------------------------------------------------------------------- end

    def reset(self):
        self.pending.clear()
        self.answers.clear()
        self.loads.join()
        self.saves.join()
        self.results = queue.Queue()
        self.layer_done_counter.reset()

    def close(self):
        if self.closed:
            return
        self.closed = True
        self.reset()
        for each in (self.loads, self.saves):
            each.end()
        for each in (self.asking, self.loading):
            each.shutdown()
        for pool in self.pool_parts.values():
            for pages in pool.all:
                guarded(pages.shutdown, None)


class Turns:
    """A thread that does one task after the other."""

    def __init__(self, name, work):
        self._tasks, self._work = queue.Queue(), work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, task):
        self._tasks.put(task)

    def join(self):
        self._tasks.join()

    def end(self):
        self._tasks.put(None)
        self._thread.join()

    def _run(self):
        while (task := self._tasks.get()) is not None:
            try:
                self._work(*task)
            finally:
                self._tasks.task_done()
        self._tasks.task_done()


def guarded(work, otherwise):
    """What fails is a miss for SGLang, and an error in the log."""
    try:
        return work()
    except Exception:
        logger.exception("Troupe: the linker continues without it")
        return otherwise


def wait_for(events):
    for event in events:
        event.synchronize()


def device_number(device):
    """For `troupe_pages_options.device`."""
    if device.type == "cpu":
        return 0
    if device.type != "cuda":
        raise DoesNotFit("Troupe supports KV caches of NVIDIA GPUs and of CPUs, but this one is on "
                         f"{device}: {WITHOUT}")
    return (device.index or 0) + 1


def refuse_what_does_not_work(params):
    for name, size in (("pipeline stages", params.pp_size), ("context parallelism of attention", params.attn_cp_size),
                       ("decode context parallelism", getattr(get_parallel(), "attn_dcp_size", 1))):
        if size > 1:
            raise DoesNotFit(f"Troupe's linker does not support {name}: start SGLang without it, or without the linker")


def device_pools(params, components):
    """SGLang's pools as its linkers see them. SGLang 0.5.23 describes those of several hybrid models; plain ones, and
    those with sliding windows, are described here in its own terms."""
    kvcache, page = params.token_to_kv_pool_allocator.get_kvcache(), params.page_size
    entries = []
    if components == {ComponentType.FULL} and type(kvcache) in (MHATokenToKVPool, MLATokenToKVPool):
        entries = [entry_of(PoolName.KV, kvcache, {layer: layer for layer in range(kvcache.layer_num)}, page)]
        replicated = type(kvcache) is MLATokenToKVPool
    elif (components == {ComponentType.FULL, ComponentType.SWA} and type(kvcache) is SWAKVPool
          and {type(kvcache.full_kv_pool), type(kvcache.swa_kv_pool)} == {MHATokenToKVPool}):
        full, window = hybrid_pool_assembler._swa_layer_mappings(kvcache)
        entries = [entry_of(PoolName.KV, kvcache.full_kv_pool, full, page),
                   entry_of(PoolName.SWA, kvcache.swa_kv_pool, window, page)]
        replicated = False
    if not entries:
        return linker_pool_assembler.resolve_hybrid_device_pool_group(kvcache=kvcache, page_size=page, params=params,
                                                                      components=components)
    if params.mtp_draft_device_pools or params.sidecar_draft_device_pools:
        raise DoesNotFit(f"Troupe's linker does not support the KV cache of this draft model: {WITHOUT}")
    layers = 1 + max(layer for entry in entries for layer in entry.layer_mapping)
    return linker_pool_assembler.DevicePoolGroup(entries, layers, page, rank_replicated=replicated)


def entry_of(name, pool, layer_mapping, page):
    if type(pool) is MLATokenToKVPool:
        components, mapping = [[*pool.kv_buffer]], dict(layer_mapping)
    else:
        if pool.is_quantized_kv_cache or pool.kv_cache_layout != "nhd":
            raise DoesNotFit("Troupe's linker does not support KV caches with scales, nor layouts of them but the "
                             f"usual one: {WITHOUT}")
        components = [[*pool.k_buffer, *pool.v_buffer]]
        mapping = {layer: (number, len(pool.k_buffer) + number) for layer, number in layer_mapping.items()}
    return linker_pool_assembler.DevicePoolEntry(name=name, indices_from_pool=name, device_pool=pool,
                                                 components=components, layer_mapping=mapping, page_size=page,
                                                 rows_are_pages=False)
