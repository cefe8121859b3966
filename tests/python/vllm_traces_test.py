"""Traces of the plug-in for vLLM, without vLLM: hooks of a request, and what a collector has of it."""

import contextlib
import functools
import os
import unittest
from unittest import mock

import fake_vllm
from collector import Collector, wait_until
from vllm_test import TroupeConnector, with_library

from troupe import _interface, _otlp, _traces
from troupe.vllm import KVConnectorRole

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}


def output(sent=None, received=None, invalid=(), **members):
    return fake_vllm.some(finished_sending=sent, finished_recving=received, invalid_block_ids=set(invalid),
                          kv_connector_worker_meta=None, **members)


class with_collector(with_library):
    def setUp(self):
        super().setUp()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(mock.patch.dict(os.environ))
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            del os.environ[name]
        self.answer, self.keeps = (1, 32, 1), 1

        def matched(handle, request, computed, out):
            out.known, out.tokens, out.asynchronous = self.answer
            return 0

        def sources(handle, name, tokens, out):
            out.memory, out.disk = 16, tokens - 16
            return 0

        def finished(handle, name, keep):
            keep.value = self.keeps
            return 0

        self.library.answers.update({"troupe_scheduler_matched": matched, "troupe_scheduler_hit_sources": sources,
                                     "troupe_scheduler_finished": finished})
        self.collector = stack.enter_context(Collector())

    def traced(self, extra=None, **changes):
        made = self.made(extra={"troupe.traces": self.collector.url, **(extra or {})}, **changes)
        self.addCleanup(made.shutdown)
        return made

    def request(self, name="one", headers=None, computed=40, **members):
        return fake_vllm.request(name, range(40), trace_headers=headers, num_computed_tokens=computed,
                                 num_prompt_tokens=40, **members)

    def play(self, scheduler, request, external=32, received=None):
        scheduler.on_new_request(request)
        scheduler.get_num_new_matched_tokens(request, 0)
        scheduler.update_state_after_alloc(request, fake_vllm.blocks(3, 4, 5), external)
        if external:
            scheduler.get_external_cache_hit_sources(request, external)
            scheduler.update_connector_output(received or output(received={request.request_id}))
        kept, _ = scheduler.request_finished(request, [3, 4, 5])
        if kept:
            scheduler.update_connector_output(output(sent={request.request_id}))

    def spans(self, scheduler, name="one"):
        """After the end of the engine."""
        scheduler.shutdown()
        self.assertEqual(self.collector.faults, [])
        return self.collector.of(name)

    @staticmethod
    def short(spans):
        return [x["name"].removeprefix("troupe.") for x in spans]


