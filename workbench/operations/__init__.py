"""What a face can ask or do, one module a noun; the HTTP API and the shell are made from it (registry)."""
