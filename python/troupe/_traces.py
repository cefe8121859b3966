"""Traces of vLLM's requests: hooks note what they know, and a thread makes spans of it and sends them.

A note is a tuple in a bounded queue, since hooks have microseconds. A mistake in here ends the traces, and not the
engine.
"""

import collections
import os
import random
import socket
from time import time_ns

from troupe import __version__, _otlp, _spans

# Notes that wait for the thread, and how many it takes before it gives the engine's thread a turn.
MOST_NOTES, NOTES_AT_ONCE = 16384, 8

ANSWERED, ALLOCATED, REPORTED, FINISHED, CLOSED = range(5)


def settings(options, vllm_config):
    """(`_otlp.Endpoint` or None, why there is none). ValueError for options that are wrong."""
    if not 0 <= options.traces_ratio <= 1:
        raise ValueError(f"'troupe.traces_ratio' is {options.traces_ratio}, but must be from 0 to 1")
    observability = getattr(vllm_config, "observability_config", None)
    return _otlp.endpoint_of(options.traces, getattr(observability, "otlp_traces_endpoint", None), _otlp.environment())


def sizes(options, vllm_config, shape, latent):
    """For one group of layers, whose geometry says how many bytes a token has in a worker."""
    parallel = vllm_config.parallel_config
    ways, stage = parallel.decode_context_parallel_size, parallel.tensor_parallel_size
    x = shape.geometry(options.page_tokens)
    token = x["parts"] * x["heads"] * x["head_size"] * x["element_bytes"]
    token = x["layers"] * (token or x["opaque_block_bytes"] // shape.block_tokens)
    loaded = token * stage * parallel.pipeline_parallel_size // ways
    # Of workers that hold the same, one saves.
    saved = loaded // stage if latent else loaded
    return _spans.Sizes((options.page_tokens or shape.block_tokens) * ways, loaded, saved)


def resource(endpoint, vllm_config, namespace, node):
    parallel = vllm_config.parallel_config
    out = {"service.name": endpoint.service or "troupe", "host.name": socket.gethostname(), "process.pid": os.getpid(),
           "troupe.namespace": namespace, "troupe.node.address": node,
           "troupe.engine.model": vllm_config.model_config.model,
           "troupe.engine.workers": parallel.tensor_parallel_size * parallel.pipeline_parallel_size}
    if getattr(parallel, "data_parallel_size", 1) > 1:
        out["troupe.engine.data_parallel_rank"] = getattr(parallel, "data_parallel_rank", 0)
    return out


class Tracer:
    """The traces of a scheduler half. The engine's thread calls `note`, which never waits, and `close`.

    `note` takes tuples, in which requests are those of `troupe.vllm`, and whose last member is the time:

        ANSWERED, request, tokens that the engine has computed, tokens that a lookup has found (None: not known yet),
                  why it is nothing, what other nodes had of it (as `_halves.Scheduler.fetched_pages`, or None), time
        ALLOCATED, request, tokens to load, list for their tiers, numbers of blocks, time
        REPORTED, what workers have reported in a step in which a load or a save ends, time
        FINISHED, request, whether its blocks are kept, whether there is a node that saves, time
    """

    def __init__(self, endpoint, attributes, size, options, logger):
        bits = random.Random(os.urandom(16)).getrandbits
        # A full queue loses its oldest notes.
        self._notes, self._logger = collections.deque(maxlen=MOST_NOTES), logger
        self.note, self._synchronous = self._notes.append, options.load == "sync"
        self._prompts_only = options.save == "prompts"
        # Notes of requests that have arrived before are incomplete.
        self._complete_from = 0
        self.exporter = _otlp.Exporter(endpoint, attributes, __version__, bits, logger, self._make_spans)
        self._traces = _spans.Traces(self.exporter.offer, bits, size, options.traces_ratio)
        self.exporter.start()

    def close(self):
        self.note((CLOSED,))
        self.exporter.close()

    def _make_spans(self):
        """Called by the exporter's thread."""
        try:
            self._take_notes()
        except Exception:
            # Nothing takes notes any more, and they keep requests alive.
            self.note = lambda note: None
            self._notes.clear()
            raise

    def _take_notes(self):
        notes, number = self._notes, 0
        while notes:
            if len(notes) == notes.maxlen:
                notes.clear()
                self._traces.forget()
                self._complete_from = time_ns()
                self._logger.warning("Troupe: requests in progress have no traces: they are noted faster than spans "
                                     "are made of them.")
                return
            self._take(*notes.popleft())
            number += 1
            if number % NOTES_AT_ONCE == 0:
                self.exporter.rest()

    def _take(self, kind, *said):
        traces = self._traces
        if kind == ANSWERED:
            known, computed, tokens, reason, fetched, now = said
            self._arrived(known)
            traces.answered(known.request.request_id, computed, tokens, reason, now, fetched)
        elif kind == ALLOCATED:
            known, tokens, tiers, blocks, now = said
            traces.allocated(known.request.request_id, tokens, tiers, blocks if tokens else (), self._synchronous, now)
        elif kind == REPORTED:
            output, now = said
            traces.reported(output.finished_sending, output.finished_recving, getattr(output, "failed_recving", None),
                            output.invalid_block_ids, now)
        elif kind == FINISHED:
            known, keeps, saves, now = said
            request = known.request
            self._arrived(known)
            limit = request.num_prompt_tokens if self._prompts_only else request.num_tokens
            traces.finished(request.request_id, min(request.num_computed_tokens, limit), keeps, saves, now)
        else:
            traces.close(time_ns())

    def _arrived(self, known):
        if known.arrived >= self._complete_from:
            request = known.request
            # Requests of older versions of vLLM have no headers.
            self._traces.arrived(request.request_id, getattr(request, "trace_headers", None),
                                 request.num_prompt_tokens, known.arrived)
