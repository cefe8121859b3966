"""What vLLM's kernels in Triton do with states in speculative decoding, for CPUs, which have no Triton.

A step with drafts keeps the state after each of its tokens, in blocks that follow the running one in a request's table.
When it is known which drafts are accepted, the state at the end of a block is copied to that block, if the step has
passed it. Before the next step, the state of the last accepted token is copied to where the next block's state runs.
"""

import ctypes


def move_states():
    """As in `postprocess_mamba_fused_kernel` and `precopy_mamba_align_fused_kernel` of vLLM 0.32 and 0.33."""
    from vllm.v1.worker.mamba_utils import MambaSpecDecodeGPUContext

    def move_after(self, num_reqs, num_accepted_tokens_gpu, mamba_state_idx_gpu, num_scheduled_tokens_gpu,
                   num_computed_tokens_gpu, num_draft_tokens_gpu):
        self.num_accepted_tokens_out[:num_reqs].copy_(num_accepted_tokens_gpu[:num_reqs])
        for row in range(num_reqs):
            accepted, source = int(num_accepted_tokens_gpu[row]), int(mamba_state_idx_gpu[row])
            running = int(num_computed_tokens_gpu[row] + num_scheduled_tokens_gpu[row] - num_draft_tokens_gpu[row])
            end = (running + accepted - 1) // self.block_size * self.block_size
            if end < running:
                continue
            target = end // self.block_size - 1
            if source == target:
                self.num_accepted_tokens_out[row] = 1
            if source != target or end != running:
                move(self, row, source, target, end - running)

    def move_before(self, num_reqs, state_idx_gpu, src_col_gpu, token_bias_gpu, idx_mapping):
        for row in range(num_reqs):
            source, target = int(src_col_gpu[row]), int(state_idx_gpu[row])
            if source >= 0 and source != target:
                move(self, row, source, target, int(token_bias_gpu[row]))

    MambaSpecDecodeGPUContext.run_fused_postprocess = move_after
    MambaSpecDecodeGPUContext.run_fused_precopy = move_before


def move(context, row, source, target, drafts):
    """Copies all states of a request from a column of its block table to another one, after so many drafts."""
    for number in range(context.num_states):
        base, stride = int(context.state_base_addrs[number]), int(context.state_block_strides[number])
        element, width = int(context.state_elem_sizes[number]), int(context.state_conv_widths[number])
        step = int(context.state_inner_sizes[number]) * element
        table = int(context.block_table_ptrs[int(context.state_group_indices[number])])
        table += row * context.block_table_stride_req * ctypes.sizeof(ctypes.c_int32)

        def place(column):
            return base + ctypes.c_int32.from_address(table + column * ctypes.sizeof(ctypes.c_int32)).value * stride

        rows = int(context.state_dim_row_count[number])
        if not width:
            ctypes.memmove(place(target), place(source + drafts), step)
        elif not rows:
            ctypes.memmove(place(target), place(source) + drafts * step, (width - drafts) * step)
        for each in range(rows):
            first = each * int(context.state_dim_row_stride[number])
            ctypes.memmove(place(target) + first, place(source) + first + drafts * element, (width - drafts) * element)
