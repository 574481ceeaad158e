"""Random miniatures of the family, for tests: with a critic's head, with a critic of its own, with none."""

from __future__ import annotations

from pathlib import Path

from workbench.families.phenaki import files

TOYS = ("self", "token", "none")  # the critics
LEVELS = (4, 4, 4)


def write(folder: Path, variant: str) -> None:
    """Write one of TOYS."""
    import torch

    from workbench.families.phenaki.tokenizer import PhenakiTokenizer
    from workbench.families.phenaki.transformer import PhenakiTransformer
    from workbench.families.toy_text import t5_parts

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        words, text_encoder = t5_parts()
        tokenizer = PhenakiTokenizer(width=16, heads=2, spatial_layers=1, temporal_layers=1, levels=LEVELS)
        transformer = PhenakiTransformer(LEVELS, 16, 2, 2, text_encoder.config.d_model, variant, 1)
    words.save_pretrained(folder / "tokenizer")
    text_encoder.save_pretrained(folder / "text_encoder")
    files.write(folder, tokenizer, transformer, folder, {"frames": 9, "height": 32, "width": 32, "fps": 8})
