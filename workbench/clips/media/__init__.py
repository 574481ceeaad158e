"""Video files: look at them, read their frames, write them."""

from workbench.clips.media.gifs import stills, write_gif, write_png
from workbench.clips.media.kinds import (
    ENDINGS,
    OBSOLETE_SUFFIXES,
    OTHER_IMAGE_SUFFIXES,
    SUFFIXES,
    check_file,
    is_picture,
)
from workbench.clips.media.opening import (
    HDR_TRANSFERS,
    FrameTimes,
    VideoFacts,
    has_own_metadata,
    orientation,
    probe,
    read_comment,
    read_times,
)
from workbench.clips.media.reading import (
    Pixels,
    decode,
    difference,
    first_frame_png,
    raw_frames,
    read_frames,
    read_own_clip,
    thumbnail,
    write_poster,
    write_thumbnail,
)
from workbench.clips.media.writing import VideoWriter, bt709_frame, encode, filter_graph, without_comment

__all__ = [
    "ENDINGS",
    "OBSOLETE_SUFFIXES",
    "OTHER_IMAGE_SUFFIXES",
    "HDR_TRANSFERS",
    "SUFFIXES",
    "Pixels",
    "VideoFacts",
    "FrameTimes",
    "VideoWriter",
    "bt709_frame",
    "check_file",
    "decode",
    "difference",
    "encode",
    "filter_graph",
    "first_frame_png",
    "is_picture",
    "orientation",
    "probe",
    "raw_frames",
    "has_own_metadata",
    "read_comment",
    "read_frames",
    "read_own_clip",
    "read_times",
    "stills",
    "thumbnail",
    "without_comment",
    "write_gif",
    "write_png",
    "write_poster",
    "write_thumbnail",
]
