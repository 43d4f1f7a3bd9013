"""Frames of recorded speech, with the state that the float model has when it hears them.

The recordings come in the Debian package `pocketsphinx-testdata`: `apt-get download`, then `dpkg -x FILE FOLDER`. A
detector of speech carries a state from frame to frame; a feed holds the frame and the state, so that one run says what
quantization does to one step.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from onnxq.runtime.session import make_session
from tools.bench.samples import Feed

FOLDER = "usr/share/pocketsphinx/test/data"
PACKAGE = "pocketsphinx-testdata"
FRAME, CONTEXT = 512, 64
"""Samples of a frame at 16 kHz, and those before it that the model sees again."""
STATE = (2, 1, 128)
PAUSE = 8000
"""Samples of near silence between recordings: without them almost every frame is speech."""


def speech_feeds(model: Path, recordings: list[Path], count: int) -> list[Feed]:
    """`count` frames spread over all recordings."""
    feeds = list(_frames(model, np.concatenate([_heard(path) for path in recordings])))
    chosen = np.linspace(0, len(feeds) - 1, count).astype(int)
    return [feeds[index] for index in chosen]


def _heard(recording: Path) -> np.ndarray:
    """Float32 in [-1, 1], with faint noise after it."""
    with wave.open(str(recording)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (16000, 1, 2):
            raise ValueError(f"{recording.name}: 16 kHz, one channel and 16 bits are expected")
        values = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16) / 32768
    noise = np.random.default_rng(len(values)).normal(0, 1e-3, PAUSE)
    return np.concatenate([values, noise]).astype(np.float32)


def _frames(model: Path, sound: np.ndarray) -> list[Feed]:
    session = make_session(model, threads=1)
    padded = np.concatenate([np.zeros(CONTEXT, dtype=np.float32), sound])
    state = np.zeros(STATE, dtype=np.float32)
    feeds: list[Feed] = []
    for start in range(0, len(sound) - FRAME + 1, FRAME):
        feed = {"input": padded[None, start : start + CONTEXT + FRAME], "state": state}
        feeds.append(feed)
        state = session.run(None, feed)[1]
    return feeds
