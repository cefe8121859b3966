"""Experiments with traces: vLLM itself, with requests that have a trace context, and a collector."""

import pathlib
import sys

import engines
from experiments import BLOCK, FULL, PROMPT, PROMPTS, experiment, require, require_equal, usual

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from collector import Collector  # noqa: E402

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FOUND = PROMPT // BLOCK * BLOCK


def play_with_headers(one, prompts, headers, name):
    """Outputs of requests that have the headers of one each."""
    from vllm import SamplingParams

    engine, outputs = one.llm.llm_engine, {}
    for number, (prompt, said) in enumerate(zip(prompts, headers, strict=True)):
        sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False,
                                  logprobs=1 + engines.ALTERNATIVES)
        engine.add_request(f"{name}-{number}", {"prompt_token_ids": prompt}, sampling, trace_headers=said)
    while engine.has_unfinished_requests():
        outputs.update({each.request_id: each for each in engine.step() if each.finished})
    return [one.heard(outputs[f"{name}-{number}"]) for number in range(len(prompts))]


def context(sampled):
    return {"traceparent": f"00-{TRACE}-{PARENT}-0{int(sampled)}"}


@experiment("spans of requests, in the traces of their clients, at a collector of OpenTelemetry")
def traces(lab):
    made = lab.warm()

    def play(one):
        known = play_with_headers(one, usual(), [context(True), context(False), None], "known")
        hits = one.hits()
        cold = play_with_headers(one, unknown, [context(True)], "cold")
        if not one.multiprocessing:
            # Elsewhere a step waits for an output, and what is left to save is reported at the end.
            one.idle_steps()
        return known, hits, cold

    for seed, options in ((19, {}), (20, {"multiprocessing": "fork", "async_scheduling": True})):
        unknown, collector = engines.random_prompts(seed, 1, PROMPT), Collector()
        engine = lab.start(play, lab.connector(made, traces=collector.url), **options)
        with collector:
            outputs, hits, cold = engine.result()
            # After the last spans, which the end of the engine sends.
            require(collector.wait(lambda x: roots(x, "cold")), "there is no span of the last request")
        require_equal(outputs, lab.baseline(usual()))
        require_equal(cold, lab.baseline(unknown))
        require(hits == FULL, f"{hits} tokens of {FULL} were found")
        require(not collector.faults, f"the collector refuses spans: {collector.faults[:1]}")
        require_spans(collector)
    return 2 * FULL, f"{len(collector.spans)} spans of 3 requests in the last of two engines"


def roots(collector, name):
    """The spans of whole requests, by the ids that they had outside of vLLM."""
    return [x for x in collector.spans if x["name"] == "troupe.request"
            and x["attributes"]["troupe.request.id"].startswith(name)]


def require_spans(collector):
    require(len(roots(collector, "known")) == PROMPTS - 1, "requests with spans are not those that are sampled")
    for name, found, parts_wanted in (("known-0", FOUND, ["lookup", "wait", "load"]), ("cold-0", 0, ["lookup"]),
                                      ("known-2", FOUND, ["lookup", "wait", "load"])):
        (root,), own = roots(collector, name), name == "known-2"
        _, parts = collector.of(root["attributes"]["troupe.request.id"])
        names = [x["name"].removeprefix("troupe.") for x in parts]
        require([x for x in names if x != "save"] == parts_wanted, f"{name} has the spans {names}")
        require(own or (root["trace"], root["parent"]) == (TRACE, PARENT), f"{name} is not in the trace of its client")
        require(not own or (root["trace"] != TRACE and not root["parent"]), f"{name} has no trace of its own")
        for before, after in zip(parts, parts[1:]):
            require(before["end"] <= after["start"], f"{after['name']} begins before the end of {before['name']}")
        require(root["start"] <= parts[0]["start"] and parts[-1]["end"] <= root["end"], "a part is not in its request")
        lookup = parts[0]["attributes"]
        require(lookup["troupe.lookup.found_tokens"] == found, f"{name}: {lookup}")
        if found:
            load = parts[2]["attributes"]
            tiers = sum(load.get(f"troupe.load.{tier}_tokens", 0) for tier in ("memory", "disk", "unknown"))
            require(load["troupe.load.tokens"] == tiers == found and load["troupe.load.bytes"] > 0
                    and load["troupe.load.pages"] == found // BLOCK and not parts[2]["error"], f"{name}: {load}")
        else:
            save = parts[-1]["attributes"]
            require(lookup["troupe.lookup.reason"] == "not_found", f"{name}: {lookup}")
            require(names[-1] == "save" and save["troupe.save.computed_pages"] == PROMPT // BLOCK, f"{name}: {save}")
