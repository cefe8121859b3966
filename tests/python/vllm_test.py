"""The plug-in's handling of vLLM's objects, without vLLM: arrays, geometry, refusals."""

import ctypes
import os
import pickle
import unittest
from unittest import mock

import fake_vllm
from fake_library import fake

fake_vllm.install()

from troupe import _interface, _kv_shape  # noqa: E402
from troupe.vllm import KVConnectorRole, TroupeConnector, TroupeMetadata, TroupeWorkerMetadata  # noqa: E402


def numbers(place, count):
    return list((ctypes.c_uint32 * count).from_address(place)) if place and count else []


class with_library(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)
        self.addCleanup(setattr, fake_vllm.platform, "cpu", fake_vllm.platform.cpu)

        def identity(ns, engine, digest, name):
            self.ns, self.engine = ns, engine
            self.texts = {key: getattr(ns, key) for key, _ in ns._fields_ if key not in ("geometry", "size")}
            self.geometry = ns.geometry.contents
            digest.value, name.value = b"0" * 32, b"engine-0"
            return 0

        self.library.answers["troupe_namespace_identity"] = identity
        self.steps = []

    def made(self, role=KVConnectorRole.SCHEDULER, extra=None, cache=None, **changes):
        return TroupeConnector(fake_vllm.vllm_config(extra, **changes), role, cache or fake_vllm.kv_cache_config())

    def asked(self, name):
        return [given for each, given in self.library.asked if each == name]


