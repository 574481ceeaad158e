"""The CogVideoX models and their files: what is legal, what is pinned, the tokenizer as it is published."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import find_model
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.models import PUBLISHED


def test_training_refuses_frames_that_do_not_decode_back() -> None:
    _, model = find_model("cogvideox-5b")
    with pytest.raises(ConfigError, match=r"frames is 50, CogVideoX 5B needs 1 or 8k\+1, from 9 to 49: use 41 or 49"):
        model.check_shape(50, 480, 720)
    with pytest.raises(ConfigError, match="height is 490, CogVideoX 5B needs a multiple of 16: use 496"):
        model.check_shape(49, 490, 720)


def test_b29_upright_clips_are_refused_where_positions_end() -> None:
    """The stock pipeline fails inside its rotary positions: "expected size 85 but got size 48"."""
    for name in ("cogvideox1.5-5b", "cogvideox1.5-5b-i2v"):
        _, newer = find_model(name)
        with pytest.raises(ConfigError, match="size is 768x1360"):
            newer.check_shape(81, 1360, 768)
        newer.check_shape(81, 768, 1360)


def test_b24_learned_positions_fit_one_size_and_no_more_frames() -> None:
    _, model = find_model("cogvideox-5b-i2v")
    model.check_shape(25, 480, 720)
    with pytest.raises(ConfigError, match="knows positions of 720x480 alone: use 720x480"):
        model.check_shape(49, 480, 704)
    with pytest.raises(ConfigError, match="frames is 57"):
        model.check_shape(57, 480, 720)


def test_every_published_model_is_pinned_to_a_commit() -> None:
    assert {model.id for model in PUBLISHED} == {
        "cogvideox-2b",
        "cogvideox-5b",
        "cogvideox-5b-i2v",
        "cogvideox1.5-5b",
        "cogvideox1.5-5b-i2v",
    }
    assert all(model.revision and len(model.revision) == 40 for model in PUBLISHED)
    assert len({model.revision for model in PUBLISHED}) == len(PUBLISHED)


def test_a_missing_model_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    # huggingface_hub 1.32 looks for the list of files first, 2 for a copy on this disk: the sentence says which.
    remedy = "THUDM/CogVideoX-2b cannot be (downloaded .*: check the network|reached: .*, try again later)"
    with pytest.raises(ModelUnavailable, match=remedy):
        FAMILY.fetch(find_model("cogvideox-2b")[1], report=lambda text: None)


# ---- the tokenizer as the published repositories hold it: spiece.model alone


@pytest.fixture(scope="module")
def spiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tokenizer is a real sentencepiece model and nothing else."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("spiece")
    (folder / "tokenizer").mkdir()
    sentences = ["a panda plays the guitar in a forest", "a video of waves on the beach at sunset"] * 50
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(folder / "tokenizer" / "spiece"),
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / "tokenizer" / "spiece.vocab").unlink()
    return folder


def test_a_tokenizer_of_spiece_model_alone_is_read_rightly(spiece: Path) -> None:
    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_file=str(spiece / "tokenizer" / "spiece.model"))
    tokenizer = FAMILY.load_tokenizer(spiece)
    for text in ("a panda plays the guitar", "waves on the beach"):
        assert tokenizer(text).input_ids == [*reference.encode(text), tokenizer.eos_token_id]


def test_a_tokenizer_without_its_file_is_refused_not_replaced(spiece: Path, tmp_path: Path) -> None:
    shutil.copytree(spiece, tmp_path / "model")
    (tmp_path / "model" / "tokenizer" / "spiece.model").unlink()
    with pytest.raises(ModelUnavailable, match="neither tokenizer.json nor spiece.model"):
        FAMILY.load_tokenizer(tmp_path / "model")
