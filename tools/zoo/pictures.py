"""Pictures that real models see in use: crops of photographs, faces, pages, lines of text, tables, captchas.

Photographs come inside packages (scikit-image, matplotlib, insightface); text is drawn with the font that Pillow
brings, from the words of the licence that lies in this repository. A picture is uint8 [height, width, 3], RGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from tools.zoo.packages import Cache, PackagedFile, pypi

SCIKIT_IMAGE, MATPLOTLIB = pypi("scikit-image==0.26.0"), pypi("matplotlib==3.11.2")
INSIGHTFACE = pypi("insightface==1.0.1")
PORTRAITS = (
    PackagedFile(SCIKIT_IMAGE, "skimage/data/astronaut.png"),
    PackagedFile(MATPLOTLIB, "matplotlib/mpl-data/sample_data/grace_hopper.jpg"),
    PackagedFile(INSIGHTFACE, "insightface/data/images/t1.jpg"),
)
"""Photographs of people; the last one shows six."""
SCENES = tuple(
    PackagedFile(SCIKIT_IMAGE, f"skimage/data/{name}")
    for name in ("chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "astronaut.png", "ihc.png")
) + (PackagedFile(INSIGHTFACE, "insightface/data/images/t1.jpg"),)
FACES = ((0, (172, 62, 276, 194)), (1, (150, 70, 380, 330)), (2, (95, 190, 185, 290)), (2, (260, 150, 340, 260)))
"""Index in PORTRAITS and about where the face is: left, top, right, bottom."""

LICENCE = Path(__file__).parents[2] / "LICENSE"


def words() -> list[str]:
    return [word for word in LICENCE.read_text(encoding="utf-8").split() if word.isascii()]


def phrase(random: np.random.Generator, count: int) -> str:
    """`count` words as they follow each other in the licence."""
    known = words()
    start = int(random.integers(0, len(known) - count))
    return " ".join(known[start : start + count])


def opened(cache: Cache, files: Sequence[PackagedFile]) -> list[Image.Image]:
    return [Image.open(cache.file(file)).convert("RGB") for file in files]


def changed(image: Image.Image, random: np.random.Generator) -> Image.Image:
    """Mirrored or not, lighter or darker, with more or less contrast."""
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = ImageEnhance.Brightness(image).enhance(float(random.uniform(0.7, 1.3)))
    return ImageEnhance.Contrast(image).enhance(float(random.uniform(0.8, 1.2)))


def crop(image: Image.Image, random: np.random.Generator, size: tuple[int, int], least: float = 0.6) -> np.ndarray:
    """A part of at least `least` of the picture's sides, scaled to (width, height)."""
    share = float(random.uniform(least, 1.0))
    width, height = int(image.width * share), int(image.height * share)
    left = int(random.integers(0, image.width - width + 1))
    top = int(random.integers(0, image.height - height + 1))
    part = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(changed(part, random))


