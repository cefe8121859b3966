"""Connectors for control experiments, which corrupt loaded pages or try what Troupe refuses."""

import ctypes
import os
import time

import torch
import troupe.vllm
from troupe._kv_shape import DoesNotFit
from troupe.vllm import TroupeConnector

# Filled where both halves are in one process: what is to be spoilt when a request has loaded, and layers' memory.
_loading, _memory = {}, {}


class SpoilingWhatWasLoaded:
    """Calls `_spoil_all` with the names of the requests that have loaded, before vLLM reads their blocks."""

    def get_finished(self, finished_req_ids):
        sent, received = super().get_finished(finished_req_ids)
        self._spoil_all(received)
        return sent, received

    def get_transfer_results(self, finished_req_ids):
        """What vLLM calls in place of `get_finished` from 0.32 on."""
        results = super().get_transfer_results(finished_req_ids)
        self._spoil_all(results.finished_recving)
        return results


class SpoilingConnector(SpoilingWhatWasLoaded, TroupeConnector):
    """Changes every loaded block, after its checksum was compared and before vLLM reads it. A worker in a process of its
    own does not know which these are and changes all its blocks: there is one request at a time."""

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        if num_external_tokens:
            own = blocks.get_block_ids()[0]
            _loading[request.request_id] = own[:num_external_tokens // self._shape.block_tokens]

    def _spoil_all(self, received):
        for name in received or ():
            for block in _loading.pop(name, (slice(None),)):
                self._spoil(block)

    def _spoil(self, block):
        for name in self._shape.names:
            one = self._tensors[name][block]
            if one.is_cuda:
                one.fill_(1.0)
                continue
            ctypes.memset(one.data_ptr(), 0x3F, one.numel() * one.element_size() // 2)


class GroupSpoiling(SpoilingWhatWasLoaded):
    """Zeroes the loaded blocks of one kind of group, for connectors of models with several KV cache groups, both halves
    of which are in one process. The environment's SPOILT_GROUPS names the kind: full, state, or window-TOKENS. "left":
    all but the full layers keep what was in their blocks before the load. "none": nothing is spoilt. "layer-NAME":
    layers with this in their names, of whatever group."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._all_groups, self._computed = kv_cache_config.kv_cache_groups, {}
        self.spoil(os.environ["SPOILT_GROUPS"])

    def spoil(self, wanted):
        """Chooses what is spoilt from now on."""
        self._left = wanted == "left"
        kinds = {number: kind_of(each.kv_cache_spec) for number, each in enumerate(self._all_groups)}
        self._layer = wanted.removeprefix("layer-") if wanted.startswith("layer-") else ""
        self._spoilt = {number: self._all_groups[number] for number, kind in kinds.items()
                        if self._layer or (kind != "full" if self._left else kind == wanted)}
        if not self._spoilt and wanted != "none":
            raise ValueError(f"this model has no KV cache group of the kind {wanted!r}")

    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        _memory.update(kv_caches)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._computed[request.request_id] = num_computed_tokens
        return super().get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        if not num_external_tokens:
            return
        loading = _loading[request.request_id] = []
        end = self._computed[request.request_id] + num_external_tokens
        for number, group in self._spoilt.items():
            for block in blocks.blocks[number][:end // group.kv_cache_spec.block_size]:
                if not block.is_null and block.block_hash is None:
                    loading += [self._replacement(name, block.block_id) for name in group.layer_names
                                if self._layer in name]

    def _replacement(self, name, block):
        """A block, and what replaces what is loaded into it."""
        tensor = _memory[name]
        # A kernel may have smaller blocks than the scheduler.
        pieces = tensor.shape[0] // self._blocks
        one = tensor[block * pieces:(block + 1) * pieces]
        if not self._left:
            return one, torch.zeros_like(one)
        before = one.clone()
        if not before.any():
            raise RuntimeError(f"block {block} of {name} was never used")
        return one, before

    def _spoil_all(self, received):
        for request in received or ():
            for place, content in _loading.pop(request, ()):
                place.copy_(content)


def kind_of(spec):
    """The kind of a KV cache group, by the name of its layers' class in vLLM."""
    window = getattr(spec, "sliding_window", None)
    if window:
        return f"window-{window}"
    return "state" if type(spec).__name__ == "MambaSpec" else "full"


class GroupSpoilingConnector(GroupSpoiling, TroupeConnector):
    pass


class StageSpoilingConnector(SpoilingWhatWasLoaded, TroupeConnector):
    """Changes all blocks of one pipeline stage when a request has loaded, of which there is one at a time. The
    environment's SPOILT_STAGE names it."""

    def _spoil_all(self, received):
        if not received or troupe.vllm.pipeline_stage() != int(os.environ["SPOILT_STAGE"]):
            return
        for tensor in self._tensors.values():
            tensor = tensor[0] if isinstance(tensor, (list, tuple)) else tensor
            ctypes.memset(tensor.data_ptr(), 0x3F, tensor[1:].numel() * tensor.element_size() // 2)


class RefusingStageConnector(TroupeConnector):
    """Refuses to start in the second pipeline stage."""

    def _set_up(self, vllm_config, role, kv_cache_config):
        if role == troupe.vllm.KVConnectorRole.WORKER and troupe.vllm.pipeline_stage() == 1:
            raise DoesNotFit("as the experiment wants")
        super()._set_up(vllm_config, role, kv_cache_config)


class UnrefusingConnector(TroupeConnector):
    """Starts with model runners that are known not to return to the position of a failed load."""

    def __init__(self, vllm_config, role, kv_cache_config):
        troupe.vllm.goes_back = lambda vllm_config: True
        super().__init__(vllm_config, role, kv_cache_config)


class EarlySavingConnector(TroupeConnector):
    """Saves pages when the forward pass has ended, before vLLM has moved the states of accepted drafts."""

    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        move = GPUModelRunner._update_states_after_model_execute

        def save_and_move(runner, tokens, scheduled):
            self.wait_for_save()
            # Until pages are copied.
            time.sleep(0.1)
            move(runner, tokens, scheduled)

        GPUModelRunner._update_states_after_model_execute = save_and_move
