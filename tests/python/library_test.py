"""Finding and calling the library."""

import ctypes
import os
import pickle
import subprocess
import sys
import unittest
from unittest import mock

from fake_library import fake

from troupe import _halves, _interface, _library, _texts


class finding(unittest.TestCase):
    def test_a_missing_library_is_said_in_a_sentence(self):
        with self.assertRaises(_library.LibraryUnusable) as caught:
            _library._load(["/nowhere/libtroupe.so"])
        self.assertIn("TROUPE_LIBRARY", str(caught.exception))
        self.assertIn("/nowhere/libtroupe.so", str(caught.exception))

    def test_another_library_is_refused(self):
        with self.assertRaises(_library.LibraryUnusable):
            _library._load(["libc.so.6"])

    def test_an_older_library_is_refused(self):
        with mock.patch.object(ctypes, "CDLL", return_value=fake(version=0)):
            with self.assertRaises(_library.LibraryUnusable) as caught:
                _library._load(["libtroupe.so"])
        self.assertIn("version 0", str(caught.exception))

    def test_the_environment_comes_first(self):
        with mock.patch.dict(os.environ, {"TROUPE_LIBRARY": "/somewhere/libtroupe.so"}):
            self.assertEqual(_library.candidates(), ["/somewhere/libtroupe.so"])

    def test_nothing_is_loaded_by_importing(self):
        code = ("import troupe, troupe._halves, troupe._library, threading;"
                "assert troupe._library._loaded is None and threading.active_count() == 1")
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "TROUPE_LIBRARY": "/nowhere"})


class calling(unittest.TestCase):
    def setUp(self):
        self.library = fake().install()
        self.addCleanup(self.library.uninstall)

    def test_a_code_becomes_an_exception_with_the_sentence(self):
        self.library.answers["troupe_set_log_level"] = lambda level: _interface.UNREACHABLE
        with self.assertRaises(_library.TroupeError) as caught:
            _library.call("troupe_set_log_level", b"warn")
        self.assertEqual(caught.exception.code, _interface.UNREACHABLE)
        self.assertIn("troupe_set_log_level was told to fail", str(caught.exception))

    def test_structs_say_their_size(self):
        self.assertEqual(_interface.Step().size, ctypes.sizeof(_interface.Step))
        self.assertEqual(_interface.Engine(block_tokens=16).size, ctypes.sizeof(_interface.Engine))

    def test_ids_go_in_and_come_out(self):
        out = _interface.IdsOut()
        self.library.ids(out, ["a", "request-ä", "c"])
        self.assertEqual(_library.taken_ids(out), ["a", "request-ä", "c"])
        self.assertEqual(_library.taken_ids(_interface.IdsOut()), [])
        given = _library.ids(["a", "bc"])
        self.assertEqual((given.length, given.count), (5, 2))
        self.assertEqual(_library.ids([]).count, 0)

    def test_ids_that_do_not_fit_have_stand_ins(self):
        fine = ["a", "request-ä", "c" * 4096]
        for odd in ("", "a\0", "\0", "d" * 4097, "ä" * 4096, "\ud800", _texts.MARK.decode() + "x"):
            for names in ([odd], [*fine, odd], [odd, *fine], [odd, odd]):
                joined = _texts.joined(names)
                self.assertTrue(joined.endswith(b"\0"))
                parts = joined[:-1].split(b"\0")
                self.assertEqual(parts, [_texts.fitting(name) for name in names])
                self.assertEqual([_texts.is_stand_in(part) for part in parts], [name == odd for name in names])
        self.assertEqual(_texts.joined(fine), "".join(name + "\0" for name in fine).encode())

    def test_one_connection_is_shared_and_ends_with_its_users(self):
        options = {"address": b"127.0.0.1:1", "threads": 2}
        first, second = _halves.connection(options), _halves.connection(dict(options))
        self.assertIs(first, second)
        other = _halves.connection({**options, "threads": 3})
        self.assertIsNot(first, other)
        del first, second, other
        self.assertEqual([name for name, _ in self.library.destroyed], ["troupe_connection_destroy"] * 2)

    def test_a_handle_that_was_never_made_is_not_destroyed(self):
        self.library.answers["troupe_connect"] = lambda *_: 9
        with self.assertRaises(_library.TroupeError):
            _halves.connection({"address": b"nonsense"})
        self.assertNotIn("troupe_connect", [name for name, _ in self.library.destroyed])

    def test_errors_cross_processes(self):
        error = pickle.loads(pickle.dumps(_library.TroupeError(17, "unreachable", "no node")))
        self.assertEqual((str(error), error.code), ("no node (unreachable)", 17))


if __name__ == "__main__":
    unittest.main()
