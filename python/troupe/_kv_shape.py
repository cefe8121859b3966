"""The memory layout of vLLM's KV cache, in the terms of `troupe_geometry` and `troupe_layer`.

The namespace follows from vLLM's config only, so that scheduler and workers, in processes of their own, agree. The
registered tensors only give addresses and strides; they are compared with the config.
"""

import platform


class DoesNotFit(ValueError):
    """A setup that Troupe does not support, with the way out."""


STATE_LAYERS = ("Troupe supports the KV cache of attention, but this model has state layers (Mamba, gated delta net, "
                "short convolutions, linear attention), which no option of vLLM or Troupe changes: start vLLM without "
                "a KV connector")


def single_spec(kv_cache_config):
    """Layers and spec of the one KV cache group."""
    groups = kv_cache_config.kv_cache_groups
    specs = [each for group in groups for each in specs_of(group)]
    if any("MambaSpec" in kinds(spec) for spec in specs):
        raise DoesNotFit(STATE_LAYERS)
    if len(groups) != 1:
        # vLLM's hybrid manager is off, so these layers cannot be merged.
        raise DoesNotFit(f"Troupe supports models with one KV cache group, but vLLM makes {len(groups)} of this one "
                         f"({', '.join(sorted({kinds(spec)[0] for spec in specs}))}): start vLLM without a KV "
                         "connector")
    names, spec = list(groups[0].layer_names), groups[0].kv_cache_spec
    inner = getattr(spec, "kv_cache_specs", None)
    if inner:
        different = {shape_of(each) for each in inner.values()}
        if len(different) != 1:
            raise DoesNotFit(f"Troupe supports models whose layers have one shape, but this one has {len(different)} "
                             "shapes in its KV cache group: use vLLM 0.32, or start vLLM without a KV connector")
        spec = inner[names[0]]
    its = kinds(spec)
    if "SlidingWindowSpec" in its:
        raise DoesNotFit("all layers of this model have a sliding window, and vLLM gives blocks behind it to other "
                         "requests: start vLLM with --disable-sliding-window, which limits the context to the window, "
                         "or without a KV connector")
    if getattr(spec, "rswa_window", None):
        raise DoesNotFit("this model has a sliding window over what it generates, and vLLM gives blocks behind it to "
                         "other requests: start vLLM without a KV connector")
    if "FullAttentionSpec" not in its:
        raise DoesNotFit(f"Troupe supports KV caches of full attention, but this model's is {its[0]}: start vLLM "
                         "without a KV connector")
    return names, spec


def specs_of(group):
    inner = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    return list(inner.values()) if inner else [group.kv_cache_spec]


def kinds(spec):
    """Names of its class and of its base classes."""
    return [kind.__name__ for kind in type(spec).__mro__]


def shape_of(spec):
    return type(spec).__name__, spec.page_size_bytes, spec.num_kv_heads, spec.head_size, str(spec.dtype)


def is_latent(spec):
    """Whether it is MLA: one vector per token, the same for all tensor-parallel workers."""
    return "MLAAttentionSpec" in kinds(spec)


def element_bytes(spec):
    return spec.dtype.itemsize


def payload_bytes(spec):
    """Bytes of one block of one layer, without vLLM's padding."""
    for name in ("unpadded_page_size_bytes", "real_page_size_bytes", "page_size_bytes"):
        value = getattr(spec, name, None)
        if value is not None:
            return value
    raise DoesNotFit(f"{type(spec).__name__} has no block size: Troupe does not support this version of vLLM")


def logical(spec):
    """Whether tensors are [blocks, heads, tokens, content] as in newer versions: K and V of a token side by side."""
    return hasattr(spec, "state_content_size_bytes")


