"""Clips without torch: the records of a dataset, the frames that a model sees, video files.

    records         a dataset's metadata.jsonl: one record per clip
    frame_plan      which frames of a clip, at which rate and crop, a model sees
    buckets         shapes for training clips of different sizes together
    frame_metrics   blur, camera shake, flashes and similarity of frames
    made            control clips, references and masks derived from a clip
    mask_tracking   masks painted on a few frames, tracked through a clip
    video_files     video files: identify, check, open, probe
    media           videos and pictures: read, write, compare

Not here: changing a dataset (dataset_builder), tensors (trainer.encoder).
"""
