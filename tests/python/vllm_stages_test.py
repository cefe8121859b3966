"""The plug-in with pipeline stages, without vLLM: what processes of an engine know of each other's layers."""

import ctypes
import json
import sys
import unittest
from unittest import mock

import fake_vllm
from fake_library import fake

fake_vllm.install(several_groups=True)

import troupe.vllm  # noqa: E402
from troupe import _events, _groups, _interface, _kv_shape, _stages  # noqa: E402
from troupe.vllm import KVConnectorRole, TroupeConnector  # noqa: E402

WORKER, SCHEDULER = KVConnectorRole.WORKER, KVConnectorRole.SCHEDULER


def numbers(place, count):
    return list((ctypes.c_uint32 * count).from_address(place)) if place and count else []


def one_group(*layers):
    return fake_vllm.grouped_config([(fake_vllm.FullAttentionSpec(), layers)])


def two_groups(windows, full):
    return fake_vllm.grouped_config([(fake_vllm.SlidingWindowSpec(), windows), (fake_vllm.FullAttentionSpec(), full)])


class stages(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)
        self.created = []

        def created(connection, groups, engine, *rest):
            self.created.append([(group.stage, group.kind, numbers(group.tables, group.table_count),
                                  group.ns.contents.geometry.contents.layers, group.ns.contents.name.decode(),
                                  group.ns.contents.layout.decode()) for group in groups.groups[:groups.count]])
            self.replicated = engine.kv_replicated
            return 0

        def identity_of_group(groups, engine, number, digest, name):
            digest.value, name.value = b"1" * 32, groups.groups[number].ns.contents.name or b"engine-0"
            return 0

        for kind in ("scheduler", "worker"):
            self.library.answers[f"troupe_{kind}_create_groups"] = created
        def identity(ns, engine, digest, name):
            digest.value, name.value = b"0" * 32, b"engine-0"
            return 0

        self.library.answers["troupe_group_identity"] = identity_of_group
        self.library.answers["troupe_namespace_identity"] = identity
        for place, name, value in ((fake_vllm.platform, "cpu", True), (fake_vllm.group, "world_size", 1),
                                   (fake_vllm.group, "rank_in_group", 0),
                                   (_groups, "layout", lambda kind, spec, config, on_cpu: "packed"),
                                   (_groups, "_view", lambda name, *_: {"base": 0, "bytes": 0}),
                                   (_kv_shape, "cpu_layout", lambda spec: "packed"),
                                   (troupe.vllm, "worker_number", lambda: fake_vllm.group.rank_in_group),
                                   (_stages, "exchanged", lambda mine: self.said)):
            changed = mock.patch.object(place, name, value)
            changed.start()
            self.addCleanup(changed.stop)

    def config(self, extra=None, **changes):
        return fake_vllm.vllm_config({"troupe.namespace": "mine", **(extra or {})},
                                     parallel_config__pipeline_parallel_size=2, **changes)

    def engine(self, *caches, config=None, **changes):
        """The halves of an engine whose stages have these configs: workers, and the scheduler."""
        config = config or self.config(**changes)
        workers = [TroupeConnector(config, WORKER, cache) for cache in caches]
        self.said = [json.loads(json.dumps(_stages.described(worker._own_stage))) for worker in workers]
        scheduler = TroupeConnector(config, SCHEDULER, caches[0])
        for stage, (worker, cache) in enumerate(zip(workers, caches)):
            with mock.patch.object(fake_vllm.group, "rank_in_group", stage):
                worker.register_kv_caches({name: fake_vllm.tensor((100, 2, 16, 128))
                                           for group in cache.kv_cache_groups for name in group.layer_names})
        scheduler.set_xfer_handshake_metadata_pp_aware(
            {(stage, 0): worker.get_handshake_metadata() for stage, worker in enumerate(workers)})
        return workers, scheduler

    def asked(self, name):
        return [given for each, given in self.library.asked if each == name]

    def test_stages_with_different_numbers_of_layers_are_groups(self):
        self.engine(one_group("layers.0", "layers.1"), one_group("layers.2"))
        # Both workers and the scheduler.
        self.assertEqual(len(self.created), 3)
        self.assertEqual(self.created[0], self.created[1])
        self.assertEqual(self.created[0], self.created[2])
        self.assertEqual([group[:5] for group in self.created[0]],
                         [(1, _groups.FULL, [0], 2, "mine.stage-0.full"), (2, _groups.FULL, [0], 1, "mine.stage-1.full")])

    def test_a_worker_registers_the_layers_of_its_stage(self):
        self.engine(one_group("layers.0", "layers.1"), one_group("layers.2"))
        self.assertEqual([given[2] for given in self.asked("troupe_worker_register")], [2, 1])
        self.assertEqual([given[3] for given in self.asked("troupe_worker_create_groups")], [0, 1])

    def test_a_stage_without_layers_of_a_group_has_no_such_group(self):
        self.engine(two_groups(["layers.0", "layers.1"], ["layers.2"]), two_groups(["layers.3", "layers.4"], []))
        self.assertEqual([group[:4] for group in self.created[-1]],
                         [(1, _groups.FULL, [1], 1), (1, _groups.WINDOW, [0], 2), (2, _groups.WINDOW, [0], 2)])

    def test_stages_that_are_alike_stay_ranks_of_one_namespace(self):
        self.engine(one_group("layers.0", "layers.1"), one_group("layers.2", "layers.3"))
        self.assertEqual(self.created, [])
        self.assertEqual([given[3] for given in self.asked("troupe_worker_create")], [0, 1])
        self.assertEqual(len(self.asked("troupe_scheduler_create")), 1)

    def test_the_identity_contains_the_layers_of_all_stages(self):
        self.engine(one_group("layers.0", "layers.1"), one_group("layers.2"))
        self.engine(one_group("layers.0"), one_group("layers.1", "layers.2"))
        self.engine(two_groups(["layers.0"], ["layers.1"]), two_groups(["layers.2"], ["layers.3"]))
        self.engine(two_groups(["layers.0"], ["layers.2"]), two_groups(["layers.1"], ["layers.3"]))
        layouts = [tuple(group[5] for group in self.created[first]) for first in range(0, 12, 3)]
        self.assertEqual(len(set(layouts)), 4)

    def test_latent_layers_are_saved_by_one_worker_of_each_stage(self):
        latent = fake_vllm.MLAAttentionSpec
        with mock.patch.object(fake_vllm.platform, "cpu", False):
            self.engine(fake_vllm.grouped_config([(latent(), ["layers.0", "layers.1"])]),
                        fake_vllm.grouped_config([(latent(), ["layers.2"])]))
        self.assertEqual(self.replicated, 1)
        self.engine(one_group("layers.0", "layers.1"), one_group("layers.2"))
        self.assertEqual(self.replicated, 0)

    def test_an_error_of_one_stage_is_one_of_all_workers(self):
        config = self.config()
        worker = TroupeConnector(config, WORKER, one_group("layers.0"))

        def fail():
            raise ValueError("no such layer")

        self.said = [_stages.described(worker._own_stage), _stages.described(fail)]
        with self.assertRaisesRegex(ValueError, "pipeline stage 1: no such layer"):
            worker.register_kv_caches({})

    def test_a_worker_that_refuses_says_so_to_those_that_wait(self):
        config = self.config({"troupe.adress": "x"})
        worker = TroupeConnector(config, WORKER, one_group("layers.0"))
        with mock.patch.object(_stages, "exchanged", lambda mine: [{"stage": {}}, mine]):
            with self.assertRaisesRegex(ValueError, "pipeline stage 1: .*troupe.adress"):
                worker.register_kv_caches({"layers.0": None})
        other = TroupeConnector(self.config(), WORKER, one_group("layers.0"))
        self.said = [_stages.described(other._own_stage), _stages.described(worker._own_stage)]
        with self.assertRaisesRegex(ValueError, "pipeline stage 1: .*troupe.adress"):
            other.register_kv_caches({"layers.0": None})
        # Without stages no worker waits, and none waits for the scheduler.
        for role, changes in ((WORKER, {"parallel_config__pipeline_parallel_size": 1}), (SCHEDULER, {})):
            with self.assertRaisesRegex(ValueError, "troupe.adress"):
                TroupeConnector(fake_vllm.vllm_config({"troupe.adress": "x"}, **{
                    "parallel_config__pipeline_parallel_size": 2, **changes}), role, one_group("layers.0"))

    def test_what_does_not_work_with_stages_of_different_sizes_is_said(self):
        unequal = one_group("layers.0", "layers.1"), one_group("layers.2")
        for changes, sentence in (({"speculative_config": fake_vllm.some(method="ngram")}, "stages"),
                                  ({"parallel_config__decode_context_parallel_size": 2}, "context parallelism"),
                                  ({"extra": {"troupe.page_tokens": 32}}, "page_tokens"),
                                  ({"extra": {"troupe.load": "sync"}, "scheduler_config__async_scheduling": False},
                                   "sync")):
            with self.assertRaisesRegex(ValueError, sentence):
                self.engine(*unequal, **changes)
        with self.assertRaisesRegex(ValueError, "stage 1 has no layer"):
            self.engine(two_groups(["layers.0"], ["layers.1"]), two_groups([], []))
        # They do where stages are alike.
        self.engine(one_group("layers.0"), one_group("layers.1"), extra={"troupe.page_tokens": 32})

    def test_older_versions_of_vllm_refuse_stages_of_different_sizes(self):
        with mock.patch("troupe.vllm.SEVERAL_GROUPS", ()):
            worker = TroupeConnector(self.config(), WORKER, one_group("layers.0", "layers.1"))
            other = TroupeConnector(self.config(), WORKER, one_group("layers.2"))
            self.said = [_stages.described(each._own_stage) for each in (worker, other)]
            with self.assertRaisesRegex(ValueError, r"\(2, 1 with.*VLLM_PP_LAYER_PARTITION"):
                worker.register_kv_caches({})

    def test_stages_that_the_config_calls_alike_need_no_metadata(self):
        utils = fake_vllm.some(get_pp_indices=lambda layers, stage, count: (stage * layers // count,
                                                                            (stage + 1) * layers // count))
        with mock.patch.dict(sys.modules, {"vllm.distributed.utils": utils}):
            config = self.config()
            config.model_config.get_total_num_hidden_layers = lambda: 4
            scheduler = TroupeConnector(config, SCHEDULER, one_group("layers.0", "layers.1"))
            self.assertEqual(len(self.asked("troupe_scheduler_create")), 1)
            worker = TroupeConnector(config, WORKER, one_group("layers.0", "layers.1"))
            self.assertIsNone(worker.get_handshake_metadata())
            scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): "another connector's"})
            # What the workers have is compared all the same: a layer of the last stage keeps no KV.
            self.library.asked.clear()
            workers, scheduler = self.engine(one_group("layers.0", "layers.1"), one_group("layers.2"), config=config)
            self.assertEqual(len(self.asked("troupe_scheduler_shutdown") + self.asked("troupe_scheduler_close")), 1)
            self.assertEqual([[group[:4] for group in each] for each in self.created],
                             [[(1, _groups.FULL, [0], 2), (2, _groups.FULL, [0], 1)]] * 3)
            # A scheduler that is not told so is found by the workers, before they load or save.
            with self.assertRaisesRegex(ValueError, "was not told"):
                workers[0].bind_connector_metadata(fake_vllm.some(data=b"for one namespace", groups=0))
            with self.assertRaisesRegex(ValueError, "was not told"):
                workers[0].handle_preemptions(fake_vllm.some(data=b"for one namespace", groups=0))
            workers[0].bind_connector_metadata(fake_vllm.some(data=b"for two groups", groups=2))
            # Not where the config does not say it.
            full = fake_vllm.FullAttentionSpec
            shapes = fake_vllm.several_shapes({"layers.0": full(), "layers.1": full(heads=1)})
            for cache in (one_group("layers.0"), two_groups(["layers.0"], ["layers.1"]), *shapes):
                unknown = TroupeConnector(config, SCHEDULER, cache)
                with self.assertRaisesRegex(ValueError, "another connector"):
                    unknown.set_xfer_handshake_metadata_pp_aware({(0, 0): "another connector's"})

    def test_the_scheduler_gets_what_it_waits_for_where_stages_are_alike(self):
        utils = fake_vllm.some(get_pp_indices=lambda layers, stage, count: (0, 2))
        full = fake_vllm.FullAttentionSpec
        # Layers that lie apart may have several shapes, for all that the scheduler knows.
        first, second = (fake_vllm.several_shapes({name: full() for name in names})[0]
                         for names in (("layers.0", "layers.1"), ("layers.2", "layers.3")))
        with mock.patch.dict(sys.modules, {"vllm.distributed.utils": utils}):
            config = self.config()
            config.model_config.get_total_num_hidden_layers = lambda: 4
            self.engine(first, second, config=config)
        self.assertEqual(len(self.asked("troupe_scheduler_create")), 1)

    def test_without_the_stages_no_step_runs(self):
        scheduler = TroupeConnector(self.config(), SCHEDULER, one_group("layers.0"))
        self.assertIsNone(scheduler.get_finished_count())
        with self.assertRaisesRegex(ValueError, "has not passed on"):
            scheduler.build_connector_meta(None)
        self.said = [{"stage": {}}, {"stage": {"other": 1}}]
        with self.assertRaisesRegex(ValueError, "different things"):
            scheduler.set_xfer_handshake_metadata_pp_aware(
                {(stage, 0): fake_vllm.some(said=[each]) for stage, each in enumerate(self.said)})

    def test_events_name_what_the_first_stage_has_and_what_any_lacks(self):
        tables = [(_events.Table(0, 16),), (_events.Table(1, 16), _events.Table(0, 16)), (_events.Table(1, 16),)]
        request = fake_vllm.request("one", range(32))
        events = _events.Events(_events.Format(), tables, 16)

        def take(kind, group, first=0, pages=2, save=0):
            return events.take([(kind, "one", group, first, pages, save, b"")], 16, lambda name: request)

        self.assertEqual([each.group_idx for each in take(_interface.EVENT_STORED, 0)], [0])
        self.assertEqual([each.group_idx for each in take(_interface.EVENT_STORED, 1)], [1])
        self.assertEqual(take(_interface.EVENT_STORED, 2), [])
        self.assertEqual([each.group_idx for each in take(_interface.EVENT_REMOVED, 2, first=1, pages=1)], [1])
        self.assertEqual([each.group_idx for each in take(_interface.EVENT_REMOVED, 1)], [1, 0])
        self.assertEqual(events.announced(), 0)


if __name__ == "__main__":
    unittest.main()
