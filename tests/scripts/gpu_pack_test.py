"""scripts/gpu-bundle --engine: its arguments; what is cut out of compiled files; parts that unpack to what was packed."""

import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

from copied_scripts import ROOT, CopiedScripts

sys.path.insert(0, str(ROOT / "tests" / "engines"))
import gpu_pack  # noqa: E402


def entry(kind, architecture, content):
    """Of a container of kernels: a header of 64 bytes, and what it describes."""
    return struct.pack("<HHIQ12xI32x", kind, 0x101, 64, len(content), architecture) + content


def container(*entries):
    return struct.pack("<IHHQ", gpu_pack.FATBIN, 1, 16, sum(map(len, entries))) + b"".join(entries)


def library(parts):
    """A library with these sections, as far as it is read here."""
    parts = [("", b""), *parts]
    parts.append((".shstrtab", b"\0".join(name.encode() for name, _ in parts) + b"\0.shstrtab\0"))
    names, places, data = parts[-1][1], [], bytearray(64)
    for _, content in parts:
        places.append((len(data), len(content)))
        data += content
    header = b"".join(struct.pack("<I20xQQ24x", names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0, *place)
                      for (name, _), place in zip(parts, places))
    data[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", data, 0x28, len(data))
    struct.pack_into("<HHH", data, 0x3A, 64, len(parts), len(parts) - 1)
    return data + header


class Arguments(CopiedScripts):
    def setUp(self):
        super().setUp()
        self.copy("scripts/gpu-bundle", "scripts/common.sh")
        # Notes how it was started.
        self.program("bin/python3", "#!/bin/sh\necho \"$@\"\n")

    def run_bundle(self, *arguments):
        return self.run_script("gpu-bundle", *arguments, TROUPE_PYTHON=str(self.root / "bin" / "python3"))

    def test_an_engine_is_packed_into_the_folder_that_is_named(self):
        done = self.run_bundle("--engine", "vllm", "--part-mib", "20", "/somewhere")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.split(), [str(self.root / "tests/engines/gpu_pack.py"), "vllm", "/somewhere",
                                               "--part-mib", "20"])

    def test_without_a_folder_it_is_below_build(self):
        done = self.run_bundle("--engine", "sglang")
        self.assertEqual(done.stdout.split()[1:], ["sglang", str(self.root / "build/gpu-sglang")])

    def test_wrong_arguments_end_with_a_sentence(self):
        for arguments, sentence in (
                (["--engine"], "--engine is vllm or sglang"),
                (["--engine", "lmcache"], "--engine is vllm or sglang"),
                (["--engine", "vllm", "--part-mib", "0"], "--part-mib needs a number"),
                (["--engine", "vllm", "--part-mib"], "--part-mib needs a number"),
                (["--part-mib", "20"], "--part-mib is for --engine alone"),
                (["--engines", "vllm"], "unknown option '--engines'"),
                (["--engine", "vllm", "one", "two"], "one folder is enough")):
            done = self.run_bundle(*arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(sentence, done.stdout)

    def test_help_names_every_option(self):
        done = self.run_bundle("--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--engine", "--part-mib", "FOLDER"):
            self.assertIn(option, done.stdout)


class Cut(unittest.TestCase):
    def cut(self, *entries, name=".nv_fatbin"):
        content = container(*(entry(*each) for each in entries))
        data = library([(name, content), (".text", b"code")])
        before = bytes(data)
        gpu_pack.cut(data, 90)
        self.assertEqual(len(data), len(before))
        return [each[2] in data for each in entries]

    def test_kernels_for_the_architecture_stay_and_others_do_not(self):
        self.assertEqual(self.cut((gpu_pack.CUBIN, 80, b"for eighty"), (gpu_pack.CUBIN, 90, b"for ninety"),
                                  (gpu_pack.PTX, 80, b"text to translate"), (gpu_pack.CUBIN, 100, b"for hundred")),
                         [False, True, False, False])

    def test_text_that_can_be_translated_stays_where_there_is_nothing_else(self):
        self.assertEqual(self.cut((gpu_pack.CUBIN, 80, b"for eighty"), (gpu_pack.PTX, 80, b"older text"),
                                  (gpu_pack.PTX, 120, b"newer text")), [False, True, False])

    def test_other_sections_stay(self):
        self.assertEqual(self.cut((gpu_pack.CUBIN, 80, b"for eighty"), name=".data"), [True])

    def test_what_debuggers_read_goes(self):
        data = library([(".debug_info", b"of debuggers"), (".symtab", b"symbols"), (".dynsym", b"dynamic ones")])
        gpu_pack.cut(data, 90)
        self.assertEqual([b"of debuggers" in data, b"symbols" in data, b"dynamic ones" in data], [False, False, True])

    def test_padding_between_containers_is_skipped(self):
        data = library([(".nv_fatbin", container(entry(gpu_pack.CUBIN, 90, b"first one")) + bytes(7)
                         + container(entry(gpu_pack.CUBIN, 80, b"second one")))])
        # Containers begin at multiples of eight bytes.
        start = data.index(struct.pack("<I", gpu_pack.FATBIN))
        second = data.index(struct.pack("<I", gpu_pack.FATBIN), start + 4)
        self.assertEqual((second - start) % 8, 0)
        gpu_pack.cut(data, 90)
        self.assertEqual([b"first one" in data, b"second one" in data], [True, False])


@unittest.skipUnless(shutil.which("xz") and shutil.which("bash"), "there is no xz")
class Parts(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="troupe-gpu-pack-"))
        self.addCleanup(shutil.rmtree, self.root)

    def test_parts_unpack_to_what_was_packed_in_any_order(self):
        tree = self.root / "tree"
        (tree / "site" / "__pycache__").mkdir(parents=True)
        content = random.Random(1).randbytes(2_500_000)
        (tree / "site" / "module.py").write_bytes(content)
        (tree / "site" / "__pycache__" / "module.pyc").write_bytes(content)
        gpu_pack.write_environment(tree, {"A_SETTING": "7"})
        parts = self.root / "parts"
        count = gpu_pack.write_parts(tree, parts, 1 << 20)
        self.assertEqual(count, 3)
        self.assertEqual(sorted(path.name for path in parts.iterdir()), ["part1", "part2", "part3"])
        self.assertTrue(all((parts / f"part{n}" / f"data.0{n}").stat().st_size <= 1 << 20 for n in (1, 2, 3)))
        there = self.root / "there"
        for number in (2, 1, 3):
            done = subprocess.run(["bash", parts / f"part{number}" / "unpack.sh", there], text=True, check=True,
                                  capture_output=True)
        self.assertIn("is complete", done.stdout)
        self.assertEqual((there / "site" / "module.py").read_bytes(), content)
        self.assertFalse((there / "site" / "__pycache__").exists())
        said = subprocess.run(["bash", "-c", f". {there}/environment.sh; echo $PYTHONPATH $A_SETTING"], text=True,
                              check=True, capture_output=True, env={**os.environ, "PYTHONPATH": "/before"})
        self.assertEqual(said.stdout.split(), [f"{there}/site:/before", "7"])

    def test_wheels_lie_as_pip_places_them_without_what_is_left_out(self):
        wheel = self.root / "a-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in ("a/__init__.py", "a/large.so", "a-1.data/purelib/b.py", "a-1.data/scripts/run"):
                archive.writestr(name, name)
        gpu_pack.unpack_wheel(wheel, self.root / "site", ("a/*.so",))
        found = sorted(str(path.relative_to(self.root / "site")) for path in (self.root / "site").rglob("*.py"))
        self.assertEqual(found, ["a/__init__.py", "b.py"])
        self.assertEqual(len(list((self.root / "site").rglob("*.*"))), 2)

    def test_a_sentence_that_is_replaced_has_to_be_there(self):
        (self.root / "a.py").write_text("if this:\n")
        gpu_pack.replace(self.root, {"a.py": [("this", "that")]})
        self.assertEqual((self.root / "a.py").read_text(), "if that:\n")
        with self.assertRaises(SystemExit):
            gpu_pack.replace(self.root, {"a.py": [("this", "that")]})


if __name__ == "__main__":
    unittest.main()
