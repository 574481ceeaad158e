"""Write down what is said in a sound, with Whisper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from workbench.vision.local_models import KnownModel, LocalModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WHISPER = "openai/whisper-"
MODELS = (
    KnownModel(f"{WHISPER}small", "Whisper Small", "973afd24965f72e36ca33b3055d56a652f456b4d", 1, 0.97, "Apache-2.0"),
    KnownModel(f"{WHISPER}base", "Whisper Base", "e37978b90ca9030d5170a5c07aadb050351a65bb", 0.5, 0.29, "Apache-2.0"),
)
RATE = 16000  # samples per second


class Listener(LocalModel):
    """A Whisper model, which recognizes the language by itself."""

    KIND: ClassVar[str] = "WhisperForConditionalGeneration"
    PROCESSOR: ClassVar[str] = "WhisperProcessor"
    TYPE: ClassVar[str] = "whisper"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = MODELS

    def words(self, samples: NDArray[np.float32]) -> str:
        """Return what is said in a mono sound at RATE; "" for nothing."""
        found: list[str] = []
        part = self.processor.feature_extractor.n_samples  # that the model hears at once: 30 s
        for start in range(0, len(samples), part):
            heard: Any = self.processor(
                samples[start : start + part],
                sampling_rate=RATE,
                return_tensors="pt",
                return_attention_mask=True,
            )
            features = heard.input_features.to(self.model.device)
            ids = self.model.generate(features, attention_mask=heard.attention_mask)
            found += self.processor.batch_decode(ids, skip_special_tokens=True)
        return " ".join(" ".join(found).split())
