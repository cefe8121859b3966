"""Troupe as a storage backend of SGLang's HiCache, behind its pool in host memory.

    python -m sglang.launch_server --model MODEL --enable-hierarchical-cache --hicache-mem-layout page_first
        --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
            "backend_name": "troupe", "module_path": "troupe.sglang", "class_name": "TroupeStorage", "interface_v1": 1,
            "troupe.address": "/var/lib/troupe"}'

Pages are copied once, between SGLang's pool and memory of the node. docs/sglang.md lists tested setups.
"""

import hashlib
import logging
import os
import threading
import time

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

from troupe import _halves, _http
from troupe._library import TroupeError
from troupe._options import Options

logger = logging.getLogger(__name__)

KEY_BYTES = 32
DEFAULT_LIMIT_SECONDS = 10.0


class DoesNotFit(ValueError):
    """A setup that Troupe does not support, with the way out."""


def components(pool):
    """The layout of pages: (address in the first page, bytes from page to page, bytes) of each piece of a page."""
    if pool.page_num < 2:
        raise DoesNotFit("SGLang's pool in host memory has only one page: raise --hicache-ratio or --hicache-size")
    first, sizes = pieces_of(pool, 0)
    second, _ = pieces_of(pool, 1)
    last, _ = pieces_of(pool, pool.page_num - 1)
    steps = [b - a for a, b in zip(first, second)]
    if [a + (pool.page_num - 1) * step for a, step in zip(first, steps)] != last or min(steps) <= 0:
        raise DoesNotFit(f"pages of SGLang's pool are not at equal distances (layout {pool.layout}): start it with "
                         "--hicache-mem-layout page_first")
    return list(zip(first, steps, sizes))


def pieces_of(pool, page):
    if pool.layout == "page_unified":
        # Keys and values of a page are one block, which SGLang's own function does not describe.
        size = pool.page_unified_layout.bytes_per_page
        return [pool.kv_buffer.data_ptr() + page * size], [size]
    tokens = torch.arange(page * pool.page_size, (page + 1) * pool.page_size, dtype=torch.int64)
    addresses, sizes = pool.get_page_buffer_meta(tokens)
    return [int(each) for each in addresses], [int(each) for each in sizes]


