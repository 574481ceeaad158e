"""The notebook panels' workspace, for their tests."""

from tests.studio import studio  # noqa: F401 - a fixture
