"""The spans that a request has, without clock, collector and vLLM."""

import unittest

from troupe import _spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = ({"traceparent": f"00-{TRACE}-{PARENT}-{flags}"} for flags in ("01", "00"))


class contexts(unittest.TestCase):
    def test_a_context_is_taken_apart(self):
        self.assertEqual(_spans.context_of(SAMPLED), (TRACE, PARENT, True, ""))
        self.assertEqual(_spans.context_of(NOT_SAMPLED), (TRACE, PARENT, False, ""))
        self.assertEqual(_spans.context_of({**SAMPLED, "tracestate": "a=b"}), (TRACE, PARENT, True, "a=b"))
        for state in ("x" * 513, "a\n", "ä", "\ud800", 7):
            self.assertEqual(_spans.context_of({**SAMPLED, "tracestate": state})[3], "")
        # Later versions may have more.
        self.assertEqual(_spans.context_of({"traceparent": f"01-{TRACE}-{PARENT}-03-more"})[:3], (TRACE, PARENT, True))

    def test_what_is_no_context_counts_as_none(self):
        for said in (None, "", "x", f"00-{TRACE}-{PARENT}", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
                     f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more",
                     f"00-{TRACE}-{PARENT}-01\nx", b"00", 7):
            self.assertIsNone(_spans.context_of({"traceparent": said}), said)
        self.assertIsNone(_spans.context_of({}))
        self.assertIsNone(_spans.context_of(None))


