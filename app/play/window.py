"""Window: show frames on the screen, in real time."""

import time
from typing import Any

import numpy as np
from PIL import Image

from datamodules.core.errors import ConfigurationError

TITLE = "Leyden: close this window to stop"


class Window:
    """Window of tkinter, which comes with Python; closing it ends the program.

    Raises: ConfigurationError without a screen, and without tkinter.
    """

    def __init__(self, fps: int):
        try:
            import tkinter

            from PIL import ImageTk

            self.root = tkinter.Tk()
        except Exception as error:  # TclError, whose class is tkinter's own, or ImportError
            raise ConfigurationError(
                f"A window cannot be opened ({error}): write a video instead, with --video out.mp4 or out.gif."
            ) from error
        self.root.title(TITLE)
        self.root.protocol("WM_DELETE_WINDOW", self._stop)
        self.picture_of, self.seconds, self.due = ImageTk.PhotoImage, 1 / fps, time.monotonic()
        self.label = tkinter.Label(self.root)
        self.label.pack()
        self.picture: Any = None
        self.stopped = False

    def _stop(self) -> None:
        self.stopped = True

    def add(self, frame: np.ndarray[Any, Any]) -> None:
        """Show a frame until the next one is due.

        Raises: SystemExit once the window was closed.
        """
        self.picture = self.picture_of(Image.fromarray(frame), master=self.root)
        self.label.configure(image=self.picture)
        self.due = max(self.due + self.seconds, time.monotonic())
        while True:
            self.root.update()
            if self.stopped:
                raise SystemExit(0)
            if (left := self.due - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.02))

    def close(self) -> None:
        """Close the window."""
        self.root.destroy()
