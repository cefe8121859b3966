"""Options of the engine's extra config with the prefix "troupe."."""

# Key without "troupe.", its type or choices, and its default.
KEYS = {
    "address": (str, ""),
    "certificate": (str, ""),
    "key": (str, ""),
    "authorities": (str, ""),
    "namespace": (str, ""),
    "salt": (str, ""),
    "load": (("async", "sync"), "async"),
    "save": (("all", "prompts"), "all"),
    "keys": (("auto", "engine", "tokens"), "auto"),
    "min_load_tokens": (int, 0),
    "disk_hits": (("always", "when_faster", "never"), "when_faster"),
    "page_tokens": (int, 0),
    "threads": (int, 0),
    "copy_threads": (int, 0),
    "layer_parts": (int, 0),
    "node_events": (("auto", "on", "off"), "auto"),
    "traces": (str, "off"),
    "traces_ratio": (float, 1.0),
    "encoding": (("auto", "raw", "bf16"), "auto"),
    "window_bytes": (int, 0),
    "wait_for_node_seconds": (float, 0.0),
    "request_timeout_seconds": (float, 0.0),
    "synchronous_load_seconds": (float, 0.0),
    "lease_seconds": (float, 0.0),
    "lookup_patience_seconds": (float, 0.0),
    "task_deadline_seconds": (float, 0.0),
}


class Options:
    """The values, as attributes. ValueError for an unknown key or invalid value. `where`: the engine's name of its
    extra config; `of_others`: keys that mean nothing to this engine, with the engine that they are for."""

    def __init__(self, extra, where="kv_connector_extra_config", of_others=None):
        said = {key[len("troupe."):]: value for key, value in (extra or {}).items() if key.startswith("troupe.")}
        of_others = of_others or {}
        for key in said:
            if key in of_others:
                raise ValueError(f"{where} has the key 'troupe.{key}', which is for {of_others[key]} alone: leave it "
                                 "out")
            if key not in KEYS:
                raise ValueError(f"{where} has the unknown key 'troupe.{key}'; known keys: "
                                 f"{', '.join('troupe.' + known for known in KEYS if known not in of_others)}")
        for key, (kind, default) in KEYS.items():
            setattr(self, key, _checked(key, kind, said[key]) if key in said else default)
        if not self.address:
            raise ValueError(f"{where} needs 'troupe.address': HOST:PORT of the node, the path of its "
                             "socket, or its data_dir")

    def connection(self, client_name):
        """Members of `troupe_connect_options`."""
        out = {"threads": self.threads, "window_bytes": self.window_bytes, "client_name": client_name.encode(),
               "wait_for_node_seconds": self.wait_for_node_seconds,
               "request_timeout_seconds": self.request_timeout_seconds}
        for name in ("address", "certificate", "key", "authorities", "encoding"):
            value = getattr(self, name)
            if value:
                out[name] = value.encode()
        return out


def _checked(key, kind, value):
    if isinstance(kind, tuple):
        if value in kind:
            return value
        raise ValueError(f"'troupe.{key}' is {value!r}, but must be one of {', '.join(kind)}")
    numeric = kind in (int, float)
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise ValueError(f"'troupe.{key}' is {value!r}, but must be {'a number' if numeric else 'a text'}")
    if kind is int and value < 0:
        raise ValueError(f"'troupe.{key}' is {value}, but cannot be negative")
    return kind(value)
