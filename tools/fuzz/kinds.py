"""The kinds of files that onnxq reads."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """A kind, and how many of a hundred inputs are of it."""

    MODELS = ("models", 58.0)
    DATA = ("data", 9.0)
    IMAGES = ("images", 3.0)
    PLANS = ("plans", 7.0)
    QPARAMS = ("qparams", 6.0)
    STATISTICS = ("statistics", 5.0)
    SETTINGS = ("settings", 5.0)
    DIALECTS = ("dialects", 4.0)
    FOLDERS = ("folders", 2.0)
    CACHES = ("caches", 0.7)
    CHECKPOINTS = ("checkpoints", 0.3)

    def __init__(self, label: str, share: float) -> None:
        self.label = label
        self.share = share

    @property
    def may_name_code(self) -> bool:
        """Configurations are a user's own words, which may name a backend file or a function; data never does."""
        return self in (Kind.SETTINGS, Kind.DIALECTS)