class hooks(with_collector):
    def test_a_request_has_a_span_for_each_part(self):
        scheduler = self.traced()
        self.play(scheduler, self.request(headers=CONTEXT))
        root, parts = self.spans(scheduler)
        self.assertEqual(self.short(parts), ["lookup", "wait", "load", "save"])
        self.assertEqual((root["trace"], root["parent"], root["state"]), (TRACE, PARENT, "a=b"))
        self.assertEqual({x["trace"] for x in parts}, {TRACE})
        self.assertEqual(root["start"], parts[0]["start"])
        self.assertEqual(root["end"], parts[-1]["end"])
        for before, after in zip(parts, parts[1:]):
            self.assertLessEqual(before["end"], after["start"])
        lookup, _, load, save = (x["attributes"] for x in parts)
        self.assertEqual((lookup["troupe.lookup.prompt_tokens"], lookup["troupe.lookup.found_tokens"]), (40, 32))
        # 2 layers × 2 heads × 128 values of 2 bytes.
        self.assertEqual(load, {
            "troupe.load.tokens": 32, "troupe.load.pages": 2, "troupe.load.bytes": 32 * 1024,
            "troupe.load.memory_tokens": 16, "troupe.load.memory_bytes": 16 * 1024, "troupe.load.disk_tokens": 16,
            "troupe.load.disk_bytes": 16 * 1024, "troupe.load.synchronous": False})
        self.assertEqual(save, {"troupe.save.computed_pages": 0, "troupe.save.computed_bytes": 0,
                                "troupe.save.blocks_kept": True})
        resource = self.collector.resources[0]
        self.assertEqual({key: resource[key] for key in ("service.name", "troupe.namespace", "troupe.node.address",
                                                         "troupe.engine.model", "troupe.engine.workers")},
                         {"service.name": "troupe", "troupe.namespace": "engine-0", "troupe.engine.workers": 1,
                          "troupe.node.address": "127.0.0.1:4600", "troupe.engine.model": "tiny"})
        self.assertEqual(resource["process.pid"], os.getpid())

    def test_what_a_lookup_had_from_other_nodes_is_a_span(self):
        def fetched(handle, name, out):
            out.requests, out.pages, out.seconds = 1, 2, 0.0
            return 0

        self.library.answers["troupe_scheduler_fetched_pages"] = fetched
        scheduler = self.traced()
        self.play(scheduler, self.request(headers=CONTEXT))
        _, parts = self.spans(scheduler)
        self.assertEqual(self.short(parts), ["fetch", "lookup", "wait", "load", "save"])
        self.assertEqual(parts[0]["attributes"], {"troupe.fetch.requests": 1, "troupe.fetch.pages": 2,
                                                  "troupe.fetch.bytes": 32 * 1024})

    def test_only_the_scheduler_half_sends_and_only_where_it_is_set(self):
        with mock.patch.object(_otlp, "Exporter", side_effect=AssertionError("an exporter was made")):
            for extra in (None, {"troupe.traces": "off"}):
                scheduler = self.made(extra=extra)
                self.play(scheduler, self.request(headers=CONTEXT))
                scheduler.shutdown()
            worker = self.made(KVConnectorRole.WORKER, extra={"troupe.traces": self.collector.url})
            worker.shutdown()
        self.assertEqual(self.collector.requests, [])

    def test_a_request_that_is_not_sampled_has_no_spans(self):
        scheduler = self.traced({"troupe.traces_ratio": 0.0})
        self.play(scheduler, self.request("one", {"traceparent": f"00-{TRACE}-{PARENT}-00"}))
        self.play(scheduler, self.request("two"))
        self.play(scheduler, self.request("three", CONTEXT))
        self.spans(scheduler, "three")
        self.assertEqual({x["trace"] for x in self.collector.spans}, {TRACE})
        self.assertEqual(len(self.collector.spans), 5)

    def test_requests_without_a_context_have_traces_of_their_own(self):
        scheduler = self.traced()
        # Older versions of vLLM have requests without headers.
        old = self.request("one")
        del old.trace_headers
        self.play(scheduler, old)
        self.play(scheduler, self.request("two", {"traceparent": "nonsense"}))
        one, parts = self.spans(scheduler)
        two, _ = self.collector.of("two")
        self.assertEqual((one["parent"], two["parent"], len(parts)), ("", "", 4))
        self.assertEqual(len({one["trace"], two["trace"]}), 2)

    def test_versions_of_vllm_that_announce_no_request(self):
        scheduler, request = self.traced(), self.request(headers=CONTEXT)
        scheduler.get_num_new_matched_tokens(request, 0)
        scheduler.request_finished(request, [])
        self.assertEqual(self.short(self.spans(scheduler)[1]), ["lookup", "wait"])

    def test_reasons_of_no_hit(self):
        scheduler = self.traced()

        def reason(name, answer=(1, 0, 0), **members):
            self.answer = answer
            self.play(scheduler, self.request(name, **members), external=0)

        reason("not_found")
        reason("uncacheable", prompt_embeds=object())
        reason("must_compute", (1, 32, 1), skip_reading_prefix_cache=True)
        usual = self.library.answers["troupe_scheduler_matched"]
        self.library.answers["troupe_scheduler_matched"] = lambda *_: 7
        with self.assertLogs("vllm.troupe", "ERROR"):
            reason("refused")
        self.library.answers["troupe_scheduler_matched"] = usual
        scheduler._attached = False
        self.library.answers["troupe_scheduler_attached"] = lambda handle: _interface.UNREACHABLE
        reason("no_node")
        scheduler.shutdown()
        for name in ("not_found", "uncacheable", "must_compute", "refused", "no_node"):
            lookup = self.collector.of(name)[1][0]
            self.assertEqual(lookup["attributes"]["troupe.lookup.reason"], name)
            self.assertEqual(lookup["attributes"]["troupe.lookup.found_tokens"], 0)

    def test_blocks_that_were_not_loaded(self):
        scheduler = self.traced()
        self.play(scheduler, self.request(), received=output(received={"one"}, invalid={4, 9}))
        load = self.spans(scheduler)[1][2]
        self.assertEqual(load["attributes"]["troupe.load.failed_blocks"], 1)
        self.assertIn("could not be loaded", load["error"])

    def test_a_load_in_the_step(self):
        scheduler = self.traced({"troupe.load": "sync"}, scheduler_config__async_scheduling=False)
        self.answer, self.keeps = (1, 32, 0), 0
        self.play(scheduler, self.request(), received=output())
        load = self.spans(scheduler)[1][2]
        self.assertTrue(load["attributes"]["troupe.load.synchronous"])
        self.assertNotIn("troupe.load.reason", load["attributes"])

    def test_bytes_are_those_of_all_workers(self):
        def sizes(spec=None, extra=None, **parallel):
            scheduler = self.traced(extra, cache=fake_vllm.kv_cache_config(spec), **{
                f"parallel_config__{key}": value for key, value in parallel.items()})
            it = scheduler._tracer._traces._sizes
            return it.page_tokens, it.loaded_bytes, it.saved_bytes

        self.assertEqual(sizes(), (16, 1024, 1024))
        self.assertEqual(sizes(tensor_parallel_size=4, pipeline_parallel_size=2), (16, 8192, 8192))
        self.assertEqual(sizes(extra={"troupe.page_tokens": 64}), (64, 1024, 1024))
        # Each worker has every other token.
        self.assertEqual(sizes(tensor_parallel_size=2, decode_context_parallel_size=2), (32, 1024, 1024))
        # All workers of a stage load the same, and one saves it.
        latent = fake_vllm.MLAAttentionSpec()
        self.assertEqual(sizes(latent, tensor_parallel_size=4, pipeline_parallel_size=2), (16, 2304 * 8, 2304 * 2))
        fake_vllm.platform.cpu = True
        with mock.patch("troupe._kv_shape.cpu_layout", return_value="cpu"):
            self.assertEqual(sizes(), (16, 1024, 1024))

    def test_generated_tokens_that_are_not_saved_are_not_counted(self):
        for save, pages in (("all", 4), ("prompts", 2)):
            scheduler, name = self.traced({"troupe.save": save}), f"request {save}"
            self.answer = (1, 0, 0)
            request = self.request(name, computed=64)
            request.append(*range(30))
            self.play(scheduler, request, external=0)
            self.assertEqual(self.spans(scheduler, name)[1][1]["attributes"]["troupe.save.computed_pages"], pages)

    def test_data_parallel_engines_have_their_rank(self):
        scheduler = self.traced(parallel_config__data_parallel_size=2, parallel_config__data_parallel_rank=1)
        self.play(scheduler, self.request())
        self.spans(scheduler)
        self.assertEqual(self.collector.resources[0]["troupe.engine.data_parallel_rank"], 1)


