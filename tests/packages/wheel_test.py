"""The wheel that scripts/wheel builds: it contains everything it needs and loads its own library."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = sys.argv.pop(1)
SKIPPED = 77

# Run in an interpreter that knows of nothing but the wheel.
USE = """
import pathlib, sys
import troupe
from troupe import _library
library = _library.load()
inside = pathlib.Path(troupe.__file__).parent
loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libtroupe" in line]
assert loaded and all(x.startswith(str(inside)) for x in loaded), loaded
beside = {x.split()[-1] for x in map(str.strip, open("/proc/self/maps")) if "libcaf" in x}
assert beside and all(x.startswith(str(inside)) for x in beside), beside
print("loaded")
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-wheel-")
        made = subprocess.run([ROOT / "scripts" / "wheel", "--library", LIBRARY, "--into", cls.folder.name],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if made.returncode != 0:
            print(made.stderr[-2000:], file=sys.stderr)
            # Without pip, or without setuptools and the network that it could come by.
            if "has no pip" in made.stderr or "No matching distribution" in made.stderr:
                print("skipped: this machine cannot make wheels")
                sys.stdout.flush()
                os._exit(SKIPPED)
            raise AssertionError("scripts/wheel has failed")
        cls.wheel = pathlib.Path(made.stdout.strip().splitlines()[-1])
        cls.site = pathlib.Path(cls.folder.name) / "site"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", cls.site,
                        cls.wheel], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_alone(self, code):
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run([sys.executable, "-c", code], cwd=self.folder.name, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**kept, "PYTHONPATH": str(self.site)})

    def test_it_is_of_this_kind_of_machine_and_of_every_python(self):
        self.assertRegex(self.wheel.name, r"^troupe-[0-9.]+-py3-none-linux_\w+\.whl$")

    def test_its_libraries_are_installed_as_those_of_one_machine(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            about = wheel.read(next(x for x in names if x.endswith(".dist-info/WHEEL"))).decode()
        self.assertIn("\nRoot-Is-Purelib: false\n", about)
        self.assertFalse([x for x in names if "/purelib/" in x])
        self.assertIn("troupe/libtroupe.so.1", names)

    def test_its_libraries_are_stripped(self):
        libraries = [x for x in self.site.rglob("*.so*")]
        self.assertGreater(len(libraries), 1)
        for library in libraries:
            # binutils are there, since the wheel was made.
            sections = subprocess.run(["readelf", "-SW", library], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.assertIn(".dynsym", sections)
            self.assertIsNone(re.search(r"\.debug_info|\.symtab", sections), library.name)

    def test_it_says_what_it_needs_of_the_system(self):
        # With OpenSSL among it, another tag than linux would promise what is not so.
        outside = self.run_alone("import subprocess, pathlib, troupe; print(subprocess.run(['ldd', pathlib.Path("
                                 "troupe.__file__).parent / 'libtroupe.so.1'], capture_output=True, text=True).stdout)")
        self.assertIn("libssl.so.3", outside.stdout)
        self.assertFalse([x.name for x in self.site.rglob("libssl*")])

    def test_its_module_runs_as_a_program(self):
        used = self.run_alone("import runpy, sys; sys.argv = ['x']; runpy.run_module('troupe', run_name='__main__')")
        self.assertEqual(used.returncode, 0, used.stdout)
        self.assertIn(f"library: {self.site}/troupe/libtroupe.so.1, version ", used.stdout)

    def test_its_metadata_name_license_and_author(self):
        metadata = next(self.site.glob("troupe-*.dist-info")).joinpath("METADATA").read_text(encoding="utf-8")
        for line in ("Name: troupe", "Author: The authors of Troupe", "License: Apache-2.0", "Requires-Python: >=3.10"):
            self.assertIn(f"\n{line}\n", metadata)

    def test_it_loads_the_library_that_is_inside(self):
        used = self.run_alone(USE)
        self.assertEqual(used.returncode, 0, used.stdout)
        self.assertIn("loaded", used.stdout)

    def test_it_has_the_modules_that_the_documentation_names(self):
        names = {str(x.relative_to(self.site)) for x in self.site.rglob("*.py")}
        for wanted in ("troupe/__init__.py", "troupe/vllm.py", "troupe/nixl.py"):
            self.assertIn(wanted, names)


if __name__ == "__main__":
    unittest.main()
