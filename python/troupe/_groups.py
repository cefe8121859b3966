"""Models with several KV cache groups, in the terms of `troupe_group`.

vLLM divides layers into groups, each with a block table. Groups that need the same part of a prefix and lie in the same
memory are one group of Troupe here: a page has the blocks of all of them. As in `_kv_shape`, everything follows from
vLLM's config, so that scheduler and workers, in processes of their own, agree. Of a group whose layers have several
shapes vLLM gives its scheduler one of them: then workers say what they have (`_stages`).
"""

import hashlib
import math
from dataclasses import dataclass, replace

from troupe import _interface, _kv_shape
from troupe._kv_shape import DoesNotFit

FULL, WINDOW, CHUNK, STATE = (_interface.GROUP_FULL, _interface.GROUP_WINDOW, _interface.GROUP_CHUNK,
                              _interface.GROUP_STATE)

# Tokens of blocks that kernels with blocks of certain sizes take as they are.
WHOLE_BLOCKS = (16, 32, 64)

WAY_OUT = ("start vLLM with --disable-hybrid-kv-cache-manager, which keeps all layers in one group, or without a KV "
           "connector")


@dataclass(frozen=True)
class Group:
    """Layers that need the same part of a prefix: all of them, or with pipeline parallelism those of one stage."""

    kind: int
    tokens: int  # of a window or chunk
    extra_tokens: int
    block_tokens: int
    block_bytes: int  # of one layer, without padding; of layers with several sizes, the piece that all are multiples of
    layers: int  # or pieces of them
    tables: tuple[int, ...]  # numbers of vLLM's groups
    names: tuple[tuple[str, ...], ...]  # layers of each of them
    latent: bool  # MLA: the same for all tensor-parallel workers
    layout: str  # the order of bytes in a block
    stage: int = 0  # from 1 on; 0: there are no stages, or all have as many of these layers
    sizes: tuple[int, ...] = ()  # block bytes of each layer, if they are not the same
    pieces: int = 1  # blocks of the kernel in one of the scheduler, where these have heads apart

    @classmethod
    def of(cls, said, stage):
        """From `said` by another process."""
        names = tuple(map(tuple, said["names"]))
        return cls(**{**said, "tables": tuple(said["tables"]), "names": names, "sizes": tuple(said["sizes"]),
                      "stage": stage})

    def said(self):
        """For other processes, as JSON takes it."""
        return {name: value for name, value in vars(self).items() if name != "stage"}

    def label(self):
        """The end of the namespace's name, with the stage's number in vLLM."""
        stage = f"stage-{self.stage - 1}." if self.stage else ""
        return stage + {FULL: "full", WINDOW: f"window-{self.tokens}", CHUNK: f"chunk-{self.tokens}",
                        STATE: "state"}[self.kind]

    def identity(self):
        """What the identity of every group says of this one: also which layer is where in a page."""
        layers = "|".join(",".join(names) for names in self.names)
        if self.sizes:
            layers += f" with {','.join(map(str, self.sizes))}"
        if self.pieces > 1:
            layers += f" in {self.pieces} pieces"
        return (f"{self.label()}+{self.extra_tokens} blocks {self.block_tokens}x{self.block_bytes} of {layers} as "
                f"{self.layout}")


