"""A storage for control experiments, which corrupts the pages that it loads."""

import ctypes

from troupe.sglang import TroupeStorage


class SpoilingStorage(TroupeStorage):
    """Changes every loaded page, after its checksum was compared and before SGLang reads it."""

    def _move(self, direction, pool, keys, host_indices):
        results = super()._move(direction, pool, keys, host_indices)
        if direction == "get":
            pages = [index // pool.page_size for index in host_indices[::pool.page_size].tolist()]
            for page, well in zip(pages, results):
                for first, step, size in pool.memory[0] if well else ():
                    ctypes.memset(first + page * step, 0x3F, size // 2)
        return results
