"""The settings of an export, one declaration each."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

TARGET, CAPTIONS, HUB = "Where to", "What", "Hugging Face Hub"
LayoutName = Literal["videofolder", "csv", "sidecars", "lists", "labels", "webdataset"]


class ExportSettings(Settings):
    """What `datasets/<slug>/.export/config.json` holds. One of `target` and `repo_id` is set."""

    layout: LayoutName = field("videofolder", title="Layout", section=CAPTIONS)
    """How videos and captions are laid out: videofolder has a metadata.jsonl and a .txt beside each video, which
    the Hub, musubi-tuner, ai-toolkit and finetrainers read; csv is read by the Hub, sidecars by kohya's scripts and
    diffusion-pipe, lists by the trainers of the diffusers examples, labels by SAT trainers, webdataset
    by readers of tar shards."""

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