class Pool:
    """One of SGLang's pools. If pieces of a page have several sizes, those of each size are a namespace."""

    def __init__(self, connection, pool, name, config, options):
        self.page_size = pool.page_size or 1
        self.limit = options.request_timeout_seconds or DEFAULT_LIMIT_SECONDS
        by_size, blocks, self.memory = {}, pool.page_num, memory_of(pool)
        for base, step, size in self.memory[0]:
            by_size.setdefault(size, []).append(
                {"base": base, "bytes": (blocks - 1) * step + size, "block_stride": step})
        self.page_bytes = sum(size for _, _, size in self.memory[0])
        self.parts, self.namespaces = [], []
        world_size, rank = place(config)
        for number, (size, views) in enumerate(sorted(by_size.items())):
            ns = _halves.Namespace(
                {"layers": len(views), "opaque_block_bytes": size}, world_size=world_size, name=options.namespace,
                model=config.model_name or "", dtype=str(getattr(pool, "dtype", "")).removeprefix("torch."),
                layout=f"sglang {pool.layout} {name} {number} of {len(by_size)} page {self.page_size}{spread(config)}",
                hash_algorithm="sglang", salt=options.salt)
            self.namespaces.append(ns)
            made = {"rank": rank, "key_bytes": KEY_BYTES, "lease_seconds": options.lease_seconds,
                    "copy_threads": options.copy_threads}
            self.parts.append(_halves.Pages(connection, ns, made, views, blocks))

    def leading(self, keys):
        """The number of leading keys that exist."""
        count, joined = len(keys), digests(keys)
        for part in self.parts:
            if count:
                count = part.exist(joined[:count * KEY_BYTES], count, self.limit)
        return count

    def present(self, keys):
        """For each key whether it exists."""
        out, first = [], 0
        while first < len(keys):
            count = self.leading(keys[first:])
            out += [True] * count
            first += count
            if first < len(keys):
                out.append(False)
                first += 1
        return out

    def get(self, keys, host_indices):
        return self._moved("get", keys, host_indices)

    def put(self, keys, host_indices):
        return self._moved("put", keys, host_indices)

    def _moved(self, direction, keys, host_indices):
        """For each key whether all of its page was moved."""
        blocks = [index // self.page_size for index in host_indices[::self.page_size].tolist()]
        if len(blocks) != len(keys):
            raise ValueError(f"{len(keys)} keys, but places for {len(blocks)} pages of {self.page_size} tokens")
        out, joined = [True] * len(keys), digests(keys)
        for part in self.parts:
            codes = getattr(part, direction)(joined, blocks, self.limit)
            out = [well and code == 0 for well, code in zip(out, codes)]
        return out

    def shutdown(self):
        for part in self.parts:
            part.shutdown()


def memory_of(pool):
    """Equal for two objects with the same pages at the same places."""
    return components(pool), pool.page_num, pool.page_size, str(pool.layout)


def digests(keys):
    """SGLang's keys are texts, of hashes and of marks for pools and requests."""
    return b"".join(hashlib.sha256(key.encode(errors="surrogatepass")).digest() for key in keys)


def context_ranks(config):
    """Size and rank of decode context parallelism. SGLang before 0.5.23 does not name them."""
    return getattr(config, "dcp_size", 1), getattr(config, "dcp_rank", 0)


def place(config):
    """The number of different pages of a key, and the rank of this process among them."""
    if config.is_mla_model:
        # All tensor-parallel workers hold the same, except for their share of tokens with context parallelism.
        size, rank = context_ranks(config)
        return config.pp_size * size, config.pp_rank * size + rank
    return config.pp_size * config.tp_size, config.pp_rank * config.tp_size + config.tp_rank


def spread(config):
    """What ranks hold, as far as their number does not determine it: for example half of the layers of all heads, or
    all layers of half of the heads, which have the same size."""
    out = f" stages {config.pp_size}" if config.pp_size > 1 else ""
    size, _ = context_ranks(config)
    return out + (f" cp {size}" if size > 1 else "")


def writes(config):
    """Whether this rank saves pages. Those of MLA are the same on all tensor-parallel workers."""
    return getattr(config, "is_storage_writer", not config.is_mla_model or config.tp_rank == 0)


def require_keys_of_requests(config):
    """Refuses adapters where keys do not contain them: SGLang before 0.5.20 hashes the tokens alone."""
    from sglang.srt.mem_cache import utils

    # The latter since 0.5.22, so that a function that is moved changes nothing.
    if hasattr(utils, "storage_namespace_seed") or hasattr(config, "dp_rank"):
        return
    from sglang.srt.server_args import get_global_server_args

    if getattr(get_global_server_args(), "enable_lora", None):
        raise DoesNotFit("the storage keys of this version of SGLang do not contain the LoRA adapter: use SGLang "
                         "0.5.20 or newer, or start it without --hicache-storage-backend")
    logger.warning("Troupe: the storage keys of this version of SGLang are hashes of tokens alone: cache_salt and "
                   "extra_key of requests separate nothing there. SGLang 0.5.20 and newer have them in the keys")


class Moved:
    """Pages and bandwidths of each call since they were taken, for SGLang's metrics. Only the newest if nothing takes
    them."""

    MOST = 4096

    def __init__(self):
        self._lock, self._calls = threading.Lock(), {"get": [], "put": []}

    def note(self, direction, pages, page_bytes, seconds):
        if pages:
            with self._lock:
                calls = self._calls[direction]
                calls.append((pages, pages * page_bytes / max(seconds, 1e-9) / 1e9))
                del calls[:-self.MOST]

    def taken(self):
        """(pages, GB/s) of each call, by direction."""
        with self._lock:
            taken, self._calls = self._calls, {"get": [], "put": []}
        return taken


class TroupeStorage(HiCacheStorage):
    """Interface v1, and v2 with pools beside the KV cache. Used by SGLang's storage threads; any number of them."""

    def __init__(self, storage_config, kwargs=None):
        self.config, self.pools, self.moved = storage_config, {}, Moved()
        self.options = Options(storage_config.extra_config, "--hicache-storage-backend-extra-config",
                               of_others={"node_events": "vLLM", "traces": "vLLM", "traces_ratio": "vLLM",
                                          "layer_parts": "SGLang's linker"})
        if storage_config.attn_cp_size > 1 or storage_config.should_split_heads:
            raise DoesNotFit("Troupe supports neither context parallelism of attention nor heads that are split anew: "
                             "start SGLang without them, or without --hicache-storage-backend")
        require_keys_of_requests(storage_config)
        self.writes = writes(storage_config)
        self.connection = _halves.connection(self.options.connection(f"sglang-{os.getpid()}"))

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        # A model may have a token pool without a KV cache, whose pages are in other pools.
        if getattr(mem_pool_host, "kv_buffer", None) is not None:
            self._take(mem_pool_host, PoolName.KV)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._take(host_pool, host_pool_name)

    def on_host_pools_registered(self):
        """SGLang 0.5.23 calls this when it has registered all pools that a model starts with."""
        if not self.pools:
            raise DoesNotFit("SGLang has registered no pool with a KV cache: Troupe has nothing to store for this "
                             "model; start SGLang without --hicache-storage-backend")
        logger.info("Troupe: pages of %s go to %s", ", ".join(sorted(self.pools)), self.options.address)

    def _take(self, host_pool, name):
        """SGLang may register a pool by both interfaces, which is one attachment."""
        before = self.pools.get(str(name))
        if before is not None:
            if before.memory == memory_of(host_pool):
                return
            del self.pools[str(name)]
            before.shutdown()
        made = self.pools[str(name)] = Pool(self.connection, host_pool, str(name), self.config, self.options)
        absence = made.parts[0].absence()
        if absence is None:
            logger.info("Troupe: pool %s attached to %s", name, self.options.address)
        else:
            logger.warning("Troupe: no node at %s yet (%s); SGLang works without one, and pool %s attaches when it is "
                           "available", self.options.address, absence, name)

    # ----------------------------------------------------------------------------------------------- interface v1

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys, extra_info=None):
        kv = self.pools.get("kv")
        return self._guarded(lambda: kv.leading(keys), 0) if kv is not None else len(keys)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._move("get", self.pools["kv"], keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        if not self.writes:
            return [True] * len(keys)
        return self._move("put", self.pools["kv"], keys, host_indices)

    # ----------------------------------------------------------------------------------------------- interface v2

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        pages = self.batch_exists(keys)
        hits, usable = {PoolName.KV: pages} if pages else {}, list(range(1, pages + 1))
        for transfer in pool_transfers or ():
            if not usable:
                break
            if transfer.hit_policy == getattr(PoolHitPolicy, "BLOCK_GROUPS", None):
                continue  # it does not affect the others, and has no hits
            pool = self.pools.get(str(transfer.name))
            there = self._guarded(lambda: pool.present(keys[:pages]), []) if pool is not None else []
            ends = restorable(there, transfer)
            if ends:
                hits[transfer.name] = ends[-1]
            usable = [end for end in usable if end in set(ends)]
        return result(usable[-1] if usable else 0, hits, usable)

    def batch_get_v2(self, transfers, extra_info=None):
        return {each.name: self._transferred(each, "get") for each in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        if not self.writes:
            return {each.name: [True] * len(each.keys or ()) for each in transfers}
        return {each.name: self._transferred(each, "put") for each in transfers}

    def _transferred(self, transfer, direction):
        keys, pool = transfer.keys or [], self.pools.get(str(transfer.name))
        if pool is None or not keys:
            return [False] * len(keys)
        return self._move(direction, pool, keys, transfer.host_indices)

    def _move(self, direction, pool, keys, host_indices):
        began = time.monotonic()
        results = self._guarded(lambda: getattr(pool, direction)(keys, host_indices), [False] * len(keys))
        self.moved.note(direction, sum(results), pool.page_bytes, time.monotonic() - began)
        return results

    # -------------------------------------------------------------------------------------- statistics, and clearing

    def get_stats(self):
        """SGLang's metrics of storages since the last call: pages and GB/s of each call that has moved pages."""
        from sglang.srt.observability.metrics_collector import StorageMetrics

        out, taken = StorageMetrics(), self.moved.taken()
        out.prefetch_pgs, out.prefetch_bandwidth = ([call[i] for call in taken["get"]] for i in (0, 1))
        out.backup_pgs, out.backup_bandwidth = ([call[i] for call in taken["put"]] for i in (0, 1))
        return out

    def clear(self):
        """Erases all pages of the namespaces of this engine's pools, which other engines may share. DoesNotFit if the
        node's HTTP socket cannot be reached; nothing is erased then."""
        names = [ns.identity()[1] for pool in self.pools.values() for ns in pool.namespaces]
        path = _http.socket_beside(self.options.address)
        if path is None:
            raise DoesNotFit(f"Troupe clears pages by the Unix socket of the node's HTTP API alone, and there is none "
                             f"beside {self.options.address}: POST /v1/namespaces/NAME/clear as an admin, for "
                             f"{', '.join(names)}")
        for name in names:
            pages = _http.clear(path, name, self.options.request_timeout_seconds or DEFAULT_LIMIT_SECONDS)
            logger.info("Troupe: namespace %s cleared (%d pages)", name, pages)
        return True

    # -------------------------------------------------------------------------------------------- what v1 replaces

    def _without_pool(self):
        raise NotImplementedError("Troupe moves pages of SGLang's pool: set \"interface_v1\": 1 in "
                                  "--hicache-storage-backend-extra-config")

    def get(self, key, target_location=None, target_sizes=None):
        self._without_pool()

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        self._without_pool()

    def set(self, key, value=None, target_location=None, target_sizes=None):
        self._without_pool()

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        self._without_pool()

    def close(self):
        for pool in self.pools.values():
            pool.shutdown()
        self.pools = {}

    @staticmethod
    def _guarded(work, otherwise):
        """A failed call is a miss for SGLang, and an error in the log."""
        try:
            return work()
        except TroupeError as error:
            logger.error("Troupe: %s", error)
            return otherwise


def restorable(there, transfer):
    """Prefix lengths, in pages, for which a pool has what its policy requires."""
    if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
        needed = max(1, len(transfer.keys or ()))
        return [end for end in range(1, len(there) + 1) if all(there[max(0, end - needed):end])]
    leading = there.index(False) if False in there else len(there)
    return list(range(1, leading + 1))


def result(pages, hits, usable):
    made = PoolTransferResult(pages, hits)
    if hasattr(made, "restorable_prefix_pages"):
        made.restorable_prefix_pages = usable
    return made
