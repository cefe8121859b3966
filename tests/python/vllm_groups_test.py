"""The plug-in with several KV cache groups, as vLLM 0.32 has them, without vLLM."""

import array
import ctypes
import math
import sys
import unittest

import fake_vllm
from fake_library import fake

fake_vllm.install(several_groups=True)

from troupe import _groups, _interface  # noqa: E402
from troupe.vllm import KVConnectorRole, TroupeConnector  # noqa: E402

NULL = _interface.NULL_BLOCK


def numbers(place, count):
    return list((ctypes.c_uint32 * count).from_address(place)) if place and count else []


def window_model(**changes):
    """Two window groups and one of full attention, which is the last one, as in vLLM."""
    return fake_vllm.grouped_config([(fake_vllm.SlidingWindowSpec(), ["layers.0", "layers.3"]),
                                     (fake_vllm.SlidingWindowSpec(), ["layers.1", "layers.4"]),
                                     (fake_vllm.FullAttentionSpec(), ["layers.2", "layers.5"])], **changes)


def state_model():
    return fake_vllm.grouped_config([(fake_vllm.MambaSpec(), ["mixer.0"]), (fake_vllm.MambaSpec(), ["mixer.1"]),
                                     (fake_vllm.FullAttentionSpec(), ["attn"])])


class pool:
    """vLLM's block pool: how often each block is held."""

    def __init__(self, blocks=100):
        self.blocks, self.counts = list(range(blocks)), [0] * blocks

    def touch(self, blocks):
        for block in blocks:
            self.counts[block] += 1

    def free_blocks(self, blocks):
        for block in blocks:
            self.counts[block] -= 1


class with_groups(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)
        self.names = []

        def created(connection, groups, *_):
            self.page_tokens = groups.page_tokens
            self.groups = [(group.kind, group.tokens, group.block_tokens, numbers(group.tables, group.table_count),
                            group.ns.contents.name, group.ns.contents.geometry.contents.layers,
                            group.ns.contents.geometry.contents.page_tokens,
                            group.ns.contents.geometry.contents.opaque_block_bytes)
                           for group in groups.groups[:groups.count]]
            self.layouts = [group.ns.contents.layout for group in groups.groups[:groups.count]]
            return 0

        def identity_of_group(groups, engine, number, digest, name):
            digest.value, name.value = b"1" * 32, groups.groups[number].ns.contents.name or b"engine-0"
            return 0

        self.library.answers["troupe_group_identity"] = identity_of_group
        self.library.answers["troupe_scheduler_create_groups"] = created
        self.library.answers["troupe_worker_create_groups"] = created
        fake_vllm.platform.cpu = True
        self.addCleanup(setattr, fake_vllm.platform, "cpu", False)
        before = self.real_layout = _groups.layout
        _groups.layout = lambda kind, spec, config, on_cpu: self.layout
        self.layout = "packed"
        self.addCleanup(setattr, _groups, "layout", before)

    def made(self, cache, role=KVConnectorRole.SCHEDULER, extra=None, **changes):
        return TroupeConnector(fake_vllm.vllm_config(extra, **changes), role, cache)

    def asked(self, name):
        return [given for each, given in self.library.asked if each == name]


