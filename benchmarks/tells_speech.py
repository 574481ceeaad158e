"""Does the dataset check tell speech from music and noises? Synthesized sounds, half of them with other settings.

    pip install espeakng-loader   # a speech synthesizer of 6 MB, for the speech alone
    python benchmarks/tells_speech.py --json benchmarks/results/tells_speech_cpu.json

The limits of `workbench.clips.speech` were chosen on one set of languages, voices and sounds ("chosen on"). The other
("others") has new languages, voices, words and numbers, and kinds of sounds that the first one lacks: a theremin, cats,
small dogs, traffic, a trio. "mixed" is speech with another sound 12 dB below it. "right": the share that is judged
right. Without the synthesizer, only music and noises are judged.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import common
import numpy as np

from workbench.clips.speech import RATE, measure

LENGTH = 4 * RATE
TIMES = np.arange(LENGTH) / RATE
LAKE = {
    "de": "Der Wanderer bleibt am See stehen und sagt, dass sich das Wetter noch vor dem Abend ändern wird.",
    "fr": "Le randonneur s'arrête au bord du lac et dit que le temps va changer avant la tombée de la nuit.",
    "es": "El caminante se detiene junto al lago y dice que el tiempo cambiará antes de que llegue la noche.",
    "it": "Il viandante si ferma sul lago e dice che il tempo cambierà prima che arrivi la sera.",
    "ru": "Путник останавливается у озера и говорит, что погода изменится ещё до вечера.",
    "cmn": "徒步者停在湖边，说天气在傍晚之前会变。",
    "hi": "यात्री झील के पास रुकता है और कहता है कि शाम से पहले मौसम बदल जाएगा।",
    "pt": "O caminhante para junto ao lago e diz que o tempo vai mudar antes do anoitecer.",
    "pl": "Wędrowiec zatrzymuje się nad jeziorem i mówi, że pogoda zmieni się przed wieczorem.",
    "en-us": "Look at that! Did you see how fast it went? Nobody is going to believe us.",
}
OTHERS = {
    "tr": "Yürüyüşçü gölün kenarında durur ve havanın akşamdan önce değişeceğini söyler.",
    "nl": "De wandelaar stopt bij het meer en zegt dat het weer voor de avond zal veranderen.",
    "sv": "Vandraren stannar vid sjön och säger att vädret kommer att ändras före kvällen.",
    "el": "Ο πεζοπόρος σταματά στη λίμνη και λέει ότι ο καιρός θα αλλάξει πριν από το βράδυ.",
    "cs": "Poutník se zastaví u jezera a říká, že se počasí do večera změní.",
    "fi": "Vaeltaja pysähtyy järven rannalle ja sanoo, että sää muuttuu ennen iltaa.",
    "hu": "A túrázó megáll a tónál, és azt mondja, hogy estig megváltozik az idő.",
    "ar": "يتوقف المتنزه عند البحيرة ويقول إن الطقس سيتغير قبل المساء.",
    "id": "Pendaki itu berhenti di tepi danau dan berkata bahwa cuaca akan berubah sebelum malam.",
    "en-gb": "Good evening, everyone. Tonight we will hear three short stories about the sea.",
}
VOICES = (("", "+m3", "+f2", "+f4"), ("+m1", "+m7", "+f1", "+f3"))


# ---- speech


class Synthesizer:
    """eSpeak NG, as the package espeakng-loader brings it."""

    def __init__(self) -> None:
        import espeakng_loader

        self._library = library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._pieces: list[np.ndarray] = []

        def keep(samples: Any, count: int, _: Any) -> int:
            if samples and count > 0:
                self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(keep)  # kept, because the library has no reference of its own
        library.espeak_Synth.argtypes = [
            *(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint),
            *(ctypes.c_void_p, ctypes.c_void_p),
        ]
        synchronous = 2
        self.rate = library.espeak_Initialize(synchronous, 0, str(espeakng_loader.get_data_path()).encode(), 0)
        library.espeak_SetSynthCallback(self._callback)

    def say(self, voice: str, text: str, speed: int, pitch: int) -> np.ndarray:
        """Return float samples at RATE."""
        self._pieces.clear()
        self._library.espeak_SetVoiceByName(voice.encode())
        for parameter, value in ((1, speed), (3, pitch)):
            self._library.espeak_SetParameter(parameter, value, 0)
        data, utf8 = text.encode(), 1
        self._library.espeak_Synth(data, len(data) + 1, 0, 0, 0, utf8, None, None)
        found = np.concatenate(self._pieces) / 32768
        return np.interp(np.arange(0, len(found), self.rate / RATE), np.arange(len(found)), found)


# ---- other sounds


def band(samples: np.ndarray, low: float, high: float) -> np.ndarray:
    spectrum, hertz = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / RATE)
    spectrum[(hertz < low) | (hertz > high)] = 0
    return np.fft.irfft(spectrum, len(samples))


def harmonics(hertz: Any, count: int, slope: float, chance: Any) -> np.ndarray:
    """Return a tone whose frequency may change from sample to sample."""
    phase = 2 * np.pi * np.cumsum(hertz) / RATE
    return sum(np.sin(one * phase + chance.uniform(0, 6)) / one**slope for one in range(1, count + 1))


def note(hertz: float, seconds: float, kind: str, chance: Any) -> np.ndarray:
    times = np.arange(round(seconds * RATE)) / RATE
    trill = 1 + (0.006 * np.sin(2 * np.pi * 5.5 * times) if kind == "violin" else 0 * times)
    made = harmonics(hertz * trill, 8, 2.5 if kind == "flute" else 1.2, chance)
    if kind in ("piano", "marimba"):
        return made * np.exp(-(3 if kind == "piano" else 6) * times) * np.minimum(1, times * 300)
    return made * np.minimum(1, np.minimum(times, seconds - times) * 20)


def played(events: Iterator[tuple[float, np.ndarray]]) -> np.ndarray:
    """Mix sounds that start at some seconds."""
    found = np.zeros(LENGTH)
    for start, samples in events:
        at = round(start * RATE)
        found[at : at + len(samples)] += samples[: max(0, LENGTH - at)]
    return found


def melody(kind: str, rate: float, chance: Any) -> np.ndarray:
    def notes() -> Iterator[tuple[float, np.ndarray]]:
        at = 0.0
        while at < 4:
            seconds = chance.choice([0.5, 1, 1, 2]) / rate
            yield at, note(220 * 2 ** (chance.choice([0, 2, 4, 5, 7, 9, 11, 12, 14]) / 12), seconds, kind, chance)
            at += seconds

    return played(notes())


def chords(kind: str, rate: float, chance: Any) -> np.ndarray:
    roots = [130 * 2 ** (chance.choice([0, 5, 7, 9]) / 12) for _ in np.arange(0, 4, 1 / rate)]
    return played(
        (at / rate, note(root * 2 ** (step / 12), 1.2 / rate, kind, chance))
        for at, root in enumerate(roots)
        for step in (0, 4, 7, 12)
    )


def drums(rate: float, chance: Any) -> np.ndarray:
    times = np.arange(RATE // 4) / RATE
    bass = np.sin(2 * np.pi * (50 + 60 * np.exp(-20 * times)) * times) * np.exp(-12 * times)
    snare = chance.normal(size=len(times)) * np.exp(-25 * times) * 0.5
    hat = band(chance.normal(size=len(times)), 5000, 7900) * np.exp(-60 * times)
    return played((at, (bass, snare)[number % 2] + hat) for number, at in enumerate(np.arange(0, 4, 0.5 / rate)))


def calls(gap: tuple[float, float], make: Any, chance: Any) -> np.ndarray:
    """Return one call after the other, of an animal or of steps."""

    def every() -> Iterator[tuple[float, np.ndarray]]:
        at = 0.1
        while at < 3.6:
            yield at, make()
            at += chance.uniform(*gap)

    return played(every()) + 0.003 * chance.normal(size=LENGTH)


def bark(chance: Any) -> np.ndarray:
    count = round(RATE * chance.uniform(0.15, 0.3))
    falling = np.linspace(1.2, 0.7, count) * chance.uniform(300, 500)
    tone = harmonics(falling, 12, 1, chance) + 0.5 * chance.normal(size=count)
    return tone * np.exp(-4 * np.linspace(0, 1, count))


def meow(chance: Any) -> np.ndarray:
    count = round(RATE * chance.uniform(0.5, 0.8))
    bow = np.sin(np.pi * np.linspace(0, 1, count))
    return harmonics(chance.uniform(450, 650) * (1 + 0.4 * bow), 10, 0.8, chance) * np.hanning(count)


def chirp(chance: Any) -> np.ndarray:
    count = round(RATE * chance.uniform(0.04, 0.15))
    return harmonics(np.linspace(*chance.uniform(2000, 6000, 2), count), 1, 1, chance) * np.hanning(count)


def step(chance: Any) -> np.ndarray:
    return band(chance.normal(size=RATE // 6), 80, 3000) * np.exp(-np.arange(RATE // 6) / RATE * 40)


def other_sounds(more: bool, chance: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield music and noises. more: with the kinds on which no limit was chosen."""
    hiss = chance.normal(size=LENGTH)
    for kind in ("piano", "marimba", "flute", "violin"):
        yield "music", melody(kind, chance.uniform(1, 5), chance)
    for kind in ("piano", "organ"):
        yield "music", chords(kind, chance.uniform(0.7, 3), chance)
    beat = drums(chance.uniform(1.2, 3), chance)
    yield "music", beat
    yield "music", beat + 0.2 * melody("piano", 2.5, chance) + 0.15 * chords("organ", 1, chance)
    gusts = np.interp(TIMES, np.arange(0, 5, 0.4), chance.uniform(-1, 1, 13))
    yield "noise", band(hiss, 60, 1500) * (1 + 0.8 * gusts)
    yield "noise", band(hiss, 800, 7500)
    yield "noise", band(hiss, 100, 5000) * (1.1 + np.sin(2 * np.pi * chance.uniform(0.1, 0.4) * TIMES))
    turns = np.interp(TIMES, range(5), chance.uniform(30, 110, 5))
    engine = harmonics(turns, 24, 1, chance)
    yield "noise", engine + 0.4 * band(hiss, 100, 4000)
    yield "noise", harmonics(700 + 300 * np.sin(2 * np.pi * chance.uniform(0.2, 3) * TIMES), 4, 2, chance)
    for gap, make in (((0.1, 0.5), chirp), ((0.4, 0.9), bark), ((0.35, 0.7), step)):
        yield "noise", calls(gap, lambda make=make: make(chance), chance)
    if more:
        slides = 2 ** np.interp(TIMES, np.arange(0, 4.5, 0.5), chance.uniform(-1, 1, 9))
        yield "music", harmonics(300 * slides, 7, 2, chance)
        yield "music", melody("violin", 2, chance) + 0.7 * melody("flute", 1.5, chance) + melody("piano", 3, chance)
        yield "noise", calls((0.8, 1.3), lambda: meow(chance), chance)
        yield "noise", band(hiss, 40, 900) + 0.3 * engine


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], rounds=1)
    parser.add_argument("--rounds", type=int, default=6, help="sounds of each kind")
    options = parser.parse_args()
    try:
        voice = Synthesizer()
    except ImportError:
        voice = None
        print("espeakng-loader is not installed: no speech is judged")
    rows: list[dict[str, Any]] = []
    for number, (name, texts) in enumerate((("chosen on", LAKE), ("others", OTHERS))):
        chance = np.random.default_rng(number)
        found: dict[str, list[bool]] = {}
        others = []
        for _ in range(options.rounds):
            for kind, samples in other_sounds(bool(number), chance):
                others.append(samples / np.abs(samples).max())
                found.setdefault(kind, []).append(not measure(others[-1]).is_speech)
        for language, text in texts.items() if voice else ():
            for variant in VOICES[number]:
                said = voice.say(
                    f"{language}{variant}", text, int(chance.integers(120, 220)), int(chance.integers(30, 70))
                )
                said = said[:LENGTH] / np.abs(said).max()
                found.setdefault("speech", []).append(measure(said).is_speech)
                below = others[chance.integers(len(others))][: len(said)]
                mixed = said / said.std() + 10 ** (-12 / 20) * below / below.std()
                found.setdefault("mixed", []).append(measure(mixed).is_speech)
        for kind, right in found.items():
            share = round(sum(right) / len(right), 3)
            rows.append({"sounds": name, "kind": kind, "count": len(right), "right": share})
    common.report(rows, options.json, rounds=options.rounds)


if __name__ == "__main__":
    main()