def square(image: Image.Image, random: np.random.Generator, size: int) -> np.ndarray:
    """A crop with the picture's own proportions, black beside it: how detectors are fed."""
    share = float(random.uniform(0.6, 1.0))
    side = max(image.width, image.height)
    scale = size / side
    part = image.crop((0, 0, image.width, image.height)).resize(
        (max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.BILINEAR
    )
    whole = Image.new("RGB", (size, size))
    whole.paste(changed(part, random), (0, 0))
    width = int(size * share)
    left = int(random.integers(0, max(1, part.width - width + 1)))
    top = int(random.integers(0, max(1, part.height - width + 1)))
    return np.asarray(whole.crop((left, top, left + width, top + width)).resize((size, size)))


def face(portraits: Sequence[Image.Image], random: np.random.Generator, size: int) -> np.ndarray:
    """A face, a little beside its place, or now and then some other part of a photograph."""
    index, (left, top, right, bottom) = FACES[int(random.integers(0, len(FACES)))]
    image = portraits[index]
    side = max(right - left, bottom - top) * float(random.uniform(0.9, 1.5))
    if random.random() < 0.3:
        x, y = random.uniform(0, image.width - side), random.uniform(0, image.height - side)
    else:
        x = (left + right - side) / 2 + random.normal(0, 0.08) * side
        y = (top + bottom - side) / 2 + random.normal(0, 0.08) * side
    part = image.crop((round(x), round(y), round(x + side), round(y + side)))
    return np.asarray(changed(part.resize((size, size), Image.Resampling.BILINEAR), random))


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def text_line(random: np.random.Generator, width: int, height: int, text: str | None = None) -> np.ndarray:
    """One line of dark text on light paper, blurred and noisy as a camera sees it."""
    paper, ink = int(random.integers(190, 256)), int(random.integers(0, 90))
    image = Image.new("RGB", (width, height), (paper, paper, paper - int(random.integers(0, 20))))
    size = int(random.integers(height * 5 // 10, height * 8 // 10))
    text = text or phrase(random, 4)
    ImageDraw.Draw(image).text((int(random.integers(2, 10)), (height - size) // 2 - 1), text, (ink,) * 3, font(size))
    image = image.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 0.9))))
    return noisy(image, random)


def noisy(image: Image.Image, random: np.random.Generator, deviation: float = 4.0) -> np.ndarray:
    values = np.asarray(image) + random.normal(0, deviation, (image.height, image.width, 1))
    return np.clip(values, 0, 255).astype(np.uint8)


def page(random: np.random.Generator, width: int, height: int, photograph: Image.Image | None = None) -> np.ndarray:
    """A heading, paragraphs, and perhaps a photograph between them."""
    image = Image.new("RGB", (width, height), (int(random.integers(225, 256)),) * 3)
    draw = ImageDraw.Draw(image)
    margin, body = width // 16, max(9, int(width * float(random.uniform(0.022, 0.034))))
    draw.text((margin, margin), phrase(random, 4).title(), (10, 10, 10), font(2 * body))
    top = margin + 4 * body
    picture_at = int(random.integers(1, 4)) if photograph is not None else -1
    for block in range(6):
        if block == picture_at and photograph is not None:
            side = width // 3
            image.paste(photograph.resize((side, side)), (int(random.integers(margin, width - side - margin)), top))
            top += side + body
        for _ in range(int(random.integers(2, 5))):
            if top + body > height - margin:
                break
            line = phrase(random, 14)
            while draw.textlength(line, font(body)) > width - 2 * margin:
                line = line.rsplit(" ", 1)[0]
            draw.text((margin, top), line, (20, 20, 20), font(body))
            top += int(1.5 * body)
        top += body
    return noisy(image, random, 2.0)


def table(random: np.random.Generator, size: int) -> np.ndarray:
    """Ruled cells with words and numbers in them."""
    image = Image.new("RGB", (size, size), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    rows, columns = int(random.integers(3, 7)), int(random.integers(2, 5))
    height, width = size * 3 // 4 // rows, (size - 20) // columns
    for row in range(rows):
        for column in range(columns):
            left, top = 10 + column * width, 10 + row * height
            draw.rectangle((left, top, left + width, top + height), outline=(60, 60, 60))
            text = phrase(random, 1) if row == 0 or column == 0 else f"{random.normal(20, 30):.1f}"
            draw.text((left + 6, top + height // 3), text[:10], (20, 20, 20), font(max(10, height // 4)))
    return noisy(image, random, 2.0)


def captcha(background: Image.Image, random: np.random.Generator, size: int) -> np.ndarray:
    """Single letters, turned, on a photograph: what is clicked on."""
    image = Image.fromarray(crop(background, random, (size, size)))
    for column in range(4):
        letter = str(random.choice(list("ABCDEFGHKLMNPRSTUVWXYZ23456789")))
        side = int(random.integers(size // 8, size // 6))
        tile = Image.new("RGBA", (side, side))
        colour = tuple(int(value) for value in random.integers(0, 256, 3))
        ImageDraw.Draw(tile).text((side // 6, 0), letter, colour, font(int(side * 0.8)))
        tile = tile.rotate(float(random.uniform(-40, 40)), resample=Image.Resampling.BILINEAR)
        place = (column * size // 4 + int(random.integers(0, size // 16)), int(random.integers(0, size - side)))
        image.paste(tile, place, tile)
    return np.asarray(image)
