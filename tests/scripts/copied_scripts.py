"""Scripts of the project in a folder of their own, with stand-ins for the programs that they start."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SUCCEEDS, FAILS = "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 1\n"


class CopiedScripts(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="troupe-scripts-"))
        self.addCleanup(shutil.rmtree, self.root)

    def copy(self, *names):
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def program(self, name, text):
        """A program of this text. Those in `bin` are found before the machine's."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self, script, *arguments, **environment):
        """The process when it has ended, with its output and errors in the order in which they came."""
        return subprocess.run([self.root / "scripts" / script, *arguments], text=True, check=False,
                              env={**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
