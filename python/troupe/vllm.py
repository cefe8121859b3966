"""Troupe as a KV connector of vLLM, for 0.24 and newer.

    vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "TroupeConnector", "kv_connector_module_path": "troupe.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"troupe.address": "/var/lib/troupe"}}'

This module converts vLLM's objects to arrays, and bytes to objects. libtroupe.so decides what to load and save.
docs/vllm.md is the guide.
"""

import json
import os
import time
from array import array
from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorMetadata,
                                                               KVConnectorRole, KVConnectorWorkerMetadata)
from vllm.logger import init_logger

from troupe import _drafts, _events, _groups, _halves, _interface, _kv_shape, _spans, _stages, _texts, _traces
from troupe._library import TroupeError
from troupe._options import Options
from troupe._statistics import SchedulerCounters, TroupePromMetrics, TroupeStats

try:
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:  # vLLM does not distinguish tiers
    CacheHitSource = None

try:  # What several KV cache groups need: failures by request, and blocks with states by name.
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorHandshakeMetadata,
                                                                   KVConnectorTransferResults, SupportsHMA)
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
    from vllm.v1.core.sched.output import KVConnectorBlockState  # noqa: F401
    SEVERAL_GROUPS = (SupportsHMA,)
except ImportError:
    SEVERAL_GROUPS = ()

# A child of vLLM's logger, whose handlers it uses.
logger = init_logger("vllm.troupe")

# Interval of the scheduler half's statistics; its hooks run in every step.
STATISTICS_SECONDS = 1.0

# Requests that have ended, kept for events about them until the next step ends.
ENDED_MOST = 1024

UNCACHEABLE_NONE, UNCACHEABLE = 0, 1

# In the place of what a lookup has found. None: it is not known yet.
NO_ANSWER = -1

DISK_HITS = {"always": _interface.DISK_HITS_ALWAYS, "when_faster": _interface.DISK_HITS_WHEN_FASTER,
             "never": _interface.DISK_HITS_NEVER}


@dataclass
class TroupeMetadata(KVConnectorMetadata):
    """The work of all workers in a step, in the library's encoding, and for how many groups it is; 0: one namespace."""

    data: bytes = b""
    groups: int = 0


@dataclass
class TroupeWorkerMetadata(KVConnectorWorkerMetadata):
    """The results of workers in a step, one part for each."""

    parts: tuple[bytes, ...] = ()

    def aggregate(self, other):
        return TroupeWorkerMetadata(self.parts + other.parts)


if SEVERAL_GROUPS:

    @dataclass
    class TroupeStages(KVConnectorHandshakeMetadata):
        """What all pipeline stages have, as every worker knows it. Without stages there is one."""

        said: list[dict]


