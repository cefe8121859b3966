"""Lets SGLang run with HiCache where the device is a CPU, for tests. What it changes, and nothing else:

- `sgl_kernel`, SGLang's kernels, which PyPI has for GPUs only: the names can be imported, and a call is an error.
  Without AMX, SGLang uses PyTorch in their place.
- the copies between HiCache's pools, which SGLang imports on GPUs only: indexing with PyTorch, in SGLang's own layouts.
- memory is not pinned, and 1 GiB of the host's memory stays free beside the host pool in the place of 10.
- tensor parallelism uses gloo alone.
- attention with PyTorch reads windows at their own places: it writes there, and reads at those of full attention.
- processes are forked: SGLang is imported once, and an engine starts in seconds.
"""

import ctypes
import importlib
import importlib.machinery
import importlib.util
import inspect
import multiprocessing
import os
import pathlib
import sys
import types

ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1",
    # Threads of OpenMP do not survive a fork.
    "OMP_NUM_THREADS": "1",
}
# Modules with models; all others are not imported.
MODELS = ("llama", "mellum", "qwen3_moe", "qwen2_moe", "registry", "utils")


def prepare():
    """Imports SGLang. Before, nothing of it may have been imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    models = pathlib.Path(importlib.util.find_spec("sglang").origin).parent / "srt" / "models"
    os.environ["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(
        sorted(path.stem for path in models.iterdir() if path.stem not in MODELS and not path.stem.startswith("__")))
    install_kernels()

    import torch

    torch.cpu._is_amx_tile_supported = lambda: False
    base, mha = (importlib.import_module("sglang.srt.mem_cache.pool_host." + name) for name in ("base", "mha"))
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 1 << 30
    unpin_pool(base.HostKVCache)
    unpin_tensors()
    for function in (transfer_kv_direct, transfer_kv_per_layer_direct_pf_lf, transfer_kv_all_layer_direct_lf_pf,
                     transfer_kv_per_layer_pf_lf, transfer_kv_all_layer_lf_pf):
        setattr(mha, function.__name__, function)
    leave_to_gloo()
    read_windows()
    import_the_rest()
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_, **__: None


def import_the_rest():
    import sglang  # noqa: F401
    import sglang.srt.entrypoints.engine
    import sglang.srt.entrypoints.http_server
    import sglang.srt.managers.scheduler
    import sglang.srt.models.llama
    import sglang.srt.models.mellum  # noqa: F401
    from sglang.srt.models.registry import ModelRegistry

    sglang.Engine  # imported when it is used
    ModelRegistry.get_supported_archs()


class Kernels(types.ModuleType):
    """The package `sgl_kernel`."""

    __version__ = "0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_, **__):
            raise NotImplementedError(f"SGLang calls sgl_kernel.{name}, which tests on CPUs do not have")

        return missing


def install_kernels():
    import torch

    kernels = Kernels("sgl_kernel")
    kernels.__spec__ = importlib.machinery.ModuleSpec("sgl_kernel", None)
    sys.modules["sgl_kernel"] = kernels
    # Called when an engine starts; they bind threads to cores.
    library = torch.library.Library("sgl_kernel", "FRAGMENT")
    library.define("init_cpu_threads_env(str cores) -> str")
    library.define("initialize(int size, int rank) -> ()")
    library.impl("init_cpu_threads_env", lambda cores: "", "CompositeExplicitAutograd")
    library.impl("initialize", lambda size, rank: None, "CompositeExplicitAutograd")
    kernels.library = library


def unpin_pool(pool):
    make = pool.__init__
    signature = inspect.signature(make)

    def make_unpinned(*arguments, **named):
        bound = signature.bind(*arguments, **named)
        bound.arguments["pin_memory"] = False
        make(*bound.args, **bound.kwargs)

    pool.__init__ = make_unpinned


def unpin_tensors():
    """LoRA pins small tensors."""
    import torch

    def unpinned(make):
        return lambda *arguments, pin_memory=False, **others: make(*arguments, **others)

    for name in ("tensor", "empty", "zeros"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_: self


def leave_to_gloo():
    from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator

    def make(self, group, device, *_, **__):
        self.device, self.world_size, self.available, self.disabled = device, 1, False, True

    PyNcclCommunicator.__init__ = make


def read_windows():
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    def translated(run):
        def forward(self, q, k, v, layer, *arguments, **others):
            window, table = layer.sliding_window_size, self.req_to_token_pool
            if not self.use_sliding_window_kv_pool or window is None or window < 0:
                return run(self, q, k, v, layer, *arguments, **others)
            places = self.token_to_kv_pool.translate_loc_from_full_to_swa(table.req_to_token.long())
            self.req_to_token_pool = types.SimpleNamespace(req_to_token=places)
            try:
                return run(self, q, k, v, layer, *arguments, **others)
            finally:
                self.req_to_token_pool = table

        return forward

    for name in ("forward_extend", "forward_decode"):
        setattr(TorchNativeAttnBackend, name, translated(getattr(TorchNativeAttnBackend, name)))


# Copies of tokens. `lf`: tensors of layers, whose rows are tokens. `pf`: a tensor of keys and one of values, of the
# host pool, with the layer behind the token ("kernel"), or page, layer and token in the page ("direct").


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    for source, target in zip(src_layers, dst_layers):
        target[dst_indices] = source[src_indices]


def transfer_kv_per_layer_direct_pf_lf(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    for source, target in zip(src_ptrs, dst_ptrs):
        target[dst_indices] = source[src_indices // page_size, layer_id, src_indices % page_size]


def transfer_kv_all_layer_direct_lf_pf(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    layers = len(src_ptrs) // len(dst_ptrs)
    for number, source in enumerate(src_ptrs):
        target = dst_ptrs[number // layers]
        target[dst_indices // page_size, number % layers, dst_indices % page_size] = source[src_indices]


def transfer_kv_per_layer_pf_lf(src_k, dst_k, src_v, dst_v, src_indices, dst_indices, layer_id, **_):
    for source, target in ((src_k, dst_k), (src_v, dst_v)):
        target[dst_indices] = source[src_indices, layer_id]


def transfer_kv_all_layer_lf_pf(src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices, item_size, **_):
    """The tensors of layers are given by their addresses."""
    for addresses, target in ((src_k_layers, dst_k), (src_v_layers, dst_v)):
        for layer, address in enumerate(addresses.tolist()):
            tokens = rows(address, int(src_indices.max()) + 1, item_size)[src_indices]
            target[dst_indices, layer] = tokens.view(target.dtype).view(-1, *target.shape[2:])


def rows(address, count, width):
    """Memory as a tensor of bytes."""
    import torch

    memory = (ctypes.c_uint8 * (count * width)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(count, width)