class settings(with_collector):
    def test_with_auto_the_environment_and_vllm_say_where(self):
        with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url,
                                          "OTEL_SERVICE_NAME": "mine"}):
            scheduler = self.traced({"troupe.traces": "auto"})
            self.play(scheduler, self.request())
            self.spans(scheduler)
        self.assertEqual(self.collector.resources[0]["service.name"], "mine")
        with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}):
            scheduler = self.traced({"troupe.traces": "auto"}, observability_config=fake_vllm.some(
                otlp_traces_endpoint=f"{self.collector.url}/of/vllm"))
            self.play(scheduler, self.request("two"))
            self.spans(scheduler, "two")
        self.assertEqual(self.collector.requests[-1][0], "/of/vllm")

    def test_with_auto_and_without_a_collector_there_are_no_traces_and_a_line(self):
        with self.assertLogs("vllm.troupe", "WARNING") as logs:
            scheduler = self.traced({"troupe.traces": "auto"}, observability_config=fake_vllm.some(
                otlp_traces_endpoint=None))
        self.assertIn("there are no traces, since neither", logs.output[0])
        self.play(scheduler, self.request())
        self.assertEqual(self.collector.requests, [])

    def test_options_that_are_wrong_are_refused_by_both_halves(self):
        for role in KVConnectorRole:
            for extra in ({"troupe.traces": "here:4318"}, {"troupe.traces": True},
                          {"troupe.traces": "auto", "troupe.traces_ratio": 1.5}, {"troupe.traces_ratio": -1}):
                with self.assertRaisesRegex(ValueError, "troupe.traces"):
                    self.made(role, extra=extra)


