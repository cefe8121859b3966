"""SGLang's storage in files as its controller of HiCache uses it (sglang 0.5.23, managers/cache_controller.py): ask for
the leading pages of a prompt that are there, read them, save the others in one batch."""

import hashlib
import importlib
import importlib.util
import pathlib
import sys
import threading
import types

import facts
import torch

# Its storage without the modules that import all of the engine.
package = pathlib.Path(importlib.util.find_spec("sglang").origin).parent
for name, place in (("sglang", package), ("sglang.srt", package / "srt")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(place)]
storage = importlib.import_module("sglang.srt.mem_cache.hicache_storage")


class Client:
    def __init__(self, where, identity):
        self.identity = identity
        # The controller has one thread that reads, and one that saves.
        self.reads, self.saves = threading.Lock(), threading.Lock()
        self.files = self._files(where, identity.rank, max_size=where["max_size"])
        self.others = [self._files(where, rank) for rank in range(identity.world_size) if rank != identity.rank]

    def _files(self, where, rank, **more):
        return storage.HiCacheFile(storage.HiCacheStorageConfig(
            tp_rank=rank, tp_size=self.identity.world_size, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False,
            model_name=self.identity.model, extra_config={"file_storage_path": where["directory"], **more}))

    def _keys(self, chain, first, count):
        """A salt is the beginning of the hashes of a prompt."""
        keys, salt = [facts.key(chain, first + number) for number in range(count)], self.identity.salt.encode()
        return [(hashlib.sha256(salt + key).digest() if salt else key).hex() for key in keys]

    def save(self, chain, first, pages, limit):
        tensors = [torch.frombuffer(bytearray(page), dtype=torch.uint8) for page in pages]
        with self.saves:
            done = self.files.batch_set(self._keys(chain, first, len(pages)), tensors)
        # The answer is for the batch as a whole.
        return [None if done else "batch_set answers False"] * len(pages)

    def load(self, chain, first, count, limit):
        with self.reads:
            keys = self._keys(chain, first, count)
            hits = self._hits(keys)
            memory = [torch.full((self.identity.page_bytes,), facts.POISON[0], dtype=torch.uint8) for _ in range(hits)]
            try:
                pages = self.files.batch_get(keys[:hits], memory)
            except OSError as error:
                # The controller logs it, and uses no page of the batch.
                return [("error", f"{type(error).__name__}: {error}")] * hits + [("miss", "not found")] * (count - hits)
        out = []
        for page in pages:
            # Pages behind one that is not there are of no use.
            if page is None:
                break
            out.append(("page", page.numpy().tobytes()))
        return out + [("miss", "not found")] * (count - len(out))

    def _hits(self, keys):
        """Leading pages that are there. Ranks agree on the smallest number."""
        return min(each.batch_exists(keys) for each in (self.files, *self.others))

    def found(self, chain, count, limit):
        return self._hits(self._keys(chain, 0, count))

    def close(self):
        pass