class starting(with_library):
    def test_both_halves_say_the_same_namespace(self):
        self.made()
        scheduler = dict(self.texts), bytes(self.geometry), bytes(self.engine)
        self.made(KVConnectorRole.WORKER)
        self.assertEqual(scheduler, (dict(self.texts), bytes(self.geometry), bytes(self.engine)))
        self.assertEqual(self.texts["model"], b"tiny")
        self.assertEqual(self.texts["dtype"], b"bfloat16")
        self.assertEqual(self.texts["hash_algorithm"], b"sha256 blocks 16")

    def test_what_changes_the_bytes_changes_the_namespace(self):
        self.made()
        usual = dict(self.texts)
        for changes in ({"model_config__revision": "other"}, {"cache_config__cache_dtype": "fp8"},
                        {"model_config__quantization": "awq"}, {"model_config__hf_overrides": {"rope_theta": 1}},
                        {"model_config__model": "large"}, {"cache_config__prefix_caching_hash_algo": "sha256_cbor"}):
            self.made(**changes)
            self.assertNotEqual(usual, self.texts, changes)
        self.made(extra={"troupe.salt": "mine"})
        self.assertNotEqual(usual, self.texts)
        with mock.patch.dict(os.environ, {"PYTHONHASHSEED": "7"}):
            self.made()
            self.assertNotEqual(usual, self.texts)

    def test_the_draft_model_is_part_of_the_namespace(self):
        def with_draft(model, revision=None, method="eagle3"):
            guessing = fake_vllm.some(method=method, draft_model_config=fake_vllm.some(model=model, revision=revision))
            self.made(speculative_config=guessing)
            return dict(self.texts)

        self.made()
        usual = dict(self.texts)
        one = with_draft("small")
        self.assertEqual(one, with_draft("small"))
        for other in (usual, with_draft("tiny"), with_draft("small", "main"), with_draft("small", method="eagle")):
            self.assertNotEqual(one, other)
        # Guesses from the prompt alone have no KV cache.
        for named in (None, fake_vllm.some(model="tiny", revision=None)):
            self.made(speculative_config=fake_vllm.some(method="ngram", draft_model_config=named))
            self.assertEqual(usual, self.texts)

    def test_a_cache_whose_scales_are_the_engines_own_is_refused(self):
        with self.assertRaisesRegex(ValueError, "--calculate-kv-scales"):
            self.made(cache_config__cache_dtype="fp8", cache_config__calculate_kv_scales=True)
        self.made(cache_config__cache_dtype="fp8", cache_config__calculate_kv_scales=False)
        self.made(cache_config__calculate_kv_scales=True)

    def test_which_worker_holds_a_token_is_part_of_the_namespace(self):
        def identity(block=16, page=0, **parallel):
            heads = fake_vllm.FullAttentionSpec(block_size=block, heads=1)
            self.made(extra={"troupe.page_tokens": page}, cache=fake_vllm.kv_cache_config(heads),
                      parallel_config__tensor_parallel_size=4,
                      **{f"parallel_config__{name}": value for name, value in parallel.items()})
            # The result in the library: pages have one block unless set otherwise.
            return self.texts, self.geometry.page_tokens or self.engine.block_tokens, self.geometry.heads

        usual = identity()
        two = identity(decode_context_parallel_size=2)
        self.assertNotEqual(usual, two)
        self.assertEqual(two, identity(decode_context_parallel_size=2, cp_kv_cache_interleave_size=1))
        for name in ("cp_kv_cache_interleave_size", "dcp_kv_cache_interleave_size"):
            self.assertNotEqual(two, identity(decode_context_parallel_size=2, **{name: 16}), name)
        # Pages of 32 tokens of one head for blocks of 32 tokens: every other token, or all of them.
        self.assertNotEqual(identity(decode_context_parallel_size=2, page=32), identity(block=32))
        # An interleave without context parallelism says nothing.
        self.assertEqual(usual, identity(cp_kv_cache_interleave_size=16))

    def test_hashes_that_differ_between_processes_are_not_used(self):
        self.made(cache_config__prefix_caching_hash_algo="xxhash")
        self.assertEqual(self.engine.keys, _interface.KEYS_ROLLING)
        self.assertEqual(self.texts["hash_algorithm"], b"tokens blocks 16")
        self.made()
        self.assertEqual(self.engine.keys, _interface.KEYS_ENGINE_HASHES)
        self.made(extra={"troupe.keys": "tokens"})
        self.assertEqual(self.engine.keys, _interface.KEYS_ROLLING)
        self.made(extra={"troupe.keys": "engine"}, cache_config__prefix_caching_hash_algo="xxhash")
        self.assertEqual((self.engine.keys, self.engine.hash_bytes), (_interface.KEYS_ENGINE_HASHES, 16))

    def test_options_reach_the_library(self):
        self.made(extra={"troupe.load": "sync", "troupe.min_load_tokens": 512, "troupe.save": "prompts",
                         "troupe.lease_seconds": 3, "troupe.page_tokens": 64, "troupe.namespace": "mine",
                         "troupe.disk_hits": "always"},
                  scheduler_config__async_scheduling=False, parallel_config__tensor_parallel_size=4)
        engine = self.engine
        self.assertEqual((engine.synchronous_loads, engine.min_load_tokens, engine.prompts_only, engine.lease_seconds,
                          engine.tensor_parallel), (1, 512, 1, 3.0, 4))
        self.assertEqual(engine.disk_hits, _interface.DISK_HITS_ALWAYS)
        self.assertEqual((self.geometry.page_tokens, self.texts["name"]), (64, b"mine"))

    def test_no_request_waits_for_a_slow_disk_unless_it_is_said(self):
        self.made()
        self.assertEqual(self.engine.disk_hits, _interface.DISK_HITS_WHEN_FASTER)

    def test_a_node_that_is_not_there_stops_nothing(self):
        self.library.answers["troupe_scheduler_attached"] = lambda handle: _interface.UNREACHABLE
        with self.assertLogs("vllm.troupe", "WARNING") as logs:
            self.made()
        self.assertIn("no node at 127.0.0.1:4600 yet", "".join(logs.output))

    def test_a_node_that_does_not_fit_does(self):
        self.library.answers["troupe_scheduler_create"] = lambda *_: 11
        with self.assertRaisesRegex(RuntimeError, "told to fail"):
            self.made()

    def test_vllms_default_for_failed_loads_is_pointed_out(self):
        with self.assertLogs("vllm.troupe", "WARNING") as logs:
            self.made(kv_transfer_config__kv_load_failure_policy="fail")
        self.assertIn("recompute", "".join(logs.output))

    def test_saves_need_not_be_delivered(self):
        self.assertFalse(self.made().requires_kv_delivery)


