"""Connectors for control experiments, which corrupt loaded pages or try what Troupe refuses."""

import ctypes

import troupe.vllm
from troupe.vllm import TroupeConnector

# Filled where both halves are in one process.
_loading = {}


class SpoilingConnector(TroupeConnector):
    """Changes every loaded block, after its checksum was compared and before vLLM reads it. A worker in a process of its
    own does not know which these are and changes all its blocks: there is one request at a time."""

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        if num_external_tokens:
            own = blocks.get_block_ids()[0]
            _loading[request.request_id] = own[:num_external_tokens // self._shape.block_tokens]

    def get_finished(self, finished_req_ids):
        sent, received = super().get_finished(finished_req_ids)
        for name in received or ():
            for block in _loading.pop(name, (slice(None),)):
                self._spoil(block)
        return sent, received

    def _spoil(self, block):
        for name in self._shape.names:
            one = self._tensors[name][block]
            if one.is_cuda:
                one.fill_(1.0)
                continue
            ctypes.memset(one.data_ptr(), 0x3F, one.numel() * one.element_size() // 2)


class UnrefusingConnector(TroupeConnector):
    """Starts with model runners that are known not to return to the position of a failed load."""

    def __init__(self, vllm_config, role, kv_cache_config):
        troupe.vllm.goes_back = lambda vllm_config: True
        super().__init__(vllm_config, role, kv_cache_config)
