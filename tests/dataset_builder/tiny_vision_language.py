"""Miniatures of two vision-language models with random weights, saved in transformers format.

Their answers are nonsense, but real processors and models accept our frames and return text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOL_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message.role | capitalize }}: {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% elif part.type == 'video' %}<video>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def _tokenizer(special: list[str], template: str) -> Any:
    """A byte tokenizer: 256 bytes and the special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytes_only = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_only, pad_token="<pad>", eos_token="<end>")
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = template
    return tokenizer


def make_qwen(folder: Path) -> Path:
    """Qwen3-VL with one vision layer and one text layer."""
    import torch
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = _tokenizer(special, QWEN_TEMPLATE)
    sizes = {"shortest_edge": 32 * 32, "longest_edge": 16 * 64 * 64}
    patches = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(size=sizes, **patches),
        tokenizer,
        Qwen3VLVideoProcessor(size=sizes, cap_pixels_per_frame=False, **patches),
        chat_template=QWEN_TEMPLATE,
    )
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad")}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
            "pad_token_id": tokenizer.pad_token_id,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32,
            "deepstack_visual_indexes": [0], "num_position_embeddings": 64,
        },
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )  # fmt: skip
    torch.manual_seed(0)
    return _saved(Qwen3VLForConditionalGeneration(config), processor, folder)


def make_smol(folder: Path) -> Path:
    """SmolVLM2 with one vision layer and one text layer."""
    import torch
    from transformers import (
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    special = ["<|im_start|>", "<end_of_utterance>", "<image>", "<video>", "<fake_token_around_image>", "<global-img>"]
    tokenizer = _tokenizer(special, SMOL_TEMPLATE)
    side = {"longest_edge": 32}
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size=side, max_image_size=side, do_image_splitting=False),
        tokenizer,
        SmolVLMVideoProcessor(size=side, max_image_size=side, num_frames=8, fps=1, do_image_splitting=False),
        image_seq_len=4,
        chat_template=SMOL_TEMPLATE,
    )
    config = SmolVLMConfig(
        text_config={
            "model_type": "llama", "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return _saved(SmolVLMForConditionalGeneration(config), processor, folder)


def _saved(model: Any, processor: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
