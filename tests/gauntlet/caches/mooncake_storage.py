"""A process that provides memory to Mooncake Store until its standard input ends.

mooncake_storage.py MASTER BYTES READY, a file that says that it is ready."""

import pathlib
import sys

from mooncake.store import MooncakeDistributedStore

LOCAL_BYTES = 16 << 20

store = MooncakeDistributedStore()
code = store.setup("127.0.0.1", "P2PHANDSHAKE", int(sys.argv[2]), LOCAL_BYTES, "tcp", "", sys.argv[1])
if code != 0:
    sys.exit(f"setup answers {code}")
pathlib.Path(sys.argv[3]).touch()
sys.stdin.buffer.read()