class shapes(with_library):
    def registered(self, spec, shape, **tensor):
        cache = fake_vllm.kv_cache_config(spec, blocks=100)
        worker = self.made(KVConnectorRole.WORKER, cache=cache)
        names = cache.kv_cache_groups[0].layer_names
        worker.register_kv_caches({name: fake_vllm.tensor(shape, offset=number * 4096, **tensor)
                                   for number, name in enumerate(names)})
        (_, layers, count, blocks), = self.asked("troupe_worker_register")
        self.assertEqual((count, blocks), (2, 100))
        self.assertEqual([layer.base - (1 << 40) for layer in layers], [0, 4096])
        self.assertEqual([layer.bytes for layer in layers], [1 << 30, (1 << 30) - 4096])
        one = layers[0]
        return one.block_stride, one.part_stride, one.token_stride, one.head_stride

    def said(self):
        x = self.geometry
        return x.layers, x.parts, x.heads, x.head_size, x.element_bytes, x.opaque_block_bytes

    def test_keys_and_values_side_by_side(self):
        strides = self.registered(fake_vllm.FullAttentionSpec(), (100, 2, 16, 128), device="cuda")
        self.assertEqual(self.said(), (2, 1, 2, 128, 2, 0))
        self.assertEqual(strides, (8192, 256, 256, 4096))
        self.assertEqual(self.asked("troupe_worker_create")[0][4], 0)

    def test_tokens_before_heads(self):
        strides = self.registered(fake_vllm.FullAttentionSpec(), (100, 2, 16, 128), order=(0, 2, 1, 3), device="cuda")
        self.assertEqual(strides, (8192, 256, 512, 256))

    def test_blocks_first(self):
        strides = self.registered(fake_vllm.older_spec(), (100, 2, 16, 2, 64), device="cuda")
        self.assertEqual(self.said(), (2, 2, 2, 64, 2, 0))
        self.assertEqual(strides, (8192, 4096, 256, 128))

    def test_all_keys_before_all_values(self):
        strides = self.registered(fake_vllm.older_spec(), (2, 100, 16, 2, 64), device="cuda")
        self.assertEqual(strides, (4096, 409600, 256, 128))

    def test_values_of_another_size(self):
        strides = self.registered(fake_vllm.older_spec(head_size_v=32), (100, 16, 2, 96), device="cuda")
        self.assertEqual(self.said(), (2, 1, 2, 96, 2, 0))
        self.assertEqual(strides, (6144, 192, 384, 192))

    def test_latent_vectors(self):
        strides = self.registered(fake_vllm.MLAAttentionSpec(), (100, 16, 576), device="cuda")
        self.assertEqual(self.said(), (2, 1, 1, 576, 2, 0))
        self.assertEqual((strides[0], strides[2]), (18432, 1152))
        self.assertEqual(self.engine.kv_replicated, 1)

    def test_opaque_blocks_on_a_cpu(self):
        fake_vllm.platform.cpu = True
        with mock.patch.object(_kv_shape, "cpu_layout", return_value="cpu-x86_64-avx512-vec"):
            strides = self.registered(fake_vllm.FullAttentionSpec(), (100, 2, 16, 128))
        self.assertEqual(self.said(), (2, 0, 0, 0, 0, 8192))
        self.assertEqual(strides[0], 8192)
        self.assertEqual(self.texts["layout"], b"cpu-x86_64-avx512-vec")
        self.assertEqual(self.asked("troupe_worker_create")[0][4], -1)

    def test_latent_vectors_on_a_cpu_are_refused(self):
        fake_vllm.platform.cpu = True
        with self.assertRaisesRegex(ValueError, "as a whole on CPUs"):
            self.made(cache=fake_vllm.kv_cache_config(fake_vllm.MLAAttentionSpec()))

    def test_what_does_not_fit_is_refused(self):
        for sentence, spec, shape in (
                ("--block-size 8", fake_vllm.FullAttentionSpec(), (200, 2, 8, 128)),
                ("has 100 blocks", fake_vllm.FullAttentionSpec(), (100, 4, 16, 128)),
                ("has 100 blocks", fake_vllm.FullAttentionSpec(), (90, 2, 16, 128)),
                ("dimensions", fake_vllm.FullAttentionSpec(), (100, 4))):
            with self.assertRaisesRegex(ValueError, sentence):
                self.registered(spec, shape, device="cuda")

    def test_memory_is_let_go_and_registered_again(self):
        worker = self.made(KVConnectorRole.WORKER)
        worker.register_kv_caches({f"model.layers.{n}.self_attn": fake_vllm.tensor((100, 2, 16, 128))
                                   for n in range(2)})
        worker.unregister_kv_caches()
        worker.restore_kv_caches()
        names = [name for name in self.library.names() if "register" in name]
        self.assertEqual(names, ["troupe_worker_register", "troupe_worker_unregister", "troupe_worker_register"])


