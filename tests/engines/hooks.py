#!/usr/bin/env python3
"""Prints the time of a step's hooks in Python, in EngineCore and in a worker: many requests with long prompts, all of
which decode. No engine, and no node unless one is named: objects stand in for vLLM's, and the library is the real one.

hooks.py --library LIBTROUPE.SO [--requests 256] [--tokens 32768] [--steps 300] [--node ADDRESS] [--events]
"""

import argparse
import ctypes
import hashlib
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--node", help="of a node that saves what is computed")
    parser.add_argument("--events", action="store_true", help="as with --kv-events-config")
    arguments = parser.parse_args()
    os.environ["TROUPE_LIBRARY"] = str(pathlib.Path(arguments.library).resolve())
    os.environ.setdefault("TROUPE_LOG", "off")
    import fake_vllm

    block, per_request = 16, arguments.tokens // 16 + 64
    scheduler, worker = halves(arguments.node, arguments.requests * per_request, block,
                               events=arguments.events)

    # They fill their blocks in different steps, as requests do that have come at different times.
    class request(fake_vllm.request):
        """Each request has blocks of its own."""

        def append(self, *tokens):
            before = len(self.block_hashes)
            super().append(*tokens)
            for number in range(before, len(self.block_hashes)):
                self.block_hashes[number] = hashlib.sha256(f"{self.request_id} {number}".encode()).digest()

    requests = [request(f"cmpl-{number:032}-0", range(arguments.tokens + number % block), block)
                for number in range(arguments.requests)]
    first, events = [], 0
    for number, each in enumerate(requests):
        scheduler.on_new_request(each)
        while scheduler.get_num_new_matched_tokens(each, 0)[0] is None:
            time.sleep(0.01)
        own = list(range(number * per_request, number * per_request + -(-each.num_tokens // block)))
        scheduler.update_state_after_alloc(each, fake_vllm.blocks(*own), 0)
        first.append((each, own, 0, each.num_tokens))
    times = {"EngineCore": [], "worker": []}
    events += play(scheduler, worker, fake_vllm.step(new=first), times)
    for _ in range(100 if arguments.node else 0):  # until all is saved
        time.sleep(0.1)
        events += play(scheduler, worker, fake_vllm.step(), times)
    times = {"EngineCore": [], "worker": []}
    for number in range(arguments.steps):
        cached = []
        for index, each in enumerate(requests):
            each.append(number)
            computed = each.num_tokens - 1
            added = [index * per_request + computed // block] if computed % block == 0 else None
            cached.append((each, added, computed, 1))
        events += play(scheduler, worker, fake_vllm.step(cached=cached), times)
    if arguments.events:
        print(f"{events} blocks in events")
    both = [sum(pair) for pair in zip(*times.values())]
    print(f"{arguments.requests} requests of {arguments.tokens} tokens, {arguments.steps} steps, microseconds a step:")
    for name, values in (*times.items(), ("both", both)):
        values = sorted(1e6 * value for value in values)
        print(f"  {name:11} p50 {values[len(values) // 2]:7.0f}  p99 {values[len(values) * 99 // 100]:7.0f}")
    worker.shutdown()
    scheduler.shutdown()


def halves(node, blocks, block, events=False, **extra):
    """Both halves of the plug-in, with the real library. `extra`: further options."""
    import fake_vllm

    fake_vllm.install()
    from troupe.vllm import KVConnectorRole, TroupeConnector

    spec = fake_vllm.FullAttentionSpec(block_size=block, heads=1, head_size=16)
    cache = fake_vllm.kv_cache_config(spec, layers=1, blocks=blocks)
    # A port without a listener: halves work as with a node that finds nothing.
    options = {"troupe.address": "127.0.0.1:9", "troupe.wait_for_node_seconds": -1.0}
    if node:
        options = {"troupe.address": node}
    config = fake_vllm.vllm_config({**options, **extra}, kv_events_config__enable_kv_cache_events=events)
    memory = ctypes.create_string_buffer(blocks * spec.page_size_bytes)

    class tensor(fake_vllm.tensor):
        def data_ptr(self):
            return ctypes.addressof(memory)

        def untyped_storage(self):
            return fake_vllm.some(nbytes=lambda: len(memory), data_ptr=lambda: ctypes.addressof(memory))

    worker = TroupeConnector(config, KVConnectorRole.WORKER, cache)
    worker.register_kv_caches({cache.kv_cache_groups[0].layer_names[0]: tensor((blocks, 1, block, 32))})
    return TroupeConnector(config, KVConnectorRole.SCHEDULER, cache), worker


class output:
    finished_sending = finished_recving = failed_recving = None
    invalid_block_ids = ()


def play(scheduler, worker, step, times):
    began = time.perf_counter()
    meta = scheduler.build_connector_meta(step)
    scheduled = time.perf_counter()
    worker.handle_preemptions(meta)
    worker.bind_connector_metadata(meta)
    worker.start_load_kv(None)
    worker.wait_for_save()
    sent, received = worker.get_finished(set())
    errors = worker.get_block_ids_with_load_errors()
    worker.get_kv_connector_stats()
    said = output()
    said.kv_connector_worker_meta = worker.build_connector_worker_meta()
    worker.clear_connector_metadata()
    worked = time.perf_counter()
    said.finished_sending, said.finished_recving, said.invalid_block_ids = sent, received, errors
    scheduler.update_connector_output(said)
    scheduler.get_kv_connector_stats()
    events = scheduler.take_events()
    ended = time.perf_counter()
    times["EngineCore"].append(scheduled - began + ended - worked)
    times["worker"].append(worked - scheduled)
    return sum(len(each.block_hashes) for each in events)


if __name__ == "__main__":
    sys.exit(main())
