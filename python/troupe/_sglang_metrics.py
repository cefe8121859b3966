"""Metrics of the linker among SGLang's own, which its HTTP server shows with `--enable-metrics`: SGLang 0.5.23 has none
for linkers."""

import threading

# By name: kind and description. Each is exported as "sglang:troupe_…".
METRICS = {
    "looked_up_tokens": ("counter", "Tokens of prompts that were looked up at the node"),
    "found_tokens": ("counter", "Tokens that lookups have found, in the longest prefix that all pools can restore"),
    "loaded_tokens": ("counter", "Tokens that were loaded"),
    "failed_loads": ("counter", "Loads that were misses, or failed under a forward pass"),
    "load_seconds": ("histogram", "Time of each load, from its first part of the layers to its last one"),
    "saved_tokens": ("counter", "Tokens that were saved, or were saved already"),
    "failed_saves": ("counter", "Saves that were dropped"),
    "save_seconds": ("histogram", "Time of each save"),
}
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

_lock, _made = threading.Lock(), {}


class Metrics:
    """`labels`: names and values, the same names in each of these of a process. Counts nothing unless `enabled`."""

    def __init__(self, enabled, labels):
        self._children = {}
        if enabled:
            with _lock:
                if not _made:
                    _made.update(_registered(list(labels)))
            self._children = {name: metric.labels(**labels) for name, metric in _made.items()}

    def add(self, name, amount):
        """To a counter; or an observation of a histogram."""
        child = self._children.get(name)
        if child is not None:
            child.observe(amount) if METRICS[name][0] == "histogram" else child.inc(amount)

    def looked_up(self, tokens, found):
        self.add("looked_up_tokens", tokens)
        self.add("found_tokens", found)

    def moved(self, direction, well, tokens, seconds):
        """After a load or a save."""
        done, one = ("loaded", "load") if direction == "get" else ("saved", "save")
        self.add(f"{done}_tokens" if well else f"failed_{one}s", tokens if well else 1)
        if well:
            self.add(f"{one}_seconds", seconds)


def _registered(labels):
    # Imported as late as this: SGLang names the directory for metrics of several processes before.
    from prometheus_client import Counter, Histogram

    out = {}
    for name, (kind, description) in METRICS.items():
        if kind == "histogram":
            out[name] = Histogram(f"sglang:troupe_{name}", description, labels, buckets=SECONDS)
        else:
            out[name] = Counter(f"sglang:troupe_{name}", description, labels)
    return out