class scheduling(with_library):
    def setUp(self):
        super().setUp()
        self.requests = []

        def noted(handle, request, *_):
            self.requests.append((request.id, request.first_token, numbers(request.tokens, request.token_count),
                                  request.first_hash, request.hash_count, request.lora, request.cache_salt,
                                  request.multimodal_count, request.uncacheable))
            return 0

        def matched(handle, request, computed, out):
            noted(handle, request)
            out.known, out.tokens, out.asynchronous = self.answer
            return 0

        def built(handle, step, out):
            count = step.requests.count
            self.steps.append({
                "new": step.new_requests, "count": count, "computed": numbers(step.computed_tokens, count),
                "scheduled": numbers(step.scheduled_tokens, count),
                "ends": numbers(step.block_ends, count), "blocks": numbers(step.blocks.data, step.blocks.count),
                "token_firsts": numbers(step.token_firsts, count), "token_ends": numbers(step.token_ends, count),
                "tokens": numbers(step.tokens, step.token_count), "hash_firsts": numbers(step.hash_firsts, count),
                "hash_ends": numbers(step.hash_ends, count), "hash_count": step.hash_count,
                "hashes": step.hashes, "resumed": step.resumed, "preempted": step.preempted.data,
                "requests": (step.requests.data, step.requests.length, step.requests.count)})
            self.library.bytes(out, b"\0meta")
            return 0

        self.answer = (1, 32, 1)
        self.library.answers.update({
            "troupe_scheduler_on_new_request": noted, "troupe_scheduler_matched": matched,
            "troupe_scheduler_build_meta": built})

    def test_a_request_is_said_once(self):
        scheduler = self.made()
        one = fake_vllm.request("one", range(40))
        scheduler.on_new_request(one)
        self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (32, True))
        self.answer = (0, 0, 0)
        self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (None, False))
        first, second, third = self.requests
        self.assertEqual((first[0], first[1], len(first[2]), first[3:5]), (b"one", 0, 40, (0, 2)))
        self.assertEqual((second[1], second[2], second[3:5]), (40, [], (2, 0)))
        self.assertEqual(third[1:], second[1:])

    def test_what_was_said_without_a_node_is_said_again(self):
        for keys, tokens, hashes in (("auto", 40, 2), ("tokens", 40, 0)):
            self.requests, self.steps = [], []
            self.library.answers["troupe_scheduler_attached"] = lambda handle: _interface.UNREACHABLE
            scheduler = self.made(extra={"troupe.keys": keys})
            one = fake_vllm.request("one", range(40))
            scheduler.on_new_request(one)
            scheduler.get_num_new_matched_tokens(one, 0)
            scheduler.build_connector_meta(fake_vllm.step(new=[(one, [4, 5, 6], 0, 40)]))
            one.append(*range(8))
            # The library has found the node, but does not know the request.
            self.library.answers["troupe_scheduler_attached"] = lambda handle: 0
            scheduler.build_connector_meta(fake_vllm.step(cached=[(one, None, 40, 1)]))
            self.assertEqual([(step["tokens"], step["hash_count"]) for step in self.steps], [([], 0)] * 2)
            # It was preempted.
            scheduler.get_num_new_matched_tokens(one, 0)
            scheduler.get_num_new_matched_tokens(one, 0)
            more = (48, 3) if hashes else (48, 0)
            self.assertEqual([(each[1], len(each[2]), each[3], each[4]) for each in self.requests],
                             [(0, tokens, 0, hashes)] * 2 + [(0, more[0], 0, more[1]), (48, 0, more[1], 0)])
            one.append(7)
            scheduler.build_connector_meta(fake_vllm.step(cached=[(one, [4, 5, 6], 0, 49)], resumed=["one"]))
            self.assertEqual((self.steps[-1]["token_firsts"], len(self.steps[-1]["tokens"])), ([48], 1))

    def test_a_request_that_must_compute_its_prompt_has_no_hit_and_is_saved(self):
        scheduler = self.made()
        one = fake_vllm.request("one", range(40), skip_reading_prefix_cache=True)
        scheduler.on_new_request(one)
        self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (0, False))
        self.answer = (0, 0, 0)
        self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (0, False))
        self.assertEqual([(each[0], each[8]) for each in self.requests], [(b"one", 0)] * 3)
        scheduler.update_state_after_alloc(one, fake_vllm.blocks(3, 4, 5), 0)
        self.assertEqual(self.asked("troupe_scheduler_allocated")[0][1:], [b"one", mock.ANY, 3, 0])
        two = fake_vllm.request("two", range(40), skip_reading_prefix_cache=None)
        self.answer = (1, 32, 1)
        self.assertEqual(scheduler.get_num_new_matched_tokens(two, 0), (32, True))

    def test_a_step_as_arrays(self):
        scheduler = self.made()
        one, two = fake_vllm.request("one", range(40)), fake_vllm.request("two", range(20))
        for each in (one, two):
            scheduler.on_new_request(each)
        meta = scheduler.build_connector_meta(fake_vllm.step(new=[(one, [4, 5, 6], 32, 8)]))
        self.assertEqual(meta.data, b"\0meta")
        one.append(*range(8))
        scheduler.build_connector_meta(fake_vllm.step(
            new=[(two, [7, 8], 0, 20)], cached=[(one, None, 47, 1)], preempted=["gone"]))
        two.append(1)
        scheduler.build_connector_meta(fake_vllm.step(cached=[(two, [9], 20, 1), (one, None, 48, 1)], resumed=["two"]))
        scheduler.build_connector_meta(fake_vllm.step())
        first, second, third, empty = self.steps
        self.assertEqual((first["new"], first["count"], first["computed"], first["scheduled"], first["ends"],
                          first["blocks"], first["tokens"]), (1, 1, [32], [8], [3], [4, 5, 6], []))
        self.assertEqual((second["new"], second["computed"], second["scheduled"], second["ends"], second["blocks"]),
                         (1, [0, 47], [20, 1], [2, 2], [7, 8]))
        self.assertEqual((second["token_firsts"], second["token_ends"], len(second["tokens"])), ([20, 40], [0, 8], 8))
        self.assertEqual((second["hash_firsts"], second["hash_ends"], second["hash_count"], second["hashes"][:1]),
                         ([1, 2], [0, 1], 1, b"\3"))
        self.assertEqual(second["preempted"], b"gone")
        self.assertEqual((third["resumed"], third["ends"], third["blocks"]), (b"\1", [1, 1], [9]))
        self.assertEqual((empty["count"], empty["tokens"], empty["blocks"]), (0, [], []))

    def test_tokens_are_said_where_keys_are_made_of_them(self):
        scheduler = self.made(extra={"troupe.keys": "tokens"})
        one = fake_vllm.request("one", [5, 6, 7])
        scheduler.on_new_request(one)
        self.assertEqual(self.requests[0][1:5], (0, [5, 6, 7], 0, 0))
        one.append(8, 9)
        scheduler.build_connector_meta(fake_vllm.step(new=[(one, [1], 0, 3)]))
        self.assertEqual((self.steps[0]["token_firsts"], self.steps[0]["tokens"]), ([3], [8, 9]))

    def test_finer_hashes_than_blocks(self):
        cache = fake_vllm.kv_cache_config(fake_vllm.FullAttentionSpec(block_size=64))
        cache.hash_block_size = 16
        scheduler = self.made(cache=cache)
        one = fake_vllm.request("one", range(150))
        scheduler.on_new_request(one)
        self.assertEqual(self.requests[0][3:5], (0, 2))
        self.assertEqual([each[0] for each in scheduler._new_hashes(type("known", (), {
            "request": one, "hashes": 0})())[1]], [4, 8])

    def test_what_else_makes_kv_differ(self):
        scheduler = self.made()
        item = fake_vllm.some(mm_position=fake_vllm.some(offset=3, length=9), identifier="picture")
        scheduler.on_new_request(fake_vllm.request(
            "one", range(40), lora_request=fake_vllm.some(lora_name="adapter", lora_path="/a"), cache_salt="tenant",
            mm_features=[item]))
        self.assertEqual(self.requests[0][5:], (b"adapter /a", b"tenant", 1, 0))
        scheduler.on_new_request(fake_vllm.request("two", range(40), prompt_embeds=object()))
        self.assertEqual(self.requests[1][8], 1)

    def test_what_users_say_may_be_anything(self):
        scheduler, said = self.made(), []

        def noted(handle, request):
            items = [ctypes.string_at(ctypes.cast(item.hash, ctypes.c_void_p).value, item.hash_length)
                     for item in request.multimodal[:request.multimodal_count]]
            said.append((request.lora, request.cache_salt, items[0]))
            return 0

        self.library.answers["troupe_scheduler_on_new_request"] = noted
        texts = ["a", "a\0x", "a\0y", "b" * 4096, "b" * 4097, "ä" * 2048, "ä" * 2049, "\ud800", "\udfff"]
        for number in range(2 * len(texts)):
            # A placeholder text means something else if it is set explicitly.
            text = texts[number] if number < len(texts) else said[number - len(texts)][1].decode()
            scheduler.on_new_request(fake_vllm.request(
                f"request {number}", range(40), cache_salt=text,
                lora_request=fake_vllm.some(lora_name=text, lora_path="/a"),
                mm_features=[fake_vllm.some(mm_position=fake_vllm.some(offset=3, length=9), identifier=text)]))
        for kind in zip(*said):
            self.assertTrue(all(0 < len(each) <= 4096 and b"\0" not in each for each in kind))
        kept = {"a", "b" * 4096, "ä" * 2048}
        for kind in (1, 2):
            self.assertEqual([each[kind].decode() for each, text in zip(said, texts) if text in kept],
                             [text for text in texts if text in kept])
            self.assertEqual(len({each[kind] for each in said}), 2 * len(texts) - len(kept))

    def test_a_request_whose_id_the_library_cannot_take_takes_no_part(self):
        scheduler = self.made()
        for name in ("a\0b", "a" * 4097, "\ud800", ""):
            one, at = fake_vllm.request(name, range(40)), len(self.requests)
            scheduler.on_new_request(one)
            scheduler.get_num_new_matched_tokens(one, 0)
            stand_in = self.requests[at][0]
            self.assertTrue(b"stand-in" in stand_in and len(stand_in) < 4096)
            self.assertEqual([(each[0], each[8]) for each in self.requests[at:]], [(stand_in, 1)] * 2)
            scheduler.update_state_after_alloc(one, fake_vllm.blocks(4, 5, 6), 0)
            scheduler.get_external_cache_hit_sources(one, 16)
            scheduler.build_connector_meta(fake_vllm.step(new=[(one, [4, 5, 6], 0, 40)], preempted=[name]))
            self.assertEqual(self.steps[-1]["preempted"], stand_in)
            self.assertEqual(self.steps[-1]["requests"], (stand_in, len(stand_in) + 1, 1))
            scheduler.request_finished(one, [4, 5, 6])
            for call in ("troupe_scheduler_allocated", "troupe_scheduler_hit_sources", "troupe_scheduler_finished"):
                self.assertEqual(self.asked(call)[-1][1], stand_in, call)
            # It is no way to another one's blocks.
            two = fake_vllm.request(stand_in.decode(), range(40))
            scheduler.on_new_request(two)
            self.assertNotEqual(self.requests[-1][0], stand_in)

    def test_a_request_that_the_library_refuses_takes_no_part(self):
        scheduler, one, two = self.made(), fake_vllm.request("one", range(40)), fake_vllm.request("two", range(40))
        for refused in ("troupe_scheduler_on_new_request", "troupe_scheduler_matched"):
            usual = self.library.answers[refused]
            self.library.answers[refused] = lambda *_: 7
            with self.assertLogs("vllm.troupe", "ERROR") as logs:
                scheduler.on_new_request(one)
                self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (0, False))
                self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (0, False))
            self.assertEqual(len(logs.output), 1)
            self.assertIn("'one'", logs.output[0])
            self.library.answers[refused] = usual
            scheduler.build_connector_meta(fake_vllm.step(new=[(one, [4, 5, 6], 0, 40)]))
            scheduler.request_finished(one, [4, 5, 6])
        scheduler.on_new_request(two)
        self.assertEqual(scheduler.get_num_new_matched_tokens(two, 0), (32, True))

    def test_a_finished_request_is_forgotten(self):
        scheduler = self.made()
        one = fake_vllm.request("one", range(40))
        scheduler.on_new_request(one)

        def finished(handle, name, keep):
            keep.value = 1
            return 0

        self.library.answers["troupe_scheduler_finished"] = finished
        self.assertEqual(scheduler.request_finished(one, [1, 2]), (True, None))
        scheduler.on_new_request(one)
        self.assertEqual(self.requests[1][1:5], self.requests[0][1:5])

    def test_what_workers_said(self):
        scheduler, heard = self.made(), []

        def output(handle, said):
            heard.append((said.sent.data, said.received.count, said.failed.data,
                          numbers(said.load_errors.data, said.load_errors.count),
                          [ctypes.string_at(said.worker_meta[i].data, said.worker_meta[i].length)
                           for i in range(said.worker_meta_count)]))
            return 0

        self.library.answers["troupe_scheduler_worker_output"] = output
        meta = TroupeWorkerMetadata((b"a\0b",)).aggregate(pickle.loads(pickle.dumps(TroupeWorkerMetadata((b"c",)))))
        scheduler.update_connector_output(fake_vllm.some(
            finished_sending={"one"}, finished_recving=None, failed_recving={"two"}, invalid_block_ids={7},
            kv_connector_worker_meta=meta))
        scheduler.update_connector_output(fake_vllm.some(
            finished_sending=None, finished_recving={"x", "y"}, invalid_block_ids=set(),
            kv_connector_worker_meta=None))
        self.assertEqual(heard, [(b"one", 0, b"two", [7], [b"a\0b", b"c"]), (None, 2, None, [], [])])

    def test_blocks_and_tiers_of_a_load(self):
        scheduler = self.made()
        one = fake_vllm.request("one", range(40))
        scheduler.update_state_after_alloc(one, fake_vllm.blocks(3, 4, 5), 32)
        (_, name, place, count, external), = self.asked("troupe_scheduler_allocated")
        self.assertEqual((name, count, external), (b"one", 3, 32))

        def sources(handle, name, tokens, out):
            out.memory, out.disk = 16, tokens - 16
            return 0

        self.library.answers["troupe_scheduler_hit_sources"] = sources
        self.assertEqual(scheduler.get_external_cache_hit_sources(one, 32), {"host": 16, "disk": 16})
        self.assertEqual(scheduler.get_external_cache_hit_sources(one, 0), {})

    def test_options_of_other_engines_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'troupe.copy_threads', which is for SGLang alone: leave it out"):
            self.made(extra={"troupe.copy_threads": 4})
        with self.assertRaisesRegex(ValueError, "unknown key") as refused:
            self.made(extra={"troupe.copy_thread": 4})
        self.assertNotIn("copy_threads", str(refused.exception).partition("known keys")[2])

    def test_nothing_is_asked_after_the_end(self):
        scheduler = self.made()
        scheduler.shutdown()
        asked, one = len(self.library.asked), fake_vllm.request("one", range(40))
        scheduler.on_new_request(one)
        self.assertEqual(scheduler.get_num_new_matched_tokens(one, 0), (0, False))
        self.assertEqual(scheduler.build_connector_meta(fake_vllm.step()), TroupeMetadata())
        self.assertEqual(scheduler.request_finished(one, []), (False, None))
        scheduler.shutdown()
        self.assertEqual(len(self.library.asked), asked)


