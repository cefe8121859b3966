"""Puts libtroupe.so into the package: the one that TROUPE_LIBRARY names, or the newest of the checkout's builds.

If there is none, the package is installed without it, and looks for one when it is used. TROUPE_LIBRARY_NEEDS may name
a folder of libraries that it needs, which are placed beside it: scripts/wheel collects them.
"""

import os
import pathlib
import shutil
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent


def library():
    named = os.environ.get("TROUPE_LIBRARY")
    if named:
        if not pathlib.Path(named).is_file():
            sys.exit(f"TROUPE_LIBRARY is {named}, but there is no such file")
        return pathlib.Path(named).resolve()
    built = [path.resolve() for path in HERE.parent.glob("build/*/libtroupe.so*") if path.is_file()]
    built += [path.resolve() for path in HERE.parent.glob("build/*/connector/libtroupe.so*") if path.is_file()]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


class build_with_library(build_py):
    def run(self):
        super().run()
        found = library()
        if found is None:
            print("no libtroupe.so in build/: the package is built without it, and needs TROUPE_LIBRARY when it is used")
            return
        target = pathlib.Path(self.build_lib) / "troupe" / "libtroupe.so.1"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, target)
        print(f"added {found} to the package as {target.name}")
        beside = os.environ.get("TROUPE_LIBRARY_NEEDS")
        for each in sorted(pathlib.Path(beside).iterdir()) if beside else ():
            shutil.copyfile(each, target.parent / each.name)


class package_of_this_platform(Distribution):
    """With a library inside, the package is installed where modules for one kind of machine are (platlib)."""

    def has_ext_modules(self):
        return library() is not None


class wheel_of_this_platform(bdist_wheel):
    """For any Python 3 on this platform: the library is loaded by ctypes, and does not depend on Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = library() is None

    def get_tag(self):
        return ("py3", "none", "any" if self.root_is_pure else super().get_tag()[2])


setup(distclass=package_of_this_platform, cmdclass={"build_py": build_with_library, "bdist_wheel": wheel_of_this_platform})