class Groups:
    """All groups of a model: of each stage the first one is that of full attention, where there is one."""

    def __init__(self, groups, page_tokens, table_count):
        self.page_tokens, self.table_count = page_tokens, table_count
        self.groups = sorted(groups, key=lambda group: (group.stage, group.kind, group.tokens, group.tables))
        if not self.groups:
            raise DoesNotFit("vLLM's prefix cache keeps no layer of this model: start vLLM without a KV connector")

    def identity(self):
        """Everything that all groups must have in common with those of another engine, as a short text."""
        whole = "; ".join(group.identity() for group in self.groups)
        return (f"{self.page_tokens} tokens of {', '.join(self.labels())}: "
                + hashlib.sha256(whole.encode()).hexdigest()[:32])

    def labels(self):
        """A different one for each group."""
        out = []
        for group in self.groups:
            label = group.label()
            out.append(label if label not in out else f"{label}-{len(out)}")
        return out

    def geometry(self, group):
        """Members of `troupe_geometry`: one token for each block of a page."""
        blocks = len(group.tables) * (self.page_tokens // group.block_tokens)
        return {"layers": group.layers, "page_tokens": blocks, "opaque_block_bytes": group.block_bytes}

    def latent(self):
        """Whether all tensor-parallel workers have the same pages. Of groups that are not of stages each worker saves its
        own, as always, unless its layers have several sizes."""
        return all(group.latent and (group.stage or group.sizes) for group in self.groups)

    def of_worker(self, stage):
        """The groups that a worker of the stage has, whose number in vLLM it is."""
        return [group for group in self.groups if group.stage in (0, stage + 1)]

    def views(self, tensors, blocks, stage):
        """Members of `troupe_layer` for the layers of a worker's groups."""
        return [view for group in self.of_worker(stage)
                for name, size in zip(group.names[0], group.sizes or [group.block_bytes] * len(group.names[0]))
                for view in _views(name, tensors, blocks, size, group)]


def own_groups(kv_cache_config, page_tokens, on_cpu, vllm_config, tensors=None):
    """The groups of the layers in this config: with pipeline parallelism, those of one stage. `tensors`: of a worker."""
    ids = getattr(kv_cache_config, "prefix_cacheable_group_ids", None)
    wanted = range(len(kv_cache_config.kv_cache_groups)) if ids is None else ids
    places, merged = _places(kv_cache_config), {}
    for number in wanted:
        if not kv_cache_config.kv_cache_groups[number].layer_names:
            continue  # other stages have its layers
        found, specs = _group(number, kv_cache_config.kv_cache_groups[number], page_tokens)
        if tensors is not None:
            found = replace(found, pieces=_pieces(found.names[0], tensors, kv_cache_config.num_blocks))
        key = (found.kind, found.tokens, found.extra_tokens, found.block_tokens, found.block_bytes, found.layers,
               found.sizes, found.pieces, tuple(places[name] for name in found.names[0]))
        merged.setdefault(key, ([], specs))[0].append(found)
    return [_joined(same, " and ".join(dict.fromkeys(layout(same[0].kind, spec, vllm_config, on_cpu) for spec in specs)))
            for same, specs in merged.values()]


def _places(kv_cache_config):
    """Where each layer's blocks begin, and how far they are apart."""
    out = {}
    for tensor in kv_cache_config.kv_cache_tensors:
        for index, name in enumerate(tensor.layers):
            out[name] = (tensor.offset + index * tensor.layer_stride, tensor.block_stride)
    return out


def _joined(same, order):
    tables = tuple(number for group in same for number in group.tables)
    names = tuple(names for group in same for names in group.names)
    return replace(same[0], tables=tables, names=names, layout=order)


def _group(number, said, page_tokens):
    """One of vLLM's groups, and the specs of its layers."""
    spec, names = said.kv_cache_spec, tuple(said.layer_names)
    inner = getattr(spec, "kv_cache_specs", None)
    specs = [inner[name] for name in names] if inner else [spec]
    kinds = {(*_kind(each), each.block_size) for each in specs}
    sizes = [_block_bytes(each) for each in specs]
    if len(kinds) != 1:
        raise DoesNotFit(f"KV cache group {number} of this model has layers that need different parts of a prefix, which "
                         f"Troupe does not support: {WAY_OUT}")
    kind, tokens, extra, _ = kinds.pop()
    spec = specs[0]
    if page_tokens % spec.block_size:
        raise DoesNotFit(f"KV cache group {number} of this model has blocks of {spec.block_size} tokens, which do not "
                         f"divide {page_tokens}: {WAY_OUT}")
    if kind == STATE and spec.block_size != page_tokens:
        raise DoesNotFit(f"the states of this model are kept every {spec.block_size} tokens, and its pages have "
                         f"{page_tokens}: start vLLM without a KV connector")
    latent = all(_kv_shape.is_latent(each) for each in specs)
    if len(set(sizes)) == 1:
        return Group(kind, tokens, extra, spec.block_size, sizes[0], len(names), (number,), (names,), latent, ""), specs
    # A layer counts as several ones, each with a piece of its blocks.
    piece = math.gcd(*sizes)
    return Group(kind, tokens, extra, spec.block_size, piece, sum(sizes) // piece, (number,), (names,), latent, "",
                 sizes=tuple(sizes)), specs


def _kind(spec):
    """(kind, tokens, extra tokens) of a spec."""
    names = _kv_shape.kinds(spec)
    if "MambaSpec" in names:
        return STATE, 0, 0
    if "SlidingWindowSpec" in names:
        return WINDOW, spec.sliding_window, getattr(spec, "extra_retained_tokens", 0) or 0
    if "ChunkedLocalAttentionSpec" in names:
        return CHUNK, spec.attention_chunk_size, 0
    if "FullAttentionSpec" in names and not getattr(spec, "rswa_window", None):
        return FULL, 0, 0
    raise DoesNotFit(f"Troupe does not support this model's KV cache, {names[0]}: start vLLM without a KV connector")


def _block_bytes(spec):
    if "MambaSpec" in _kv_shape.kinds(spec):
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(spec.shapes, spec.dtypes))
    return _kv_shape.payload_bytes(spec)


def needed(kv_cache_config):
    """Whether layers need different parts of a prefix, or all of them only a part of it, or have several shapes."""
    groups = kv_cache_config.kv_cache_groups
    return (len(groups) > 1 or any(_kind(spec)[0] != FULL for group in groups for spec in _kv_shape.specs_of(group))
            or any(len(set(map(_kv_shape.shape_of, _kv_shape.specs_of(group)))) > 1 for group in groups))


def uneven(kv_cache_config):
    """Whether layers of one of vLLM's groups may have several shapes. Its scheduler has the spec of the first layer, and
    the places of all."""
    tensors = [set(tensor.layers) for tensor in getattr(kv_cache_config, "kv_cache_tensors", ())]
    return any(sum(not tensor.isdisjoint(group.layer_names) for tensor in tensors) > 1
               for group in kv_cache_config.kv_cache_groups)


