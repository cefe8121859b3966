"""The plug-in's handling of SGLang's objects, without SGLang and torch. The real ones are tested with SGLang's own
classes, by scripts/engines."""

import ctypes
import enum
import http.server
import json
import pathlib
import shutil
import socketserver
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

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

    def register_mem_host_pool_v2(self, pool, name):
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
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.utils",
                 "sglang.srt.server_args", "sglang.srt.observability", "sglang.srt.observability.metrics_collector"):
        module = sys.modules[name] = types.ModuleType(name)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
    sys.modules["sglang.srt.mem_cache.utils"].storage_namespace_seed = lambda extra_key, cache_salt: None
    sys.modules["sglang.srt.observability.metrics_collector"].StorageMetrics = types.SimpleNamespace
    sys.modules.update({storage.__name__: storage, "torch": torch})


install()

from troupe.sglang import DoesNotFit, TroupeStorage, digests  # noqa: E402


class pool:
    """Pages of two pieces, as with page_first: keys of all layers of a rank, and values."""

    page_size, page_num, layout, kv_buffer, dtype = 16, 8, "page_first", (), "torch.bfloat16"

    def __init__(self, piece=4096, place=1 << 40):
        self.piece, self.place = piece, place

    def get_page_buffer_meta(self, numbers):
        page, end = numbers[0] // self.page_size, self.page_num * self.piece
        return [self.place + part * end + page * self.piece for part in (0, 1)], [self.piece] * 2


class unified_pool(pool):
    """Pages of one piece, which SGLang's own function does not describe."""

    layout, page_unified_layout = "page_unified", types.SimpleNamespace(bytes_per_page=8192)
    kv_buffer = types.SimpleNamespace(data_ptr=lambda: 1 << 40)
    get_page_buffer_meta = None


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

    def created(self):
        return self.library.names().count("troupe_pages_create")

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

    def test_a_pool_is_attached_once_by_both_interfaces(self):
        storage, main = TroupeStorage(config()), pool()
        storage.register_mem_pool_host(main)
        storage.register_mem_host_pool_v2(main, "kv")
        # Another object for the same memory.
        storage.register_mem_host_pool_v2(pool(), "kv")
        storage.register_mem_host_pool_v2(pool(place=1 << 41), "swa")
        storage.on_host_pools_registered()
        self.assertEqual((self.created(), "troupe_pages_shutdown" in self.library.names()), (2, False))
        # Other memory under a known name.
        storage.register_mem_host_pool_v2(pool(place=1 << 42), "swa")
        self.assertEqual((self.created(), self.library.names().count("troupe_pages_shutdown")), (3, 1))

    def test_a_model_without_pools_is_refused(self):
        storage, without = TroupeStorage(config()), pool()
        without.kv_buffer = None
        storage.register_mem_pool_host(without)
        with self.assertRaisesRegex(DoesNotFit, "no pool with a KV cache"):
            storage.on_host_pools_registered()

    def test_versions_without_newer_members_of_the_config(self):
        def older(**changes):
            made = config(**changes)
            for name in ("dcp_rank", "dcp_size", "is_storage_writer"):
                delattr(made, name)
            return TroupeStorage(made)

        older().register_mem_pool_host(pool())
        self.assertEqual(self.created(), 1)
        self.assertEqual([older(is_mla_model=True, tp_size=2, tp_rank=rank).writes for rank in (0, 1)], [True, False])
        self.assertEqual([older(tp_size=2, tp_rank=rank).writes for rank in (0, 1)], [True, True])

    def test_adapters_are_refused_where_keys_do_not_contain_them(self):
        arguments = types.SimpleNamespace(enable_lora=True)
        with mock.patch.object(sys.modules["sglang.srt.mem_cache.utils"], "storage_namespace_seed"):
            del sys.modules["sglang.srt.mem_cache.utils"].storage_namespace_seed
            with mock.patch.object(sys.modules["sglang.srt.server_args"], "get_global_server_args", lambda: arguments,
                                   create=True):
                with self.assertRaisesRegex(DoesNotFit, "LoRA adapter"):
                    TroupeStorage(config())
                arguments.enable_lora = False
                with self.assertLogs("troupe.sglang", "WARNING"):
                    TroupeStorage(config())

    def test_errors_name_the_option_of_sglang(self):
        for extra in ({}, {"troupe.address": "a", "troupe.addres": "b"}):
            with self.assertRaisesRegex(ValueError, "^--hicache-storage-backend-extra-config"):
                TroupeStorage(config(extra_config=extra))

    def test_page_unified_is_one_piece(self):
        TroupeStorage(config()).register_mem_pool_host(unified_pool())
        given = [given for name, given in self.library.asked if name == "troupe_pages_create"][-1]
        layers, count, blocks = given[3:6]
        self.assertEqual((count, blocks), (1, 8))
        self.assertEqual((layers[0].base, layers[0].bytes, layers[0].block_stride), (1 << 40, 8 * 8192, 8192))

    def test_the_number_of_copying_threads_is_passed_on(self):
        extra = {"troupe.address": "here", "troupe.copy_threads": 5}
        TroupeStorage(config(extra_config=extra)).register_mem_pool_host(pool())
        given = [given for name, given in self.library.asked if name == "troupe_pages_create"][-1]
        self.assertEqual(given[2].copy_threads, 5)

    def test_options_of_vllm_are_refused(self):
        for key in ("node_events", "traces", "traces_ratio"):
            with self.assertRaisesRegex(ValueError, f"'troupe.{key}', which is for vLLM alone"):
                TroupeStorage(config(extra_config={"troupe.address": "here", f"troupe.{key}": "auto"}))

    def test_statistics_are_those_since_the_last_call(self):
        storage = self.made()
        self.library.answers["troupe_pages_get"] = self.moves([0, 5])
        self.library.answers["troupe_pages_put"] = self.moves([0, 0])
        self.assertEqual(storage.batch_get_v1(["a", "b"], tokens(range(32))), [True, False])
        self.assertEqual(storage.batch_set_v1(["a", "b"], tokens(range(32))), [True, True])
        said = storage.get_stats()
        self.assertEqual((said.prefetch_pgs, said.backup_pgs), ([1], [2]))
        self.assertTrue(said.prefetch_bandwidth[0] > 0 and said.backup_bandwidth[0] > 0)
        said = storage.get_stats()
        self.assertEqual((said.prefetch_pgs, said.backup_bandwidth), ([], []))

    @staticmethod
    def moves(codes):
        def answer(handle, keys, blocks, count, limit, results, done):
            (ctypes.c_int32 * count).from_address(results)[:] = codes
            return 0

        return answer


