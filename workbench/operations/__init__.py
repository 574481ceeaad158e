"""What a face can ask or do, noun by noun; the HTTP API and the shell are made from it (registry)."""
