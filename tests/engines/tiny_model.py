"""Models small enough for two cores, whose output shows a wrong KV cache.

Random weights from a fixed seed. They are drawn so large that attention decides which token comes next: with the tiny
weights that engines draw by themselves for tests, output is nearly the same whatever the KV cache holds, and comparing
it proves nothing. The control among the experiments shows that these models detect errors.
"""

import json
import math
import pathlib

VOCABULARY = 32000
# Before the names of weights that are drawn and not written.
UNUSED = "unused."
LONGEST = 8192


def llama(layers=4, hidden=256, heads=4, kv_heads=2, head_size=64):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def deepseek(layers=3, heads=4):
    """Latent attention, and no experts."""
    config = llama(layers=layers, heads=heads, kv_heads=heads)
    del config["head_dim"]
    return {**config, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "q_lora_rank": None,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "first_k_dense_replace": layers, "n_routed_experts": 4, "n_shared_experts": 1,
            "num_experts_per_tok": 1, "moe_intermediate_size": 64, "topk_method": "greedy", "n_group": 1,
            "topk_group": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.0, "moe_layer_freq": 1}


def windows(layers=6, window=256):
    """Every third layer attends to all tokens, the others to near ones."""
    kinds = ["full_attention" if layer % 3 == 2 else "sliding_attention" for layer in range(layers)]
    return {**llama(layers=layers), "layer_types": kinds, "sliding_window": window}


def mellum(layers=6, window=256):
    """The same as SGLang keeps apart: windows have a pool of their own. As in Mellum 2, without experts."""
    config, rope = windows(layers, window), {"rope_type": "default", "rope_theta": 10000.0}
    del config["rope_theta"]
    return {**config, "architectures": ["MellumForCausalLM"], "model_type": "mellum",
            "mlp_layer_types": ["dense"] * layers, "moe_intermediate_size": 64, "num_experts": 4,
            "num_experts_per_tok": 1, "rope_parameters": {"full_attention": rope, "sliding_attention": rope}}


def convolutions(layers=6):
    """Short convolutions between layers of attention, as in LFM2."""
    config = llama(layers=layers)
    kinds = ["full_attention" if layer % 3 == 2 else "conv" for layer in range(layers)]
    width = config["hidden_size"]
    return {**config, "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "layer_types": kinds, "norm_eps": 1e-5,
            "conv_L_cache": 3, "conv_dim": width, "conv_dim_out": width, "block_dim": width, "conv_bias": False,
            "block_ff_dim": config["intermediate_size"], "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": True}


def attention(config):
    """Like `shapes`, for one layer's attention."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if "kv_lora_rank" not in config:
        queries, keys = heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
        yield "q_proj.weight", (queries, hidden), 2.0
        yield "k_proj.weight", (keys, hidden), 2.0
        yield "v_proj.weight", (keys, hidden), 2.0
        yield "o_proj.weight", (hidden, queries), 2.0
        return
    latent, plain, turned = config["kv_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    values = config["v_head_dim"]
    yield "q_proj.weight", (heads * (plain + turned), hidden), 2.0
    yield "kv_a_proj_with_mqa.weight", (latent + turned, hidden), 2.0
    yield "kv_a_layernorm.weight", (latent,), None
    yield "kv_b_proj.weight", (heads * (plain + values), latent), 2.0
    yield "o_proj.weight", (hidden, heads * values), 2.0


def shapes(config):
    """Name of each weight, its shape, and how much larger than usual it is drawn; None: ones; two numbers: the bounds of
    evenly spread values; a function: of values that are drawn as usual."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    yield "model.embed_tokens.weight", (VOCABULARY, hidden), 8.0
    yield "model.norm.weight", (hidden,), None
    yield "lm_head.weight", (VOCABULARY, hidden), 1.0
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,), None
        yield prefix + "post_attention_layernorm.weight", (hidden,), None
        for name, shape, gain in attention(config):
            yield prefix + "self_attn." + name, shape, gain
        yield prefix + "mlp.gate_proj.weight", (inner, hidden), 1.0
        yield prefix + "mlp.up_proj.weight", (inner, hidden), 1.0
        yield prefix + "mlp.down_proj.weight", (hidden, inner), 1.0


