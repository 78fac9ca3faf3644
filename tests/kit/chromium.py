"""Finds the distribution's Chromium, for tests, pictures and benches of the inspector."""

import shutil

# Debian's headless shell draws no window: it takes half of the CPU time of Chromium.
NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable",
    "google-chrome",
)
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""A container has neither the sandbox nor a large /dev/shm."""


def chromium_path() -> str | None:
    """The path of the distribution's Chromium, or None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)
