"""The plug-in's handling of SGLang's objects, without SGLang and torch. The real ones are tested with SGLang's own
classes, by scripts/engines."""

import enum
import sys
import types
import unittest

from fake_library import fake


class tokens(list):
    """The part of a tensor that the plug-in uses."""

    def __getitem__(self, place):
        found = super().__getitem__(place)
        return tokens(found) if isinstance(place, slice) else found

    def tolist(self):
        return list(self)


class HiCacheStorage:
    def register_mem_pool_host(self, pool):
        pass


def install():
    """Registers the modules for imports."""
    storage = types.ModuleType("sglang.srt.mem_cache.hicache_storage")
    storage.HiCacheStorage = HiCacheStorage
    storage.PoolHitPolicy = enum.Enum("PoolHitPolicy", ["ALL_PAGES", "TRAILING_PAGES", "BLOCK_GROUPS"])
    storage.PoolName = types.SimpleNamespace(KV="kv")
    storage.PoolTransferResult = type("PoolTransferResult", (), {})
    torch = types.ModuleType("torch")
    torch.arange, torch.int64 = lambda first, last, dtype: tokens(range(first, last)), None
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules.update({storage.__name__: storage, "torch": torch})


install()

from troupe.sglang import TroupeStorage, digests  # noqa: E402


class pool:
    """Pages of two pieces, as with page_first: keys of all layers of a rank, and values."""

    page_size, page_num, layout, kv_buffer, dtype = 16, 8, "page_first", (), "torch.bfloat16"

    def __init__(self, piece=4096):
        self.piece = piece

    def get_page_buffer_meta(self, numbers):
        page, end = numbers[0] // self.page_size, self.page_num * self.piece
        return [(1 << 40) + part * end + page * self.piece for part in (0, 1)], [self.piece] * 2


def config(**changes):
    members = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "dcp_rank": 0, "dcp_size": 1, "attn_cp_size": 1,
               "is_mla_model": False, "should_split_heads": False, "is_storage_writer": True, "model_name": "tiny",
               "extra_config": {"troupe.address": "127.0.0.1:4600"}}
    return types.SimpleNamespace(**{**members, **changes})


class storing(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)

    def made(self, **changes):
        storage = TroupeStorage(config(**changes))
        storage.register_mem_pool_host(pool())
        return storage

    def identity(self, **changes):
        self.made(**changes)
        ns = [given for name, given in self.library.asked if name == "troupe_pages_create"][-1][1]
        geometry = ns.geometry.contents
        return (ns.world_size, geometry.layers, geometry.opaque_block_bytes,
                *(getattr(ns, name) for name in ("model", "dtype", "layout", "hash_algorithm", "salt")))

    def test_what_ranks_hold_is_part_of_the_namespace(self):
        self.assertEqual(self.identity(), (1, 2, 4096, b"tiny", b"bfloat16", b"sglang page_first kv 0 of 1 page 16",
                                           b"sglang", None))
        # As many ranks with as many bytes each, which are not those of the same layers, heads or tokens.
        self.assertNotEqual(self.identity(pp_size=2), self.identity(tp_size=2))
        self.assertNotEqual(self.identity(pp_size=4, tp_size=2), self.identity(pp_size=2, tp_size=4))
        self.assertNotEqual(self.identity(pp_size=2, is_mla_model=True),
                            self.identity(dcp_size=2, tp_size=2, is_mla_model=True))
        self.assertNotEqual(self.identity(tp_size=4), self.identity(tp_size=4, dcp_size=2))

    def test_keys_may_be_any_texts(self):
        joined = digests(["a", "\ud800", "a\0", "a" * 10000])
        self.assertEqual(len({joined[first:first + 32] for first in range(0, len(joined), 32)}), 4)


if __name__ == "__main__":
    unittest.main()