class node_http(http.server.BaseHTTPRequestHandler):
    """The part of a node's HTTP API that is used."""

    asked, answer = [], (200, {"pages": 3})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        status, body = self.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        pass

    def address_string(self):
        return "local"


class clearing(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)
        self.names = [b"first"]
        self.library.answers["troupe_namespace_identity"] = self.identity
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-sglang-"))
        self.addCleanup(shutil.rmtree, self.directory)
        node_http.asked, node_http.answer = [], (200, {"pages": 3})

    def identity(self, ns, engine, digest, name):
        name.value = self.names[0]
        return 0

    def serve(self):
        server = socketserver.ThreadingUnixStreamServer(str(self.directory / "http.sock"), node_http)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def made(self, address):
        storage = TroupeStorage(config(extra_config={"troupe.address": str(address)}))
        storage.register_mem_pool_host(pool())
        return storage

    def test_by_the_socket_beside_the_address(self):
        self.serve()
        (self.directory / "troupe.sock").touch()
        self.assertTrue(self.made(self.directory).clear())
        self.assertTrue(self.made(self.directory / "troupe.sock").clear())
        self.assertEqual(node_http.asked, ["/v1/namespaces/first/clear"] * 2)
        # It has never been made.
        node_http.answer = (404, {})
        self.assertTrue(self.made(self.directory).clear())

    def test_refusals(self):
        with self.assertRaisesRegex(DoesNotFit, "/v1/namespaces/NAME/clear as an admin, for first"):
            self.made("127.0.0.1:4600").clear()
        self.serve()
        node_http.answer = (503, {"error": "draining"})
        with self.assertRaisesRegex(RuntimeError, "refuses to clear first: 503 .*draining"):
            self.made(self.directory).clear()


if __name__ == "__main__":
    unittest.main()
