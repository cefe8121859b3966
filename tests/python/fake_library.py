"""Stands in for libtroupe.so: records the calls and returns the answers that a test has set."""

import ctypes

from troupe import _interface, _library


class fake:
    """`answers`: function for the name of each call that does more than succeed; it gets the arguments as they are
    behind pointers, and returns a code."""

    def __init__(self, version=_interface.INTERFACE_VERSION):
        self.version, self.asked, self.answers, self.destroyed, self.held = version, [], {}, [], []

    def __getattr__(self, name):
        if name in _interface.CALLS:
            return lambda *arguments: self._called(name, arguments)
        if name in _interface.DESTROYERS:
            return lambda handle: self.destroyed.append((name, handle.value))
        raise AttributeError(name)

    def _called(self, name, arguments):
        *given, error = (getattr(each, "_obj", each) for each in arguments)
        self.asked.append((name, given))
        if name.endswith(("_create", "_create_groups", "_connect")):
            given[-1].value = len(self.asked)
        answer = self.answers.get(name)
        code = answer(*given) if answer else 0
        if code:
            error.code, error.text = code, f"{name} was told to fail".encode()
        return code

    def troupe_interface_version(self):
        return self.version

    def troupe_code_name(self, code):
        return f"code_{code}".encode()

    def bytes(self, out, data):
        """Returns bytes as the library does."""
        buffer = ctypes.create_string_buffer(data, len(data))
        self.held.append(buffer)
        out.data, out.length = ctypes.addressof(buffer), len(data)

    def ids(self, out, names):
        if names:
            joined = b"".join(name.encode() + b"\0" for name in names)
            self.bytes(out, joined)
        out.count = len(names)

    def names(self):
        return [name for name, _ in self.asked]

    def install(self):
        """Replaces the library until `uninstall`."""
        self.before = _library._loaded
        _library._loaded = self
        return self

    def uninstall(self):
        _library._loaded = self.before