class TroupeConnector(KVConnectorBase_V1, *SEVERAL_GROUPS):
    """The connector, one object per half, as vLLM requires.

    It declares `SupportsHMA` where vLLM has all that several KV cache groups need. Elsewhere vLLM turns its hybrid KV
    cache manager off and keeps the layers of a model with windows in one group.
    """

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._half = self._refusal = self._tracer = self._groups = self._pool = self._stages = None
        self._vllm_config, self._tensors, self._events = vllm_config, None, {}
        self._known, self._kv_events, self._held_blocks = {}, None, 0
        self._idle = self._awaits_stages = False
        try:
            self._set_up(vllm_config, role, kv_cache_config)
        except Exception as error:
            if role == KVConnectorRole.SCHEDULER or vllm_config.parallel_config.pipeline_parallel_size == 1:
                raise
            # Workers of other stages wait for what this one has, and get this in its place.
            self._refusal = error

    def _set_up(self, vllm_config, role, kv_cache_config):
        self._options = Options(self._kv_transfer_config.kv_connector_extra_config,
                                of_others={"copy_threads": "SGLang", "layer_parts": "SGLang"})
        refuse_what_does_not_work(vllm_config, self._options)
        self._collector = _traces.settings(self._options, vllm_config)
        self._blocks = kv_cache_config.num_blocks
        self._keys = resolve_keys(self._options.keys, vllm_config)
        self._idle = bool(SEVERAL_GROUPS) and not _groups.keeps_states(kv_cache_config)
        if self._idle:
            logger.warning("Troupe: vLLM keeps no states of this model's layers, as prefix caching is off, so nothing is "
                           "loaded or saved: start vLLM with --enable-prefix-caching.")
            return
        # The other stages' layers are known when all workers have registered their KV cache, and to the scheduler the
        # shapes of all layers, and how kernels split blocks.
        staged = vllm_config.parallel_config.pipeline_parallel_size > 1
        self._alike_by_config = staged and _stages.alike_by_config(vllm_config, kv_cache_config)
        self._awaits_stages = bool(SEVERAL_GROUPS) and (
            _groups.uneven(kv_cache_config)
            or _groups.needed(kv_cache_config) and _groups.splits_heads(kv_cache_config, vllm_config, runs_on_cpu())
            or staged and not (self._alike_by_config and role == KVConnectorRole.SCHEDULER))
        if self._awaits_stages:
            return
        if SEVERAL_GROUPS and _groups.needed(kv_cache_config):
            self._take_groups(vllm_config, kv_cache_config)
        else:
            self._take_one_group(vllm_config, kv_cache_config)
        self._connect()
        if role == KVConnectorRole.SCHEDULER:
            self._start_scheduler()

    def _connect(self):
        self._named = self._ns.identity(self._engine)
        # Both halves share it if they are in one process.
        self._connection = _halves.connection(self._options.connection(f"vllm-{os.getpid()}"))

    def _start_scheduler(self):
        identity, name = self._named
        self._half = self._made_scheduler()
        self._init_scheduler(self._vllm_config, self._kv_cache_config)
        self._say_attached(f"namespace {name}, identity {identity}")
        self._init_traces(self._vllm_config, name, *self._collector)
        if self._kv_transfer_config.kv_load_failure_policy != "recompute":
            logger.warning("Troupe: kv_load_failure_policy is \"fail\", so vLLM fails a request with an error if "
                           "a page cannot be loaded; with \"recompute\" it computes those tokens.")

    def _made_scheduler(self):
        """The library keeps events from its creation on or never: for vLLM, or for a node that publishes its own."""
        engine, wish = self._engine, self._options.node_events
        if engine.events != _interface.EVENTS_NONE or wish == "off":
            return _halves.Scheduler(self._connection, self._ns, engine)
        if wish == "auto":
            half = _halves.Scheduler(self._connection, self._ns, engine)
            absent = half.absence() is not None
            if not absent and not half.wants_descriptions():
                return half
            half.shutdown()
            if absent:
                # It was waited for.
                self._connection = _halves.connection({**self._options.connection(f"vllm-{os.getpid()}"),
                                                       "wait_for_node_seconds": -1.0})
        engine.events = _interface.EVENTS_ALL
        return _halves.Scheduler(self._connection, self._ns, engine)

    def _take_one_group(self, vllm_config, kv_cache_config):
        names, spec = _kv_shape.single_spec(kv_cache_config)
        on_cpu = runs_on_cpu()
        if on_cpu and _kv_shape.is_latent(spec):
            raise _kv_shape.DoesNotFit("vLLM computes prompts of MLA models as a whole on CPUs, and cannot go on from "
                                       "what was loaded: start vLLM without a KV connector")
        self._shape = _kv_shape.Shape(names, spec, on_cpu)
        self._engine = engine_options(vllm_config, self._options, self._keys, spec.block_size,
                                      _kv_shape.is_latent(spec))
        self._ns = namespace(vllm_config, self._options, self._keys, self._shape.geometry(self._options.page_tokens),
                             blocks=self._shape.block_tokens,
                             layout=_kv_shape.cpu_layout(spec) if on_cpu else "")

    def _take_groups(self, vllm_config, kv_cache_config, stages=None):
        """`stages`: what each pipeline stage has; None: there is one."""
        refuse_with_groups(vllm_config, self._options, len(kv_cache_config.kv_cache_groups))
        page_tokens, self._hash_tokens = page_sizes(vllm_config, kv_cache_config)
        tables = len(kv_cache_config.kv_cache_groups)
        if stages is None:
            groups = _groups.Groups(_groups.own_groups(kv_cache_config, page_tokens, runs_on_cpu(), vllm_config),
                                    page_tokens, tables)
        else:
            groups = _stages.groups_of(stages, page_tokens, tables)
        _drafts.refuse(vllm_config, groups)
        self._groups = self._shape = groups
        self._engine = engine_options(vllm_config, self._options, self._keys, 1, groups.latent())
        identity = groups.identity()

        def all_groups(base):
            members = []
            for group, label in zip(groups.groups, groups.labels()):
                ns = namespace(vllm_config, self._options, self._keys, groups.geometry(group), blocks=page_tokens,
                               layout=f"{label}: {identity}", name=f"{base}.{label}" if base else "")
                numbers = {"kind": group.kind, "tokens": group.tokens, "extra_tokens": group.extra_tokens,
                           "block_tokens": group.block_tokens, "stage": group.stage}
                members.append((numbers, group.tables, ns))
            return _halves.Groups(page_tokens, members)

        # All groups of an engine have the same digits in their names; engines that do not fit have other ones.
        self._ns = all_groups(self._options.namespace or all_groups("").identity(self._engine)[1])

    # What all pipeline stages have is known to every worker, and then to the scheduler.

    def _own_stage(self):
        """What this worker has, for other processes."""
        if self._refusal is not None:
            raise self._refusal
        vllm_config, cache, on_cpu = self._vllm_config, self._kv_cache_config, runs_on_cpu()
        out = {"one_group": None, "groups": [], "tables": len(cache.kv_cache_groups), "page_tokens": 0}
        if not _groups.needed(cache) and cache.kv_cache_groups[0].layer_names:
            names, spec = _kv_shape.single_spec(cache)
            out["one_group"] = {**_kv_shape.Shape(names, spec, on_cpu).geometry(self._options.page_tokens),
                                "latent": _kv_shape.is_latent(spec)}
        if SEVERAL_GROUPS:
            out["page_tokens"] = page_sizes(vllm_config, cache)[0]
            out["groups"] = [group.said()
                             for group in _groups.own_groups(cache, out["page_tokens"], on_cpu, vllm_config,
                                                             self._tensors)]
        return out

    def _take_stages(self, said):
        stages = _stages.checked(said)
        if not SEVERAL_GROUPS:
            _stages.require_alike(stages)
            return
        alike = _stages.alike(stages)
        if alike:
            self._take_one_group(self._vllm_config, self._kv_cache_config)
        else:
            self._take_groups(self._vllm_config, self._kv_cache_config, stages)
        # What the config has told the scheduler need not be passed on.
        self._stages, self._awaits_stages = None if alike and self._alike_by_config else said, False
        self._connect()

    if SEVERAL_GROUPS:

        def get_handshake_metadata(self):
            return None if self._stages is None else TroupeStages(self._stages)

        def set_xfer_handshake_metadata_pp_aware(self, metadata):
            """From all workers, when they have registered their KV cache and before the first step."""
            first, *others = [getattr(each, "said", None) for each in metadata.values()] or [None]
            if first is None and not self._awaits_stages:
                return
            if first is None:
                raise _kv_shape.DoesNotFit("vLLM has passed on what another connector says: with layers of several "
                                           "shapes, and with pipeline stages of different layers, Troupe works as the "
                                           "first connector of a MultiConnector, or alone")
            if any(each != first for each in others):
                raise _kv_shape.DoesNotFit("workers have said different things about their layers: start vLLM without "
                                           "--pipeline-parallel-size, or without a KV connector")
            # The config may have said that stages are alike of which some layers keep no KV.
            self.shutdown()
            self._take_stages(first)
            self._start_scheduler()

    def _say_attached(self, what):
        absence = self._half.absence()
        if absence is None:
            logger.info("Troupe: attached to %s, %s.", self._options.address, what)
        else:
            logger.warning("Troupe: no node at %s yet (%s); the engine works without one, and attaches when it "
                           "is available. %s.", self._options.address, absence, what)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        """None: every layout is supported. Newer versions call this before they group layers, which fails for models
        with state layers without the hybrid manager, and without naming the cause."""
        if not SEVERAL_GROUPS:
            refuse_state_layers(vllm_config)
        return None

    @property
    def requires_kv_delivery(self):
        """A cancelled save is a later miss, and no reason to compute a request again."""
        return False

    # ------------------------------------------------------------------------------------------------------- workers

    def register_kv_caches(self, kv_caches):
        if self._idle:
            return
        self._tensors = kv_caches
        own = _stages.described(self._own_stage)
        if self._vllm_config.parallel_config.pipeline_parallel_size > 1:
            self._take_stages(_stages.exchanged(own))
        elif self._awaits_stages:
            self._take_stages([own])
        views = self._views()
        first = next(iter(kv_caches.values()))
        device = (first[0] if isinstance(first, (list, tuple)) else first).device
        gpu = device.index if device.type == "cuda" else -1
        if device.type not in ("cpu", "cuda"):
            raise _kv_shape.DoesNotFit(f"Troupe supports KV caches of NVIDIA GPUs and of CPUs, but this one is on "
                                       f"{device}: start vLLM without a KV connector")
        if self._half is None:
            self._half = _halves.Worker(self._connection, self._ns, self._engine, worker_number(), gpu)
        self._on_gpu = gpu >= 0
        self._half.register(views, self._blocks)
        self._say_attached(f"worker {worker_number()} with {self._blocks} blocks of {len(views)} layers")

    def _views(self):
        if self._groups is None:
            return self._shape.views(self._tensors, self._blocks)
        return self._shape.views(self._tensors, self._blocks, pipeline_stage())

    def unregister_kv_caches(self):
        if self._half is not None:
            self._half.unregister()

    def restore_kv_caches(self):
        if self._half is not None:
            self._half.register(self._views(), self._blocks)

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config):
        """vLLM calls the two hooks above around it."""
        return True

    def handle_preemptions(self, kv_connector_metadata):
        if self._half is not None:
            self._half.handle_preemptions(self._data_of(kv_connector_metadata))

    def bind_connector_metadata(self, connector_metadata):
        super().bind_connector_metadata(connector_metadata)
        if self._half is not None:
            self._half.bind(self._data_of(connector_metadata))

    def _data_of(self, metadata):
        """The library's metadata, from a scheduler that knows the same groups. Within a MultiConnector it may not know
        what workers have said."""
        if metadata.groups != self._group_count():
            raise _kv_shape.DoesNotFit("the scheduler was not told that this model's pipeline stages have different "
                                       "layers with a KV cache: Troupe works as the first connector of a "
                                       "MultiConnector then, or alone")
        return metadata.data

    def _group_count(self):
        return 0 if self._groups is None else len(self._groups.groups)

    def clear_connector_metadata(self):
        super().clear_connector_metadata()
        if self._half is not None:
            self._half.clear()

    def start_load_kv(self, forward_context, **kwargs):
        if self._half is not None:
            self._half.start_load(self._event("load"))

    def wait_for_layer_load(self, layer_name):
        """Loads end between steps, or before the forward pass."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """Blocks are saved at the end of the step."""

    def wait_for_save(self):
        if self._half is not None:
            self._half.save(self._event("save"))

    def _event(self, which):
        """A CUDA event after all work that was submitted to the current stream; None on CPUs."""
        if not self._on_gpu:
            return None
        import torch

        event = self._events.get(which)
        if event is None:
            event = self._events[which] = torch.cuda.Event()
        event.record()
        return event.cuda_event

    def get_finished(self, finished_req_ids):
        if self._half is None:
            return None, None
        sent, received, _ = self._half.get_finished(finished_req_ids)
        return set(sent) or None, set(received) or None

    if SEVERAL_GROUPS:

        def get_transfer_results(self, finished_req_ids):
            """In place of `get_finished`. Failures by request are for several groups only: with one,
            `get_block_ids_with_load_errors` is more precise, and vLLM uses both."""
            if self._half is None:
                return KVConnectorTransferResults()
            sent, received, failed = self._half.get_finished(finished_req_ids)
            return KVConnectorTransferResults(finished_sending=set(sent), finished_recving=set(received),
                                              failed_recving=set(failed) if self._groups is not None else set())

    def get_block_ids_with_load_errors(self):
        return set(self._half.load_errors()) if self._half is not None else set()

    def build_connector_worker_meta(self):
        said = self._half.meta() if self._half is not None else b""
        return TroupeWorkerMetadata((said,)) if said else None

    # ----------------------------------------------------------------------------------------------------- scheduler

    def _init_scheduler(self, vllm_config, kv_cache_config):
        parallel = vllm_config.parallel_config
        if self._groups is not None:
            self._block_tokens, hash_tokens = self._groups.page_tokens, self._hash_tokens
        else:
            self._block_tokens = self._shape.block_tokens * parallel.decode_context_parallel_size
            hash_tokens = (getattr(kv_cache_config, "hash_block_size", None)
                           or getattr(vllm_config.cache_config, "hash_block_size", None) or self._block_tokens)
        # Hashes are chained, so the hash of a block's last part covers all of it.
        self._hashes_per_block = max(1, self._block_tokens // hash_tokens)
        self._attached = False
        self._zeroes = array("I", bytes(4 * 4096))
        self._step = _interface.Step()
        self._counters, self._counted = SchedulerCounters(), 0.0
        self._publishes, self._discards = _events.wanted(vllm_config), False
        if self._engine.events != _interface.EVENTS_NONE:
            self._init_events(kv_cache_config, hash_tokens)

    def _init_events(self, kv_cache_config, hash_tokens):
        groups = [((0,), self._block_tokens)]
        if self._groups is not None:
            groups = [(group.tables, group.block_tokens) for group in self._groups.groups]
        self._kv_events = _events.Events(_events.Format(_events.locality(self._options.address)),
                                         _events.tables(kv_cache_config, groups), hash_tokens,
                                         describes=self._options.node_events != "off")
        # Whether a node has said that it publishes events or not.
        self._answered = False
        # Requests that have ended since events were taken, and what was taken before their ids were used again.
        self._ended, self._taken, self._gpu_index = {}, [], None

    def _init_traces(self, vllm_config, name, endpoint, why_none):
        if endpoint is None:
            if why_none:
                logger.warning("Troupe: there are no traces, since %s.", why_none)
            return
        if self._groups is not None:
            # What a hit loads and saves of each group is known to the library alone.
            size = _spans.Sizes(self._groups.page_tokens)
        else:
            size = _traces.sizes(self._options, vllm_config, self._shape, bool(self._engine.kv_replicated))
        self._tracer = _traces.Tracer(endpoint, _traces.resource(endpoint, vllm_config, name, self._options.address),
                                      size, self._options, logger)
        logger.info("Troupe: traces are sent to %s.", endpoint)

    def on_new_request(self, request):
        if self._half is not None:
            self._asked(request, lambda said: self._half.on_new_request(*said))

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if self._half is None:
            return 0, False
        found = self._asked(request, lambda said: self._half.match(said, num_computed_tokens), (0, False))
        if getattr(request, "skip_reading_prefix_cache", False):
            # All of its prompt must be computed, for example for its logprobs. All but the newest versions of vLLM leave
            # this check to connectors. The library is called anyway: it has to know what it saves.
            found = 0, False
        if self._tracer is not None:
            known = self._known[request.request_id]
            if known.answer != found[0]:
                known.answer = found[0]
                fetched = None
                if found[0] is not None:
                    fetched = self._half.fetched_pages(_texts.fitting(request.request_id))
                self._tracer.note((_traces.ANSWERED, known, num_computed_tokens, found[0],
                                   "" if found[0] else why_nothing(known), fetched, time.time_ns()))
        return found

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if self._half is None:
            return
        name, numbers = _texts.fitting(request.request_id), ()
        if self._groups is None:
            numbers = blocks.get_block_ids()[0]
            self._half.allocated(name, numbers, num_external_tokens)
        elif num_external_tokens:
            # Blocks with a hash are complete, and may be other requests' as well.
            tables = [[_interface.NULL_BLOCK if block.is_null or block.block_hash is not None else block.block_id
                       for block in table] for table in blocks.blocks]
            self._half.allocated_tables(name, tables, num_external_tokens)
        else:
            self._half.allocated_tables(name, [[] for _ in blocks.blocks], 0)
        if self._tracer is not None:
            known = self._known.get(request.request_id)
            # Without a lookup before, these blocks are for what is computed after a load.
            if known is not None and known.answer != NO_ANSWER:
                # If it is looked up again, its answer may be the same.
                known.answer, known.tiers = NO_ANSWER, []
                self._tracer.note((_traces.ALLOCATED, known, num_external_tokens, known.tiers, numbers,
                                   time.time_ns()))

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        if not num_external_tokens or self._half is None:
            return {}
        memory, disk, unknown = self._half.hit_sources(_texts.fitting(request.request_id), num_external_tokens)
        if self._tracer is not None:
            known = self._known.get(request.request_id)
            if known is not None and known.tiers is not None:
                known.tiers[:] = memory, disk, unknown
        sources = {CacheHitSource.HOST: memory, CacheHitSource.DISK: disk,
                   CacheHitSource.EXTERNAL_UNSPECIFIED: unknown}
        return {source: tokens for source, tokens in sources.items() if tokens}

    def build_connector_meta(self, scheduler_output):
        if self._half is None:
            if not self._idle and self._awaits_stages:
                raise _kv_shape.DoesNotFit("vLLM has not passed on what its workers have: start it without "
                                           "--pipeline-parallel-size, or without a KV connector")
            return TroupeMetadata()
        meta = TroupeMetadata(self._half.build_meta(self._filled(scheduler_output)), self._group_count())
        self._take_holds()
        return meta

    def bind_gpu_block_pool(self, gpu_block_pool):
        self._pool = gpu_block_pool

    def _take_holds(self):
        """Holds blocks that are being saved: with several groups vLLM gives a request's blocks to others at any time."""
        if self._groups is None:
            return
        hold, release = self._half.take_holds()
        if self._pool is None and hold:
            # Without it the blocks would be given out while they are saved, and other bytes under their keys.
            raise _kv_shape.DoesNotFit("vLLM has not passed on its block pool, which several KV cache groups need: "
                                       f"{_groups.WAY_OUT}")
        if hold:
            self._pool.touch([self._pool.blocks[block] for block in hold])
        if release:
            self._pool.free_blocks([self._pool.blocks[block] for block in release])
        self._held_blocks += len(hold) - len(release)

    def has_pending_push_work(self):
        """vLLM goes on stepping while blocks are held, so that an idle engine frees them."""
        return self._held_blocks > 0

    def update_connector_output(self, connector_output):
        if self._half is None:
            return
        said = connector_output.kv_connector_worker_meta
        self._half.worker_output(connector_output.finished_sending, connector_output.finished_recving,
                                 getattr(connector_output, "failed_recving", None),
                                 connector_output.invalid_block_ids, said.parts if said else ())
        self._take_holds()
        if self._tracer is not None and (connector_output.finished_recving or connector_output.finished_sending
                                         or self._engine.synchronous_loads):
            self._tracer.note((_traces.REPORTED, connector_output, time.time_ns()))

    def request_finished(self, request, block_ids):
        known = self._known.pop(request.request_id, None)
        if self._half is None:
            return False, None
        if self._kv_events is not None and known is not None:
            if len(self._ended) >= ENDED_MOST:
                self._collect_events()
            self._ended[request.request_id] = known
        keeps = self._half.finished(_texts.fitting(request.request_id))
        if self._tracer is not None and known is not None:
            self._tracer.note((_traces.FINISHED, known, keeps, self._attached, time.time_ns()))
        return keeps, None

    def request_finished_all_groups(self, request, block_ids):
        """In place of `request_finished` with vLLM's hybrid KV cache manager."""
        return self.request_finished(request, block_ids[0])

    def get_finished_count(self):
        return self._half.finished_count() if self._half is not None else None

    def reset_cache(self):
        if self._half is not None:
            self._half.reset_cache()
        return True

    def take_events(self):
        if self._kv_events is None or self._half is None:
            return ()
        if self._attached and not self._answered:
            self._take_answer()
            if self._kv_events is None:
                return ()
        self._collect_events()
        out, self._taken = self._taken, []
        return out

    def _collect_events(self):
        index = getattr(self._pool, "cached_block_hash_to_block", None)
        if index is not self._gpu_index:
            # vLLM has reset its own prefix cache. Its `AllBlocksCleared`, which names no medium, comes before these.
            self._gpu_index, self._taken = index, []
            self._kv_events.forget()
        events, page_tokens = self._half.take_events(self._kv_events.describes())
        if events:
            said = self._kv_events.take(events, page_tokens, self._request_of)
            if self._publishes:
                self._taken += said
            self._describe()
        self._ended.clear()

    def _describe(self):
        try:
            for batch in self._kv_events.take_descriptions():
                self._half.describe(batch)
        except TroupeError as error:
            self._kv_events.describe_nothing()
            logger.error("Troupe: the node's events lack what this engine saves from now on: %s", error)

    def _take_answer(self):
        """A node that publishes events wants descriptions of pages. Another one never does."""
        self._answered = True
        if self._kv_events.describes() and not self._half.wants_descriptions():
            self._kv_events.describe_nothing()
        if not self._publishes and not self._kv_events.describes():
            # There was no node when the library was created, which keeps events since then.
            self._kv_events, self._discards = None, True
            self._ended.clear()

    def _request_of(self, name):
        known = self._known.get(name) or self._ended.get(name)
        return known and known.request

    def _asked(self, request, ask, otherwise=None):
        """A request that the library refuses is ignored. The engine continues: input of users must not end it."""
        known = self._known.get(request.request_id)
        if known is None:
            if self._kv_events is not None and request.request_id in self._ended:
                self._collect_events()
            known = self._known[request.request_id] = Known(request, self._tracer is not None)
        if known.refused:
            return otherwise
        try:
            out = ask(self._said(known))
        except TroupeError as error:
            known.refused, known.notified = True, False
            logger.error("Troupe: request %.80r is not cached: %s", request.request_id, error)
            return otherwise
        known.notified = self._is_attached()
        if not known.notified:
            # The library has not kept it: if it is looked up again with a node, everything is sent again.
            known.tokens = known.hashes = 0
        return out

    def _is_attached(self):
        """Whether the library keeps what it was given. A node that was attached once counts as attached for ever."""
        if not self._attached:
            self._attached = self._half.absence() is None
        return self._attached

    def _said(self, known):
        """The new data of a request, as `Scheduler.match` takes it."""
        tokens, numbers = self._new_tokens(known)
        first_hash, hashes = self._new_hashes(known)
        self._held = numbers
        count = len(hashes)
        return (known.name, tokens, (first_hash, count, b"".join(hashes) or None), known.lora, known.cache_salt,
                known.multimodal, known.uncacheable)

    def _new_tokens(self, known):
        """(first, count, address), and the array that must be kept alive."""
        first, now = known.tokens, known.request.num_tokens
        count = max(0, now - first)
        known.tokens = first + count
        if self._keys == _interface.KEYS_ENGINE_HASHES:
            # Tokens are only counted if keys are made from hashes.
            numbers = self._zeroes_of(count)
        else:
            numbers = array("I", known.request.all_token_ids[first:now])
        return (first, count, numbers.buffer_info()[0] if count else None), numbers

    def _zeroes_of(self, count):
        if len(self._zeroes) < count:
            self._zeroes = array("I", bytes(8 * count))
        return self._zeroes

    def _new_hashes(self, known):
        """Position of the first in blocks, and the hashes."""
        first = known.hashes
        if self._keys != _interface.KEYS_ENGINE_HASHES:
            return first, ()
        all_hashes, step = known.request.block_hashes, self._hashes_per_block
        hashes = all_hashes[(first + 1) * step - 1::step]
        known.hashes = first + len(hashes)
        return first, hashes

    def _filled(self, scheduled):
        """A step in the form of the library. The data that its struct points at is kept until the next one."""
        new, cached, step = scheduled.scheduled_new_reqs, scheduled.scheduled_cached_reqs, self._step
        names = [each.req_id for each in new]
        names += cached.req_ids
        computed = array("I", [each.num_computed_tokens for each in new])
        computed.fromlist(cached.num_computed_tokens)
        counts = array("I", map(scheduled.num_scheduled_tokens.__getitem__, names))
        step.new_requests, step.requests = len(new), _halves.ids(names)
        step.computed_tokens, step.scheduled_tokens = _halves.address(computed), _halves.address(counts)
        resumed = cached.resumed_req_ids
        step.resumed = bytes(name in resumed for name in names) if resumed else None

        tables = [each.block_ids for each in new]
        tables += cached.new_block_ids
        blocks, ends = self._fill_tables(step, tables)
        states = self._fill_states(step, names, scheduled)

        self._held = (computed, counts, blocks, ends, states, self._fill_tokens(step, names), scheduled)
        step.preempted = _halves.ids(list(scheduled.preempted_req_ids or ()))
        return step

    def _fill_tables(self, step, tables):
        """New blocks. `tables`: of each request, a list for each of its block tables, or None."""
        blocks, ends = array("I"), None
        count = step.tables = 0 if self._groups is None else self._groups.table_count
        if any(tables):
            ends = array("I")
            for table in tables:
                if not table:
                    ends.extend([len(blocks)] * max(count, 1))
                elif not count:
                    blocks.extend(table[0])
                    ends.append(len(blocks))
                else:
                    for part in table:
                        # vLLM's block 0 stands for tokens that a table does not keep.
                        blocks.extend([block or _interface.NULL_BLOCK for block in part] if 0 in part else part)
                        ends.append(len(blocks))
        step.block_ends = _halves.address(ends)
        step.blocks = _interface.Blocks(_halves.address(blocks), len(blocks))
        return blocks, ends

    def _fill_states(self, step, names, scheduled):
        """Blocks with states that this step writes."""
        step.state_ends = step.states = None
        step.state_count = 0
        offers = None
        if self._groups is not None and scheduled.kv_connector_block_state is not None:
            offers = scheduled.kv_connector_block_state.boundary_state_offloads
        if not offers:
            return None
        ends, states = array("I"), array("I")
        for name in names:
            for offer in offers.get(name, ()):
                states.extend(offer)
            ends.append(len(states) // 3)
        step.state_ends, step.states = _halves.address(ends), _halves.address(states)
        step.state_count = len(states) // 3
        return ends, states

    def _fill_tokens(self, step, names):
        """New tokens and hashes, of requests that the library knows."""
        firsts, ends, hash_firsts, hash_ends = array("I"), array("I"), array("I"), array("I")
        tokens, hashes, total = array("I"), [], 0
        counted, per_block = self._keys == _interface.KEYS_ENGINE_HASHES, self._hashes_per_block
        for name in names:
            known = self._known[name]
            first, now = known.tokens, known.request.num_tokens
            firsts.append(first)
            if now > first and known.notified:
                known.tokens = now
                total += now - first
                if not counted:
                    tokens.extend(known.request.all_token_ids[first:now])
            ends.append(total)
            if counted:
                hash_firsts.append(known.hashes)
                if known.notified and len(known.request.block_hashes) >= (known.hashes + 1) * per_block:
                    hashes += self._new_hashes(known)[1]
                hash_ends.append(len(hashes))
        if counted:
            tokens = self._zeroes_of(total)
        step.token_firsts, step.token_ends = _halves.address(firsts), _halves.address(ends)
        step.tokens, step.token_count = (_halves.address(tokens) if total else None), total
        step.hash_firsts, step.hash_ends = _halves.address(hash_firsts), _halves.address(hash_ends)
        step.hashes, step.hash_count = b"".join(hashes) or None, len(hashes)
        return firsts, ends, hash_firsts, hash_ends, tokens

    # ---------------------------------------------------------------------------------------------------- both halves

    def get_kv_connector_stats(self):
        if self._half is None:
            return None
        if self._role == KVConnectorRole.WORKER:
            said = self._half.stats()
            return TroupeStats(data={"workers": json.loads(said)}) if said else None
        now = time.monotonic()
        if now < self._counted + STATISTICS_SECONDS:
            return None
        self._counted = now
        if self._discards:
            self._half.take_events()
        counted = self._counters.since_last(self._half.stats())
        return TroupeStats(data={"scheduler": counted}) if counted else None

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return TroupeStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return TroupePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self):
        half, self._half = self._half, None
        if half is not None:
            half.shutdown()
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            tracer.close()


