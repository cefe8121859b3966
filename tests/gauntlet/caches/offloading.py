"""vLLM's own OffloadingConnector, which cannot be run here."""

from caches import cache


class Cache(cache.Cache):
    name, title = "offloading", "vLLM's OffloadingConnector"

    @classmethod
    def missing(cls):
        return ("it needs a GPU: vLLM for CPUs ends with \"CPU Offloading is currently only supported on CUDA-alike "
                "and XPU GPUs\" (vllm/v1/kv_offload/cpu/spec.py, 0.32.0)")


class Simple(Cache):
    name, title = "simple", "vLLM's SimpleCPUOffloadConnector"

    @classmethod
    def missing(cls):
        return "it needs a GPU: its copies are CUDA's (vllm/v1/simple_kv_offload/copy_backend.py, 0.32.0)"