class trouble(with_collector):
    def test_a_mistake_in_traces_ends_them_and_not_the_engine(self):
        for hook in ("arrived", "answered", "allocated", "reported", "finished", "close"):
            scheduler = self.traced()
            broken, tracer = mock.Mock(side_effect=RuntimeError("a mistake")), scheduler._tracer
            setattr(tracer._traces, hook, broken)
            with self.assertLogs("vllm.troupe", "ERROR") as logs:
                self.play(scheduler, self.request(hook, CONTEXT))
                self.play(scheduler, self.request("later", CONTEXT))
                scheduler.shutdown()
            self.assertEqual((len(logs.output), broken.call_count), (1, 1), hook)
            self.assertIn("traces have ended", logs.output[0])
            tracer.note(())
            self.assertEqual(len(tracer._notes), 0)

    def test_ids_of_users_may_be_anything(self):
        scheduler = self.traced()
        for name in ("a\0b", "\ud800", "x" * 5000):
            self.play(scheduler, self.request(name), external=0)
        scheduler.shutdown()
        self.assertEqual(self.collector.faults, [])
        self.assertEqual({x["attributes"].get("troupe.request.id") for x in self.collector.spans} - {None},
                         {"a\0b", "?", "x" * 256})

    def test_a_collector_that_hangs_does_not_hold_up_hooks(self):
        with self.collector.hanging():
            small = functools.partial(_otlp.Exporter, queue_spans=50, collect_seconds=0.01, request_seconds=3600.0)
            with mock.patch.object(_otlp, "Exporter", small), mock.patch.object(_otlp, "CLOSE_SECONDS", 0.1), \
                    mock.patch.object(_traces, "MOST_NOTES", 300):
                scheduler = self.traced()
                self.play(scheduler, self.request("first"))
                tracer, exporter = scheduler._tracer, scheduler._tracer.exporter
                self.assertTrue(wait_until(lambda: exporter._connection is not None and exporter._connection.sock))
                for number in range(100):
                    self.play(scheduler, self.request(f"{number}"))
                self.assertEqual((len(tracer._notes), exporter.sent), (300, 0))
                scheduler.shutdown()
                # The thread waits for the answer, and is left to itself.
                self.assertTrue(exporter._thread.is_alive() and exporter._thread.daemon)
                with self.assertLogs("vllm.troupe", "WARNING") as logs:
                    self.collector.open.set()
                    exporter._thread.join(60.0)
        self.assertIn("noted faster", logs.output[0])
        self.assertEqual({x["attributes"].get("troupe.request.id") for x in self.collector.spans} - {None}, {"first"})

    def test_requests_whose_notes_are_lost_have_no_spans(self):
        with mock.patch.object(_otlp, "Exporter", functools.partial(_otlp.Exporter, collect_seconds=3600.0)), \
                mock.patch.object(_traces, "MOST_NOTES", 4):
            scheduler = self.traced()
            before, after = self.request("before"), self.request("after")
            scheduler.on_new_request(before)
            self.play(scheduler, self.request("one"))
            with self.assertLogs("vllm.troupe", "WARNING"):
                scheduler._tracer._take_notes()
            scheduler.get_num_new_matched_tokens(before, 0)
            scheduler.request_finished(before, [])
            scheduler._tracer._take_notes()
            scheduler.on_new_request(after)
            scheduler.request_finished(after, [])
            self.assertEqual(self.short(self.spans(scheduler, "after")[1]), ["lookup"])
        self.assertEqual(len(self.collector.spans), 2)

    def test_a_lookup_that_is_asked_for_again_and_again_is_noted_once(self):
        with mock.patch.object(_otlp, "Exporter", functools.partial(_otlp.Exporter, collect_seconds=3600.0)):
            scheduler = self.traced()
            notes, request = scheduler._tracer._notes, self.request()
            scheduler.on_new_request(request)
            for answer, count in (((0, 0, 0), 1), ((1, 32, 1), 2), ((0, 0, 0), 3), ((1, 32, 1), 4)):
                self.answer = answer
                for _ in range(3):
                    scheduler.get_num_new_matched_tokens(request, 0)
                self.assertEqual(len(notes), count)
            # After it has run, the same answer is one of another lookup.
            for _ in range(3):
                scheduler.update_state_after_alloc(request, fake_vllm.blocks(3, 4, 5), 0)
            self.assertEqual(len(notes), 5)
            scheduler.get_num_new_matched_tokens(request, 0)
            self.assertEqual(len(notes), 6)
            for _ in range(3):
                scheduler.update_connector_output(output())
            self.assertEqual(len(notes), 6)


if __name__ == "__main__":
    unittest.main()