class Known:
    """The part of a request that the library has received, and its constant properties."""

    __slots__ = ("request", "name", "tokens", "hashes", "lora", "cache_salt", "multimodal", "uncacheable", "refused",
                 "notified", "arrived", "answer", "tiers")

    def __init__(self, request, traced):
        self.request, self.name = request, _texts.fitting(request.request_id)
        # For its trace: nanoseconds, and where the tiers of its load are put.
        self.arrived, self.answer, self.tiers = time.time_ns() if traced else 0, NO_ANSWER, None
        self.tokens = self.hashes = 0
        self.refused = self.notified = False
        self.lora = self.cache_salt = None
        if request.lora_request is not None:
            # Different adapters may have the same name.
            self.lora = _texts.fitting(f"{request.lora_request.lora_name} {request.lora_request.lora_path}")
        if request.cache_salt:
            self.cache_salt = _texts.fitting(request.cache_salt)
        self.multimodal = [multimodal_item(each) for each in request.mm_features or ()]
        by_tokens = request.prompt_embeds is None and not getattr(request, "resumable", False)
        # Workers, in processes of their own, would report a load under an id that vLLM does not know.
        named = not _texts.is_stand_in(self.name)
        self.uncacheable = UNCACHEABLE_NONE if by_tokens and named else UNCACHEABLE