def shapes_of_first_layers(config, count=2):
    """Like `shapes`; the layers behind the first ones add nothing, so that a model of these alone has the same output.
    All tokens' embeddings have the same length."""
    for name, shape, gain in shapes(config):
        layer = name.removeprefix("model.layers.").partition(".")[0]
        if name == "model.embed_tokens.weight":
            gain = lambda drawn: drawn.sign() / 2  # noqa: E731
        elif layer.isdigit() and int(layer) >= count and name.endswith(("o_proj.weight", "down_proj.weight")):
            gain = (0.0, 0.0)
        yield name, shape, gain


def shapes_of_eagle(config):
    """A head of EAGLE that drafts what a model does whose first layer alone adds something: it reads the next token's
    embedding and not the model's output, has no norm in front of its layer, and lets that add as much as its input."""
    import torch

    hidden = config["hidden_size"]
    for name, shape, gain in shapes_of_first_layers(config):
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            gain = 2 * gain
        if name == "lm_head.weight":
            yield f"{UNUSED}{name}", shape, gain  # the model's own, which is drawn in between
        elif not name.endswith(("input_layernorm.weight", "model.norm.weight")):
            yield name.removeprefix("model."), shape, gain
    yield "fc.weight", (hidden, 2 * hidden), lambda _: torch.cat((2 * torch.eye(hidden), torch.zeros(hidden, hidden)), 1)


def shapes_of_mellum(config):
    """Like `shapes`."""
    yield from shapes(config)
    for layer in range(config["num_hidden_layers"]):
        for name in ("q_norm", "k_norm"):
            yield f"model.layers.{layer}.self_attn.{name}.weight", (config["head_dim"],), None


def write(directory, seed=20260, config=None, weights=shapes):
    """Writes config and weights, unless they exist; `weights`: as `shapes`, for the config."""
    import torch
    from safetensors.torch import save_file

    directory, config = pathlib.Path(directory), config or llama()
    wanted = json.dumps({**config, "seed_of_weights": seed}, indent=1)
    if (directory / "config.json").exists() and (directory / "config.json").read_text() == wanted:
        return str(directory)
    directory.mkdir(parents=True, exist_ok=True)
    dice = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, shape, gain in weights(config):
        if gain is None:
            drawn[name] = torch.ones(shape, dtype=torch.bfloat16)
        elif isinstance(gain, tuple):
            least, most = gain
            drawn[name] = (least + (most - least) * torch.rand(shape, generator=dice)).to(torch.bfloat16)
        elif callable(gain):
            drawn[name] = gain(torch.randn(shape, generator=dice)).to(torch.bfloat16)
        else:
            normal = torch.randn(shape, generator=dice) * (gain / math.sqrt(shape[-1]))
            drawn[name] = normal.to(torch.bfloat16)
    drawn = {name: values for name, values in drawn.items() if not name.startswith(UNUSED)}
    save_file(drawn, directory / "model.safetensors", metadata={"format": "pt"})
    # Last, since it says that the rest is there.
    (directory / "config.json").write_text(wanted)
    return str(directory)


def write_adapter(directory, seed, config=None, rank=8):
    """Writes a LoRA adapter for queries and values, which changes the output."""
    import torch
    from safetensors.torch import save_file

    directory, config = pathlib.Path(directory), config or llama()
    directory.mkdir(parents=True, exist_ok=True)
    dice, drawn = torch.Generator().manual_seed(seed), {}
    for layer in range(config["num_hidden_layers"]):
        for name, shape, _ in attention(config):
            if name in ("q_proj.weight", "v_proj.weight"):
                place = f"base_model.model.model.layers.{layer}.self_attn.{name.removesuffix('.weight')}."
                for part, size in (("lora_A", (rank, shape[1])), ("lora_B", (shape[0], rank))):
                    drawn[f"{place}{part}.weight"] = (torch.randn(size, generator=dice) * 0.2).to(torch.bfloat16)
    save_file(drawn, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 8 * rank, "lora_dropout": 0.0,
         "bias": "none", "target_modules": ["q_proj", "v_proj"]}))
    return str(directory)


def write_config(directory, config):
    """A config for weights that the engine draws by itself."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    return str(directory)