class Shape:
    """The shape of one block of one layer: opaque bytes, or parts × heads × tokens × head size."""

    def __init__(self, names, spec, on_cpu):
        self.names, self.spec, self.on_cpu = names, spec, on_cpu
        self.block_tokens = spec.block_size
        # CPU backends pack the content of a block in the order of their instructions.
        self.opaque_bytes = payload_bytes(spec) if on_cpu else 0
        self.parts = self.heads = self.head_size = self.element = 0
        if not on_cpu:
            self._take_apart(spec)

    def _take_apart(self, spec):
        self.element = element_bytes(spec)
        if logical(spec):
            if spec.tokens_per_state != 1:
                raise DoesNotFit(f"Troupe supports one state per token, but this model has one for "
                                 f"{spec.tokens_per_state}: start vLLM without a KV connector")
            content = spec.state_content_size_bytes
            if content % self.element:
                self.element = 1
            self.parts, self.heads, self.head_size = 1, spec.num_heads, content // self.element
            return
        values = getattr(spec, "head_size_v", None)
        latent, uneven = is_latent(spec), values is not None and values != spec.head_size
        self.heads = 1 if latent else spec.num_kv_heads
        self.parts = 1 if latent or uneven else 2
        content = payload_bytes(spec) // (spec.block_size * self.heads * self.parts)
        if content % self.element:
            self.element = 1
        self.head_size = content // self.element

    def geometry(self, page_tokens):
        """Members of `troupe_geometry`."""
        return {"layers": len(self.names), "parts": self.parts, "heads": self.heads, "head_size": self.head_size,
                "element_bytes": self.element, "page_tokens": page_tokens, "opaque_block_bytes": self.opaque_bytes}

    def views(self, tensors, blocks):
        """Members of `troupe_layer` for each layer, in the model's order."""
        missing = [name for name in self.names if name not in tensors]
        if missing:
            raise DoesNotFit(f"vLLM has registered no KV cache for {missing[0]}, which is in its KV cache group")
        return [self._view(name, tensors[name], blocks) for name in self.names]

    def _view(self, name, tensor, blocks):
        if isinstance(tensor, (list, tuple)):
            raise DoesNotFit(f"{name} has {len(tensor)} tensors: Troupe supports attention's KV cache, which is one")
        stride = [count * tensor.element_size() for count in tensor.stride()]
        size = list(tensor.shape)
        storage = tensor.untyped_storage()
        view = {"base": tensor.data_ptr(),
                "bytes": storage.nbytes() - (tensor.data_ptr() - storage.data_ptr())}
        if self.on_cpu:
            self._require(size[0] == blocks, name, size, blocks)
            inner = sum((count - 1) * step for count, step in zip(size[1:], stride[1:])) + tensor.element_size()
            if inner != self.opaque_bytes:
                raise DoesNotFit(f"a block of {name} has {inner} contiguous bytes, but {self.opaque_bytes} were "
                                 f"expected: Troupe does not support this layout of the CPU backend, {size}, {stride}")
            return {**view, "block_stride": stride[0]}
        return {**view, **self._strides(name, tensor, size, stride, blocks)}

    def _strides(self, name, tensor, size, stride, blocks):
        content = self.head_size * self.element
        if len(size) == 3:
            block, token, head, part, inner = 0, 1, None, None, 2
        elif len(size) == 4 and logical(self.spec):
            block, head, token, part, inner = 0, 1, 2, None, 3
        elif len(size) == 4:
            block, token, head, part, inner = 0, 1, 2, None, 3
        elif len(size) == 5:
            block, part = (1, 0) if size[0] == 2 and size[1] == blocks else (0, 1)
            token, head, inner = 2, 3, 4
        else:
            raise DoesNotFit(f"the KV cache of {name} has {len(size)} dimensions, {size}: Troupe does not support "
                             "this layout")
        if size[block] != blocks and size[block] % blocks == 0 and size[token] < self.block_tokens:
            raise DoesNotFit(f"this attention backend splits vLLM's blocks of {self.block_tokens} tokens into pieces of "
                             f"{size[token]}: start vLLM with --block-size {size[token]}")
        fits = (size[block] == blocks and size[token] == self.block_tokens
                and (size[head] if head is not None else 1) == self.heads
                and (size[part] if part is not None else 1) == self.parts
                and size[inner] * tensor.element_size() == content and stride[inner] == tensor.element_size())
        self._require(fits, name, size, blocks)
        return {"block_stride": stride[block], "token_stride": stride[token],
                "head_stride": stride[head] if head is not None else content,
                "part_stride": stride[part] if part is not None else content}

    def _require(self, fits, name, size, blocks):
        if not fits:
            raise DoesNotFit(f"the KV cache of {name} is {size}, but vLLM's config has {blocks} blocks of "
                             f"{self.block_tokens} tokens with {self.heads} heads: Troupe does not support this layout")


def cpu_layout(spec):
    """Names the packing of a block on this CPU: engines with another packing share no pages."""
    import torch

    isa = "mla" if is_latent(spec) else ""
    try:
        from vllm.v1.attention.backends import cpu_attn
        isa = isa or cpu_attn._get_attn_isa(spec.dtype, spec.block_size, spec.head_size)
    except (ImportError, AttributeError, TypeError, NotImplementedError):
        pass
    return "-".join(["cpu", platform.machine(), torch.backends.cpu.get_cpu_capability().lower(), isa or "unknown"])
