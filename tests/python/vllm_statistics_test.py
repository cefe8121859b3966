"""Metrics and log lines of the plug-in in vLLM, without vLLM."""

import ctypes
import unittest
from unittest import mock

import fake_vllm
from vllm_test import TroupeConnector, with_library

from troupe import _statistics


class statistics(with_library):
    def setUp(self):
        super().setUp()
        described = (b'[{"name": "vllm:troupe_loaded_bytes", "kind": "counter", "help": "h", "member": "loaded_bytes"},'
                     b'{"name": "vllm:x_seconds", "kind": "histogram", "help": "h", "member": "load_duration",'
                     b' "buckets": [1, 2]}]')

        def joined(parts, count, out):
            self.joined = [ctypes.string_at(parts[i].data, parts[i].length) for i in range(count)]
            return self.library.bytes(out, b'{"loaded_bytes": 5}') or 0

        self.library.answers.update({
            "troupe_metric_descriptions": lambda out: self.library.bytes(out, described) or 0,
            "troupe_stats_aggregate": joined,
            "troupe_stats_reduce": lambda data, length, out: self.library.bytes(out, b'{"Num transfers": 3}') or 0})

    def test_workers_and_scheduler_are_joined(self):
        first = _statistics.TroupeStats({"workers": {"loaded_bytes": 2}})
        first.aggregate(_statistics.TroupeStats({"workers": {"loaded_bytes": 3}}))
        self.assertEqual((self.joined, first.data), ([b'{"loaded_bytes": 2}', b'{"loaded_bytes": 3}'],
                                                     {"workers": {"loaded_bytes": 5}}))
        first.aggregate(_statistics.TroupeStats({"scheduler": {"attached": 1, "found_tokens": 7}}))
        first.aggregate(_statistics.TroupeStats({"scheduler": {"attached": 0, "found_tokens": 2}}))
        self.assertEqual(first.data["scheduler"], {"attached": 0, "found_tokens": 9})
        self.assertEqual(first.reduce(), {"Num transfers": 3, "Found tokens": 9, "Attached": 0})
        first.aggregate(_statistics.TroupeStats({"scheduler": {"attached": 1, "passed_over_tokens": 5}}))
        self.assertEqual(first.reduce()["Passed over tokens"], 5)
        self.assertFalse(first.is_empty())
        first.reset()
        self.assertTrue(first.is_empty())

    def test_scheduler_counts_since_it_was_last_asked(self):
        said = [b'{"attached": 1, "tracked_requests": 2, "hit_requests": 3, "hit_tokens": 40}'] * 2
        said.append(b'{"attached": 1, "tracked_requests": 0, "hit_requests": 4, "hit_tokens": 45, '
                    b'"passed_over_tokens": 32}')
        self.library.answers["troupe_scheduler_stats"] = (
            lambda handle, out: self.library.bytes(out, said.pop(0)) or 0)
        scheduler, counted = self.made(), []
        for _ in range(3):
            scheduler._counted = 0.0
            with mock.patch("time.monotonic", return_value=100.0):
                counted.append(scheduler.get_kv_connector_stats())
        self.assertEqual(counted[0].data["scheduler"]["found_tokens"], 40)
        self.assertIsNone(counted[1])
        self.assertEqual(counted[2].data["scheduler"],
                         {"attached": 1, "tracked_requests": 0, "hit_requests": 1, "found_tokens": 5,
                          "passed_over_tokens": 32})

    def test_prometheus(self):
        class metric:
            made = {}

            def __init__(self, name, documentation, labelnames, buckets=None):
                self.name, self.values = name, []
                self.made[name] = self

            def labels(self, *values):
                return self

            def observe(self, value):
                self.values.append(value)

            inc = set = observe

        kinds = {"gauge": metric, "counter": metric, "histogram": metric}
        exported = TroupeConnector.build_prom_metrics(fake_vllm.vllm_config(), kinds, ["engine"], {0: ["0"]})
        exported.observe({"workers": {"loaded_bytes": 5, "load_duration": [0.5, 1.5]}, "scheduler": {"attached": 1}})
        self.assertEqual({name: each.values for name, each in metric.made.items() if each.values},
                         {"vllm:troupe_loaded_bytes": [5], "vllm:x_seconds": [0.5, 1.5], "vllm:troupe_attached": [1]})


if __name__ == "__main__":
    unittest.main()
