"""Statistics of a worker and of a scheduler half, in the classes that vLLM uses for logs and metrics."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from troupe import _halves

# Statistics of the scheduler half: each is exported as "vllm:troupe_…".
SCHEDULER = {
    "attached": ("gauge", "1 while the engine's scheduler is attached to a node, else 0"),
    "tracked_requests": ("gauge", "Requests that the connector tracks"),
    "hit_requests": ("counter", "Requests with a hit in Troupe that the engine has used"),
    "found_tokens": ("counter", "Tokens that lookups have found and the engine has used"),
    "passed_over_tokens": ("counter", "Tokens that lookups have found on disk, but the engine computes because of "
                                      "troupe.disk_hits"),
}


@dataclass
class TroupeStats(KVConnectorStats):
    """`data` has up to two members: "workers", as `troupe_worker_stats` gives it, and "scheduler"."""

    data: dict = field(default_factory=dict)

    def reset(self):
        self.data = {}

    def is_empty(self):
        return not self.data

    def aggregate(self, other):
        parts = [each.data["workers"] for each in (self, other) if each.data.get("workers")]
        joined = {}
        if parts:
            joined["workers"] = parts[0] if len(parts) == 1 else _halves.aggregate(parts)
        scheduler = _joined(self.data.get("scheduler"), other.data.get("scheduler"))
        if scheduler:
            joined["scheduler"] = scheduler
        self.data = joined
        return self

    def reduce(self):
        out = {}
        if self.data.get("workers"):
            out.update(_halves.reduce(self.data["workers"]))
        scheduler = self.data.get("scheduler")
        if scheduler:
            out["Found tokens"] = scheduler.get("found_tokens", 0)
            if scheduler.get("passed_over_tokens"):
                out["Passed over tokens"] = scheduler["passed_over_tokens"]
            if not scheduler.get("attached", 1):
                out["Attached"] = 0
        return out


def _joined(first, second):
    """The newer values of gauges, and the sums of counters."""
    if not first or not second:
        return first or second
    return {name: second[name] if SCHEDULER[name][0] == "gauge" else first.get(name, 0) + second[name]
            for name in second}


class SchedulerCounters:
    """Turns the library's totals into increments since the last call."""

    NAMES = {"hit_requests": "hit_requests", "hit_tokens": "found_tokens",
             "passed_over_tokens": "passed_over_tokens"}

    def __init__(self):
        self.before = {}

    def since_last(self, now):
        out = {name: int(now.get(name, 0)) for name in ("attached", "tracked_requests")}
        for name, exported in self.NAMES.items():
            out[exported] = int(now.get(name, 0) - self.before.get(name, 0))
        changed = now != self.before
        self.before = now
        return out if changed else None


class TroupePromMetrics(KVConnectorPromMetrics):
    """The metrics of `troupe_metric_descriptions` for workers, and those of `SCHEDULER`."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._labelvalues = per_engine_labelvalues
        self._workers = {}
        for each in _halves.metric_descriptions():
            self._workers[each["member"]] = each["kind"], self._made(each, labelnames)
        self._scheduler = {}
        for name, (kind, text) in SCHEDULER.items():
            made = self._made({"name": f"vllm:troupe_{name}", "kind": kind, "help": text}, labelnames)
            self._scheduler[name] = kind, made

    def _made(self, described, labelnames):
        kind = described["kind"]
        arguments = {"name": described["name"], "documentation": described["help"], "labelnames": labelnames}
        if kind == "histogram":
            arguments["buckets"] = described["buckets"]
        cls = {"histogram": self._histogram_cls, "counter": self._counter_cls, "gauge": self._gauge_cls}[kind]
        metric = cls(**arguments)
        return {engine: metric.labels(*values) for engine, values in self._labelvalues.items()}

    def observe(self, transfer_stats_data, engine_idx=0):
        for part, metrics in (("workers", self._workers), ("scheduler", self._scheduler)):
            values = transfer_stats_data.get(part) or {}
            for name, (kind, per_engine) in metrics.items():
                value = values.get(name)
                if value is None:
                    continue
                metric = per_engine[engine_idx]
                if kind == "histogram":
                    for sample in value:
                        metric.observe(sample)
                elif kind == "counter":
                    metric.inc(value)
                else:
                    metric.set(value)
