"""The linker's handling of SGLang's objects, without SGLang and torch. The real ones are tested with SGLang's own
classes, by scripts/engines."""

import collections
import concurrent.futures
import ctypes
import enum
import logging
import pathlib
import sys
import threading
import types
import unittest
import unittest.mock

from fake_library import fake

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sglang_test  # noqa: E402  SGLang's modules, which the linker shares with the storage

PAGE, LAYERS = 4, 5


class buffer:
    """A tensor of tokens, of 16 bytes each."""

    device, dtype = types.SimpleNamespace(type="cpu", index=None), "torch.bfloat16"

    def __init__(self, place, rows=10 * PAGE, row=16):
        self.place, self.shape, self.nbytes = place, (rows, row // 2), rows * row


class entry:
    """As SGLang's `DevicePoolEntry`."""

    def __init__(self, *, name, components, layer_mapping, page_size=PAGE, rows_are_pages=False, **_):
        self.name, self.components, self.layer_mapping, self.page_size = name, components, layer_mapping, page_size
        span = 1 if rows_are_pages else page_size
        self.buffer_meta = [[(each.place, each.nbytes // each.shape[0], each.nbytes // each.shape[0] * span)
                             for each in component] for component in components]

    def prepare_locations(self, places):
        return places[::self.page_size]


class group:
    """As SGLang's `DevicePoolGroup`, for pools that are asked for by their own names."""

    def __init__(self, entries, num_layers, page_size, *, rank_replicated=False):
        self.entries, self.entry_map = entries, {each.name: each for each in entries}
        self.num_layers, self.rank_replicated = num_layers, rank_replicated

    def resolve_transfers(self, transfers, **_):
        return [each for each in transfers if each.keys]


class counter:
    """As SGLang's `LayerWiseLoadCounter`."""

    def __init__(self, layers):
        self.layers, self.futures = layers, []

    def update_producer(self):
        self.futures.append([concurrent.futures.Future() for _ in range(self.layers)])
        return len(self.futures) - 1

    def complete(self, index, layer):
        self.futures[index][layer].set_result(None)

    def fail(self, index, error):
        for future in self.futures[index]:
            if not future.done():
                future.set_exception(error)

    def finish(self, index):
        return index < 0 or all(future.exception(10) is None for future in self.futures[index])

    def reset(self):
        self.futures = []


class linker_base:
    def record_offload_ready(self):
        return []


class MHATokenToKVPool:
    is_quantized_kv_cache, kv_cache_layout, layer_num = False, "nhd", LAYERS

    def __init__(self):
        self.k_buffer = [buffer((1 << 40) + layer * 4096) for layer in range(LAYERS)]
        self.v_buffer = [buffer((1 << 41) + layer * 4096) for layer in range(LAYERS)]


class MLATokenToKVPool:
    layer_num = 2

    def __init__(self):
        self.kv_buffer = [buffer((1 << 40) + layer * 4096) for layer in range(2)]


def install():
    components = enum.Enum("ComponentType", ["FULL", "SWA", "MAMBA"])
    attributes = {
        "hybrid_cache": {}, "unified_cache": {},
        "hybrid_cache.hybrid_pool_assembler": {},
        "hybrid_cache.linker_pool_assembler": {"DevicePoolEntry": entry, "DevicePoolGroup": group,
                                               "resolve_hybrid_device_pool_group": lambda **_: None},
        "memory_pool": {"MHATokenToKVPool": MHATokenToKVPool, "MLATokenToKVPool": MLATokenToKVPool},
        "swa_memory_pool": {"SWAKVPool": type("SWAKVPool", (), {})},
        "unified_cache.component_type": {"ComponentType": components},
        "unified_cache.unified_cache_linker": {"LayerWiseLoadCounter": counter, "UnifiedCacheLinker": linker_base},
    }
    for name, members in attributes.items():
        module = sys.modules["sglang.srt.mem_cache." + name] = types.ModuleType("sglang.srt.mem_cache." + name)
        module.__dict__.update(members)
        parent, _, own = module.__name__.rpartition(".")
        setattr(sys.modules[parent], own, module)
    context = sys.modules["sglang.srt.runtime_context"] = types.ModuleType("sglang.srt.runtime_context")
    context.get_parallel = lambda: types.SimpleNamespace(attn_dcp_size=1)
    sys.modules["sglang.srt.mem_cache.hicache_storage"].PoolName.MAMBA = "mamba"
    sys.modules["sglang.srt.mem_cache.hicache_storage"].PoolName.SWA = "swa"
    sys.modules["torch"].distributed = types.SimpleNamespace(is_available=lambda: False)
    return components


components = install()

from troupe import _device_pools, _sglang_metrics  # noqa: E402
from troupe._kv_shape import DoesNotFit  # noqa: E402
from troupe.sglang_linker import TroupeLinker  # noqa: E402

policies = sys.modules["sglang.srt.mem_cache.hicache_storage"].PoolHitPolicy


def transfer(keys, places=None, name="kv", policy=policies.ALL_PAGES):
    return types.SimpleNamespace(name=name, keys=keys, host_indices=places, hit_policy=policy)


def places(*pages):
    return [page * PAGE + token for page in pages for token in range(PAGE)]


class arithmetic(unittest.TestCase):
    def test_each_part_has_layers_and_all_layers_are_in_one(self):
        for layers in range(1, 40):
            for parts in range(0, 50):
                ranges = _device_pools.ranges(layers, parts)
                self.assertEqual([layer for each in ranges for layer in each], list(range(layers)))
                self.assertTrue(all(ranges), (layers, parts))
                self.assertEqual(len(ranges), max(1, min(parts, layers)))

    def test_the_first_part_is_half_as_large(self):
        self.assertEqual([len(each) for each in _device_pools.ranges(32, 8)], [2, 4, 4, 4, 5, 4, 4, 5])
        self.assertEqual([len(each) for each in _device_pools.ranges(30, 3)], [6, 12, 12])
        self.assertEqual([len(each) for each in _device_pools.ranges(3, 2)], [1, 2])

    def test_views_are_those_of_the_layers_by_size(self):
        made = entry(name="kv", components=[[buffer(0), buffer(1 << 20), buffer(1 << 21, row=32)]],
                     layer_mapping={0: (0, 2), 3: 1})
        self.assertEqual(_device_pools.pages_of(made), 10)
        self.assertEqual(_device_pools.views_by_size(made, range(0, 1)),
                         {64: [{"base": 0, "bytes": 640, "block_stride": 64}],
                          128: [{"base": 1 << 21, "bytes": 1280, "block_stride": 128}]})
        self.assertEqual(_device_pools.views_by_size(made, range(1, 3)), {})
        self.assertEqual(list(_device_pools.views_by_size(made, range(1, 4))), [64])
        self.assertEqual(_device_pools.page_numbers(made, places(3, 1)), [3, 1])

    def test_rows_that_are_pages_may_lie_apart(self):
        state = entry(name="mamba", components=[[buffer(0, rows=7)]], layer_mapping={0: 0}, page_size=1,
                      rows_are_pages=True)
        state.buffer_meta = [[(0, 1024, 16)]]
        self.assertEqual(_device_pools.views_by_size(state, range(1)),
                         {16: [{"base": 0, "bytes": 6 * 1024 + 16, "block_stride": 1024}]})

    def test_what_does_not_fit_is_refused(self):
        made = entry(name="kv", components=[[buffer(0), buffer(1 << 20)]], layer_mapping={0: 0})
        with self.assertRaisesRegex(DoesNotFit, "2 buffers, of which its layers name 1"):
            _device_pools.require_all_buffers(made, 1)
        made.buffer_meta[0][0] = (0, 32, 64)
        with self.assertRaisesRegex(DoesNotFit, "not adjacent"):
            _device_pools.views_by_size(made, range(1))

    def test_what_happens_often_is_said_once_a_minute(self):
        now = [100.0]
        seldom = _device_pools.Seldom(lambda: now[0])
        self.assertEqual([seldom.count(2), seldom.count(3), seldom.count(4)], [2, None, None])
        now[0] += seldom.SECONDS
        self.assertEqual(seldom.count(1), 8)

    def test_answers_are_used_for_a_moment_by_the_same_request(self):
        now = [100.0]
        answers = _device_pools.Answers(lambda: now[0])
        answers.put("r", ["a", "b"], [1])
        self.assertEqual(answers.get("r", ["a", "b"]), [1])
        for rid, keys in (("s", ["a", "b"]), ("r", ["a", "c"]), ("r", ["b"])):
            self.assertIsNone(answers.get(rid, keys))
        now[0] += answers.SECONDS
        self.assertIsNone(answers.get("r", ["a", "b"]))
        for number in range(answers.MOST + 1):
            answers.put(number, ["a"], [])
        self.assertEqual((answers.get(0, ["a"]), answers.get(1, ["a"])), (None, []))
        answers.forget(1)
        self.assertIsNone(answers.get(1, ["a"]))

    def test_a_node_that_did_not_answer_in_time_is_left_alone_for_a_while(self):
        now = [100.0]
        patience = _device_pools.Patience(lambda: now[0])
        patience.took(0.9, 1.0)
        self.assertTrue(patience.asks())
        patience.took(1.0, 1.0)
        self.assertFalse(patience.asks())
        now[0] += patience.PAUSE_SECONDS
        self.assertTrue(patience.asks())


class linking(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)
        # By namespace: keys that are there.
        self.stored, self.moved, self.codes = {}, [], {}
        self.library.answers.update(
            troupe_namespace_identity=self.identity,
            troupe_pages_exist=self.exist, troupe_pages_exist_each=self.exist_each,
            troupe_pages_get=lambda *given: self.move("get", *given),
            troupe_pages_put=lambda *given: self.move("put", *given))

    @staticmethod
    def identity(ns, engine, digest, name):
        name.value = b"engine-0"
        return 0

    def exist(self, handle, keys, count, limit, found):
        there = self.stored.get(handle.value, set())
        keys = [keys[32 * number:32 * number + 32] for number in range(count)]
        found.value = next((number for number, key in enumerate(keys) if key not in there), count)
        return 0

    def exist_each(self, handle, keys, count, limit, found):
        for number in range(count):
            found[number] = bytes([keys[32 * number:32 * number + 32] in self.stored.get(handle.value, set())])
        return 0

    def move(self, direction, handle, keys, blocks, count, limit, results, done):
        numbers = list((ctypes.c_uint32 * count).from_address(blocks))
        self.moved.append((direction, handle.value, numbers))
        codes = self.codes.get((direction, handle.value), [0] * count)
        (ctypes.c_int32 * count).from_address(results)[:] = codes
        if direction == "put":
            self.stored.setdefault(handle.value, set()).update(
                keys[32 * number:32 * number + 32] for number in range(count) if codes[number] == 0)
        return 0

    def made(self, pool=None, parts=1, params=None, metrics=False, **extra):
        pool = pool or MHATokenToKVPool()
        members = {"page_size": PAGE, "pp_size": 1, "attn_cp_size": 1, "mtp_draft_device_pools": (),
                   "sidecar_draft_device_pools": (), **(params or {}),
                   "token_to_kv_pool_allocator": types.SimpleNamespace(get_kvcache=lambda: pool)}
        made = TroupeLinker(types.SimpleNamespace(served_model_name="tiny", model_path="/tiny", enable_metrics=metrics),
                            types.SimpleNamespace(**members), components={components.FULL},
                            extra_config={"troupe.address": "here", "troupe.layer_parts": parts, **extra})
        self.addCleanup(made.close)
        return made

    def created(self):
        return [given for name, given in self.library.asked if name == "troupe_pages_create"]

    def saved(self, linker, *transfers):
        self.assertTrue(linker.offload(list(transfers)))
        linker.saves.join()
        self.assertEqual(linker.num_completed_offloads(), 1)
        return linker.pop_completed_offload()

    def test_each_part_of_the_layers_is_a_namespace(self):
        self.made(parts=2)
        said = [(given[1].geometry.contents.layers, given[1].geometry.contents.opaque_block_bytes, given[1].layout,
                 given[2].device, [given[3][number].base for number in range(given[4])], given[5])
                for given in self.created()]
        first, second = ([(1 << place) + layer * 4096 for layer in layers for place in (40, 41)]
                         for layers in (range(1), range(1, 5)))
        layout = b"sglang device kv part %d of 2 piece 0 of 1 page 4 of 4"
        self.assertEqual(said, [(2, 64, layout % 0, 0, first, 10), (8, 64, layout % 1, 0, second, 10)])

    def test_a_name_of_the_namespace_has_one_for_each_part(self):
        self.made(parts=2, **{"troupe.namespace": "mine"})
        self.assertEqual([given[1].name for given in self.created()], [b"mine.kv.0-2-0-1", b"mine.kv.1-2-0-1"])
        self.made()
        self.assertEqual(self.created()[-1][1].name, None)

    def test_latent_pages_are_the_same_on_all_ranks(self):
        self.assertEqual(self.made(MLATokenToKVPool()).place.size, 1)
        self.assertEqual(self.created()[0][4], 2)

    def test_saved_found_and_loaded_as_a_whole(self):
        linker = self.made()
        self.assertEqual(linker.lookup("r1", [transfer(["a", "b"])]), [])
        self.assertTrue(self.saved(linker, transfer(["a", "b", "c"], places(1, 2, 3))))
        self.assertEqual(linker.lookup("r2", [transfer(["a", "b", "c", "d"])]), [1, 2, 3])
        self.assertTrue(linker.load("r", [transfer(["a", "b"], places(7, 5))]))
        self.assertEqual(self.moved[-1][0::2], ("get", [7, 5]))
        self.assertEqual((linker.start_layer_wise_loading(), linker.finish_layer_wise_loading(-1)), (-1, True))
        self.assertFalse(linker.cancel_queued_load("r"))

    def test_by_layer_the_first_part_is_loaded_at_once_and_the_rest_at_the_start(self):
        linker = self.made(parts=3)
        self.assertTrue(linker.load("r", [transfer(["a"], places(4))]))
        self.assertTrue(linker.load("s", [transfer(["a"], places(6))]))
        self.assertEqual([each[2] for each in self.moved], [[4], [6]])
        self.assertTrue(linker.cancel_queued_load("s"))
        index = linker.start_layer_wise_loading()
        self.assertTrue(linker.finish_layer_wise_loading(index))
        self.assertEqual([each[2] for each in self.moved], [[4], [6], [4], [4]])
        self.assertEqual(linker.start_layer_wise_loading(), -1)

    def test_metrics_count_what_was_found_and_moved_and_what_was_not(self):
        values = collections.Counter()

        class metric:
            def __init__(self, name, description, labels, **more):
                self.name = name
                values[name] += 0

            def labels(self, **labels):
                assert labels == {"model_name": "tiny", "tp_rank": 0}
                return self

            def inc(self, amount):
                values[self.name] += amount

            def observe(self, seconds):
                values[self.name] += 1

        prometheus = types.SimpleNamespace(Counter=metric, Histogram=metric)
        with unittest.mock.patch.dict(sys.modules, prometheus_client=prometheus), \
             unittest.mock.patch.dict(_sglang_metrics._made):
            # A second engine of the process has the same ones.
            linker = [self.made(parts=2, metrics=True) for _ in range(2)][1]
        self.assertTrue(self.saved(linker, transfer(["a", "b", "c"], places(1, 2, 3))))
        self.assertEqual(linker.lookup("r", [transfer(["a", "b", "c", "d"])]), [1, 2, 3])
        self.assertTrue(linker.load("r", [transfer(["a", "b"], places(7, 5))]))
        self.assertTrue(linker.finish_layer_wise_loading(linker.start_layer_wise_loading()))
        first, second = (each[0].handle.value for each in linker.pool_parts["kv"].parts)
        for direction, handle in (("get", first), ("get", second), ("put", first)):
            self.codes = {(direction, handle): [4]}
            with self.assertLogs("troupe.sglang_linker"):
                logging.getLogger("troupe.sglang_linker").error("at least one line")
                if direction == "put":
                    self.saved(linker, transfer(["a"], places(1)))
                elif linker.load("s", [transfer(["a"], places(1))]):
                    linker.finish_layer_wise_loading(linker.start_layer_wise_loading())
        linker.reset()
        self.assertEqual(dict(values), {
            "sglang:troupe_looked_up_tokens": 16, "sglang:troupe_found_tokens": 12, "sglang:troupe_loaded_tokens": 8,
            "sglang:troupe_failed_loads": 2, "sglang:troupe_load_seconds": 1, "sglang:troupe_saved_tokens": 12,
            "sglang:troupe_failed_saves": 1, "sglang:troupe_save_seconds": 1})

    def test_a_page_that_is_lost_is_a_miss_and_in_later_parts_a_failed_load(self):
        linker = self.made(parts=2)
        first, second = (each[0].handle.value for each in linker.pool_parts["kv"].parts)
        self.codes["get", first] = [0, 3]
        with self.assertLogs("troupe.sglang_linker", "WARNING") as said:
            self.assertFalse(linker.load("r", [transfer(["a", "b"], places(1, 2))]))
        self.assertIn("loads with pages that were not moved: 1 since the last such line (code_3)", said.output[0])
        self.assertEqual(linker.start_layer_wise_loading(), -1)
        self.codes = {("get", second): [0, 3]}
        self.assertTrue(linker.load("r", [transfer(["a", "b"], places(1, 2))]))
        with self.assertLogs("troupe.sglang_linker", "ERROR"):
            self.assertFalse(linker.finish_layer_wise_loading(linker.start_layer_wise_loading()))
        # Another engine saves the same page.
        self.codes = {("put", second): [0, 3]}
        self.assertTrue(self.saved(linker, transfer(["a", "b"], places(1, 2))))
        self.codes = {("put", second): [0, 4]}
        self.assertFalse(self.saved(linker, transfer(["a", "b"], places(1, 2))))

    def test_a_load_has_failed_when_no_part_of_it_writes_any_more(self):
        linker, begun, ends = self.made(parts=3), threading.Event(), threading.Event()
        linker.pool_parts["kv"].parts[1][0].get = lambda *_: [3 if begun.wait(30) else 0]
        linker.pool_parts["kv"].parts[2][0].get = lambda *_: [0 if begun.set() or ends.wait(30) else 3]
        self.assertTrue(linker.load("r", [transfer(["a"], places(4))]))
        with self.assertLogs("troupe.sglang_linker", "ERROR"):
            index = linker.start_layer_wise_loading()
            with self.assertRaises(concurrent.futures.TimeoutError):
                linker.layer_done_counter.futures[index][LAYERS - 1].exception(0.2)
            ends.set()
            self.assertFalse(linker.finish_layer_wise_loading(index))

    def test_windows_and_states_are_found_where_they_end(self):
        linker = self.made()
        linker.pool_parts["swa"] = linker.pool_parts["kv"]
        self.saved(linker, transfer(list("abcdef"), places(1, 2, 3, 4, 5, 6)))
        there = next(iter(self.stored.values()))
        asked = [transfer(list("abcdef")), transfer(["f"], name="swa", policy=policies.TRAILING_PAGES)]
        self.assertEqual(linker.lookup("r3", asked), [1, 2, 3, 4, 5, 6])
        present = linker.pool_parts["kv"].present
        with unittest.mock.patch.object(type(linker.pool_parts["kv"]), "present",
                                        lambda *given: [number in (1, 2, 4) for number in range(6)]):
            self.assertEqual(linker.lookup("r4", asked), [2, 3, 5])
            asked[1].keys = ["e", "f"]
            self.assertEqual(linker.lookup("r5", asked), [3])
        self.assertEqual(present(b"".join(there), 6, lambda: 1, map), [True] * 6)

    def test_errors_of_the_library_are_misses(self):
        linker = self.made()
        for name in ("exist", "get", "put"):
            self.library.answers[f"troupe_pages_{name}"] = lambda *_: 12
        with self.assertLogs("troupe.sglang_linker", "ERROR"):
            self.assertEqual(linker.lookup("r6", [transfer(["a"])]), [])
            self.assertFalse(linker.load("r", [transfer(["a"], places(1))]))
            self.assertFalse(self.saved(linker, transfer(["a"], places(1))))

    def test_after_a_load_that_ran_out_of_time_the_node_is_left_alone(self):
        linker = self.made()
        handle = linker.pool_parts["kv"].parts[0][0].handle.value
        self.saved(linker, transfer(["a"], places(1)))
        self.codes["get", handle] = [15]
        self.assertFalse(linker.load("r", [transfer(["a"], places(1))]))
        self.codes, count = {}, len(self.moved)
        self.assertEqual(linker.lookup("r7", [transfer(["a"])]), [])
        self.assertFalse(linker.load("r", [transfer(["a"], places(1))]))
        self.assertFalse(self.saved(linker, transfer(["a"], places(1))))
        self.assertEqual(len(self.moved), count)

    def test_settings_that_do_not_work_are_refused(self):
        for params, sentence in (({"pp_size": 2}, "pipeline stages"), ({"attn_cp_size": 2}, "context parallelism"),
                                 ({"mtp_draft_device_pools": (1,)}, "draft model")):
            with self.assertRaisesRegex(DoesNotFit, sentence):
                self.made(params=params)
        with self.assertRaisesRegex(ValueError, "'troupe.load', which is for vLLM alone"):
            self.made(**{"troupe.load": "async"})
        with self.assertRaisesRegex(ValueError, "^linker_extra_config"):
            self.made(**{"troupe.adress": "there"})
        pool = MHATokenToKVPool()
        pool.kv_cache_layout = "hnd"
        with self.assertRaisesRegex(DoesNotFit, "layouts"):
            self.made(pool)

    def test_nothing_moves_after_the_end(self):
        linker = self.made(parts=2)
        linker.close()
        linker.close()
        self.assertEqual(self.library.names().count("troupe_pages_shutdown"), 2)


if __name__ == "__main__":
    unittest.main()
