"""Settings of a dataset's tasks: import, split, check, caption, make, track, export."""

from __future__ import annotations

from typing import Literal

from workbench.captioners.base import CaptionerSettings
from workbench.clips.made import Maker
from workbench.dataset_builder.sources.columns import Columns
from workbench.families import default_model
from workbench.families.settings import NamesModel
from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

DATA = "Data"
LayoutName = Literal[
    "videofolder", "csv", "sidecars", "lists", "labels", "webdataset", "videox-fun", "musubi", "ltx", "diffsynth"
]


class ImportSettings(Settings):
    """Settings of an import (`datasets/<slug>/.import/config.json`)."""

    sources: tuple[str, ...] = field((), title="Videos", section=DATA, lines=3, path=True)
    """Video and picture files, folders, zip and tar archives, or parquet tables. Also latents that were computed
    elsewhere (docs/given_latents.md). Captions are imported, too, in any supported layout."""

    layout: Literal["auto", LayoutName] = field("auto", title="Layout", section=DATA, advanced=True)
    """How captions are stored with the videos. auto: detected. videofolder, csv: metadata.jsonl, metadata.csv and
    other tables. sidecars: one .txt per video. lists: prompts.txt and videos.txt. labels: folders videos and labels.
    webdataset: tar shards. videox-fun, musubi, ltx, diffsynth: the tables of these trainers."""

    hub_dataset: str = field("", title="Hub dataset", section=DATA)
    """Download and import a dataset from the Hugging Face Hub, as OWNER/NAME. For a private one, log in on this machine
    first (`hf auth login`)."""

    revision: str = field("", title="Revision", section=DATA, advanced=True)
    """Branch, tag or commit of the Hub dataset. Empty: the newest."""

    hub_config: str = field("", title="Configuration", section=DATA, advanced=True)
    """Configuration (subset) of the Hub dataset to import, if its card lists several. Empty: all."""

    own_source: str = field("", title="Custom source", section=DATA, advanced=True)
    """Clips from your own Python code, as NAME or NAME=TEXT. NAME is a class that an installed package registers under
    the entry point video_lora_workbench.sources; it receives TEXT."""

    video_column: str = field("", title="Video column", section=DATA, advanced=True)
    """The table column with the video or its file name, or a list file with one path per line (files.lst). Empty:
    detected. Usual names are file_name, video, path, media_path and video_path."""

    caption_column: str = field("", title="Caption column", section=DATA, advanced=True)
    """The table column or JSON key with the caption, a list file with one caption per line (captions.lst), or the
    suffix of caption files (longcap for 000.longcap). Empty: detected. Usual names are text, caption, prompt and
    description."""

    first_line: bool = field(False, title="First line only", section=DATA, advanced=True)
    """Use only the first line of each caption file, as SAT's trainers do. Off: all lines form one caption."""

    frames_as_video: bool = field(False, title="Image sequences", section=DATA, advanced=True)
    """Import a folder of numbered pictures (walk/frame_0001.png and so on, at least five without a gap) as one video.
    Its caption is walk.txt, walk/caption.txt or the row of a table that names the folder. Off: each picture is a clip
    of its own."""

    frame_rate: float = field(
        24.0, title="Frame rate of sequences", section=DATA, unit="fps", low=1, high=60, advanced=True
    )
    """The frame rate of videos imported from image sequences."""

    longest_side: int | None = field(
        None, title="Longest side", section=DATA, unit="pixels", low=64, high=8192, advanced=True
    )
    """Scale down larger videos and pictures to this, which saves disk space and time. Empty: keep their size."""

    keep_sound: bool = field(True, title="Keep the sound", section=DATA, advanced=True)
    """Keep the videos' sound tracks, which models with sound train on and the page plays. Off: clips are silent, which
    saves a little space, and nobody who gets the dataset hears what was said."""

    dataset: str = field("", title="Dataset", section=DATA, source="datasets")
    """The dataset to add the clips to: an existing one, or the name of a new one."""

    trigger_word: str = field("", title="Trigger word", section=DATA)
    """A made-up word for the new concept. It is added to every caption that lacks it."""

    @property
    def wanted_layout(self) -> str:
        """The layout's name, "" to detect it."""
        return "" if self.layout == "auto" else self.layout

    @property
    def rate_of_frames(self) -> float | None:
        """The frame rate of image sequences, None if each picture is a clip of its own."""
        return self.frame_rate if self.frames_as_video else None

    @property
    def columns(self) -> Columns:
        return Columns(self.video_column.strip(), self.caption_column.strip(), self.first_line)


