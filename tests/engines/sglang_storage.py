#!/usr/bin/env python3
"""Tests Troupe's storage for SGLang's HiCache with SGLang's own base class, factory and pools in host memory, and a
real node: what its engine on CPUs does not do, which sglang_experiments.py runs.

sglang_storage.py --troupe PROGRAM --library LIBTROUPE.SO --sglang DIRECTORY --work DIRECTORY

DIRECTORY of --sglang holds the wheel's `sglang` and its imports; scripts/engines makes it.
"""

import argparse
import importlib
import os
import pathlib
import shutil
import sys
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

PAGE, PAGES, LAYERS, HEADS, HEAD_SIZE = 16, 64, 3, 2, 8


def import_sglang(directory):
    """Its parts without the module that imports all of it."""
    sys.path.insert(0, str(directory))
    for name in ("sglang", "sglang.srt"):
        module = types.ModuleType(name)
        module.__path__ = [str(pathlib.Path(directory) / name.replace(".", "/"))]
        sys.modules[name] = module
    names = ("hicache_storage", "device_pool_info", "pool_host.mha", "storage")
    return [importlib.import_module("sglang.srt.mem_cache." + name) for name in names]


class bench:
    def __init__(self, arguments):
        import torch

        self.torch, self.arguments = torch, arguments
        self.storage, self.info, self.mha, self.factory = import_sglang(arguments.sglang)
        self.checked = 0

    def pool(self, layout, seed, head_size=HEAD_SIZE):
        torch = self.torch
        device = [torch.zeros(PAGE, HEADS, head_size, dtype=torch.bfloat16) for _ in range(2 * LAYERS)]
        pointers = torch.tensor([each.data_ptr() for each in device], dtype=torch.uint64)
        kinds = self.info.KVBuffers.__annotations__["layout"]
        kind = next(iter(getattr(self.info, kinds if isinstance(kinds, str) else kinds.__name__)))
        buffers = self.info.KVBuffers(k=tuple(device[:LAYERS]), v=tuple(device[LAYERS:]),
                                      k_data_ptrs=pointers[:LAYERS], v_data_ptrs=pointers[LAYERS:], layout=kind)
        shape = self.info.MHABufferInfo(buffers=buffers, page_size=PAGE, head_num=HEADS, head_dim=head_size,
                                        v_head_dim=head_size, dtype=torch.bfloat16, device=torch.device("cpu"))
        made = self.mha.MHATokenToKVPoolHost(shape, 1.0, 0, PAGE, layout, pin_memory=False,
                                             device_capacity_tokens=PAGE, start_layer=0, end_layer=LAYERS,
                                             host_token_capacity=PAGE * PAGES)
        dice = torch.Generator().manual_seed(seed)
        made.kv_buffer.copy_(torch.randn(made.kv_buffer.shape, generator=dice))
        return made

    def config(self, address, **changes):
        extra = {"backend_name": "troupe", "module_path": "troupe.sglang", "class_name": "TroupeStorage",
                 "interface_v1": 1, "troupe.address": address, **changes.pop("extra", {})}
        members = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
                   "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": True,
                   "model_name": "tiny", "extra_config": extra, **changes}
        return self.storage.HiCacheStorageConfig(**members)

    def backend(self, pool, address, **changes):
        made = self.factory.StorageBackendFactory.create_backend("dynamic", self.config(address, **changes), pool)
        made.register_mem_pool_host(pool)
        return made

    def indices(self, pages):
        return self.torch.cat([self.torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])

    def page(self, pool, page):
        """All bytes of a page, read by SGLang's own code where it has some."""
        if pool.layout == "page_unified":
            return pool.kv_buffer[page].flatten().clone()
        return pool.get_data_page(page * PAGE, flat=True).clone()

    def check(self, holds, sentence):
        self.checked += 1
        if not holds:
            sys.exit(f"sglang: {sentence}")


def keys(name, count):
    return [f"{name}-{number}" for number in range(count)]


def round_trip(b, address):
    for layout in ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified"):
        saved, other = b.pool(layout, 1), b.pool(layout, 2)
        first, second = b.backend(saved, address), b.backend(other, address)
        names, wanted = keys(layout, 20), [b.page(saved, page) for page in range(20)]
        b.check(first.batch_exists(names) == 0, f"{layout}: found a page that was never saved")
        b.check(first.batch_set_v1(names, b.indices(range(20))) == [True] * 20, f"{layout}: not saved")
        b.check(second.batch_exists([*names, "none"]) == 20, f"{layout}: not found by another engine")
        b.check(second.batch_get_v1([*names, "none"], b.indices([*range(40, 60), 60])) == [True] * 20 + [False],
                f"{layout}: not read")
        for number, page in enumerate(wanted):
            b.check(b.torch.equal(b.page(other, 40 + number), page), f"{layout}: page {number} has wrong bytes")
        b.check(first.batch_set_v1(names, b.indices(range(20))) == [True] * 20, f"{layout}: not saved twice")
        for each in (first, second):
            each.close()


