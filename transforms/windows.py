"""Windows by name: one window, one release, one family of noise."""

from typing import Any

from apache_beam.transforms.window import GlobalWindow, IntervalWindow

__all__ = ["window_name"]


def window_name(window: Any) -> bytes:
    """The bytes that stand for a window in key derivation."""
    if isinstance(window, GlobalWindow):
        return b"global"
    if isinstance(window, IntervalWindow):
        return f"{window.start.micros}:{window.end.micros}".encode()
    raise TypeError(f"windows must be global, fixed or sliding, got {type(window).__name__}.")
