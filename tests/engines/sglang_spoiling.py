"""A storage for control experiments, which corrupts the pages that it loads."""

import ctypes
import os

from troupe.sglang import TroupeStorage


class SpoilingStorage(TroupeStorage):
    """Changes every loaded page, after its checksum was compared and before SGLang reads it. The environment's
    SPOILT_POOL names the only pool in which it does so."""

    def _move(self, direction, pool, keys, host_indices):
        results = super()._move(direction, pool, keys, host_indices)
        if direction == "get" and pool is self.pools.get(os.environ.get("SPOILT_POOL"), pool):
            pages = [index // pool.page_size for index in host_indices[::pool.page_size].tolist()]
            for page, well in zip(pages, results):
                for first, step, size in pool.memory[0] if well else ():
                    ctypes.memset(first + page * step, 0x3F, size // 2)
        return results