class groups(with_groups):
    def test_vllm_leaves_its_hybrid_manager_on(self):
        self.assertTrue(issubclass(TroupeConnector, fake_vllm.SupportsHMA))

    def test_groups_that_need_the_same_are_one(self):
        self.made(window_model())
        self.assertEqual(self.page_tokens, 16)
        self.assertEqual(self.groups, [(_groups.FULL, 0, 16, [2], b"engine-0.full", 2, 1, 8192),
                                       (_groups.WINDOW, 256, 16, [0, 1], b"engine-0.window-256", 2, 2, 8192)])
        self.assertNotEqual(*self.layouts)
        # The texts of many layers fit.
        self.assertTrue(all(b"16 tokens of full, window-256: " in layout for layout in self.layouts))
        many = [f"model.language_model.layers.{number}.self_attn.attn" for number in range(1000)]
        self.made(fake_vllm.grouped_config([(fake_vllm.SlidingWindowSpec(), many[:500]),
                                            (fake_vllm.FullAttentionSpec(), many[500:])]))
        self.assertTrue(all(len(layout) < 200 for layout in self.layouts))

    def test_the_identity_and_the_name_tell_apart_what_bytes_may_differ_by(self):
        seen = []

        def identity(groups, engine, number, digest, name):
            seen.append(groups.groups[number].ns.contents.layout)
            digest.value, name.value = b"0" * 32, b"engine-0"
            return 0

        self.library.answers["troupe_group_identity"] = identity

        def identities(cache):
            """The layout that the name is made of, and those of the groups."""
            seen.clear()
            self.made(cache)
            return seen[0], tuple(self.layouts)

        usual = identities(window_model())
        swapped = window_model()
        swapped.kv_cache_groups[0].layer_names, swapped.kv_cache_groups[1].layer_names = (
            ["layers.0", "layers.1"], ["layers.3", "layers.4"])
        swapped.kv_cache_tensors[0].layers, swapped.kv_cache_tensors[1].layers = (
            ["layers.0", "layers.1"], ["layers.3", "layers.4"])
        self.layout = "packed"
        moved = identities(swapped)
        self.layout = "packed otherwise"
        packed = identities(window_model())
        for other in (moved, packed):
            self.assertNotEqual(usual[0], other[0])
            for one, another in zip(usual[1], other[1]):
                self.assertNotEqual(one, another)

    def test_states_have_the_bytes_of_their_parts(self):
        self.made(state_model())
        self.assertEqual(self.groups, [(_groups.FULL, 0, 16, [2], b"engine-0.full", 1, 1, 8192),
                                       (_groups.STATE, 0, 16, [0, 1], b"engine-0.state", 1, 2, 3 * 32 * 2 + 4 * 8 * 16 * 4)])

    def test_states_of_other_kinds_have_another_layout(self):
        layouts = set()
        sys.modules["vllm"].__version__ = "0.32.0"
        for shapes, dtypes in ((((3, 32), (4, 8, 16)), (fake_vllm.dtype(), fake_vllm.state_dtype())),
                               (((32, 3), (4, 8, 16)), (fake_vllm.dtype(), fake_vllm.state_dtype())),
                               (((3, 32), (4, 16, 8)), (fake_vllm.dtype(), fake_vllm.state_dtype())),
                               (((3, 32), (4, 8, 16)), (fake_vllm.some(itemsize=2), fake_vllm.state_dtype()))):
            spec = fake_vllm.MambaSpec()
            spec.shapes, spec.dtypes = shapes, dtypes
            layouts.add(self.real_layout(_groups.STATE, spec, None, True))
        sys.modules["vllm"].__version__ = "0.33.0"
        layouts.add(self.real_layout(_groups.STATE, spec, None, True))
        self.assertEqual(len(layouts), 5)

    def test_a_page_has_several_blocks_of_smaller_groups(self):
        cache = fake_vllm.grouped_config([(fake_vllm.SlidingWindowSpec(), ["a"]),
                                          (fake_vllm.FullAttentionSpec(block_size=64), ["b"])], page_tokens=64)
        self.made(cache, extra={"troupe.namespace": "mine"})
        self.assertEqual([group[4:7] for group in self.groups],
                         [(b"mine.full", 1, 1), (b"mine.window-256", 1, 4)])

    def test_groups_at_other_places_or_of_other_sizes_are_apart(self):
        cache = window_model()
        cache.kv_cache_tensors[1].offset = 4096
        self.made(cache)
        self.assertEqual([group[3] for group in self.groups], [[2], [0], [1]])
        self.assertEqual(len({group[4] for group in self.groups}), 3)
        cache = window_model()
        cache.kv_cache_groups[1].layer_names = ["layers.1"]
        cache.kv_cache_tensors[1].layers = ["layers.1"]
        self.made(cache)
        self.assertEqual([group[3] for group in self.groups], [[2], [0], [1]])

    def test_groups_that_vllm_does_not_cache_are_left_out(self):
        cache = window_model()
        cache.prefix_cacheable_group_ids = (1, 2)
        self.made(cache)
        self.assertEqual([group[3] for group in self.groups], [[2], [1]])

    def test_a_window_in_all_layers_is_a_group(self):
        self.made(fake_vllm.grouped_config([(fake_vllm.SlidingWindowSpec(), ["a", "b"])]))
        self.assertEqual([group[0] for group in self.groups], [_groups.WINDOW])

    def test_what_does_not_work_is_said_with_the_way_out(self):
        unequal = window_model()
        unequal.kv_cache_groups[0].kv_cache_spec.block_size = 12
        self.addCleanup(setattr, fake_vllm.SlidingWindowSpec, "block_size", 16)
        for cache, sentence, changes in (
                (unequal, "do not divide", {}),
                (window_model(), "not tested with speculative decoding by dflash",
                 {"speculative_config": fake_vllm.some(method="dflash")}),
                (window_model(), "not tested with speculative decoding by medusa",
                 {"speculative_config": fake_vllm.some(method="medusa")}),
                (state_model(), "not tested with speculative decoding by medusa",
                 {"speculative_config": fake_vllm.some(method="medusa")}),
                (window_model(), "context", {"parallel_config__decode_context_parallel_size": 2}),
                (window_model(), "sync", {"extra": {"troupe.load": "sync"},
                                          "scheduler_config__async_scheduling": False}),
                (window_model(), "page_tokens", {"extra": {"troupe.page_tokens": 32}})):
            with self.assertRaisesRegex(ValueError, sentence):
                self.made(cache, **changes)

    def test_drafts_work_where_they_were_tested(self):
        for method in ("ngram", "draft_model", "eagle", "mtp"):
            cache = window_model()
            # vLLM 0.33 marks the group of EAGLE's layers, and 0.32 does not.
            cache.kv_cache_groups[2].is_eagle_group = method == "eagle"
            self.made(cache, speculative_config=fake_vllm.some(method=method))
            self.assertEqual(len(self.groups), 2)
            self.made(state_model(), speculative_config=fake_vllm.some(method=method))
            self.assertEqual([group[0] for group in self.groups], [_groups.FULL, _groups.STATE])

    def test_layers_of_several_shapes_are_pieces_of_one_size(self):
        full = fake_vllm.FullAttentionSpec
        worker_cache, scheduler_cache = fake_vllm.several_shapes({"a": full(heads=2), "b": full(heads=1, head_size=192)})
        registered = []

        def register(worker, layers, count, blocks):
            registered.append([(each.base, each.bytes, each.block_stride) for each in layers[:count]])
            return 0

        self.library.answers["troupe_worker_register"] = register
        worker, scheduler = self.made(worker_cache, KVConnectorRole.WORKER), self.made(scheduler_cache)
        self.assertEqual(self.asked("troupe_scheduler_create_groups"), [])
        size = 1 << 20
        worker.register_kv_caches({"a": fake_vllm.tensor((100, 2, 16, 128), storage=size),
                                   "b": fake_vllm.tensor((100, 1, 16, 384), storage=size)})
        of_worker = self.groups, self.layouts
        scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): worker.get_handshake_metadata()})
        # Blocks of 8192 and 12288 bytes.
        self.assertEqual(self.groups, [(_groups.FULL, 0, 16, [0], b"engine-0.full", 5, 1, 4096)])
        self.assertEqual((self.groups, self.layouts), of_worker)
        self.assertEqual([(base - (1 << 40), rest, stride) for base, rest, stride in registered[0]],
                         [(0, size, 8192), (4096, size - 4096, 8192),
                          (0, size, 12288), (4096, size - 4096, 12288), (8192, size - 8192, 12288)])
        self.assertEqual(len(self.asked("troupe_scheduler_create_groups")), 1)

    def test_the_identity_contains_the_sizes_of_all_layers(self):
        full, layouts = fake_vllm.FullAttentionSpec, set()
        for sizes in ((64, 192), (128, 128), (192, 64), (64, 64, 128)):
            cache, _ = fake_vllm.several_shapes({f"layers.{number % 2}{number // 2 * 'x'}": full(heads=1, head_size=size)
                                                 for number, size in enumerate(sizes)})
            groups = _groups.Groups(_groups.own_groups(cache, 16, True, None), 16, 1)
            layouts.add(groups.identity())
        self.assertEqual(len(layouts), 4)

    def test_groups_with_shapes_in_another_order_are_apart(self):
        full, uniform = fake_vllm.FullAttentionSpec, fake_vllm.UniformTypeKVCacheSpecs
        for second, count in (((64, 128), 1), ((128, 64), 2)):
            groups = [uniform({f"{name}.{number}": full(heads=1, head_size=size) for number, size in enumerate(sizes)})
                      for name, sizes in (("a", (64, 128)), ("b", second))]
            cache = fake_vllm.grouped_config([(each, list(each.kv_cache_specs)) for each in groups])
            self.assertEqual(len(_groups.own_groups(cache, 16, True, None)), count)

    def test_a_scheduler_that_does_not_get_the_shapes_is_refused(self):
        full = fake_vllm.FullAttentionSpec
        worker_cache, scheduler_cache = fake_vllm.several_shapes({"a": full(), "b": full(heads=1)})
        scheduler = self.made(scheduler_cache)
        with self.assertRaisesRegex(ValueError, "not passed on what its workers"):
            scheduler.build_connector_meta(None)
        with self.assertRaisesRegex(ValueError, "first connector of a MultiConnector"):
            scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): "another connector's"})
        worker = self.made(worker_cache, KVConnectorRole.WORKER)
        worker.register_kv_caches({"a": fake_vllm.tensor((100, 2, 16, 128)), "b": fake_vllm.tensor((100, 1, 16, 128))})
        with self.assertRaisesRegex(ValueError, "was not told"):
            worker.bind_connector_metadata(fake_vllm.some(data=b"for one namespace", groups=0))

    def split(self, *shapes, order=None, layout="LBHNC"):
        """Workers of engines whose kernels have blocks of these shapes, in those of 80 tokens, and their scheduler."""
        fake_vllm.platform.cpu = False
        states = type("MambaSpec", (fake_vllm.MambaSpec,), {"block_size": 80})
        cache = fake_vllm.grouped_config([(states(), ["mixer"]), (fake_vllm.FullAttentionSpec(block_size=80), ["attn"])],
                                         page_tokens=80, hash_tokens=80)
        scheduler = self.made(cache, cache_config__kv_cache_layout=layout)
        workers = [self.made(cache, KVConnectorRole.WORKER, cache_config__kv_cache_layout=layout) for _ in shapes]
        state = sum(math.prod(shape) * each.itemsize for shape, each in zip(states.shapes, states.dtypes))
        for worker, shape in zip(workers, shapes):
            worker.register_kv_caches({"mixer": fake_vllm.tensor((100, 1, 1, state), itemsize=1),
                                       "attn": fake_vllm.tensor(shape, order=order)})
        return workers, scheduler

    def test_the_identity_contains_how_kernels_split_blocks_with_heads_apart(self):
        registered, seen = [], []

        def register(worker, layers, count, blocks):
            registered.append([each.block_stride for each in layers[:count]])
            seen.append(self.layouts)
            return 0

        self.library.answers["troupe_worker_register"] = register
        workers, scheduler = self.split((500, 2, 16, 128), (200, 2, 40, 128), (100, 2, 80, 128))
        self.assertEqual(self.asked("troupe_scheduler_create_groups"), [])
        # 80 tokens, 2 heads, 256 bytes.
        self.assertEqual([strides[0] for strides in registered], [40960] * 3)
        self.assertEqual(len({layout for layouts in seen for layout in layouts}), 6)
        scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): workers[0].get_handshake_metadata()})
        self.assertEqual(self.layouts, seen[0])

    def test_blocks_that_kernels_split_with_heads_side_by_side_have_one_order(self):
        workers, scheduler = self.split((500, 2, 16, 128), (100, 2, 80, 128), order=(0, 2, 1, 3), layout="LBNHC")
        self.assertEqual(len(self.asked("troupe_scheduler_create_groups")), 1)
        self.assertEqual([worker.get_handshake_metadata() for worker in workers], [None, None])

    def test_split_blocks_that_the_scheduler_does_not_know_of_are_refused(self):
        whole, split = fake_vllm.tensor((100, 2, 80, 128)), fake_vllm.tensor((500, 2, 16, 128))
        self.assertEqual(_groups._pieces(["a", "b"], {"a": whole, "b": split}, 100), 5)
        for tensor, known in ((whole, 5), (split, 1), (split, 10)):
            with self.assertRaisesRegex(ValueError, "heads apart"):
                _groups._view("a", {"a": tensor}, 100, 40960, known)
        with self.assertRaisesRegex(ValueError, "5 pieces that have their heads apart.*--attention-backend TRITON_ATTN"):
            self.split((500, 2, 16, 128), layout="LBNHC")

    def test_layers_of_one_shape_stay_one_namespace_if_they_lie_apart(self):
        full = fake_vllm.FullAttentionSpec
        fake_vllm.platform.cpu = False

        def identity(ns, engine, digest, name):
            digest.value, name.value = b"0" * 32, b"engine-0"
            return 0

        self.library.answers["troupe_namespace_identity"] = identity
        worker_cache, scheduler_cache = fake_vllm.several_shapes({"a": full(), "b": full()})
        worker, scheduler = self.made(worker_cache, KVConnectorRole.WORKER), self.made(scheduler_cache)
        worker.register_kv_caches({name: fake_vllm.tensor((100, 2, 16, 128)) for name in "ab"})
        scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): worker.get_handshake_metadata()})
        self.assertEqual(len(self.asked("troupe_scheduler_create")), 1)
        self.assertEqual(self.asked("troupe_scheduler_create_groups"), [])

    def test_layers_of_one_group_that_need_different_parts_are_refused(self):
        cache, _ = fake_vllm.several_shapes({"a": fake_vllm.FullAttentionSpec(), "b": fake_vllm.SlidingWindowSpec()})
        worker = self.made(cache, KVConnectorRole.WORKER)
        with self.assertRaisesRegex(ValueError, "different parts of a prefix"):
            worker.register_kv_caches({})

    def test_without_prefix_caching_there_are_no_states(self):
        cache = state_model()
        for group in cache.kv_cache_groups[:2]:
            group.kv_cache_spec.mamba_cache_mode = "none"
        with self.assertLogs("vllm.troupe", "WARNING") as said:
            connector = self.made(cache)
        self.assertIn("--enable-prefix-caching", said.output[0])
        request = fake_vllm.request("one", range(40))
        connector.on_new_request(request)
        self.assertEqual(connector.get_num_new_matched_tokens(request, 0), (0, False))
        self.assertEqual(connector.request_finished_all_groups(request, ([1], [2])), (False, None))
        self.assertEqual(connector.build_connector_meta(None).data, b"")
        self.assertFalse(connector.has_pending_push_work())
        # vLLM calls it at each start, and where no worker has anything to pass on.
        connector.set_xfer_handshake_metadata_pp_aware({})
        worker = self.made(cache, KVConnectorRole.WORKER)
        worker.register_kv_caches({})
        self.assertIsNone(worker.get_handshake_metadata())
        self.assertEqual(worker.get_transfer_results(set()), fake_vllm.KVConnectorTransferResults())