def why_nothing(known):
    """Why a request has no hit, for its trace: as far as it is known here. The node knows more (`troupe explain`)."""
    if getattr(known.request, "skip_reading_prefix_cache", False):
        return "must_compute"
    if known.refused:
        return "refused"
    if known.uncacheable:
        return "uncacheable"
    return "not_found" if known.notified else "no_node"


def multimodal_item(feature):
    place = feature.mm_position
    return place.offset, place.length, _texts.fitting(str(feature.identifier))


def runs_on_cpu():
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


def worker_number():
    """The number of this worker: by stage, and within a stage by tensor-parallel rank."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_pp_group().rank_in_group * get_tp_group().world_size + get_tp_group().rank_in_group


def pipeline_stage():
    from vllm.distributed.parallel_state import get_pp_group

    return get_pp_group().rank_in_group


def page_sizes(vllm_config, kv_cache_config):
    """Tokens of a page where there are several groups, and of one of vLLM's hashes."""
    page_tokens, hash_tokens = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    if len(kv_cache_config.kv_cache_groups) == 1:
        # Workers in other processes have another block size in their config.
        page_tokens = _kv_shape.specs_of(kv_cache_config.kv_cache_groups[0])[0].block_size
    return page_tokens, hash_tokens


def resolve_keys(wanted, vllm_config):
    """Uses vLLM's own hashes if they are the same in every process; otherwise Troupe hashes tokens."""
    if wanted == "tokens":
        return _interface.KEYS_ROLLING
    if wanted == "engine":
        return _interface.KEYS_ENGINE_HASHES
    algorithm = str(vllm_config.cache_config.prefix_caching_hash_algo)
    try:
        from vllm.v1.core.kv_cache_utils import DEFAULT_NONE_HASH_SEED  # noqa: F401
        lasting = algorithm.startswith("sha256")
    except ImportError:  # chains begin with random bytes
        lasting = False
    lasting = lasting or (algorithm.startswith("sha256") and os.environ.get("PYTHONHASHSEED") is not None)
    return _interface.KEYS_ENGINE_HASHES if lasting else _interface.KEYS_ROLLING


