"""Weights for tiny models with layers that keep a state in the place of keys and values (see tiny_model.py).

A state must hold on to what it has read, as otherwise a wrong one is forgotten within a few tokens and no output shows
it. So these states decay slowly: the logarithms of their decay are drawn from SLOW.
"""

import tiny_model

# At a step of 1 a state of the slowest head falls to half in 600 tokens, that of the quickest in 15.
SLOW = (-6.8, -3.1)


def delta_net(layers=8, every=4):
    """Three layers with a gated delta net to one of attention, as in Qwen3-Next. vLLM wants a layer with experts: the
    last one has two, and both compute every token, so that rounding does not choose between them."""
    kinds = ["full_attention" if layer % every == every - 1 else "linear_attention" for layer in range(layers)]
    return {**tiny_model.llama(layers=layers), "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
            "layer_types": kinds, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
            "linear_value_head_dim": 64, "mlp_only_layers": list(range(layers - 1)), "num_experts": 2,
            "num_experts_per_tok": 2, "decoder_sparse_step": 1, "norm_topk_prob": True, "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64}


def dense(prefix, hidden, inner):
    yield prefix + "gate_proj.weight", (inner, hidden), 1.0
    yield prefix + "up_proj.weight", (inner, hidden), 1.0
    yield prefix + "down_proj.weight", (hidden, inner), 1.0


def delta_net_weights(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    heads = config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    queries = config["num_attention_heads"] * config["head_dim"]
    shared = config["num_key_value_heads"] * config["head_dim"]
    # Norms of this model add one to their weights, except for that of the states.
    none = (0.0, 0.0)
    yield "model.embed_tokens.weight", (tiny_model.VOCABULARY, hidden), 8.0
    yield "model.norm.weight", (hidden,), none
    yield "lm_head.weight", (tiny_model.VOCABULARY, hidden), 1.0
    for layer, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,), none
        yield prefix + "post_attention_layernorm.weight", (hidden,), none
        if layer in config["mlp_only_layers"]:
            yield from dense(prefix + "mlp.", hidden, inner)
        else:
            yield prefix + "mlp.gate.weight", (config["num_experts"], hidden), 1.0
            yield prefix + "mlp.shared_expert_gate.weight", (1, hidden), 1.0
            for number in range(config["num_experts"]):
                yield from dense(f"{prefix}mlp.experts.{number}.", hidden, config["moe_intermediate_size"])
            yield from dense(prefix + "mlp.shared_expert.", hidden, config["shared_expert_intermediate_size"])
        if kind == "full_attention":
            prefix += "self_attn."
            # Each head's query, and the gate of its output.
            yield prefix + "q_proj.weight", (2 * queries, hidden), 2.0
            yield prefix + "k_proj.weight", (shared, hidden), 2.0
            yield prefix + "v_proj.weight", (shared, hidden), 2.0
            yield prefix + "o_proj.weight", (hidden, queries), 2.0
            yield prefix + "q_norm.weight", (config["head_dim"],), none
            yield prefix + "k_norm.weight", (config["head_dim"],), none
            continue
        prefix += "linear_attn."
        yield prefix + "in_proj_qkvz.weight", (2 * keys + 2 * values, hidden), 2.0
        yield prefix + "in_proj_ba.weight", (2 * heads, hidden), 1.0
        yield prefix + "conv1d.weight", (2 * keys + values, 1, config["linear_conv_kernel_dim"]), 1.0
        yield prefix + "A_log", (heads,), SLOW
        yield prefix + "dt_bias", (heads,), (0.0, 1.0)
        yield prefix + "norm.weight", (config["linear_value_head_dim"],), None
        yield prefix + "out_proj.weight", (hidden, values), 2.0


def delta_net_with_mtp():
    """The same with a layer that predicts the token after the next one. Its first layer has the experts, as it takes what
    the config says of layer 0 for itself."""
    config = delta_net()
    return {**config, "mlp_only_layers": list(range(1, config["num_hidden_layers"])), "num_nextn_predict_layers": 1}


def delta_net_with_mtp_weights(config, states=0.01):
    """Layer 3 adds most of what decides about tokens, and states a little. The predicting layer is a copy of it that
    reads the next token's embedding, so it is right the more often, the less `states` add."""
    drawn, hidden = {}, config["hidden_size"]

    def keep(name, factor=1.0):
        return lambda values: drawn.setdefault(name, values * factor / values.shape[-1] ** 0.5)

    for name, shape, gain in delta_net_weights(config):
        if name.endswith((".down_proj.weight", "layers.7.self_attn.o_proj.weight")):
            gain = (0.0, 0.0)
        elif name.endswith("linear_attn.out_proj.weight"):
            gain = states
        elif name.startswith("model.layers.3.self_attn.") and name.endswith("_norm.weight"):
            gain = (1.0, 1.0)
        elif name.startswith("model.layers.3.self_attn.") and name.endswith("proj.weight"):
            gain = keep(name, gain)
        yield name, shape, gain
    for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        yield f"mtp.{name}.weight", (hidden,), (0.0, 0.0)
    # Embeddings have this size in the model, where no norm is in front of the first layer.
    import torch
    reads = torch.cat((torch.eye(hidden) / 2, torch.zeros(hidden, hidden)), 1)
    yield "mtp.fc.weight", (hidden, 2 * hidden), lambda _: reads
    for name, shape, gain in delta_net_weights(config):
        if name.startswith("model.layers.0.") and "linear_attn" not in name:
            yield "mtp." + name.removeprefix("model."), shape, (0.0, 0.0) if name.endswith("down_proj.weight") else gain
        elif name.startswith("model.layers.3.self_attn."):
            copy = (lambda _, name=name: drawn[name]) if name in drawn else (1.0, 1.0)
            yield "mtp.layers.0." + name.removeprefix("model.layers.3."), shape, copy


def mamba2(pattern="M-M*-M-M*-"):
    """Mamba 2 (M), attention (*) and layers without memory (-), as in Nemotron-H."""
    return {**tiny_model.llama(layers=len(pattern)), "architectures": ["NemotronHForCausalLM"],
            "model_type": "nemotron_h", "hybrid_override_pattern": pattern, "mamba_num_heads": 8, "mamba_head_dim": 64,
            "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "chunk_size": 64, "expand": 2,
            "mamba_hidden_act": "silu", "mamba_proj_bias": False, "mlp_hidden_act": "relu2", "mlp_bias": False,
            "use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "residual_in_fp32": False,
            "mamba_ssm_cache_dtype": "float32"}


def mamba2_weights(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["mamba_num_heads"]
    width = heads * config["mamba_head_dim"]
    convolved = width + 2 * config["n_groups"] * config["ssm_state_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    shared = config["num_key_value_heads"] * config["head_dim"]
    yield "backbone.embeddings.weight", (tiny_model.VOCABULARY, hidden), 8.0
    yield "backbone.norm_f.weight", (hidden,), None
    yield "lm_head.weight", (tiny_model.VOCABULARY, hidden), 1.0
    for layer, kind in enumerate(config["hybrid_override_pattern"]):
        prefix = f"backbone.layers.{layer}."
        yield prefix + "norm.weight", (hidden,), None
        prefix += "mixer."
        if kind == "*":
            yield prefix + "q_proj.weight", (queries, hidden), 2.0
            yield prefix + "k_proj.weight", (shared, hidden), 2.0
            yield prefix + "v_proj.weight", (shared, hidden), 2.0
            yield prefix + "o_proj.weight", (hidden, queries), 2.0
        elif kind == "-":
            yield prefix + "up_proj.weight", (inner, hidden), 1.0
            yield prefix + "down_proj.weight", (hidden, inner), 1.0
        else:
            yield prefix + "in_proj.weight", (width + convolved + heads, hidden), 1.0
            yield prefix + "conv1d.weight", (convolved, 1, config["conv_kernel"]), 1.0
            yield prefix + "conv1d.bias", (convolved,), (-0.1, 0.1)
            yield prefix + "A_log", (heads,), SLOW
            yield prefix + "D", (heads,), None
            yield prefix + "dt_bias", (heads,), (0.0, 1.0)
            yield prefix + "norm.weight", (width,), None
            yield prefix + "out_proj.weight", (hidden, width), 2.0


def convolution_weights(config):
    """For `tiny_model.convolutions`."""
    hidden, inner, head = config["hidden_size"], config["block_ff_dim"], config["head_dim"]
    queries, shared = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (tiny_model.VOCABULARY, hidden), 1.0
    yield "model.embedding_norm.weight", (hidden,), None
    for layer, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "operator_norm.weight", (hidden,), None
        yield prefix + "ffn_norm.weight", (hidden,), None
        yield prefix + "feed_forward.w1.weight", (inner, hidden), 1.0
        yield prefix + "feed_forward.w3.weight", (inner, hidden), 1.0
        yield prefix + "feed_forward.w2.weight", (hidden, inner), 1.0
        if kind == "conv":
            yield prefix + "conv.in_proj.weight", (3 * hidden, hidden), 2.0
            yield prefix + "conv.conv.weight", (hidden, 1, config["conv_L_cache"]), 2.0
            yield prefix + "conv.out_proj.weight", (hidden, hidden), 2.0
            continue
        prefix += "self_attn."
        yield prefix + "q_proj.weight", (queries, hidden), 2.0
        yield prefix + "k_proj.weight", (shared, hidden), 2.0
        yield prefix + "v_proj.weight", (shared, hidden), 2.0
        yield prefix + "out_proj.weight", (hidden, queries), 2.0
        yield prefix + "q_layernorm.weight", (head,), None
        yield prefix + "k_layernorm.weight", (head,), None