class rules(unittest.TestCase):
    def setUp(self):
        self.spans, self.drawn = [], []
        self.traces = self.made()

    def made(self, **options):
        return _spans.Traces(self.spans.append, self.bits, _spans.Sizes(16, 100, 50), **options)

    def bits(self, count):
        return self.drawn.pop(0) if self.drawn else 7

    def taken(self):
        """Name, times and attributes without their common beginning, of the spans since the last call."""
        out = [(x.name.removeprefix("troupe."), x.start, x.end,
                {key.split(".", 2)[2]: value for key, value in x.attributes.items()}) for x in self.spans]
        self.spans.clear()
        return out

    def found(self, name="one", tokens=32, headers=SAMPLED, reason=""):
        self.traces.arrived(name, headers, 50, 10)
        self.traces.answered(name, 0, None, "", 13)
        self.traces.answered(name, 16, tokens, reason, 21)

    LOOKUP = {"prompt_tokens": 50, "engine_tokens": 16, "found_tokens": 32, "found_pages": 2, "number": 1}
    ROOT = {"id": "one", "prompt_tokens": 50}

    def loading(self, synchronous=False, blocks=(4, 5)):
        self.found()
        self.traces.allocated("one", 32, (16, 10, 6), blocks, synchronous, 30)
        self.spans.clear()

    def test_a_request_that_loads_and_saves(self):
        self.found()
        self.assertEqual(self.taken(), [("lookup", 10, 21, self.LOOKUP)])
        tiers = []
        self.traces.allocated("one", 32, tiers, [3, 4], False, 30)
        tiers[:] = 16, 10, 6
        self.assertEqual(self.taken(), [("wait", 21, 30, {})])
        self.traces.reported(None, {"two"}, None, set(), 35)
        self.assertEqual(self.taken(), [])
        self.traces.reported(None, {"one"}, None, {9}, 40)
        self.assertEqual(self.taken(), [("load", 30, 40, {
            "tokens": 32, "pages": 2, "bytes": 3200, "synchronous": False, "memory_tokens": 16, "memory_bytes": 1600,
            "disk_tokens": 10, "disk_bytes": 1000, "unknown_tokens": 6, "unknown_bytes": 600})])
        self.traces.allocated("one", 0, (), (), False, 41)
        self.traces.finished("one", 70, True, True, 50)
        self.assertEqual(self.taken(), [])
        self.assertEqual(self.traces.traced(), 1)
        self.traces.reported({"one"}, None, None, set(), 60)
        # Four full pages, of which two were loaded.
        self.assertEqual(self.taken(), [
            ("save", 50, 60, {"computed_pages": 2, "computed_bytes": 1600, "blocks_kept": True}),
            ("request", 10, 60, self.ROOT)])
        self.assertEqual(self.traces.traced(), 0)

    def test_spans_belong_to_the_span_of_the_request_and_that_to_the_context(self):
        self.drawn = [0xabc]
        self.found(headers={**SAMPLED, "tracestate": "a=b"})
        self.traces.finished("one", 50, False, True, 30)
        *parts, root = self.spans
        self.assertEqual((root.trace_id, root.own_id, root.parent_id, root.remote, root.state),
                         (TRACE, f"{0xabc:016x}", PARENT, True, "a=b"))
        self.assertEqual([x.name for x in parts], ["troupe.lookup", "troupe.wait"])
        for each in parts:
            self.assertEqual((each.trace_id, each.parent_id, each.remote, each.state),
                             (TRACE, root.own_id, False, "a=b"))

    def test_no_hit_has_a_reason_and_no_wait(self):
        self.found(tokens=0, reason="not_found")
        self.assertEqual(self.taken()[0][3],
                         {**self.LOOKUP, "found_tokens": 0, "found_pages": 0, "reason": "not_found"})
        self.traces.answered("one", 16, 0, "not_found", 23)
        self.traces.allocated("one", 0, (), (), False, 30)
        self.traces.finished("one", 40, False, True, 50)
        self.assertEqual(self.taken(), [
            ("save", 50, 50, {"computed_pages": 2, "computed_bytes": 1600, "blocks_kept": False}),
            ("request", 10, 50, self.ROOT)])

    def test_nothing_is_saved_without_a_node_or_a_full_page(self):
        for computed, saves in ((70, False), (15, True)):
            self.found(tokens=0, reason="no_node")
            self.traces.allocated("one", 0, (), (), False, 30)
            self.spans.clear()
            self.traces.finished("one", computed, False, saves, 50)
            self.assertEqual([x[0] for x in self.taken()], ["request"])

    def test_a_hit_that_the_engine_does_not_use(self):
        self.found()
        self.traces.allocated("one", 0, (), (), False, 30)
        self.assertEqual(self.taken()[1:], [("wait", 21, 30, {"reason": "not_used"})])

    def test_what_other_nodes_had_is_a_span_within_the_lookup(self):
        for said, span in (((2, 3, 5e-9), ("fetch", 10, 15, {"requests": 2, "pages": 3, "bytes": 4800})),
                           ((1, 0, 4e-9), ("fetch", 10, 14, {"requests": 1, "pages": 0, "bytes": 0,
                                                             "reason": "not_found"})),
                           # It took no longer than the lookup, whatever the clocks say.
                           ((1, 1, 1.0), ("fetch", 10, 21, {"requests": 1, "pages": 1, "bytes": 1600}))):
            self.traces = self.made()
            self.traces.arrived("one", SAMPLED, 50, 10)
            self.traces.answered("one", 16, 32, "", 21, said)
            self.assertEqual(self.taken(), [span, ("lookup", 10, 21, self.LOOKUP)])

    def test_without_other_nodes_there_is_no_fetch(self):
        for said in (None, (0, 0, 0.0)):
            self.traces = self.made()
            self.traces.arrived("one", SAMPLED, 50, 10)
            self.traces.answered("one", 16, 32, "", 21, said)
            self.assertEqual(self.taken(), [("lookup", 10, 21, self.LOOKUP)])

    def test_what_is_looked_up_again_has_another_lookup(self):
        self.found()
        self.traces.answered("one", 16, 32, "", 23)
        # Its lease has expired.
        self.traces.answered("one", 16, None, "", 25)
        self.traces.answered("one", 0, 48, "", 27)
        self.assertEqual(self.taken()[1:], [("lookup", 25, 27, {**self.LOOKUP, "engine_tokens": 0, "found_tokens": 48,
                                                                "found_pages": 3, "number": 2})])
        self.traces.allocated("one", 48, (), (), False, 30)
        self.traces.reported(None, {"one"}, {"one"}, set(), 40)
        self.spans.clear()
        # After a failed load, or a preemption.
        self.traces.answered("one", 0, 16, "", 51)
        self.assertEqual([(x[0], x[1], x[2], x[3]["number"]) for x in self.taken()], [("lookup", 51, 51, 3)])

    def test_blocks_that_could_not_be_loaded_are_counted(self):
        self.loading(blocks=[3, 4, 5])
        self.traces.reported(None, {"one"}, None, {1, 4, 5}, 40)
        self.assertIn("2 blocks could not be loaded", self.spans[0].error)
        said = self.taken()[0][3]
        self.assertEqual((said["failed_blocks"], said["reason"]), (2, "failed"))
        # What was not loaded is computed and saved.
        self.traces.finished("one", 50, False, True, 60)
        self.assertEqual(self.taken()[0][3]["computed_pages"], 3)

    def test_a_load_that_has_failed_as_a_whole(self):
        self.loading(blocks=())
        self.traces.reported(None, {"one", "two"}, {"one"}, set(), 40)
        self.assertIn("has failed", self.spans[0].error)
        self.assertEqual(self.taken()[0][3]["reason"], "failed")

    def test_a_load_in_a_step_ends_with_it(self):
        self.loading(synchronous=True)
        self.assertTrue(self.traces._in_step)
        self.traces.reported(None, None, None, {4}, 40)
        (name, start, end, said), = self.taken()
        self.assertEqual((name, start, end, said["synchronous"], said["failed_blocks"]), ("load", 30, 40, True, 1))
        self.assertFalse(self.traces._in_step)

    def test_a_load_in_a_step_of_a_request_that_is_cancelled(self):
        self.loading(synchronous=True)
        self.traces.finished("one", 0, False, True, 33)
        self.traces.reported(None, None, None, set(), 40)
        self.assertEqual([(x[0], x[2]) for x in self.taken()], [("load", 33), ("request", 33)])

    def test_requests_that_are_cancelled(self):
        self.traces.arrived("one", SAMPLED, 50, 10)
        self.traces.finished("one", 0, False, True, 11)
        self.assertEqual([(x[0], x[3].get("reason")) for x in self.taken()],
                         [("lookup", "cancelled"), ("request", None)])
        self.found()
        self.spans.clear()
        self.traces.finished("one", 0, False, True, 22)
        self.assertEqual([(x[0], x[3].get("reason")) for x in self.taken()], [("wait", "cancelled"), ("request", None)])
        self.loading()
        self.traces.finished("one", 0, True, True, 33)
        self.assertEqual(self.taken(), [])
        self.traces.reported(None, {"one"}, None, set(), 44)
        self.assertEqual([(x[0], x[2]) for x in self.taken()], [("load", 44), ("request", 44)])
        self.loading()
        self.traces.finished("one", 0, False, True, 33)
        self.assertEqual([(x[0], x[3].get("reason")) for x in self.taken()], [("load", "cancelled"), ("request", None)])
        self.assertEqual(self.traces.traced(), 0)

    def test_what_is_not_sampled_has_no_spans(self):
        self.found(headers=NOT_SAMPLED)
        self.traces.allocated("one", 32, (), (), False, 30)
        self.traces.reported({"one"}, {"one"}, None, set(), 40)
        self.traces.finished("one", 50, True, True, 50)
        self.assertEqual((self.taken(), self.traces.traced()), ([], 0))

    def test_requests_without_a_context_are_sampled_by_the_ratio(self):
        self.traces = self.made(ratio=0.25)
        for drawn, names in ((1 << 30, []), ((1 << 30) - 1, ["lookup", "request"])):
            self.drawn = [drawn, 0xd, 0xe]
            self.traces.arrived("one", None, 50, 10)
            self.traces.finished("one", 0, False, True, 11)
            for each in self.spans:
                self.assertEqual(each.trace_id, f"{0xd:032x}")
            self.assertEqual([x[0] for x in self.taken()], names)
        self.traces = self.made(ratio=0.0)
        self.found(headers=None)
        self.assertEqual(self.taken(), [])
        # The client has decided about those that have one.
        self.found("two")
        self.assertEqual(len(self.taken()), 1)
        self.traces, self.drawn = self.made(ratio=1.0), [(1 << 32) - 1]
        self.found(headers=None)
        self.assertEqual(len(self.taken()), 1)

    def test_requests_that_are_traced_at_once_are_limited(self):
        self.traces = self.made(most=2)
        for name in ("one", "two", "three"):
            self.found(name)
        self.assertEqual(len(self.taken()), 2)
        self.traces.finished("one", 50, False, True, 30)
        self.traces.finished("three", 50, False, True, 30)
        self.found("three")
        self.assertEqual([x[0] for x in self.taken()], ["wait", "request", "lookup"])

    def test_an_id_that_is_used_again_begins_anew(self):
        self.loading()
        self.traces.finished("one", 0, True, True, 33)
        self.traces.arrived("one", SAMPLED, 60, 40)
        self.assertEqual(self.taken(), [("request", 10, 40, self.ROOT)])
        self.traces.finished("one", 0, False, True, 50)
        self.assertEqual(self.taken()[1], ("request", 40, 50, {"id": "one", "prompt_tokens": 60}))

    def test_a_clock_that_is_set_back_gives_no_span_with_a_negative_duration(self):
        self.traces.arrived("one", SAMPLED, 50, 10)
        self.traces.answered("one", 0, 0, "not_found", 6)
        self.assertEqual(self.taken()[0][1:3], (10, 10))

    def test_tiers_that_are_not_known(self):
        self.found()
        self.traces.allocated("one", 32, [], (), False, 30)
        self.traces.reported(None, {"one"}, None, set(), 40)
        self.assertFalse([key for key in self.taken()[2][3] if key.endswith("_tokens")])

    def test_after_a_loss_of_notes_requests_in_progress_have_no_spans(self):
        self.found()
        self.loading()
        self.found("two")
        self.traces.allocated("two", 0, (), (), False, 30)
        self.traces.finished("two", 50, True, True, 31)
        self.spans.clear()
        self.traces.forget()
        self.traces.reported({"two"}, {"one"}, None, set(), 40)
        self.traces.finished("one", 50, False, True, 50)
        self.assertEqual((self.taken(), self.traces.traced()), ([], 0))
        self.found("three")
        self.assertEqual(len(self.taken()), 1)

    def test_the_end_of_the_engine_ends_all_requests(self):
        self.found()
        self.found("two", tokens=0)
        self.traces.allocated("two", 0, (), (), False, 30)
        self.traces.finished("two", 50, True, True, 31)
        self.spans.clear()
        self.traces.close(40)
        self.assertEqual([(x[0], x[1], x[2], x[3].get("id"), x[3]["reason"]) for x in self.taken()],
                         [("request", 10, 40, "one", "shutdown"), ("save", 31, 40, None, "shutdown"),
                          ("request", 10, 40, "two", "shutdown")])
        self.assertEqual(self.traces.traced(), 0)


if __name__ == "__main__":
    unittest.main()
