#!/usr/bin/env python3
"""Tests that lists of folders name every folder with sources: the table of CONTRIBUTING.md, and the headers that
clang-tidy looks at.
"""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def folders_with_headers():
    listed = subprocess.run(["git", "ls-files", "*.hpp", "*.h", "*.cuh"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        return None
    return {path.split("/")[0] for path in listed.stdout.split()}


def folders_of_tidy():
    pattern = re.search(r"^HeaderFilterRegex: '/\(([a-z_|]+)\)/'$", (ROOT / ".clang-tidy").read_text(), re.MULTILINE)
    return set(pattern.group(1).split("|"))


def folders_of_the_table():
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| folder | what | may use CAF |")[1].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+/)`", row.split("|")[1])]


class Folders(unittest.TestCase):
    def setUp(self):
        self.there = folders_with_headers()
        if self.there is None:
            self.skipTest("this is not a clone")

    def test_clang_tidy_looks_at_all_headers(self):
        self.assertEqual(self.there - folders_of_tidy(), set())

    def test_the_table_has_all_folders(self):
        self.assertEqual(self.there - {name.split("/")[0] for name in folders_of_the_table()}, set())

    def test_folders_of_the_table_exist(self):
        self.assertEqual([name for name in folders_of_the_table() if not (ROOT / name).is_dir()], [])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
