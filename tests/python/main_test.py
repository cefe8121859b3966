"""`python -m troupe`."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

from fake_library import fake

import troupe
from troupe import __main__ as program
from troupe import _library


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-B", "-m", "troupe", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, **environment})


class program_test(unittest.TestCase):
    def test_without_a_library_it_ends_with_1_and_the_reason(self):
        x = run(TROUPE_LIBRARY="/nowhere/libtroupe.so")
        self.assertEqual(x.returncode, 1)
        self.assertIn(f"troupe {troupe.__version__} in {pathlib.Path(troupe.__file__).parent}\n", x.stdout)
        self.assertIn("/nowhere/libtroupe.so", x.stderr)
        self.assertNotIn("Traceback", x.stderr)

    def test_an_unknown_argument_ends_with_2(self):
        x = run("status")
        self.assertEqual((x.returncode, x.stdout), (2, ""))
        self.assertIn("'status'", x.stderr)
        self.assertEqual(run("--help").returncode, 0)

    def test_the_library_is_named_with_its_versions(self):
        library = fake(version=7)
        library.troupe_library_version = lambda: b"9.8.7"
        library._name = "somewhere/libtroupe.so.1"
        out = io.StringIO()
        with mock.patch.object(_library, "load", return_value=library), contextlib.redirect_stdout(out):
            self.assertEqual(program.main([]), 0)
        self.assertIn("library: somewhere/libtroupe.so.1, version 9.8.7, interface 7\n", out.getvalue())

    def test_engines_are_listed(self):
        def version(name):
            if name == "vllm":
                return "0.33.0"
            raise program.importlib.metadata.PackageNotFoundError(name)

        with mock.patch.object(program.importlib.metadata, "version", version):
            self.assertEqual([program.installed(x) for x in program.ENGINES], ["0.33.0", "not installed"])


if __name__ == "__main__":
    unittest.main()
