"""Speech, vision and multimodal models of transformers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from models.case import Case
from models.catalogue.language import GREEDY, SMALL, VOCABULARY, _made

LAYERS = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
IMAGE = {**LAYERS, "image_size": 32, "patch_size": 8}
WAVE = {
    **LAYERS,
    "vocab_size": VOCABULARY,
    "conv_dim": (16, 16),
    "conv_kernel": (5, 3),
    "conv_stride": (4, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
WHISPER = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_mel_bins": 16,
    "max_source_positions": 20,
    "max_target_positions": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def _pixels(side: int = 32) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, side, side)}


def _pair() -> dict[str, Any]:
    return _pixels() | {"input_ids": torch.randint(3, VOCABULARY, (2, 9))}


def _heard() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 5))}


def _seen_and_read() -> dict[str, Any]:
    # Sixteen patches take the place of as many tokens.
    tokens = torch.randint(3, VOCABULARY - 1, (2, 24))
    tokens[:, 2:18] = VOCABULARY - 1
    return _pixels() | {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _llava() -> Any:
    import transformers

    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**IMAGE),
        text_config=transformers.LlamaConfig(**SMALL),
        image_token_index=VOCABULARY - 1,
        image_seq_length=16,
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config)


def _clip() -> Any:
    import transformers

    config = transformers.CLIPConfig(
        text_config=SMALL | {"eos_token_id": VOCABULARY - 1}, vision_config=IMAGE, projection_dim=16
    )
    return transformers.CLIPModel(config)


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    yield Case("transformers/ViT", partial(_made, "ViT", "ViTForImageClassification", IMAGE), _pixels)
    yield Case("transformers/Dinov2", partial(_made, "Dinov2", "Dinov2Model", IMAGE), _pixels)
    swin = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
    yield Case("transformers/Swin", partial(_made, "Swin", "SwinModel", swin), _pixels)
    segformer = {
        "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "hidden_sizes": [16, 32], "strides": [4, 2],
        "patch_sizes": [7, 3], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2], "decoder_hidden_size": 16,
        "drop_path_rate": 0.0, "classifier_dropout_prob": 0.0,
    }  # fmt: skip
    build = partial(_made, "Segformer", "SegformerForSemanticSegmentation", segformer)
    yield Case("transformers/Segformer", build, _pixels, tolerance=1e-3)
    wave = lambda: {"input_values": torch.randn(2, 400)}  # noqa: E731
    yield Case("transformers/Wav2Vec2", partial(_made, "Wav2Vec2", "Wav2Vec2ForCTC", WAVE), wave)
    yield Case("transformers/Hubert", partial(_made, "Hubert", "HubertModel", WAVE), wave)
    yield Case("transformers/Whisper", partial(_made, "Whisper", "WhisperForConditionalGeneration", WHISPER), _heard)
    yield Case("transformers/CLIP", _clip, _pair)
    yield Case("transformers/Llava", _llava, _seen_and_read, generate=(GREEDY,))
