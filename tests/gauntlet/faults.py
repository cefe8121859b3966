"""Faults that are loaded into a process: a wrong clock of the day, writes that fail, damaged data from sockets
(faults.c)."""

import mmap
import pathlib
import shutil
import struct
import subprocess

from verdicts import NotRun

SOURCE = pathlib.Path(__file__).resolve().parent / "faults.c"
LAYOUT = struct.Struct("=qiiii1000s")
DAMAGE = struct.Struct("=ii")
DAMAGE_AT = 16
DAY = 24 * 3600


class Faults:
    """`environment` is for the server, whose writes below `below` may be made to fail."""

    def __init__(self, directory, below="", name="faults"):
        self.library, self.file = build(pathlib.Path(directory)), pathlib.Path(directory) / name
        self.below, self.offset = str(below).encode(), 0
        self.file.write_bytes(LAYOUT.pack(0, 0, 0, 0, 0, self.below))
        with open(self.file, "r+b") as file:
            self.mapped = mmap.mmap(file.fileno(), LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(self.library), "TROUPE_FAULTS": str(self.file)}

    def fail_writes(self, error, halves=True):
        """`error`: a number of errno; 0: they work again."""
        LAYOUT.pack_into(self.mapped, 0, int(self.offset * 10 ** 9), error, int(halves), 0, 0, self.below)

    def step_clock(self, seconds):
        """Sets the clock of the day: it is off by so much."""
        self.offset = seconds
        self.fail_writes(0)

    def damage(self, whether):
        """Whether a byte of each large piece of data that the process receives is changed."""
        DAMAGE.pack_into(self.mapped, DAMAGE_AT, int(whether), self.damaged)

    @property
    def damaged(self):
        """The number of changed bytes."""
        return DAMAGE.unpack_from(self.mapped, DAMAGE_AT)[1]


def build(directory):
    """The library. NotRun where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotRun("faults are loaded into the server as a library, and there is no C compiler to build it")
    out = directory / "faults.so"
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(SOURCE), "-ldl"], check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise NotRun(f"faults.c does not compile: {done.stderr.strip()[-200:]}")
    return out
