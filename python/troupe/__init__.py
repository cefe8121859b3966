"""Troupe for inference engines in Python: KV caches that outlive the engine, shared by the engines of one host.

`troupe.vllm` and `troupe.sglang` are what engines load. Importing any of it starts no thread and opens no socket.
"""

__version__ = "0.1.0"
