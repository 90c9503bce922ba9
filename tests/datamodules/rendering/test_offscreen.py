"""Environments render without a screen."""

import os
import sys

import pytest

from datamodules.rendering.offscreen import DRIVERS, render_offscreen


@pytest.mark.skipif(sys.platform != "linux", reason="the drivers are those of Linux")
@pytest.mark.parametrize(
    ("display", "before", "after"), [("", None, "egl"), ("", "osmesa", "osmesa"), (":0", None, None)]
)
def test_drivers_without_a_window_are_chosen_only_without_a_display(
    monkeypatch: pytest.MonkeyPatch, display: str, before: str | None, after: str | None
) -> None:
    for name in (*DRIVERS, "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    if before is not None:
        monkeypatch.setenv("MUJOCO_GL", before)
    monkeypatch.setattr(os, "environ", os.environ.copy())

    render_offscreen()

    assert os.environ.get("MUJOCO_GL") == after