def tensor_parallel(b, address):
    pools = [b.pool("page_first", seed) for seed in (3, 4)]
    ranks = [b.backend(pool, address, tp_rank=rank, tp_size=2, model_name="two") for rank, pool in enumerate(pools)]
    names = keys("ranks", 4)
    ranks[0].batch_set_v1(names, b.indices(range(4)))
    b.check(ranks[0].batch_exists(names) == 0, "pages of one rank count as complete")
    ranks[1].batch_set_v1(names[:3], b.indices(range(3)))
    b.check([each.batch_exists(names) for each in ranks] == [3, 3], "pages of both ranks are not found")
    for rank, pool in zip(ranks, pools):
        wanted = b.page(pool, 1)
        b.check(rank.batch_get_v1(names[:3], b.indices([30, 31, 32])) == [True] * 3, "pages of ranks are not read")
        b.check(b.torch.equal(b.page(pool, 31), wanted), "a rank has read another one's page")
        rank.close()


def replicated(b, address):
    pools = [b.pool("page_first", seed) for seed in (5, 6)]
    ranks = [b.backend(pool, address, tp_rank=rank, tp_size=2, is_mla_model=True, model_name="latent")
             for rank, pool in enumerate(pools)]
    names, wanted = keys("latent", 3), b.page(pools[0], 2)
    for rank in reversed(ranks):
        b.check(rank.batch_set_v1(names, b.indices(range(3))) == [True] * 3, "replicas cannot save")
    b.check(ranks[1].batch_get_v1(names, b.indices(range(3))) == [True] * 3, "replicas cannot read")
    b.check(b.torch.equal(b.page(pools[1], 2), wanted), "not the first replica's pages were saved")
    for rank in ranks:
        rank.close()


def several_pools(b, address):
    names, s = keys("pools", 8), b.storage
    main, beside = b.pool("page_first", 7), b.pool("page_first", 8, head_size=4)
    one = b.backend(main, address, model_name="hybrid")
    one.register_mem_host_pool_v2(beside, s.PoolName.MAMBA)
    one.on_host_pools_registered()
    one.batch_set_v1(names, b.indices(range(8)))
    saved = s.PoolTransfer(name=s.PoolName.MAMBA, host_indices=b.indices([2, 5]), keys=[names[2], names[5]])
    b.check(one.batch_set_v2([saved]) == {s.PoolName.MAMBA: [True, True]}, "a pool beside is not saved")
    tail = s.PoolTransfer(name=s.PoolName.MAMBA, keys=[names[7]], hit_policy=s.PoolHitPolicy.TRAILING_PAGES)
    found = one.batch_exists_v2(names, [tail])
    b.check((found.kv_hit_pages, found.restorable_prefix_pages) == (6, [3, 6]), f"trailing pages: {found}")
    everything = s.PoolTransfer(name=s.PoolName.MAMBA, keys=names)
    b.check(one.batch_exists_v2(names, [everything]).kv_hit_pages == 0, "all pages of a pool that lacks the first")
    b.check(one.batch_exists_v2(names).kv_hit_pages == 8, "without other pools")
    wanted = b.page(beside, 5)
    read = s.PoolTransfer(name=s.PoolName.MAMBA, host_indices=b.indices([20, 21]), keys=[names[5], names[6]])
    b.check(one.batch_get_v2([read]) == {s.PoolName.MAMBA: [True, False]}, "a pool beside is not read")
    b.check(b.torch.equal(b.page(beside, 20), wanted), "a pool beside has wrong bytes")
    one.close()


def other_models(b, address):
    names, pool = keys("models", 2), b.pool("page_first", 9)
    one = b.backend(pool, address, model_name="one")
    one.batch_set_v1(names, b.indices([0, 1]))
    for changes in ({"model_name": "two"}, {"model_name": "one", "extra": {"troupe.salt": "x"}}):
        other = b.backend(pool, address, **changes)
        b.check(other.batch_exists(names) == 0, f"shared with {changes}")
        other.close()
    b.check(one.batch_exists(names) == 2, "not there any more")
    one.close()


def node_lost(b, node, address):
    names, pool = keys("lost", 2), b.pool("page_first", 10)
    one = b.backend(pool, address, extra={"troupe.request_timeout_seconds": 1.0})
    one.batch_set_v1(names, b.indices([0, 1]))
    node.kill()
    b.check(one.batch_exists(names) == 0, "found without a node")
    b.check(one.batch_get_v1(names, b.indices([2, 3])) == [False, False], "read without a node")
    b.check(one.batch_set_v1(names, b.indices([0, 1])) == [False, False], "saved without a node")
    node.start()
    deadline = time.monotonic() + 30
    while one.batch_exists(names) != 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    wanted = b.page(pool, 1)
    b.check(one.batch_get_v1(names, b.indices([2, 3])) == [True, True], "not read when the node is back")
    b.check(b.torch.equal(b.page(pool, 3), wanted), "wrong bytes when the node is back")
    one.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("troupe", "library", "sglang", "work"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    os.environ["TROUPE_LIBRARY"] = str(pathlib.Path(arguments.library).resolve())
    import workplace
    from node import node

    b = bench(arguments)
    place = workplace.take(arguments.work) / "nodes" / "sglang"
    shutil.rmtree(place, ignore_errors=True)
    made = node(arguments.troupe, place).start()
    try:
        for work in (round_trip, tensor_parallel, replicated, several_pools, other_models):
            began, before = time.monotonic(), b.checked
            work(b, made.address)
            print(f"{work.__name__:18} {b.checked - before:4} checks {time.monotonic() - began:6.1f} s", flush=True)
        node_lost(b, made, made.address)
        print(f"{'node_lost':18} {b.checked} checks in all", flush=True)
    finally:
        made.kill()
        shutil.rmtree(place / "data", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
