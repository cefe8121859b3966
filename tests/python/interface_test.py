"""The package's description of the C interface matches the header: sizes, offsets of members, names of functions."""

import ctypes
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from troupe import _interface

HEADER = pathlib.Path(__file__).resolve().parents[2] / "connector" / "capi" / "troupe.h"

STRUCTS = {
    "troupe_error": _interface.Error, "troupe_bytes": _interface.Bytes, "troupe_ids": _interface.IdsIn,
    "troupe_blocks": _interface.Blocks, "troupe_connect_options": _interface.ConnectOptions,
    "troupe_geometry": _interface.Geometry, "troupe_namespace": _interface.Namespace,
    "troupe_engine": _interface.Engine, "troupe_multimodal": _interface.Multimodal,
    "troupe_request": _interface.Request, "troupe_matched": _interface.Matched,
    "troupe_hit_sources": _interface.HitSources, "troupe_fetched_pages": _interface.FetchedPages, "troupe_step": _interface.Step,
    "troupe_worker_output": _interface.WorkerOutput, "troupe_events": _interface.Events,
    "troupe_layer": _interface.Layer, "troupe_finished": _interface.Finished,
    "troupe_pages_options": _interface.PagesOptions, "troupe_descriptions": _interface.Descriptions,
}


class interface(unittest.TestCase):
    def test_structs_are_laid_out_as_in_the_header(self):
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            self.skipTest("there is no C compiler")
        lines = ['#include "connector/capi/troupe.h"']
        for name, struct in STRUCTS.items():
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "size of {name}");')
            for member, *_ in struct._fields_:
                offset, size = getattr(struct, member).offset, getattr(struct, member).size
                lines.append(f'_Static_assert(offsetof({name}, {member}) == {offset}, "place of {name}.{member}");')
                lines.append(f'_Static_assert(sizeof((({name}*)0)->{member}) == {size}, "{name}.{member}");')
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory) / "layout.c"
            source.write_text("\n".join(lines) + "\n")
            run = subprocess.run([compiler, "-std=c11", "-fsyntax-only", f"-I{HEADER.parents[2]}", str(source)],
                                 capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_functions_are_those_of_the_header(self):
        declared = set(re.findall(r"TROUPE_API[^;(]*?\b(troupe_\w+)\s*\(", HEADER.read_text()))
        known = {*_interface.CALLS, *_interface.DESTROYERS, "troupe_interface_version", "troupe_library_version",
                 "troupe_code_name"}
        self.assertEqual(known - declared, set())
        self.assertEqual(declared - known, set())

    def test_arguments_are_as_many_as_in_the_header(self):
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
        for name, arguments in _interface.CALLS.items():
            found = re.search(rf"\b{name}\s*\(([^;]*)\);", text)
            self.assertIsNotNone(found, name)
            self.assertEqual(found.group(1).count(",") + 1, len(arguments) + 1, name)

    def test_numbers_are_those_of_the_header(self):
        text = HEADER.read_text()
        for name, value in {"TROUPE_INTERFACE_VERSION": _interface.INTERFACE_VERSION}.items():
            self.assertRegex(text, rf"#define {name} {value}\b")
        for name in ("KEYS_ENGINE_HASHES", "KEYS_MD5_CHAIN", "KEYS_ROLLING", "DISK_HITS_ALWAYS",
                     "DISK_HITS_WHEN_FASTER", "DISK_HITS_NEVER", "EVENT_STORED", "EVENT_REMOVED",
                     "EVENT_ALL_CLEARED", "TIMEOUT", "UNREACHABLE", "SHUTTING_DOWN"):
            self.assertRegex(text, rf"TROUPE_{name} = {getattr(_interface, name)}\b")


if __name__ == "__main__":
    unittest.main()