def splits_heads(kv_cache_config, vllm_config, on_cpu):
    """Whether kernels may have smaller blocks than the scheduler, and in each of them heads before tokens. Then the size
    of the kernels' blocks decides about the order of bytes, and workers alone know it. The kernels for CPUs have the
    scheduler's blocks."""
    order = getattr(vllm_config.cache_config, "kv_cache_layout", None) or ""
    if on_cpu or "H" not in order or order.find("H") > order.find("N"):
        return False
    specs = [spec for group in kv_cache_config.kv_cache_groups for spec in _kv_shape.specs_of(group)]
    return any(spec.block_size not in WHOLE_BLOCKS and getattr(spec, "num_heads", 1) > 1 for spec in specs
               if "MambaSpec" not in _kv_shape.kinds(spec))


def keeps_states(kv_cache_config):
    """Whether the prefix cache has states to hand on: with Mamba layers only in one of its modes."""
    specs = [spec for group in kv_cache_config.kv_cache_groups for spec in _kv_shape.specs_of(group)]
    states = [spec for spec in specs if "MambaSpec" in _kv_shape.kinds(spec)]
    return all(getattr(spec, "mamba_cache_mode", "none") == "align" for spec in states)


def _views(name, tensors, blocks, size, group):
    """Members of `troupe_layer` for a layer with blocks of this size, in pieces."""
    view = _view(name, tensors, blocks, size, group.pieces)
    return [{**view, "base": view["base"] + first, "bytes": view["bytes"] - first}
            for first in range(0, size, group.block_bytes)]


def _tensor(name, tensors):
    if name not in tensors:
        raise DoesNotFit(f"vLLM has registered no KV cache for {name}, which is in one of its KV cache groups")
    tensor = tensors[name]
    if isinstance(tensor, (list, tuple)):
        if len(tensor) != 1:
            raise DoesNotFit(f"{name} has {len(tensor)} tensors, of which Troupe supports one: start vLLM without a KV "
                             "connector")
        tensor = tensor[0]
    return tensor


def _pieces(names, tensors, blocks):
    """How many blocks of the kernel are in one of the scheduler, if they have their heads apart; otherwise it makes no
    difference, and is 1. `_view` refuses layers that differ from the others."""
    return math.lcm(*(_heads_apart(_tensor(name, tensors), blocks) for name in names))


def _heads_apart(tensor, blocks):
    size, stride = tensor.shape, tensor.stride()
    pieces = size[0] // blocks
    return pieces if pieces > 1 and len(size) > 3 and size[1] > 1 and stride[1] > stride[2] else 1


def _view(name, tensors, blocks, block_bytes, known_pieces):
    tensor = _tensor(name, tensors)
    size, element = list(tensor.shape), tensor.element_size()
    stride = [count * element for count in tensor.stride()]
    # A kernel may have smaller blocks than the scheduler, several of which follow each other.
    if size[0] % blocks:
        raise DoesNotFit(f"the KV cache of {name} is {size}, which is not {blocks} blocks: Troupe does not support this "
                         "layout")
    pieces = size[0] // blocks
    inner = sum((count - 1) * step for count, step in zip(size[1:], stride[1:])) + element
    whole = math.prod(size[1:]) * element
    if inner != whole or (pieces > 1 and stride[0] != whole) or pieces * whole != block_bytes:
        raise DoesNotFit(f"a block of {name} does not have {block_bytes} contiguous bytes ({size}, {stride}): "
                         f"Troupe does not support this layout with several KV cache groups: {WAY_OUT}")
    if _heads_apart(tensor, blocks) != known_pieces:
        raise DoesNotFit(f"this attention backend splits blocks of {name} into {pieces} pieces that have their heads "
                         "apart, and not those of all layers, or not where vLLM's config says so: start vLLM with "
                         "--attention-backend TRITON_ATTN, or without a KV connector")
    storage = tensor.untyped_storage()
    return {"base": tensor.data_ptr(), "bytes": storage.nbytes() - (tensor.data_ptr() - storage.data_ptr()),
            "block_stride": pieces * stride[0]}


def layout(kind, spec, vllm_config, on_cpu):
    """Names the order of bytes in a block, which only vLLM's kernels know: it follows from these."""
    import vllm

    if kind == STATE:
        what = f"{getattr(spec, 'mamba_type', '')} {spec.shapes} {[str(each) for each in spec.dtypes]}"
    elif on_cpu:
        what = _kv_shape.cpu_layout(spec)
    else:
        what = f"{getattr(vllm_config, 'attention_config', None)!r} {getattr(spec, 'dtype', '')}"
    if on_cpu:
        return f"{what} cpu vllm {vllm.__version__}"
    from vllm.platforms import current_platform

    order = getattr(vllm_config.cache_config, "kv_cache_layout", None)
    return f"{what} gpu {current_platform.get_device_capability()} vllm {vllm.__version__} {order}"