def hash_bytes(vllm_config):
    """The size of vLLM's block hashes: SHA-256, or XXH3 with 128 bits."""
    return 32 if str(vllm_config.cache_config.prefix_caching_hash_algo).startswith("sha256") else 16


def engine_options(vllm_config, options, keys, block_tokens, latent):
    parallel = vllm_config.parallel_config
    return _interface.Engine(
        tensor_parallel=parallel.tensor_parallel_size, pipeline_parallel=parallel.pipeline_parallel_size,
        context_parallel=parallel.decode_context_parallel_size, kv_replicated=int(latent),
        block_tokens=block_tokens, keys=keys, hash_bytes=hash_bytes(vllm_config),
        prompts_only=int(options.save == "prompts"),
        synchronous_loads=int(options.load == "sync"), min_load_tokens=options.min_load_tokens,
        disk_hits=DISK_HITS[options.disk_hits],
        synchronous_load_seconds=options.synchronous_load_seconds, lease_seconds=options.lease_seconds,
        lookup_patience_seconds=options.lookup_patience_seconds,
        task_deadline_seconds=options.task_deadline_seconds,
        events=_interface.EVENTS_ALL if _events.wanted(vllm_config) else _interface.EVENTS_NONE)


def namespace(vllm_config, options, keys, geometry, *, blocks, layout, name=None):
    """Everything that must be equal for two engines to share pages. `blocks`: tokens of a block."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    dtype = f"{model.dtype}".removeprefix("torch.")
    if cache.cache_dtype not in ("auto", dtype):
        dtype += f" kv {cache.cache_dtype}"
    if model.quantization:
        dtype += f" weights {model.quantization}"
    overrides = getattr(model, "hf_overrides", None)
    salt = options.salt
    if overrides:
        salt += f" overrides {sorted(overrides.items()) if isinstance(overrides, dict) else overrides!r}"
    salt += draft(vllm_config)
    engine_hashes = keys == _interface.KEYS_ENGINE_HASHES
    algorithm = str(cache.prefix_caching_hash_algo) if engine_hashes else "tokens"
    seed = os.environ.get("PYTHONHASHSEED") if engine_hashes else None
    if seed is not None:
        algorithm += f" seed {seed}"
    ways = vllm_config.parallel_config.decode_context_parallel_size
    algorithm += f" blocks {blocks * ways}"
    if ways > 1:
        # It decides which worker holds a token; a worker of a stage does not hold all of them.
        algorithm += f" cp {ways} interleave {interleave(vllm_config.parallel_config)}"
    return _halves.Namespace(geometry, name=options.namespace if name is None else name, model=model.model,
                             revision=model.revision or "", dtype=dtype, layout=layout, hash_algorithm=algorithm,
                             salt=salt)


def draft(vllm_config):
    """The draft model of speculative decoding, if there is one: its layers are in the KV cache beside the others."""
    speculative = getattr(vllm_config, "speculative_config", None)
    model = getattr(speculative, "draft_model_config", None)
    if model is None or speculative.method in _drafts.WITHOUT_LAYERS:
        # Where tokens are looked up, vLLM names the model itself as the draft's.
        return ""
    return f" draft {speculative.method} {model.model} {model.revision or ''}"


def interleave(parallel):
    """The number of consecutive tokens on one worker, with decode context parallelism."""
    return (getattr(parallel, "cp_kv_cache_interleave_size", None)
            or getattr(parallel, "dcp_kv_cache_interleave_size", None) or 1)


def computes_again(vllm_config):
    """Whether requests continue after a failed load; otherwise they end with an error."""
    return vllm_config.kv_transfer_config.kv_load_failure_policy == "recompute"


def goes_back(vllm_config):
    """Whether vLLM's model runner recomputes a running request from the scheduler's position. The second runner counts
    computed tokens on the GPU, where each step adds to them; the scheduler's number reaches only a copy that limits
    sizes (`update_requests` in v1/worker/gpu/model_runner.py, vLLM 0.24 to 0.33). So after a failed synchronous load,
    positions and tokens are those after the prompt. Requests whose asynchronous load has failed are not running yet,
    and begin at the right position."""
    return not getattr(vllm_config, "use_v2_model_runner", False)


def refuse_state_layers(vllm_config):
    """Models that mix attention with state layers: vLLM keeps them in several KV cache groups only."""
    if getattr(vllm_config.model_config, "is_hybrid", False):
        raise _kv_shape.DoesNotFit(_kv_shape.STATE_LAYERS)


def refuse_what_does_not_work(vllm_config, options):
    """Raises errors for unsupported settings when vLLM starts."""
    if not SEVERAL_GROUPS:
        refuse_state_layers(vllm_config)
    parallel, model, cache = vllm_config.parallel_config, vllm_config.model_config, vllm_config.cache_config
    if getattr(cache, "calculate_kv_scales", False) and str(cache.cache_dtype).startswith("fp8"):
        raise _kv_shape.DoesNotFit("with calculate_kv_scales each vLLM process has scales of its own, and cannot read "
                                   "another one's KV cache: start vLLM without --calculate-kv-scales, or without a KV "
                                   "connector")
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        raise _kv_shape.DoesNotFit("Troupe does not support prefill context parallelism: start vLLM without "
                                   "--prefill-context-parallel-size, or without a KV connector")
    if getattr(model, "enable_sleep_mode", False) and not hasattr(KVConnectorBase_V1, "unregister_kv_caches"):
        raise _kv_shape.DoesNotFit("sleep mode moves the KV cache's memory, and this vLLM does not notify its KV "
                                   "connector: start it without --enable-sleep-mode, or use vLLM 0.33")
    if options.load == "sync" and computes_again(vllm_config) and not goes_back(vllm_config):
        raise _kv_shape.DoesNotFit("\"troupe.load\": \"sync\" does not work with \"kv_load_failure_policy\": "
                                   "\"recompute\" and vLLM's second model runner, which continues after the tokens that "
                                   "it should recompute: leave \"troupe.load\" out, or start vLLM with "
                                   "VLLM_USE_V2_MODEL_RUNNER=0")
    if options.load == "sync" and vllm_config.scheduler_config.async_scheduling:
        raise _kv_shape.DoesNotFit("\"troupe.load\": \"sync\" does not work with asynchronous scheduling: start vLLM "
                                   "with --no-async-scheduling, or leave it out")


def refuse_with_groups(vllm_config, options, tables):
    """Raises errors for settings that do not work with several KV cache groups, or with one of several parts."""
    parallel = vllm_config.parallel_config
    if options.load == "sync":
        raise _kv_shape.DoesNotFit("\"troupe.load\": \"sync\" does not work with a model that has several KV cache "
                                   "groups, layers of several shapes, or pipeline stages with different layers, since "
                                   "vLLM does not compute again what such a load did not bring: leave it out")
    if parallel.decode_context_parallel_size > 1:
        way_out = _groups.WAY_OUT if tables > 1 else "start vLLM without it, or without a KV connector"
        raise _kv_shape.DoesNotFit("Troupe does not support decode context parallelism with several KV cache groups, with "
                                   "layers of several shapes, or with pipeline stages of different numbers of layers: "
                                   f"{way_out}")
    if options.page_tokens:
        raise _kv_shape.DoesNotFit("\"troupe.page_tokens\" does not work with a model that has several KV cache groups, "
                                   "layers of several shapes, or pipeline stages with different layers, whose pages have "
                                   "the block size of the largest group: leave it out")