class working(with_library):
    def test_a_step_of_a_worker(self):
        worker = self.made(KVConnectorRole.WORKER)
        meta = pickle.loads(pickle.dumps(TroupeMetadata(b"\1\0\2")))
        worker.handle_preemptions(meta)  # nothing is registered yet
        worker.register_kv_caches({f"model.layers.{n}.self_attn": fake_vllm.tensor((100, 2, 16, 128))
                                   for n in range(2)})

        def finished(handle, names, out):
            self.library.ids(out.sent, ["one"])
            self.library.ids(out.received, ["two", "three"])
            return 0

        def errors(handle, out):
            self.errors = (ctypes.c_uint32 * 2)(8, 9)
            out.data, out.count = ctypes.addressof(self.errors), 2
            return 0

        self.library.answers.update({"troupe_worker_get_finished": finished, "troupe_worker_load_errors": errors,
                                     "troupe_worker_meta": lambda handle, out: self.library.bytes(out, b"m\0") or 0,
                                     "troupe_worker_stats": lambda handle, out: self.library.bytes(out, b"") or 0})
        worker.handle_preemptions(meta)
        worker.bind_connector_metadata(meta)
        worker.start_load_kv(None)
        worker.wait_for_save()
        self.assertEqual(worker.get_finished({"one"}), ({"one"}, {"two", "three"}))
        self.assertEqual(worker.get_block_ids_with_load_errors(), {8, 9})
        self.assertEqual(worker.build_connector_worker_meta(), TroupeWorkerMetadata((b"m\0",)))
        self.assertIsNone(worker.get_kv_connector_stats())
        worker.clear_connector_metadata()
        self.assertEqual(self.library.names()[-9:], [
            "troupe_worker_handle_preemptions", "troupe_worker_bind", "troupe_worker_start_load", "troupe_worker_save",
            "troupe_worker_get_finished", "troupe_worker_load_errors", "troupe_worker_meta", "troupe_worker_stats",
            "troupe_worker_clear"])
        self.assertEqual(self.asked("troupe_worker_start_load")[0][1], None)
        worker.get_finished({"a\0b"})
        names = self.asked("troupe_worker_get_finished")[-1][1]
        self.assertEqual((names.count, names.length), (1, len(names.data) + 1))

    def test_other_devices_are_refused(self):
        worker = self.made(KVConnectorRole.WORKER)
        with self.assertRaisesRegex(ValueError, "NVIDIA"):
            worker.register_kv_caches({f"model.layers.{n}.self_attn": fake_vllm.tensor((100, 2, 16, 128), device="xpu")
                                       for n in range(2)})


if __name__ == "__main__":
    unittest.main()
