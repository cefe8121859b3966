"""Kinds of models that are played on GPUs: those of CPUs, and others that vLLM or Troupe does not serve there."""

import dataclasses
import math

import hybrid_kinds
import tiny_heads
import tiny_hybrids
import tiny_model
from hybrid_kinds import kind

# Blocks of vLLM's kernels for latent attention.
LATENT_BLOCK = 64


def latent(layers=4):
    """Latent attention (MLA), and no experts, as in DeepSeek-V2 and V3."""
    return tiny_model.deepseek(layers=layers, heads=16)


def sparse(layers=4):
    """The same with an indexer in each layer, which chooses 512 tokens for it, as in DeepSeek-V3.2."""
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = {**latent(layers), "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
              "q_lora_rank": 128, "index_topk": 512, "index_n_heads": 64, "index_head_dim": 128,
              "rope_parameters": rope, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    del config["rope_theta"]
    return config


def sparse_weights(config):
    """Like `tiny_model.shapes`."""
    hidden, low, heads = config["hidden_size"], config["q_lora_rank"], config["num_attention_heads"]
    queries = heads * (config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    width, indexers = config["index_head_dim"], config["index_n_heads"]
    for name, shape, gain in tiny_model.shapes(config):
        if not name.endswith("self_attn.q_proj.weight"):
            yield name, shape, gain
            continue
        prefix = name.removesuffix("q_proj.weight")
        yield prefix + "q_a_proj.weight", (low, hidden), 1.0
        yield prefix + "q_a_layernorm.weight", (low,), None
        yield prefix + "q_b_proj.weight", (queries, low), 2.0
        prefix += "indexer."
        yield prefix + "wq_b.weight", (indexers * width, low), 1.0
        yield prefix + "wk.weight", (width, hidden), 1.0
        yield prefix + "k_norm.weight", (width,), None
        yield prefix + "k_norm.bias", (width,), (0.0, 0.0)
        yield prefix + "weights_proj.weight", (indexers, hidden), 1.0


def sinks(layers=6, window=128):
    """Windows in every other layer, sinks of attention in all, as in gpt-oss. Both experts compute every token, so that
    rounding does not choose between them; their weights are not quantized."""
    config = tiny_model.llama(layers=layers, heads=8, kv_heads=2)
    del config["rope_theta"]
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)]
    return {**config, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "layer_types": kinds,
            "sliding_window": window, "num_local_experts": 2, "num_experts_per_tok": 2, "attention_bias": True,
            "swiglu_limit": 7.0, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
                                                     "original_max_position_embeddings": tiny_model.LONGEST // 2,
                                                     "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}


def sinks_weights(config):
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def experts_of(rows, columns):
        # Inputs before outputs, so their number is not that of columns.
        return lambda drawn: drawn / math.sqrt(rows)

    yield "model.embed_tokens.weight", (tiny_model.VOCABULARY, hidden), 8.0
    yield "model.norm.weight", (hidden,), None
    yield "lm_head.weight", (tiny_model.VOCABULARY, hidden), 1.0
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,), None
        yield prefix + "post_attention_layernorm.weight", (hidden,), None
        for name, rows, columns in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden),
                                    ("o", hidden, queries)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, columns), 2.0
            yield f"{prefix}self_attn.{name}_proj.bias", (rows,), (0.0, 0.0)
        yield prefix + "self_attn.sinks", (config["num_attention_heads"],), (-1.0, 1.0)
        yield prefix + "mlp.router.weight", (experts, hidden), 1.0
        yield prefix + "mlp.router.bias", (experts,), (0.0, 0.0)
        yield prefix + "mlp.experts.gate_up_proj", (experts, hidden, 2 * inner), experts_of(hidden, 2 * inner)
        yield prefix + "mlp.experts.gate_up_proj_bias", (experts, 2 * inner), (0.0, 0.0)
        yield prefix + "mlp.experts.down_proj", (experts, inner, hidden), experts_of(inner, hidden)
        yield prefix + "mlp.experts.down_proj_bias", (experts, hidden), (0.0, 0.0)


def named():
    """All kinds that are played on GPUs, by name."""
    kinds = {each.name: each for each in (*hybrid_kinds.KINDS, hybrid_kinds.CONVOLUTIONS, hybrid_kinds.PADDED)}
    # Drafts that the model's own layer for that purpose makes.
    kinds["delta-net-mtp"] = dataclasses.replace(
        kinds["delta-net"], name="delta-net-mtp", config=tiny_hybrids.delta_net_with_mtp,
        weights=tiny_hybrids.delta_net_with_mtp_weights,
        options={"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}})
    kinds["latent"] = kind("latent", "latent attention", latent, tiny_model.shapes, unit=LATENT_BLOCK, groups=("full",),
                           crowd=(6, 250, 300, 60))
    kinds["sparse"] = kind("sparse", "latent attention with an indexer", sparse, sparse_weights, unit=LATENT_BLOCK,
                           groups=("full",), crowd=(6, 250, 300, 60))
    kinds["sinks"] = kind("sinks", "windows with sinks", sinks, sinks_weights, unit=16, groups=("full", "window-128"),
                          crowd=(6, 250, 300, 60))
    # The head sizes of Gemma 4, for which Triton has kernels. FlashAttention 3 has none above 256.
    kinds["large-heads"] = dataclasses.replace(
        kinds["heads"], name="large-heads", config=lambda: {**tiny_heads.gemma4(full_size=512), "head_dim": 256},
        options={"attention_config": {"backend": "TRITON_ATTN"}})
    return kinds
