"""The part of vLLM that the plug-in imports, for tests on machines without it. The real one is tested with vLLM
itself, by scripts/engines."""

import dataclasses
import enum
import logging
import sys
import types


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorBase_V1:
    def __init__(self, vllm_config, role, kv_cache_config):
        self._kv_transfer_config, self._role = vllm_config.kv_transfer_config, role
        self._kv_cache_config, self._connector_metadata = kv_cache_config, None

    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None


class SupportsHMA:
    """vLLM leaves its hybrid KV cache manager on for connectors that are derived from it."""


@dataclasses.dataclass
class KVConnectorStats:
    data: dict = dataclasses.field(default_factory=dict)


class KVConnectorPromMetrics:
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        self._gauge_cls, self._counter_cls, self._histogram_cls = (
            metric_types["gauge"], metric_types["counter"], metric_types["histogram"])


class CacheHitSource(str, enum.Enum):
    HOST = "host"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"


class event:
    """Without the fields of newer versions."""

    __struct_fields__ = ()

    def __init__(self, **fields):
        assert set(fields) <= set(self.__struct_fields__), fields
        self.__dict__.update(fields)

    def __repr__(self):
        return f"{type(self).__name__}({self.__dict__})"

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__


class BlockStored(event):
    __struct_fields__ = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
                         "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window")


class BlockRemoved(event):
    __struct_fields__ = ("block_hashes", "medium", "group_idx")


class AllBlocksCleared(event):
    pass


def extra_keys(request, start, end, item):
    """As vLLM does it, without positions of multimodal items."""
    keys = [("lora", request.lora_request.name)] if request.lora_request else []
    keys += [("salt", request.cache_salt)] if request.cache_salt and start == 0 else []
    return tuple(keys) or None, item


class platform:
    cpu = False

    @classmethod
    def is_cpu(cls):
        return cls.cpu


class group:
    world_size, rank_in_group = 1, 0


@dataclasses.dataclass
class KVConnectorTransferResults:
    finished_sending: set = dataclasses.field(default_factory=set)
    finished_recving: set = dataclasses.field(default_factory=set)
    failed_recving: set = dataclasses.field(default_factory=set)


def install(several_groups=False):
    """Registers the modules for imports. Does nothing if vLLM is installed and imported. `several_groups`: with what
    vLLM 0.32 has for models with several KV cache groups."""
    plain = type("plain", (), {})
    members = {
        "vllm.distributed.kv_transfer.kv_connector.v1.base": {
            "KVConnectorBase_V1": KVConnectorBase_V1, "KVConnectorMetadata": plain, "KVConnectorRole": KVConnectorRole,
            "KVConnectorWorkerMetadata": plain, "KVConnectorHandshakeMetadata": plain, "SupportsHMA": SupportsHMA},
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics": {
            "KVConnectorStats": KVConnectorStats, "KVConnectorPromMetrics": KVConnectorPromMetrics},
        "vllm.distributed.kv_events": {
            "AllBlocksCleared": AllBlocksCleared, "BlockRemoved": BlockRemoved, "BlockStored": BlockStored},
        "vllm.distributed.parallel_state": {"get_pp_group": lambda: group, "get_tp_group": lambda: group},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": platform},
        "vllm.v1.metrics.cache_hit_source": {"CacheHitSource": CacheHitSource},
        "vllm.v1.core.kv_cache_utils": {
            "DEFAULT_NONE_HASH_SEED": "seed", "generate_block_hash_extra_keys": extra_keys,
            "maybe_convert_block_hash": lambda said: int.from_bytes(said, "big") & ((1 << 64) - 1)},
    }
    if several_groups:
        members["vllm.distributed.kv_transfer.kv_connector.v1.base"]["KVConnectorTransferResults"] = (
            KVConnectorTransferResults)
        members["vllm.v1.core.kv_cache_utils"]["resolve_kv_cache_block_sizes"] = (
            lambda cache, config: (cache.scheduler_block_size, cache.hash_block_size))
        members["vllm.v1.core.sched.output"] = {"KVConnectorBlockState": plain}
    for name, contents in members.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        for key, value in contents.items():
            setattr(sys.modules[name], key, value)


class dtype:
    itemsize = 2

    def __str__(self):
        return "torch.bfloat16"


class FullAttentionSpec:
    """The layout of newer versions: [blocks, heads, tokens, content]."""

    dtype, tokens_per_state = dtype(), 1

    def __init__(self, block_size=16, heads=2, head_size=64):
        self.block_size, self.num_kv_heads, self.num_heads, self.head_size = block_size, heads, heads, head_size
        self.state_content_size_bytes = 2 * head_size * 2
        self.page_size_bytes = self.unpadded_page_size_bytes = block_size * heads * self.state_content_size_bytes


class older_spec:
    """The layout of older versions: K and V separate."""

    dtype = dtype()

    def __init__(self, block_size=16, heads=2, head_size=64, head_size_v=None):
        self.block_size, self.num_kv_heads, self.head_size = block_size, heads, head_size
        self.head_size_v = head_size_v or head_size
        self.page_size_bytes = self.real_page_size_bytes = block_size * heads * (head_size + self.head_size_v) * 2


older_spec.__name__ = "FullAttentionSpec"


class MLAAttentionSpec(older_spec):
    def __init__(self, block_size=16, head_size=576):
        super().__init__(block_size, 1, head_size)
        self.page_size_bytes = self.real_page_size_bytes = block_size * head_size * 2


class SlidingWindowSpec:
    dtype, block_size, page_size_bytes, num_kv_heads, head_size, sliding_window = dtype(), 16, 8192, 2, 64, 256


