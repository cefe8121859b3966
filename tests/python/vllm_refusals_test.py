"""Refusals of the plug-in when vLLM starts, without vLLM: options, models, and faults of vLLM."""

import unittest

import fake_vllm
from vllm_test import with_library

from troupe.vllm import TroupeConnector


class refusals(with_library):
    def test_what_cannot_be_is_said_when_vllm_starts(self):
        for sentence, extra, cache, changes in (
                ("troupe.adress", {"troupe.adress": "x"}, None, {}),
                ("one of async, sync", {"troupe.load": "later"}, None, {}),
                ("one of always, when_faster, never", {"troupe.disk_hits": "at times"}, None, {}),
                ("must be a number", {"troupe.min_load_tokens": "many"}, None, {}),
                ("cannot be negative", {"troupe.min_load_tokens": -1}, None, {}),
                ("needs 'troupe.address'", {"troupe.address": ""}, None, {}),
                ("makes 2 of this one", {}, fake_vllm.kv_cache_config(groups=2), {}),
                ("state layers", {}, fake_vllm.kv_cache_config(fake_vllm.MambaSpec()), {}),
                ("state layers", {}, None, {"model_config__is_hybrid": True}),
                ("--disable-sliding-window", {}, fake_vllm.kv_cache_config(fake_vllm.SlidingWindowSpec()), {}),
                ("over what it generates", {}, fake_vllm.kv_cache_config(fake_vllm.RSWASpec()), {}),
                ("--no-async-scheduling", {"troupe.load": "sync"}, None, {}),
                ("sleep mode", {}, None, {"model_config__enable_sleep_mode": True}),
                ("context parallelism", {}, None, {"parallel_config__prefill_context_parallel_size": 2})):
            with self.assertRaises(ValueError) as caught:
                self.made(extra=extra, cache=cache, **changes)
            self.assertIn(sentence, str(caught.exception))

    def test_synchronous_loads_need_a_runner_that_goes_back(self):
        sync = {"extra": {"troupe.load": "sync"}, "scheduler_config__async_scheduling": False}
        with self.assertRaisesRegex(ValueError, "VLLM_USE_V2_MODEL_RUNNER=0"):
            self.made(**sync, use_v2_model_runner=True)
        # Versions with one runner, the first runner, loads beside forward passes, and requests that end.
        self.made(**sync)
        self.made(**sync, use_v2_model_runner=False)
        self.made(use_v2_model_runner=True)
        self.made(**sync, use_v2_model_runner=True, kv_transfer_config__kv_load_failure_policy="fail")

    def test_vllm_turns_its_hybrid_manager_off(self):
        # Models whose layers have windows then have one KV cache group, and start.
        self.assertFalse(issubclass(TroupeConnector, fake_vllm.SupportsHMA))
        self.assertEqual(self.made().request_finished(fake_vllm.request("one", range(40)), [1, 2]), (False, None))

    def test_no_advice_is_given_that_does_not_help(self):
        mixed = fake_vllm.kv_cache_config(groups=2)
        mixed.kv_cache_groups[0].kv_cache_spec = fake_vllm.MambaSpec()
        for cache in (mixed, fake_vllm.kv_cache_config(fake_vllm.MambaSpec())):
            with self.assertRaises(ValueError) as caught:
                self.made(cache=cache)
            self.assertIn("no option", str(caught.exception))
            self.assertNotIn("--", str(caught.exception))

    def test_state_layers_are_refused_before_vllm_groups_layers(self):
        self.assertIsNone(TroupeConnector.get_required_kvcache_layout(fake_vllm.vllm_config()))
        with self.assertRaisesRegex(ValueError, "state layers"):
            TroupeConnector.get_required_kvcache_layout(fake_vllm.vllm_config(model_config__is_hybrid=True))


if __name__ == "__main__":
    unittest.main()
