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
SERIES = {
    "num_input_channels": 3,
    "context_length": 32,
    "prediction_length": 8,
    "patch_length": 4,
    "patch_stride": 4,
    "d_model": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "ffn_dim": 48,
}
HIERARCHY = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
# The configuration's class without "Config", the model, and the configuration's arguments.
VISION: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("DeiT", "DeiTModel", IMAGE),
    ("Beit", "BeitModel", IMAGE | {"use_relative_position_bias": True}),
    ("ViTMAE", "ViTMAEForPreTraining", IMAGE | {
        "decoder_hidden_size": 16, "decoder_intermediate_size": 32, "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 2,
    }),
    ("ConvNext", "ConvNextModel", HIERARCHY),
    ("ResNet", "ResNetModel", HIERARCHY | {"embedding_size": 8}),
    ("PoolFormer", "PoolFormerModel", HIERARCHY),
    ("Swinv2", "Swinv2Model", {
        "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4,
    }),
    ("DPT", "DPTForDepthEstimation", IMAGE | {
        "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 16, 16],
        "fusion_hidden_size": 16,
        "is_hybrid": False,
    }),
    ("Hiera", "HieraModel", {"image_size": [32, 32], "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2],
        "patch_stride": [4, 4], "patch_size": [7, 7], "masked_unit_size": [4, 4], "num_query_pool": 1}),
)  # fmt: skip


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


def _siglip() -> Any:
    import transformers

    return transformers.SiglipModel(transformers.SiglipConfig(text_config=SMALL, vision_config=IMAGE))


def _blip() -> Any:
    import transformers

    config = transformers.BlipConfig(
        text_config=SMALL
        | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "encoder_hidden_size": 32},
        vision_config=IMAGE,
        projection_dim=16,
    )
    return transformers.BlipModel(config)


def _paligemma() -> Any:
    import transformers

    config = transformers.PaliGemmaConfig(
        vision_config=IMAGE,
        text_config=SMALL | {"num_key_value_heads": 2, "head_dim": 8},
        image_token_index=VOCABULARY - 1,
        projection_dim=32,
    )
    return transformers.PaliGemmaForConditionalGeneration(config)


def _qwen2_vl() -> Any:
    import transformers

    config = transformers.Qwen2VLConfig(
        text_config=SMALL
        | {
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
        },
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 4},
        image_token_id=VOCABULARY - 1,
        vision_start_token_id=1,
        vision_end_token_id=2,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def _seen_in_patches() -> dict[str, Any]:
    # One image of 8 x 8 patches; four patches make a token.
    tokens = torch.randint(3, VOCABULARY - 1, (1, 24))
    tokens[:, 2:18] = VOCABULARY - 1
    tokens[:, 1], tokens[:, 18] = 1, 2
    return {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "pixel_values": torch.randn(64, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 8, 8]]),
        "mm_token_type_ids": (tokens == VOCABULARY - 1).int(),
    }


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
    for name, model, options in VISION:
        yield Case(f"transformers/{name}", partial(_made, name, model, options), _pixels, tolerance=1e-3)
    wave = lambda: {"input_values": torch.randn(2, 400)}  # noqa: E731
    yield Case("transformers/Wav2Vec2", partial(_made, "Wav2Vec2", "Wav2Vec2ForCTC", WAVE), wave)
    yield Case("transformers/Hubert", partial(_made, "Hubert", "HubertModel", WAVE), wave)
    yield Case("transformers/WavLM", partial(_made, "WavLM", "WavLMModel", WAVE), wave)
    spectrogram = LAYERS | {
        "num_mel_bins": 32,
        "max_length": 48,
        "patch_size": 8,
        "frequency_stride": 8,
        "time_stride": 8,
    }
    yield Case(
        "transformers/AST",
        partial(_made, "AST", "ASTModel", spectrogram),
        lambda: {"input_values": torch.randn(2, 48, 32)},
    )
    encodec = {
        "num_filters": 4,
        "hidden_size": 16,
        "codebook_dim": 16,
        "upsampling_ratios": [4, 2],
        "codebook_size": 32,
    }
    yield Case(
        "transformers/Encodec",
        partial(_made, "Encodec", "EncodecModel", encodec),
        lambda: {"input_values": torch.randn(1, 1, 640)},
        trains=False,
    )
    yield Case(
        "transformers/PatchTST",
        partial(_made, "PatchTST", "PatchTSTForPrediction", SERIES),
        lambda: {"past_values": torch.randn(2, 32, 3)},
    )
    yield Case(
        "transformers/Whisper",
        partial(_made, "Whisper", "WhisperForConditionalGeneration", WHISPER),
        _heard,
        generate=(GREEDY,),
    )
    yield Case("transformers/CLIP", _clip, _pair)
    yield Case("transformers/Siglip", _siglip, _pair)
    yield Case("transformers/Blip", _blip, _pair)
    yield Case("transformers/Qwen2VL", _qwen2_vl, _seen_in_patches)
    yield Case("transformers/PaliGemma", _paligemma, _seen_and_read, generate=(GREEDY,))
    yield Case("transformers/Llava", _llava, _seen_and_read, generate=(GREEDY,))
