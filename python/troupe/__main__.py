"""`python -m troupe`: the versions of this package and of its library, where the library is, and the engines beside it.

Ends with 0 if the library can be used, with 1 and the reason if it cannot, and with 2 for an unknown argument.
"""

import importlib.metadata
import pathlib
import sys

import troupe
from troupe import _library

ENGINES = ("vllm", "sglang")
USAGE = "usage: python -m troupe\n\n" + __doc__


def location(library):
    """The file that the loader has found, which may be other than the name by which it was asked."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            loaded = {line.split(maxsplit=5)[5].strip() for line in maps if "/libtroupe" in line}
    except OSError:
        loaded = set()
    return loaded.pop() if len(loaded) == 1 else library._name


def installed(engine):
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments:
        print(f"python -m troupe: unknown argument '{arguments[0]}'; see --help", file=sys.stderr)
        return 2
    print(f"troupe {troupe.__version__} in {pathlib.Path(troupe.__file__).parent}")
    for engine in ENGINES:
        print(f"{engine}: {installed(engine)}")
    try:
        library = _library.load()
    except _library.LibraryUnusable as error:
        print(f"library: {error}", file=sys.stderr)
        return 1
    print(f"library: {location(library)}, version {library.troupe_library_version().decode()}, "
          f"interface {library.troupe_interface_version()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