class scheduling(with_groups):
    def setUp(self):
        super().setUp()
        self.connector, self.pool = self.made(window_model()), pool()
        self.connector.bind_gpu_block_pool(self.pool)
        self.request = fake_vllm.request("one", range(40))
        self.connector.on_new_request(self.request)
        self.steps = []

        def build(handle, step, out):
            count = max(step.requests.count * step.tables, 1)
            self.steps.append((step.tables, numbers(step.block_ends, count), numbers(step.blocks.data, step.blocks.count),
                               numbers(step.state_ends, step.requests.count), numbers(step.states, 3 * step.state_count)))
            self.library.bytes(out, b"meta")
            return 0

        self.library.answers["troupe_scheduler_build_meta"] = build

    def holds(self, hold=(), release=()):
        def answer(handle, out_hold, out_release):
            for out, blocks in ((out_hold, hold), (out_release, release)):
                held = array.array("I", blocks)
                self.library.held.append(held)
                out.data, out.count = (held.buffer_info()[0] if blocks else None), len(blocks)
            return 0
        self.library.answers["troupe_scheduler_take_holds"] = answer

    def step(self, new=(), cached=(), offers=None):
        return fake_vllm.some(
            scheduled_new_reqs=[fake_vllm.some(req_id=name, num_computed_tokens=0, block_ids=blocks)
                                for name, blocks in new],
            scheduled_cached_reqs=fake_vllm.some(req_ids=[name for name, _ in cached], resumed_req_ids=set(),
                                                 num_computed_tokens=[16 for _ in cached],
                                                 new_block_ids=[blocks for _, blocks in cached]),
            num_scheduled_tokens={name: 16 for name, _ in (*new, *cached)}, preempted_req_ids=None,
            kv_connector_block_state=fake_vllm.some(boundary_state_offloads=offers or {}))

    def test_tables_of_all_groups(self):
        self.connector.build_connector_meta(self.step(new=[("one", ([0, 4], [0, 5], [6, 7]))]))
        self.assertEqual(self.steps[-1], (3, [2, 4, 6], [NULL, 4, NULL, 5, 6, 7], [], []))
        self.connector.build_connector_meta(self.step(cached=[("one", None)]))
        self.assertEqual(self.steps[-1][:3], (3, [], []))
        self.connector.build_connector_meta(self.step(cached=[("one", ([8], [], [9]))]))
        self.assertEqual(self.steps[-1][:3], (3, [1, 1, 2], [8, 9]))

    def test_states_are_passed_on_with_their_request(self):
        other = fake_vllm.request("two", range(40))
        self.connector.on_new_request(other)
        self.connector.build_connector_meta(self.step(new=[("one", ([1], [2], [3])), ("two", ([4], [5], [6]))],
                                                      offers={"two": [(0, 4, 16), (1, 5, 16)], "gone": [(0, 9, 16)]}))
        self.assertEqual(self.steps[-1][3:], ([0, 2], [0, 4, 16, 1, 5, 16]))

    def test_blocks_to_load_are_new_ones(self):
        def block(number, null=False, hashed=False):
            return fake_vllm.some(block_id=number, is_null=null, block_hash=b"x" if hashed else None)

        seen = []

        def allocated(handle, name, blocks, count, ends, tables, external):
            seen.append((numbers(blocks, count), numbers(ends, tables), external))
            return 0

        self.library.answers["troupe_scheduler_allocated_tables"] = allocated
        tables = ([block(0, null=True), block(3)], [block(0, null=True), block(4)], [block(5, hashed=True), block(6)])
        self.connector.update_state_after_alloc(self.request, fake_vllm.some(blocks=tables), 16)
        self.assertEqual(seen[-1], ([NULL, 3, NULL, 4, NULL, 6], [2, 4, 6], 16))
        self.connector.update_state_after_alloc(self.request, fake_vllm.some(blocks=tables), 0)
        self.assertEqual(seen[-1], ([], [0, 0, 0], 0))

    def test_blocks_that_are_saved_are_held(self):
        self.holds(hold=[4, 4, 6])
        self.connector.build_connector_meta(self.step(new=[("one", ([4], [5], [6]))]))
        self.assertEqual((self.pool.counts[4], self.pool.counts[6]), (2, 1))
        self.assertTrue(self.connector.has_pending_push_work())
        self.holds(release=[4, 6, 4])
        self.connector.update_connector_output(fake_vllm.some(
            finished_sending=None, finished_recving=None, failed_recving=None, invalid_block_ids=set(),
            kv_connector_worker_meta=None))
        self.assertEqual(sum(self.pool.counts), 0)
        self.assertFalse(self.connector.has_pending_push_work())

    def test_failures_go_by_request(self):
        worker = self.made(window_model(), KVConnectorRole.WORKER)
        worker._half = fake_vllm.some(get_finished=lambda names: ([], ["one", "two"], ["two"]))
        said = worker.get_transfer_results(set())
        self.assertEqual((said.finished_recving, said.failed_recving), ({"one", "two"}, {"two"}))


if __name__ == "__main__":
    unittest.main()
