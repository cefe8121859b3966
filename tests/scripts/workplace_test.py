"""Folders for runs of the engines' experiments."""

import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "engines"))

import workplace  # noqa: E402


class Workplace(unittest.TestCase):
    def test_runs_beside_each_other_have_folders_of_their_own(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-workplace-"))
        self.addCleanup(shutil.rmtree, directory)
        first, second = workplace.take(directory / "work"), workplace.take(directory / "work")
        self.assertNotEqual(first, second)
        (first / "logs").mkdir()
        # Folders of runs that have ended are used again.
        for lock in workplace._locks:
            lock.close()
        self.assertEqual(workplace.take(directory / "work"), first)

    def test_there_is_an_end_to_it(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-workplace-"))
        self.addCleanup(shutil.rmtree, directory)
        with mock.patch.object(workplace, "MOST", 1):
            workplace.take(directory)
            with self.assertRaisesRegex(RuntimeError, "1 runs use"):
                workplace.take(directory)


if __name__ == "__main__":
    unittest.main()
