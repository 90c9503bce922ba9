"""render_offscreen: let environments render on a machine without a screen."""

import os
import sys

DRIVERS = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
"""Environment variables of MuJoCo and of SDL (pygame), with the drivers that open no window."""


def render_offscreen() -> None:
    """Choose drivers that open no window, on Linux without a display; variables that are set are kept."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        for name, value in DRIVERS.items():
            os.environ.setdefault(name, value)
