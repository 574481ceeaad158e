"""Serving the page: login, request limits, allowed files, sessions of the public demo."""
