"""Language models of transformers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case

VOCABULARY = 99
GREEDY = {"max_new_tokens": 8, "do_sample": False}
GENERATE = (
    GREEDY,
    GREEDY | {"cache_implementation": "static"},
    {"max_new_tokens": 8, "do_sample": True, "top_k": 20, "top_p": 0.9},
)
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
MOE = GROUPED | {"num_experts_per_tok": 2}

# The configuration's class without "Config", and its arguments.
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Mistral": GROUPED | {"sliding_window": 8},
    "Qwen2": GROUPED,
    "Qwen3": GROUPED | {"head_dim": 8},
    "Gemma2": GROUPED | {"head_dim": 8, "sliding_window": 8},
    "Gemma3Text": GROUPED | {"head_dim": 8, "sliding_window": 8},
    "Phi3": GROUPED,
    "GPTNeoX": SMALL,
    "Falcon": SMALL,
    "OPT": SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "Mixtral": MOE | {"num_local_experts": 4},
    "Qwen3Moe": MOE | {"num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8, "decoder_sparse_step": 1},
    "Mamba": SMALL | {"state_size": 8},
    "Mamba2": SMALL | {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "FalconMamba": SMALL | {"state_size": 8},
    "Phi": GROUPED,
    "Bloom": SMALL | {"n_head": 4, "n_layer": 2},
    "GPTJ": SMALL | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "Olmo2": GROUPED,
    "Cohere": GROUPED,
    "Glm4": GROUPED | {"head_dim": 8},
    "GptOss": MOE | {"num_local_experts": 4, "head_dim": 8, "sliding_window": 8},
    "DeepseekV3": MOE
    | {
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "qk_nope_head_dim": 8,
        "num_key_value_heads": 4,
    },
    "RecurrentGemma": GROUPED
    | {
        "num_hidden_layers": 3,
        "head_dim": 8,
        "lru_width": 32,
        "attention_window_size": 8,
    },
    "Rwkv": {key: SMALL[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")} | {"eos_token_id": None},
    "Jamba": MOE
    | {
        "num_experts": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "Qwen3Next": MOE
    | {
        "num_experts": 4,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "head_dim": 8,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
    },
}
# These have a state or their own kind of key/value cache, for which transformers has no static cache.
WITHOUT_STATIC_CACHE = ("Mamba", "Mamba2", "FalconMamba", "RecurrentGemma", "Rwkv", "Jamba", "Qwen3Next")
SMALL_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "eos_token_id": None,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "Albert": SMALL | {"embedding_size": 16},
    "Electra": SMALL | {"embedding_size": 16},
    "ModernBert": SMALL | {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    "DebertaV2": SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "DistilBert": {"vocab_size": VOCABULARY, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "FNet": SMALL | {"type_vocab_size": 2},
    "Longformer": SMALL | {"attention_window": 4},
    "BigBird": SMALL | {"attention_type": "original_full"},
    "MPNet": SMALL,
    "RoFormer": SMALL | {"embedding_size": 16},
}


def _made(config: str, model: str, options: dict[str, Any]) -> nn.Module:
    import transformers

    named = getattr(transformers, f"{config}Config")(**options)
    # Not all dropout is in modules: see compare.py.
    for key in [key for key, value in vars(named).items() if "drop" in key and isinstance(value, float)]:
        setattr(named, key, 0.0)
    # Never fused kernels that are downloaded for a GPU.
    named._attn_implementation = "sdpa" if _has_sdpa(getattr(transformers, model)) else "eager"
    return getattr(transformers, model)(named)


def _has_sdpa(model: type[nn.Module]) -> bool:
    return getattr(model, "_supports_sdpa", False)


def tokens() -> dict[str, Any]:
    """Make two sequences, one shorter than the other.

    Returns:
        The arguments.
    """
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, :3] = 0
    return {"input_ids": torch.randint(3, VOCABULARY, (2, 12)), "attention_mask": mask}


def _pair() -> dict[str, Any]:
    return tokens() | {"decoder_input_ids": torch.randint(3, VOCABULARY, (2, 5))}


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    for name, options in DECODERS.items():
        model = name.removesuffix("Text") + "ForCausalLM" if name != "Gemma3Text" else "Gemma3ForCausalLM"
        generate = GENERATE if name not in WITHOUT_STATIC_CACHE else (GREEDY, GENERATE[-1])
        yield Case(f"transformers/{name}", partial(_made, name, model, options), tokens, generate=generate)
    gpt2 = partial(_made, "GPT2", "GPT2LMHeadModel", SMALL_GPT2)
    yield Case("transformers/GPT2", gpt2, tokens, generate=GENERATE[:1] + GENERATE[2:])
    for name, options in ENCODERS.items():
        yield Case(f"transformers/{name}", partial(_made, name, f"{name}ForMaskedLM", options), tokens)
    t5 = {
        "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0, "eos_token_id": None,
    }  # fmt: skip
    yield Case("transformers/T5", partial(_made, "T5", "T5ForConditionalGeneration", t5), _pair, generate=(GREEDY,))
    bart = SMALL | {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    }  # fmt: skip
    yield Case(
        "transformers/Bart", partial(_made, "Bart", "BartForConditionalGeneration", bart), _pair, generate=(GREEDY,)
    )
