"""Troupe for inference engines in Python: KV caches that outlive the engine, shared by the engines of one host.

Engines load `troupe.vllm` or `troupe.sglang`. Importing them starts no thread and opens no socket.
"""

__version__ = "0.1.0"
