"""All models of the gate."""

from __future__ import annotations

from tools.zoo.language_and_sound_models import LANGUAGE_AND_SOUND_MODELS
from tools.zoo.model import ZooModel
from tools.zoo.vision_models import VISION_MODELS

MODELS: tuple[ZooModel, ...] = (*VISION_MODELS, *LANGUAGE_AND_SOUND_MODELS)