CLIPS, ASKING = "Clips", "Question"
INSTRUCTION = """\
Describe this video for training a text-to-video model, in three to five plain sentences: who or what is seen and how \
it looks, what happens in which order, the place and the light, how the camera moves.
Say only what can be seen. Begin with the subject itself, not with "the video shows". Answer with the description alone.
Call the main subject {trigger}.
What is known about it: {caption}"""


class CaptionSettings(CaptionerSettings):
    """Settings of captioning (`datasets/<slug>/.caption/config.json`)."""

    which: Literal["missing", "all", "chosen"] = field(
        "missing", title="Which clips", section=CLIPS, labels=("Uncaptioned", "All", "Selected")
    )
    """missing: clips without a caption. all: every clip. chosen: the clips listed below (on the page, the selected
    ones). Captions written by hand are kept unless you allow overwriting them."""

    chosen: tuple[str, ...] = field((), title="Chosen clips", section=CLIPS, lines=3)
    """File names or ids of the clips for "chosen"."""

    overwrite_hand: bool = field(False, title="Overwrite hand-written captions", section=CLIPS, advanced=True)
    """Also replace captions that a person wrote. Off: they are kept, even those written while the job runs."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=ASKING, lines=6)
    """The prompt for the captioner. {trigger} is the dataset's trigger word, {caption} the clip's current caption. A
    line is dropped if its placeholder is empty."""

    frames: int = field(8, title="Frames", section=ASKING, unit="frames", low=1, high=64)
    """Number of frames to show of each clip, evenly spaced from the first to the last."""

    picture_side: int = field(768, title="Longer side", section=ASKING, unit="pixels", low=64, high=4096, advanced=True)
    """Scale down larger frames to this. More pixels cost memory, time and money."""

    retries: int = field(2, title="Retries", section=ASKING, low=0, high=10, advanced=True)
    """How often to retry a failed request: after 1, 2, 4 ... seconds, or as the server says."""

    processes: int = field(1, title="Processes", section=ASKING, low=1, high=256, advanced=True)
    """Number of parallel requests. With vision_language each one needs its own GPU, so the number of GPUs is the limit;
    with endpoint each one queries the server."""


CHECK, LIMITS = "Check", "Limits"


class CheckSettings(NamesModel):
    """Settings of the dataset check (`datasets/<slug>/.check/config.json`)."""

    model: str = field(default_model(), title="Model", section=CHECK, source="models", path=True)
    """The model you will train. Clips are checked against its length and size, captions with its tokenizer."""

    pictures: bool = field(True, title="Check the pictures", section=CHECK)
    """Find near-duplicates, still, blurred and shaky clips, cuts, black bars, flashes and text, check length and size,
    and find silent, quiet, distorted and missing sound."""

    captions: bool = field(True, title="Check the captions", section=CHECK)
    """Find missing, very short, repeated and too long captions, and check the trigger word."""

    frames: int | None = field(None, title="Frames", section=CHECK, low=1, high=1000, unit="frames", advanced=True)
    """Number of frames you will train with. Empty: the model's default."""

    height: int | None = field(None, title="Height", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Height you will train at. Empty: the model's default."""

    width: int | None = field(None, title="Width", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Width you will train at. Empty: the model's default."""

    fps: float | None = field(
        None, title="Frame rate", section=CHECK, low=0.5, high=120, unit="frames per second", advanced=True
    )
    """Frame rate you will train at. Empty: the model's default."""

    near_duplicate: float = field(0.25, title="Near-duplicates", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """Report clips as near-duplicates if their pictures differ by less than this. 0: exact copies only."""

    still: float = field(0.8, title="Still", section=LIMITS, low=0.05, high=1.0, unit="of the clip", advanced=True)
    """Report a clip as still if nothing moves for this share of its time."""

    blur: float = field(0.62, title="Blur", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """Report a clip as blurred from this value: 0 is sharp, 1 has no detail. Phone footage has 0.2 to 0.4, soft old
    film 0.58."""

    shake: float = field(1.0, title="Shake", section=LIMITS, low=0.0, high=100.0, unit="% of the width", advanced=True)
    """Report a clip as shaky if the camera jerks by more than this within 1/15 s."""

    flash: float = field(25.0, title="Flash", section=LIMITS, low=10.0, high=255.0, unit="levels", advanced=True)
    """Report a flash if the brightness jumps by this much and soon returns."""

    cut: float = field(
        2.0, title="Cut", section=LIMITS, low=1.5, high=20.0, unit="times the usual change", advanced=True
    )
    """Report a cut where a frame's score, relative to its neighbors, reaches this. Splitting uses 2."""

    fewest_words: int = field(3, title="Fewest words", section=LIMITS, low=1, high=100, unit="words", advanced=True)
    """Report captions with fewer words as very short."""


TARGET, CAPTIONS, HUB = "Destination", "Content", "Hugging Face Hub"


class ExportSettings(Settings):
    """Settings of an export (`datasets/<slug>/.export/config.json`). Set either `target` or `repo_id`."""

    layout: LayoutName = field("videofolder", title="Layout", section=CAPTIONS)
    """How to lay out videos and captions. videofolder: metadata.jsonl and a .txt per video, for the Hub, musubi-tuner,
    ai-toolkit and finetrainers. csv: for the Hub. sidecars: for kohya's scripts and diffusion-pipe. lists: for the
    diffusers examples. labels: for SAT's trainers. webdataset: tar shards. videox-fun, musubi, ltx, diffsynth: for
    these trainers, with their columns for control clips, references and masks."""

    target: str = field("", title="Folder or archive", section=TARGET, path=True)
    """A new folder, or a new .zip or .tar file. Existing files are never overwritten."""

    trigger_word: bool = field(True, title="Trigger word in the captions", section=CAPTIONS)
    """Start each caption with the trigger word, as in training here. Other tools do not add it."""

    first_frames: bool = field(False, title="First frames, too", section=CAPTIONS, advanced=True)
    """With the layout lists, also write each clip's first frame and images.txt, for image-to-video training. First
    frames that came with clips are always written."""

    hard_links: bool = field(False, title="Hard links", section=TARGET, advanced=True)
    """Link files instead of copying them, if the folder is on the same disk. If another tool then changes a file in
    place, the dataset's clip changes, too."""

    repo_id: str = field("", title="Hub dataset", section=HUB)
    """Push to this dataset on the Hugging Face Hub, as OWNER/NAME, instead of writing to disk. You must be logged in on
    this machine (`hf auth login`); no token is ever entered or stored here."""

    private: bool = field(True, title="Private", section=HUB)
    """Only you see the dataset on the Hub. The clips of a public one are visible to everyone."""

    license: str = field("", title="License", section=HUB, advanced=True)
    """License on the dataset's card, as the Hub abbreviates it: cc-by-4.0, cc0-1.0. Empty: none."""


PIECES = "Pieces"
DetectorName = Literal["adaptive", "content", "hash"]


class SplitSettings(Settings):
    """How to split clips."""

    clips: tuple[str, ...] = field((), title="Clips", section=PIECES, lines=3)
    """Ids of the clips to split. Empty: all."""

    mode: Literal["scenes", "windows"] = field("scenes", title="Cut at", section=PIECES)
    """scenes: at shot boundaries. windows: at a fixed interval, whatever the clip shows."""

    detector: DetectorName = field("adaptive", title="Scene detector", section=PIECES)
    """adaptive: cuts where a frame changes far more than its neighbors, robust to fast motion. content: by color and
    brightness, for calm footage. hash: by shapes, robust to flashes."""

    threshold: float | None = field(None, title="Threshold", section=PIECES, low=0.0, high=255.0)
    """The score from which a frame counts as a cut; lower values find more cuts. Empty: the detector's default. That is
    2 for adaptive, 27 for content and 0.35 for hash."""

    window_seconds: float = field(5.0, title="Window", section=PIECES, unit="s", low=0.1, high=600.0)
    """Length of the pieces, for windows."""

    min_seconds: float = field(1.0, title="Shortest piece", section=PIECES, unit="s", low=0.0, high=600.0)
    """Drop shorter pieces. The result lists them."""

    max_seconds: float | None = field(None, title="Longest piece", section=PIECES, unit="s", low=0.1, high=3600.0)
    """Cut longer shots into equal pieces of at most this length. Empty: shots stay whole."""


class SplitTask(SplitSettings):
    """Settings of a split (`datasets/<slug>/.split/config.json`)."""

    preview: bool = field(False, title="Preview", section=PIECES)
    """List the pieces of each clip without changing anything."""


BESIDE = "Companions"


class MakeSettings(Settings):
    """Settings for making control clips, references, masks and end frames (`datasets/<slug>/.make/config.json`)."""

    clips: tuple[str, ...] = field((), title="Clips", section=BESIDE, lines=3)
    """Ids of the clips. Empty: all."""

    maker: Maker = field("edges", title="What to make", section=BESIDE)
    """edges: Canny edges, white on black. gray: grayscale. blur: out of focus. downsampled: a lower resolution. depth:
    a depth map from a model; white is near, black is far. pose: skeletons of the people in OpenPose's colors, from two
    models. box: a mask that is white inside a box, for inpainting. border: a mask that is white along the border, for
    outpainting. first_frame, last_frame: that frame as a picture."""

    kind: Literal["", "control", "reference", "mask", "last_frame"] = field("", title="As", section=BESIDE)
    """What the result is used as. Empty: the maker's default. That is a mask for box and border, a reference for
    first_frame, the last frame for last_frame and a control clip for the others. As a control clip, box and border
    gray out that part of the clip."""

    amount: float | None = field(None, title="Amount", section=BESIDE, low=0.1, high=1000.0)
    """The maker's parameter. edges: the edge threshold (200). blur: the radius in percent of the longer side (2).
    downsampled: the factor (4). border: its width in percent of the picture (20). Empty: the default in parentheses."""

    model: str = field("", title="Model", section=BESIDE, source="maker_models", path=True)
    """For depth and pose: a known model, a folder in transformers' layout, or a Hub repository (OWNER/NAME,
    OWNER/NAME@REVISION), which is downloaded once. Empty: Depth Anything V2 Small (0.1 GB), ViTPose Base (0.34 GB)."""

    detector: str = field("", title="Detector", section=BESIDE, source="detectors", path=True, advanced=True)
    """For pose: the model that finds people, named like the model above. Empty: RT-DETR R50 (0.17 GB)."""

    device: DeviceChoice = field("auto", title="Device", section=BESIDE, source="devices", advanced=True)
    """For depth and pose: the device to run the model on. auto: the GPU if there is one."""

    left: float = field(25.0, title="Box: left", section=BESIDE, unit="%", low=0.0, high=99.0, advanced=True)
    """The box's distance from the left."""

    top: float = field(25.0, title="Box: top", section=BESIDE, unit="%", low=0.0, high=99.0, advanced=True)
    """The box's distance from the top."""

    width: float = field(50.0, title="Box: width", section=BESIDE, unit="%", low=1.0, high=100.0, advanced=True)
    """The box's width."""

    height: float = field(50.0, title="Box: height", section=BESIDE, unit="%", low=1.0, high=100.0, advanced=True)
    """The box's height."""

    again: bool = field(False, title="Replace existing", section=BESIDE, advanced=True)
    """Also make it for clips that already have one of that kind, and replace that. Off: skip them."""


EDGES, TRACKING = "Mask edges", "Tracking"


class MaskEdges(Settings):
    """How to write a mask that was painted and tracked."""

    soften: float = field(0.0, title="Soft edge", section=EDGES, unit="pixels", low=0.0, high=200.0)
    """Width over which the mask's edge fades. Gray areas of a mask have partial weight."""

    invert: bool = field(False, title="Invert", section=EDGES)
    """Mask everything except the painted area."""


class TrackSettings(MaskEdges):
    """Settings for tracking painted masks through clips (`datasets/<slug>/.track/config.json`)."""

    clips: tuple[str, ...] = field((), title="Clips", section=CLIPS, lines=3)
    """Ids of the clips. Empty: all clips with a painted frame."""

    model: str = field("", title="Model", section=TRACKING, source="mask_models", path=True)
    """The SAM 2 model to track masks with: a known one (facebook/sam2.1-hiera-tiny, 0.16 GB), a folder in transformers'
    layout, or a Hub repository (OWNER/NAME, OWNER/NAME@REVISION), which is downloaded once. Empty: optical flow,
    without a model."""

    device: DeviceChoice = field("auto", title="Device", section=TRACKING, source="devices", advanced=True)
    """The device to run the model on. auto: the GPU if there is one."""
