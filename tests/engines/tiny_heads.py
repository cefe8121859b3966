"""Weights for tiny models whose layers have heads of several sizes, as in Gemma 4 (see tiny_model.py).

Queries and keys are normalized, and not scaled afterwards, so attention decides what comes next with usual weights.
"""

import tiny_model


def gemma4(layers="wwfwwf", window=256, shared=0, heads=2, full_heads=1, full_size=256):
    """Layers with a window (w) have heads of 64, full attention (f) those that are given. The last `shared` layers have no
    keys and values of their own, but read those of the last layer of their kind before."""
    kinds = ["full_attention" if each == "f" else "sliding_attention" for each in layers]
    config = tiny_model.llama(layers=len(layers), kv_heads=heads)
    del config["hidden_act"], config["rope_theta"]
    return {**config, "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "layer_types": kinds,
            "sliding_window": window, "hidden_activation": "gelu_pytorch_tanh", "global_head_dim": full_size,
            "num_global_key_value_heads": full_heads, "attention_k_eq_v": True, "num_kv_shared_layers": shared,
            "hidden_size_per_layer_input": 0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
            "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                   "rope_theta": 1000000.0}}}


def gemma4_padded():
    return gemma4("wwfwwfwwf", shared=3, full_size=160)


def gemma4_weights(config):
    """Like `tiny_model.shapes`."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    own = config["num_hidden_layers"] - config["num_kv_shared_layers"]
    yield "model.embed_tokens.weight", (tiny_model.VOCABULARY, hidden), 1.0
    yield "model.norm.weight", (hidden,), None
    yield "lm_head.weight", (tiny_model.VOCABULARY, hidden), 2.0
    for layer, kind in enumerate(config["layer_types"]):
        prefix, full = f"model.layers.{layer}.", kind == "full_attention"
        size = config["global_head_dim"] if full else config["head_dim"]
        shared = config["num_global_key_value_heads"] if full else config["num_key_value_heads"]
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield f"{prefix}{name}_layernorm.weight", (hidden,), None
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (inner, hidden), 1.0
        yield prefix + "mlp.down_proj.weight", (hidden, inner), 1.0
        prefix += "self_attn."
        yield prefix + "q_proj.weight", (heads * size, hidden), 1.0
        yield prefix + "q_norm.weight", (size,), None
        yield prefix + "o_proj.weight", (hidden, heads * size), 1.0
        if layer >= own:
            continue
        yield prefix + "k_norm.weight", (size,), None
        yield prefix + "k_proj.weight", (shared * size, hidden), 1.0
        if not full:
            # Of full attention, keys are values as well.
            yield prefix + "v_proj.weight", (shared * size, hidden), 1.0
