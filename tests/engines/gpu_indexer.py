"""The two products of DeepGEMM that DeepSeek's indexer computes, with PyTorch: DeepGEMM's library fits the one version
of PyTorch that it was built for. And the tokens that the indexer chooses, in an order."""

import functools

import torch


@functools.cache
def prepare():
    """Once in a process, before its engines: whether these products stand in for DeepGEMM's."""
    sort_chosen()
    return stand_in()


def stand_in():
    """Lets vLLM use these products where it has no DeepGEMM; returns whether it does."""
    from vllm.model_executor.layers import sparse_attn_indexer

    if sparse_attn_indexer.has_deep_gemm():
        return False
    sparse_attn_indexer.has_deep_gemm = lambda: True
    sparse_attn_indexer.fp8_fp4_mqa_logits = products
    sparse_attn_indexer.fp8_fp4_paged_mqa_logits = paged_products
    return True


def sort_chosen():
    """vLLM's kernels list the chosen tokens in any order, in which attention then sums."""
    from vllm.model_executor.layers import sparse_attn_indexer

    make, kernels = sparse_attn_indexer.get_indexer_topk, sparse_attn_indexer.ops

    class sorting:
        def __getattr__(self, name):
            kernel = getattr(kernels, name)
            return sorted_after(kernel) if name == "top_k_per_row_prefill" else kernel

    sparse_attn_indexer.ops = sorting()
    sparse_attn_indexer.get_indexer_topk = lambda backend: sorted_after(make(backend))


def sorted_after(choose):
    """A function whose fourth argument is for the places of chosen tokens, and -1 where there are fewer."""

    def choose_and_sort(*arguments):
        choose(*arguments)
        arguments[3].copy_(arguments[3].sort(dim=-1, descending=True).values)

    return choose_and_sort


def products(queries, keys, weights, starts, ends, clean_logits):
    """Of each token's queries [tokens, heads, size] with all keys [keys, size], where it may attend to them."""
    values, (packed, scales) = queries[0], keys
    keys, out = packed.float(), torch.zeros(len(values), len(packed), device=values.device)
    for head in range(values.shape[1]):
        out += (values[:, head].float() @ keys.T).relu_() * weights[:, head, None]
    places = torch.arange(len(packed), device=values.device)
    out *= scales.reshape(-1)
    return out.masked_fill_((places < starts[:, None]) | (places >= ends[:, None]), float("-inf"))


def paged_products(queries, cache, weights, lengths, tables, schedule_metadata, max_model_len, clean_logits,
                   indices=None):
    """The same of queries [requests, tokens, heads, size] with keys in blocks, of which each has its keys before their
    scales. Nothing depends on the values of lengths and tables, so that a CUDA graph can have it."""
    values = queries[0].float()
    requests, tokens, heads, size = values.shape
    blocks = cache[tables[:requests].long().clamp(0, len(cache) - 1)].reshape(requests, tables.shape[1], -1)
    of_keys = cache.shape[1] * size
    keys = blocks[..., :of_keys].contiguous().view(torch.float8_e4m3fn).float().view(requests, -1, size)
    scales = blocks[..., of_keys:].contiguous().view(torch.float32).view(requests, 1, -1)
    found = torch.einsum("rthd,rkd->rthk", values, keys).relu_()
    found = (found * weights.view(requests, tokens, heads, 1)).sum(2) * scales
    places = torch.arange(keys.shape[1], device=values.device)
    found = found.masked_fill_(places >= lengths.view(requests, -1, 1), float("-inf")).view(requests * tokens, -1)
    out = torch.full((requests * tokens, max_model_len), float("-inf"), device=values.device)
    most = min(max_model_len, found.shape[1])
    out[:, :most] = found[:, :most]
    return out