class RSWASpec(FullAttentionSpec):
    """Blocks between prompt and window are freed while a request runs."""

    rswa_window = 256


class UniformTypeKVCacheSpecs:
    """Of layers that need the same part of a prefix and have several shapes."""

    def __init__(self, specs):
        self.kv_cache_specs, first = specs, next(iter(specs.values()))
        self.block_size, self.page_size_bytes = first.block_size, sum(each.page_size_bytes for each in specs.values())


class state_dtype:
    itemsize = 4


class MambaSpec:
    block_size, page_size_bytes, mamba_cache_mode = 16, 4096, "align"
    shapes, dtypes = ((3, 32), (4, 8, 16)), (dtype(), state_dtype())


def some(**members):
    return types.SimpleNamespace(**members)


def kv_cache_config(spec=None, layers=2, blocks=100, groups=1):
    names = [f"model.layers.{number}.self_attn" for number in range(layers)]
    return some(num_blocks=blocks, hash_block_size=None,
                kv_cache_groups=[some(layer_names=names, kv_cache_spec=spec or FullAttentionSpec())
                                 for _ in range(groups)])


def grouped_config(groups, blocks=100, page_tokens=16, hash_tokens=16):
    """A config with several groups. `groups`: (spec, names of its layers) of each; all lie at the same place."""
    tensors = [some(layers=list(names), size=1 << 20, layer_stride=1 << 19, block_stride=spec.page_size_bytes, offset=0)
               for spec, names in groups]
    return some(num_blocks=blocks, hash_block_size=hash_tokens, scheduler_block_size=page_tokens,
                kv_cache_tensors=tensors, prefix_cacheable_group_ids=tuple(range(len(groups))),
                kv_cache_groups=[some(layer_names=list(names), kv_cache_spec=spec, is_eagle_group=False)
                                 for spec, names in groups])


def several_shapes(specs):
    """One group of layers with these specs, as a worker has it, and as vLLM gives it to its scheduler."""
    names, first = list(specs), next(iter(specs.values()))
    out = [grouped_config([(spec, names)]) for spec in (UniformTypeKVCacheSpecs(specs), first)]
    for cache in out:
        cache.kv_cache_tensors = [some(layers=[name], size=1 << 20, layer_stride=1 << 19, offset=0,
                                       block_stride=spec.page_size_bytes) for name, spec in specs.items()]
    return out


def vllm_config(extra=None, **changes):
    config = some(
        model_config=some(model="tiny", revision="main", dtype=dtype(), quantization=None, hf_overrides={},
                          enable_sleep_mode=False),
        cache_config=some(cache_dtype="auto", prefix_caching_hash_algo="sha256", hash_block_size=None),
        parallel_config=some(tensor_parallel_size=1, pipeline_parallel_size=1, decode_context_parallel_size=1,
                             prefill_context_parallel_size=1),
        scheduler_config=some(async_scheduling=True), speculative_config=None,
        kv_events_config=some(enable_kv_cache_events=True),
        kv_transfer_config=some(kv_connector_extra_config={"troupe.address": "127.0.0.1:4600", **(extra or {})},
                                kv_load_failure_policy="recompute"))
    for path, value in changes.items():
        *part, name = path.split("__")
        setattr(getattr(config, part[0]) if part else config, name, value)
    return config


class tensor:
    """A strided view without memory."""

    def __init__(self, shape, order=None, itemsize=2, offset=0, storage=1 << 30, device="cpu"):
        self.shape, self.offset, self._itemsize, self._storage = tuple(shape), offset, itemsize, storage
        self.device = some(type=device, index=0 if device == "cuda" else None)
        strides, step = [0] * len(shape), 1
        for axis in reversed(order or range(len(shape))):
            strides[axis] = step
            step *= shape[axis]
        self._strides = tuple(strides)

    def stride(self):
        return self._strides

    def element_size(self):
        return self._itemsize

    def data_ptr(self):
        return (1 << 40) + self.offset

    def untyped_storage(self):
        return some(nbytes=lambda: self._storage, data_ptr=lambda: 1 << 40)


class request:
    def __init__(self, name, tokens, block=16, **members):
        self.request_id, self.all_token_ids, self.block_hashes, self.block = name, list(tokens), [], block
        self.lora_request = self.cache_salt = self.prompt_embeds = None
        self.mm_features, self.resumable = [], False
        for key, value in members.items():
            setattr(self, key, value)
        self.append()

    def append(self, *tokens):
        self.all_token_ids += tokens
        while len(self.block_hashes) < len(self.all_token_ids) // self.block:
            self.block_hashes.append(bytes([len(self.block_hashes) % 255 + 1]) * 32)

    @property
    def num_tokens(self):
        return len(self.all_token_ids)


class blocks:
    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def get_block_ids(self):
        return (self.numbers,)


def step(new=(), cached=(), preempted=(), resumed=()):
    """`new`: (request, blocks, computed, scheduled); `cached`: likewise, blocks may be None."""
    return some(
        scheduled_new_reqs=[some(req_id=r.request_id, block_ids=(b,), num_computed_tokens=c) for r, b, c, _ in new],
        scheduled_cached_reqs=some(req_ids=[r.request_id for r, *_ in cached],
                                   new_block_ids=[(b,) if b else None for _, b, _, _ in cached],
                                   num_computed_tokens=[c for _, _, c, _ in cached], resumed_req_ids=set(resumed)),
        num_scheduled_tokens={r.request_id: s for r, _, _, s in [*new, *cached]},
        preempted_req_ids=set(preempted) or None)
