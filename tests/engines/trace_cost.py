#!/usr/bin/env python3
"""Prints the time of EngineCore's hooks with traces and without: requests come, load their prompt, decode and end. No
engine: objects stand in for vLLM's, and the library, the node and the collector are real ones. One run switches traces
on and off again and again, so that the rest of the machine's work is the same for both.

trace_cost.py --library LIBTROUPE.SO --node ADDRESS [--requests 64] [--tokens 4096] [--generate 256] [--rounds 40]
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import hooks

# Steps of a round, in which traces are on or off; and different prompts.
STEPS, PROMPTS = 64, 32
BLOCK = 16
# In the place of a forward pass: Python's other threads run meanwhile, as they do in an engine.
FORWARD_SECONDS = 0.002


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--requests", type=int, default=64, help="that decode at once")
    parser.add_argument("--tokens", type=int, default=4096, help="of a prompt")
    parser.add_argument("--generate", type=int, default=256, help="tokens, one a step")
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    os.environ["TROUPE_LIBRARY"] = str(pathlib.Path(arguments.library).resolve())
    os.environ.setdefault("TROUPE_LOG", "off")
    collector = subprocess.Popen([sys.executable, str(hooks.ROOT / "tests" / "python" / "collector.py")],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        engine = model(arguments, collector.stdout.readline().strip())
        engine.play()
        said = json.loads(collector.communicate()[0])
    finally:
        collector.kill()
    print(f"{arguments.requests} requests of {arguments.tokens} tokens that generate {arguments.generate}, "
          f"{arguments.rounds} rounds of {STEPS} steps; {engine.loads} loads; {said['spans']} spans in "
          f"{said['requests']} requests to the collector")
    print("calls of a request, with its share of those of a step; microseconds of one, medians:")
    total = {False: 0.0, True: 0.0}
    for hook, calls in sorted(engine.times.items()):
        of_one = sum(map(len, calls.values())) / engine.ended
        off, on = (1e6 * statistics.median(calls[traced]) for traced in (False, True))
        total[False], total[True] = total[False] + of_one * off, total[True] + of_one * on
        print(f"  {hook:44} {of_one:8.2f} x  off {off:7.1f}  on {on:7.1f}")
    print(f"  {'all of a request':44} {'':8}    off {total[False]:7.1f}  on {total[True]:7.1f}  "
          f"{100 * (total[True] / total[False] - 1):+.2f} %")
    if said["faults"] or not said["spans"]:
        sys.exit(f"the collector refuses spans: {said['faults']}")


def answer(out):
    return ", not known yet" if out[0] is None else ", known"


class model:
    """An engine's scheduler, as far as hooks see it."""

    def __init__(self, arguments, collector):
        import fake_vllm

        self.fake, self.count, self.generate = fake_vllm, arguments.requests, arguments.generate
        self.rounds, self.tokens = arguments.rounds, arguments.tokens
        self.per_request = -(-(arguments.tokens + arguments.generate) // BLOCK) + 1
        places = 2 * arguments.requests + 16
        self.scheduler, self.worker = hooks.halves(arguments.node, places * self.per_request, BLOCK,
                                                   **{"troupe.traces": collector, "troupe.disk_hits": "always"})
        self.places = collections.deque(range(places))
        self.tracer, self.number, self.loads = self.scheduler._tracer, 0, 0
        # Requests that wait for their lookup, that load, that are to run, and that run: [request, blocks, last step].
        self.asking, self.loading, self.ready, self.running = [], {}, [], collections.deque()
        self.leaving, self.ended = {}, 0
        # Of each hook and outcome, with traces and without; none is kept while requests fill the engine.
        self.times = collections.defaultdict(lambda: {False: [], True: []})
        self.counts = False

    def timed(self, hook, *arguments, what=lambda out: ""):
        function = getattr(self.scheduler, hook)
        began = time.perf_counter()
        out = function(*arguments)
        spent = time.perf_counter() - began
        if self.counts:
            self.times[hook + what(out)][self.scheduler._tracer is not None].append(spent)
        return out

    def play(self):
        # First, all prompts are saved, and as many requests run as shall.
        for at in range(self.generate + 4 * PROMPTS):
            self.step(at)
        self.counts = True
        for number in range(2 * self.rounds * STEPS):
            if number % STEPS == 0:
                self.scheduler._tracer = self.tracer if number // STEPS % 2 == 0 else None
                for known in self.scheduler._known.values():
                    # It comes in this round, for its trace.
                    known.arrived = time.time_ns()
            self.step(at + 1 + number)
        self.scheduler._tracer = self.tracer
        self.worker.shutdown()
        self.scheduler.shutdown()

    def arrive(self):
        """So many requests at once that their number stays the same."""
        if not self.places or (self.number + 1) * self.generate > self.count * (self.at + self.generate):
            return
        place, prompt = self.places.popleft(), self.number % PROMPTS
        each = self.fake.request(f"cmpl-{self.number:032}-0", (), BLOCK, trace_headers=None, num_computed_tokens=0,
                                 num_prompt_tokens=self.tokens)
        each.all_token_ids = [0] * self.tokens
        each.block_hashes = [hashlib.sha256(f"{prompt} {x}".encode()).digest() for x in range(self.tokens // BLOCK)]
        self.number += 1
        self.asking.append((each, place))
        self.timed("on_new_request", each)

    def step(self, at):
        self.at = at
        self.arrive()
        new, asking = [], []
        for each, place in self.asking:
            found, _ = self.timed("get_num_new_matched_tokens", each, 0, what=answer)
            if found is None:
                asking.append((each, place))
                continue
            own = list(range(place * self.per_request, place * self.per_request + self.tokens // BLOCK))
            self.timed("update_state_after_alloc", each, self.fake.blocks(*own), found,
                       what=lambda _, found=found: ", for a load" if found else "")
            if found:
                self.loads += 1
                self.timed("get_external_cache_hit_sources", each, found)
                self.loading[each.request_id] = (each, place, own, found)
            else:
                new.append((each, own, 0, self.tokens))
                self.running.append([each, place, at + self.generate])
        self.asking, ready, self.ready = asking, self.ready, []
        for each, place, own, found in ready:
            self.timed("update_state_after_alloc", each, self.fake.blocks(*own), 0)
            new.append((each, own, found, self.tokens - found))
            self.running.append([each, place, at + self.generate])
        cached, started = [], {each.request_id for each, *_ in new}
        for each, place, last in self.running:
            if each.request_id in started:
                continue
            each.all_token_ids.append(at)
            computed = each.num_tokens - 1
            if len(each.all_token_ids) // BLOCK > len(each.block_hashes):
                each.block_hashes.append(hashlib.sha256(f"{each.request_id} {computed}".encode()).digest())
            each.num_computed_tokens = computed
            added = [place * self.per_request + computed // BLOCK] if computed % BLOCK == 0 else None
            cached.append((each, added, computed, 1))
        self.turn(self.timed("build_connector_meta", self.fake.step(new=new, cached=cached)))
        while self.running and self.running[0][2] <= at:
            each, place, _ = self.running.popleft()
            kept, _ = self.timed("request_finished", each, [])
            self.ended += self.counts
            if kept:
                self.leaving[each.request_id] = place
            else:
                self.places.append(place)

    def turn(self, meta):
        """The worker's step."""
        worker, said = self.worker, hooks.output()
        time.sleep(FORWARD_SECONDS)
        worker.handle_preemptions(meta)
        worker.bind_connector_metadata(meta)
        worker.start_load_kv(None)
        worker.wait_for_save()
        said.finished_sending, said.finished_recving = worker.get_finished(set(self.leaving))
        said.invalid_block_ids = worker.get_block_ids_with_load_errors()
        worker.get_kv_connector_stats()
        said.kv_connector_worker_meta = worker.build_connector_worker_meta()
        worker.clear_connector_metadata()
        reports = bool(said.finished_sending or said.finished_recving)
        self.timed("update_connector_output", said, what=lambda _: ", with reports" if reports else "")
        self.timed("take_events")
        for name in said.finished_sending or ():
            self.places.append(self.leaving.pop(name))
        for name in said.finished_recving or ():
            self.ready.append(self.loading.pop(name))


if __name__ == "__main__":
    sys.exit(main())
