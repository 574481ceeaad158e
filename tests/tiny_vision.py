"""Miniatures of the models that see depth, poses and masks, or hear, in the layout that transformers
saves. Those that see have random weights and see nonsense; what counts is that real classes take our frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _saved(model: Any, folder: Path, processor: Any = None) -> Path:
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    return folder


def make_depth(folder: Path, kind: str = "relative") -> Path:
    """Depth Anything on a DINOv2 of four layers. kind: "relative" or "metric"."""
    import torch
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config
    from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil

    backbone = Dinov2Config(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        mlp_ratio=2,
        image_size=28,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
        apply_layernorm=True,
    )
    config = DepthAnythingConfig(
        backbone_config=backbone,
        patch_size=14,
        reassemble_hidden_size=16,
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
        depth_estimation_type=kind,
        max_depth=10 if kind == "metric" else 1,
    )
    torch.manual_seed(0)
    model = DepthAnythingForDepthEstimation(config)
    for layer in model.modules():  # so that what it says differs from place to place, and its ReLU lets it through
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.normal_(layer.weight, std=0.2)
    torch.nn.init.constant_(model.head.conv3.bias, 1.0)
    size = {"height": 42, "width": 42}
    processor = DPTImageProcessorPil(size=size, keep_aspect_ratio=True, ensure_multiple_of=14, do_normalize=True)
    return _saved(model, folder, processor)


def make_pose(folder: Path) -> Path:
    """ViTPose with COCO's joints, for pictures of 32x24."""
    import torch
    from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation

    backbone = VitPoseBackboneConfig(
        image_size=(32, 24),
        patch_size=(8, 8),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        mlp_ratio=2,
        out_features=["stage1"],
        out_indices=[1],
    )
    torch.manual_seed(0)
    model = VitPoseForPoseEstimation(VitPoseConfig(backbone_config=backbone, num_labels=17, use_simple_decoder=True))
    for layer in model.head.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.normal_(layer.weight, std=0.5)
            torch.nn.init.constant_(layer.bias, 1.0)  # so that its joints are seen
    return _saved(model, folder)


def make_detector(folder: Path, label: str = "person") -> Path:
    """RT-DETR that sees one kind of thing, everywhere."""
    import torch
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig
    from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil

    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
        out_indices=[2, 3, 4],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=16,
        encoder_in_channels=[16, 16, 16],
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        d_model=16,
        decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=16,
        decoder_layers=2,
        decoder_attention_heads=2,
        num_queries=3,
        num_denoising=0,
        id2label={0: label},
        label2id={label: 0},
        anchor_image_size=None,
    )
    torch.manual_seed(0)
    model = RTDetrForObjectDetection(config)
    for name, weights in model.named_parameters():
        if "class_embed" in name and name.endswith("bias"):
            torch.nn.init.constant_(weights, 3.0)
    return _saved(model, folder, RTDetrImageProcessorPil(size={"height": 64, "width": 64}))


def make_segmenter(folder: Path) -> Path:
    """SAM 2 for videos of 128x128."""
    import torch
    from transformers import Sam2HieraDetConfig, Sam2VideoConfig, Sam2VideoModel, Sam2VisionConfig

    hiera = Sam2HieraDetConfig(
        hidden_size=8,
        image_size=[128, 128],
        blocks_per_stage=[1, 1, 2, 1],
        embed_dim_per_stage=[8, 16, 32, 64],
        num_attention_heads_per_stage=[1, 1, 1, 1],
        window_size_per_stage=[4, 4, 4, 4],
        global_attention_blocks=[3],
        window_positional_embedding_background_size=[4, 4],
    )
    vision = Sam2VisionConfig(
        backbone_config=hiera.to_dict(),
        backbone_channel_list=[64, 32, 16, 8],
        backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]],
        fpn_hidden_size=128,
    )
    config = Sam2VideoConfig(
        vision_config=vision.to_dict(),
        prompt_encoder_config={"hidden_size": 128, "image_size": 128, "patch_size": 16, "mask_input_channels": 4},
        mask_decoder_config={"hidden_size": 128, "mlp_dim": 32, "num_attention_heads": 2, "iou_head_hidden_dim": 16},
        image_size=128,
        memory_attention_hidden_size=128,
        memory_attention_num_layers=1,
        memory_attention_feed_forward_hidden_size=32,
        memory_attention_rope_feat_sizes=[8, 8],
        memory_encoder_hidden_size=128,
        memory_encoder_output_channels=64,
        mask_downsampler_embed_dim=128,
        memory_fuser_embed_dim=128,
        memory_fuser_intermediate_dim=32,
        memory_fuser_num_layers=1,
    )
    torch.manual_seed(0)
    return _saved(Sam2VideoModel(config), folder)


def make_listener(folder: Path, said: dict[str, Any], steps: int = 120) -> Path:
    """Whisper of one layer for parts of 2 s, trained to say the keys when it hears their values, mono at 16 kHz."""
    import torch
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    names = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    pieces = [*sorted(ByteLevel.alphabet()), *names]
    tokenizer = transformers.WhisperTokenizer(
        vocab={piece: number for number, piece in enumerate(pieces)},
        merges=[],
        additional_special_tokens=names[1:],
        language="en",
        task="transcribe",
    )
    end, start, english, transcribe, untimed = tokenizer.convert_tokens_to_ids(names)
    hearing = transformers.WhisperFeatureExtractor(chunk_length=2)
    sizes = {f"{of}_{name}": size for of in ("encoder", "decoder") for name, size in (("layers", 1), ("ffn_dim", 64))}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 32}
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=len(pieces),
            **sizes,
            max_source_positions=100,
            max_target_positions=64,
            decoder_start_token_id=start,
            bos_token_id=end,
            eos_token_id=end,
            pad_token_id=end,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )
    heard = hearing(list(said.values()), sampling_rate=16000, return_tensors="pt").input_features
    texts = [tokenizer(f" {text}", add_special_tokens=False).input_ids for text in said]
    length = max(map(len, texts)) + 1
    labels = torch.tensor([[english, transcribe, untimed, *ids, *[end] * (length - len(ids))] for ids in texts])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_features=heard, labels=labels).loss.backward()
        optimizer.step()
    settings = model.generation_config
    settings.update(
        is_multilingual=True,
        lang_to_id={"<|en|>": english},
        task_to_id={"transcribe": transcribe},
        no_timestamps_token_id=untimed,
        decoder_start_token_id=start,
        eos_token_id=end,
        pad_token_id=end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        max_length=64,
    )
    return _saved(model, folder, transformers.WhisperProcessor(hearing, tokenizer))
