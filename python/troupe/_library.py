"""Finds, loads and calls libtroupe.so: a code other than 0 becomes an exception with the library's error text."""

import ctypes
import os
import pathlib
import threading

from troupe import _interface, _texts

HERE = pathlib.Path(__file__).resolve().parent

_loaded = None
_held = []
_loading = threading.Lock()


class TroupeError(RuntimeError):
    """An error of the library. `code` is a number of troupe.h, `name` its name."""

    def __init__(self, code, name, text):
        super().__init__(f"{text} ({name})")
        self.code, self.name, self.text = code, name, text

    def __reduce__(self):
        return TroupeError, (self.code, self.name, self.text)


class LibraryUnusable(ImportError):
    """libtroupe.so is missing or incompatible with this package."""


def candidates():
    """Paths of the library, in order of preference."""
    named = os.environ.get("TROUPE_LIBRARY")
    if named:
        return [named]
    return [*sorted(str(path) for path in HERE.glob("libtroupe.so*")), "libtroupe.so.1"]


def load():
    """The library, loaded once. Loading it starts nothing."""
    global _loaded
    with _loading:
        if _loaded is None:
            _loaded = _load(candidates())
        return _loaded


def _load(paths):
    reasons = []
    for path in paths:
        try:
            _load_needs(pathlib.Path(path).parent)
            library = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        try:
            version = library.troupe_interface_version()
            if version < _interface.INTERFACE_VERSION:
                raise LibraryUnusable(f"{path} implements version {version} of the interface, and this package needs "
                                      f"{_interface.INTERFACE_VERSION}: build and install both from one checkout")
            _interface.declare(library)
        except AttributeError as error:
            raise LibraryUnusable(f"{path} is not a Troupe library, or an older one: {error}") from None
        return library
    raise LibraryUnusable("libtroupe.so was not found: build it (ninja troupe_capi) and set TROUPE_LIBRARY to its path, "
                          f"or install the wheel that scripts/wheel makes, which contains it ({'; '.join(reasons)})")


def _load_needs(folder):
    """Loads the libraries that a wheel has beside libtroupe.so: the loader finds loaded ones by name. They may need one
    another, so loading is repeated until all are loaded or no further one can be."""
    if folder != HERE:
        return
    left = [path for path in sorted(folder.glob("lib*.so*")) if not path.name.startswith("libtroupe.")]
    while left:
        before, left = left, [path for path in left if not _loads(path)]
        if len(left) == len(before):
            return


def _loads(path):
    try:
        _held.append(ctypes.CDLL(str(path)))
    except OSError:
        return False
    return True


def call(name, *arguments):
    """Calls a function of the library that returns a code."""
    library = load()
    error = _interface.Error()
    code = getattr(library, name)(*arguments, ctypes.byref(error))
    if code:
        raise failure(library, code, error)


def failure(library, code, error):
    name = library.troupe_code_name(code).decode()
    return TroupeError(code, name, error.text.decode(errors="replace") or f"{name} without an error text")


def text(value):
    """A text as an argument: None and "" are the empty text."""
    return str(value).encode() if value else None


def taken(out):
    """A copy of bytes that the library owns."""
    return ctypes.string_at(out.data, out.length) if out.length else b""


def ids(names):
    """Ids as an argument."""
    if not names:
        return _interface.IdsIn()
    joined = _texts.joined(names)
    return _interface.IdsIn(joined, len(joined), len(names))


def taken_ids(out):
    """Ids of a result."""
    return ctypes.string_at(out.data, out.length - 1).decode().split("\0") if out.count else []


def taken_blocks(out):
    return list((ctypes.c_uint32 * out.count).from_address(out.data)) if out.count else []


def address(numbers):
    """The address of an array.array; None if it is empty."""
    return numbers.buffer_info()[0] if numbers else None
