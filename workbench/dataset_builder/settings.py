"""The settings of a dataset's tasks, one declaration each: import, split, check, caption, make, track, export."""

from __future__ import annotations

from typing import Literal

from workbench.captioners.settings import CaptionerSettings
from workbench.clips.made import Maker
from workbench.dataset_builder.cuts.scenes import DetectorName
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
    """What `datasets/<slug>/.import/config.json` holds."""

    sources: tuple[str, ...] = field((), title="Videos", section=DATA, lines=3, path=True)
    """Video and picture files, folders of them, zip and tar archives, or parquet tables; also latents that
    were computed elsewhere (docs/given_latents.md). Captions that came with them are taken over, in whatever layout
    they are."""

    layout: Literal["auto", LayoutName] = field("auto", title="Layout", section=DATA, advanced=True)
    """How captions lie beside the videos. auto: found out by itself. videofolder, csv: metadata.jsonl, metadata.csv and
    tables of other names; sidecars: a .txt a video; lists: prompts.txt and videos.txt; labels: folders videos and
    labels; webdataset: tar shards; videox-fun, musubi, ltx, diffsynth: the tables of these trainers."""

    hub_dataset: str = field("", title="Hub dataset", section=DATA)
    """A dataset on the Hugging Face Hub, as OWNER/NAME, to be downloaded and imported. For private ones log in on this
    machine first (`hf auth login`)."""

    revision: str = field("", title="Revision", section=DATA, advanced=True)
    """Branch, tag or commit of the Hub dataset. Empty: its newest state."""

    hub_config: str = field("", title="Configuration", section=DATA, advanced=True)
    """Which configuration (subset) of the Hub dataset is taken, where its card names several. Empty: all."""

    own_source: str = field("", title="Own source", section=DATA, advanced=True)
    """Clips from Python code of your own: NAME or NAME=TEXT of a class that an installed package names under the entry
    point video_lora_workbench.sources. It gets the text."""

    video_column: str = field("", title="Video column", section=DATA, advanced=True)
    """The column of a table that holds the video or its file name, or a list file with a path a line (files.lst).
    Empty: found by its usual names, such as file_name, video, path, media_path or video_path."""

    caption_column: str = field("", title="Caption column", section=DATA, advanced=True)
    """The column of a table, or the key of a JSON record, that holds the caption; or a list file with a caption a line
    (captions.lst), or the ending of caption files (longcap for 000.longcap). Empty: found by its usual names, such as
    text, caption, prompt or description."""

    first_line: bool = field(False, title="First line only", section=DATA, advanced=True)
    """Take only the first line of each caption's text file, as SAT's trainers do. Otherwise all its lines are one
    caption."""

    frames_as_video: bool = field(False, title="Numbered pictures are a video", section=DATA, advanced=True)
    """Whether a folder of numbered pictures (walk/frame_0001.png and so on, five or more without a gap) is one video.
    Its caption is in walk.txt, in walk/caption.txt or in the row of a table that names the folder. Off: each is a
    picture."""

    frame_rate: float = field(24.0, title="Their frame rate", section=DATA, unit="fps", low=1, high=60, advanced=True)
    """The frame rate of videos that are made of numbered pictures."""

    longest_side: int | None = field(
        None, title="Longest side", section=DATA, unit="pixels", low=64, high=8192, advanced=True
    )
    """Larger pictures are scaled down to this, which saves disk and time. Empty: pictures keep their size."""

    dataset: str = field("", title="Dataset", section=DATA, source="datasets")
    """The dataset the clips go into: one of yours, or the name of a new one."""

    trigger_word: str = field("", title="Trigger word", section=DATA)
    """A word of your own that stands for the new concept; it is added to every caption without it."""

    @property
    def wanted_layout(self) -> str:
        """The layout's name, "" to find it out."""
        return "" if self.layout == "auto" else self.layout

    @property
    def rate_of_frames(self) -> float | None:
        """The frame rate of numbered pictures that are one video, None where each is a picture."""
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
    """What `datasets/<slug>/.caption/config.json` holds."""

    which: Literal["missing", "all", "chosen"] = field("missing", title="Which clips", section=CLIPS)
    """missing: clips without a caption. all: every clip. chosen: those named below, on the page those that are
    marked. Captions written by hand stay in any case, unless the switch says otherwise."""

    chosen: tuple[str, ...] = field((), title="Chosen clips", section=CLIPS, lines=3)
    """File names or ids of the clips that chosen means."""

    overwrite_hand: bool = field(False, title="Write over hand-written captions", section=CLIPS, advanced=True)
    """Off: what a person wrote is never replaced, not even when it was written while the job runs."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=ASKING, lines=6)
    """What the captioner is asked. {trigger} stands for the dataset's trigger word, {caption} for the caption the clip
    has; a line whose placeholder has nothing to stand for is left out."""

    frames: int = field(8, title="Frames", section=ASKING, unit="frames", low=1, high=64)
    """How many frames of each clip are shown, spread evenly from the first to the last."""

    picture_side: int = field(768, title="Longer side", section=ASKING, unit="pixels", low=64, high=4096, advanced=True)
    """Larger frames are reduced to this before they are shown: more pixels cost memory, time and money."""

    retries: int = field(2, title="Retries", section=ASKING, low=0, high=10, advanced=True)
    """How often the same is asked again when it fails: after 1, 2, 4 ... seconds, or as the server says."""

    processes: int = field(1, title="Processes", section=ASKING, low=1, high=256, advanced=True)
    """How many ask at once. With vision_language each has a GPU of its own, so no more than there are GPUs work; with
    endpoint each asks the server."""


CHECK, LIMITS = "Check", "Limits"


class CheckSettings(NamesModel):
    """What `datasets/<slug>/.check/config.json` holds."""

    model: str = field(default_model(), title="Model", section=CHECK, source="models", path=True)
    """The model you will train: clips are checked against its length and size, captions with its tokenizer."""

    pictures: bool = field(True, title="Look at the pictures", section=CHECK)
    """Near-duplicates, still, blurred and shaky clips, cuts, black bars, flashes, text, length and size."""

    captions: bool = field(True, title="Read the captions", section=CHECK)
    """Missing, very short, repeated and too long captions, and the trigger word."""

    frames: int | None = field(None, title="Frames", section=CHECK, low=1, high=1000, unit="frames", advanced=True)
    """Frames you will train with. Empty: what the model was made for."""

    height: int | None = field(None, title="Height", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Height you will train at. Empty: what the model was made for."""

    width: int | None = field(None, title="Width", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Width you will train at. Empty: what the model was made for."""

    fps: float | None = field(
        None, title="Frame rate", section=CHECK, low=0.5, high=120, unit="frames per second", advanced=True
    )
    """Frame rate you will train at. Empty: what the model was made for."""

    near_duplicate: float = field(0.25, title="Nearly the same", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """Clips whose pictures differ by less are called copies of one another. 0: only exact ones."""

    still: float = field(
        0.8, title="Standing still", section=LIMITS, low=0.05, high=1.0, unit="of the clip", advanced=True
    )
    """A clip in which nothing moves for this share of its time is called still."""

    blur: float = field(0.62, title="Blur", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """0 is sharp, 1 has no detail. Footage of a phone has 0.2 to 0.4, soft old film 0.58."""

    shake: float = field(1.0, title="Shake", section=LIMITS, low=0.0, high=100.0, unit="% of the width", advanced=True)
    """How much the camera may jerk within a fifteenth of a second."""

    flash: float = field(25.0, title="Flash", section=LIMITS, low=10.0, high=255.0, unit="levels", advanced=True)
    """A jump of brightness by this much that soon returns is called a flash."""

    cut: float = field(
        2.0, title="Cut", section=LIMITS, low=1.5, high=20.0, unit="times the usual change", advanced=True
    )
    """The score, against its neighbors, from which a frame counts as a cut; splitting uses 2."""

    fewest_words: int = field(3, title="Fewest words", section=LIMITS, low=1, high=100, unit="words", advanced=True)
    """Captions with fewer words are called very short."""


TARGET, CAPTIONS, HUB = "Where to", "What", "Hugging Face Hub"


class ExportSettings(Settings):
    """What `datasets/<slug>/.export/config.json` holds. One of `target` and `repo_id` is set."""

    layout: LayoutName = field("videofolder", title="Layout", section=CAPTIONS)
    """How videos and captions are laid out: videofolder has a metadata.jsonl and a .txt beside each video, which
    the Hub, musubi-tuner, ai-toolkit and finetrainers read; csv is read by the Hub, sidecars by kohya's scripts and
    diffusion-pipe, lists by the trainers of the diffusers examples, labels by SAT trainers, webdataset
    by readers of tar shards, videox-fun, musubi, ltx and diffsynth by those trainers, with the columns in which they
    look for control clips, references and masks."""

    target: str = field("", title="Folder or archive", section=TARGET, path=True)
    """A new folder, or a new file that ends in .zip or .tar. What is there already is never touched."""

    trigger_word: bool = field(True, title="Trigger word in the captions", section=CAPTIONS)
    """Write each caption as the model is taught it here, with the trigger word in front. Other tools do not add it by
    themselves."""

    first_frames: bool = field(False, title="First frames, too", section=CAPTIONS, advanced=True)
    """In the layout of lists, also write each clip's first frame and images.txt, for image-to-video training. Where
    clips came with first frames of their own, these are written in any case."""

    hard_links: bool = field(False, title="Share the files", section=TARGET, advanced=True)
    """In a folder on the same disk, let both names stand for one file instead of copying it. Then a tool that rewrites
    the file in place rewrites it here, too."""

    repo_id: str = field("", title="Hub dataset", section=HUB)
    """Push to this dataset on the Hugging Face Hub, as OWNER/NAME, instead of writing to a disk. You must be logged in
    on this machine (`hf auth login`): no token is ever typed or stored here."""

    private: bool = field(True, title="Private", section=HUB)
    """Only you see the dataset on the Hub. A public dataset shows its clips to everybody."""

    license: str = field("", title="License", section=HUB, advanced=True)
    """The license on the dataset's card, in the Hub's short form: cc-by-4.0, cc0-1.0. Empty leaves it out."""


PIECES = "Pieces"


class SplitSettings(Settings):
    """How to cut: what a form asks for."""

    clips: tuple[str, ...] = field((), title="Clips", section=PIECES, lines=3)
    """Ids of the clips to split; none means all of them."""

    mode: Literal["scenes", "windows"] = field("scenes", title="Cut at", section=PIECES)
    """scenes: where one shot ends and the next begins. windows: after so many seconds, whatever they show."""

    detector: DetectorName = field("adaptive", title="Scene detector", section=PIECES)
    """adaptive: a frame that differs far more than its neighbors do, calm in fast motion. content: by color and
    light, for calm footage. hash: by shapes, not misled by flashes."""

    threshold: float | None = field(None, title="Threshold", section=PIECES, low=0.0, high=255.0)
    """The score from which a frame counts as a cut: lower finds more cuts. Empty: the detector's own (adaptive 2,
    content 27, hash 0.35)."""

    window_seconds: float = field(5.0, title="Window", section=PIECES, unit="s", low=0.1, high=600.0)
    """Length of a piece, for windows."""

    min_seconds: float = field(1.0, title="Shortest piece", section=PIECES, unit="s", low=0.0, high=600.0)
    """Shorter pieces are left out; the result names them."""

    max_seconds: float | None = field(None, title="Longest piece", section=PIECES, unit="s", low=0.1, high=3600.0)
    """Longer shots are cut into equal pieces no longer than this. Empty: shots stay whole."""


class SplitTask(SplitSettings):
    """What `datasets/<slug>/.split/config.json` holds: how to cut, and whether really to."""

    preview: bool = field(False, title="Preview", section=PIECES)
    """Say what would be cut, clip by clip, and change nothing."""


BESIDE = "Beside a clip"


class MakeSettings(Settings):
    """What `datasets/<slug>/.make/config.json` holds: what is made of clips to lie beside them."""

    clips: tuple[str, ...] = field((), title="Clips", section=BESIDE, lines=3)
    """Ids of the clips; none means all of them."""

    maker: Maker = field("edges", title="What to make", section=BESIDE)
    """edges: Canny edges, white on black. gray: without colors. blur: out of focus. downsampled: with fewer pixels.
    depth: white is near, black far, by a model. pose: skeletons of the people in OpenPose's colors, by two models.
    box: a mask that is white in a box, for inpainting. border: a mask that is white along the border, for outpainting.
    first_frame, last_frame: that frame as a picture."""

    kind: Literal["", "control", "reference", "mask", "last_frame"] = field("", title="As", section=BESIDE)
    """What it is to the clip. Empty: a control clip; of box and border a mask, of first_frame a reference, of
    last_frame the last frame. A box or border as a control clip is the clip with that part blanked."""

    amount: float | None = field(None, title="Amount", section=BESIDE, low=0.1, high=1000.0)
    """Of edges the step in color that begins one (200), of blur the radius in percent of the longer side (2), of
    downsampled how many times smaller (4), of border its width in percent of the picture (20). Empty: these."""

    model: str = field("", title="Model", section=BESIDE, source="maker_models", path=True)
    """Of depth and pose: a known model, a folder with one in transformers' layout, or a repository of the Hub
    (OWNER/NAME, OWNER/NAME@REVISION); it is downloaded once. Empty: Depth Anything V2 Small (0.1 GB), ViTPose Base
    (0.34 GB)."""

    detector: str = field("", title="Detector", section=BESIDE, source="detectors", path=True, advanced=True)
    """Of pose: the model that finds the people, named as the other one is. Empty: RT-DETR R50 (0.17 GB)."""

    device: DeviceChoice = field("auto", title="Device", section=BESIDE, source="devices", advanced=True)
    """Of depth and pose: where the model computes. auto takes the GPU where there is one."""

    left: float = field(25.0, title="Box: left", section=BESIDE, unit="%", low=0.0, high=99.0, advanced=True)
    """Where the box begins, from the left."""

    top: float = field(25.0, title="Box: top", section=BESIDE, unit="%", low=0.0, high=99.0, advanced=True)
    """Where the box begins, from the top."""

    width: float = field(50.0, title="Box: width", section=BESIDE, unit="%", low=1.0, high=100.0, advanced=True)
    """How wide the box is."""

    height: float = field(50.0, title="Box: height", section=BESIDE, unit="%", low=1.0, high=100.0, advanced=True)
    """How high the box is."""

    again: bool = field(False, title="Make it again", section=BESIDE, advanced=True)
    """Also for clips that have one of that kind, in place of it. Off: these stay as they are."""


EDGES, TRACKING = "Edges of masks", "Tracking"


class MaskEdges(Settings):
    """How a mask is written from what was painted and tracked."""

    soften: float = field(0.0, title="Soft edge", section=EDGES, unit="pixels", low=0.0, high=200.0)
    """How far the edge of a mask fades out. Gray parts of a mask count in part."""

    invert: bool = field(False, title="Invert", section=EDGES)
    """Mask everything but what was painted."""


class TrackSettings(MaskEdges):
    """What `datasets/<slug>/.track/config.json` holds: masks that are carried through clips from painted frames."""

    clips: tuple[str, ...] = field((), title="Clips", section=CLIPS, lines=3)
    """Ids of the clips; none means all with a painted frame."""

    model: str = field("", title="Model", section=TRACKING, source="mask_models", path=True)
    """A SAM 2 that carries the masks: a known one (facebook/sam2.1-hiera-tiny, 0.16 GB), a folder with one in
    transformers' layout, or a repository of the Hub (OWNER/NAME, OWNER/NAME@REVISION); it is downloaded once. Empty:
    optical flow, without a model."""

    device: DeviceChoice = field("auto", title="Device", section=TRACKING, source="devices", advanced=True)
    """Where the model computes. auto takes the GPU where there is one."""
