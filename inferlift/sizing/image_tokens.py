"""How many tokens an image becomes in a vision-language model, and what its encoder has to compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.errors import DeclarationError


@dataclass(frozen=True)
class ImageTokens:
    tokens: int  # that the language model reads
    patches: int  # that the vision encoder works on
    in_context: bool  # False: read by cross-attention, takes no place in the text's context and its KV cache
    family: str
    source: str


def image_tokens(width: int, height: int, family: str) -> ImageTokens:
    """Of one image of that size in pixels, as the family's own image processor counts.

    Raises DeclarationError for an unknown family, a size below 1 pixel, or an aspect ratio the family refuses (200).
    """
    told = _families().get(family)
    if told is None:
        raise DeclarationError(
            f"no rule for the image tokens of {family!r}",
            why=f"known families: {', '.join(image_families())}",
            next_command="count the tokens of one image with the model's own processor and add them to input_tokens_*",
        )
    if width < 1 or height < 1:
        raise DeclarationError(f"an image of {width} x {height} pixels", why="both sides must be at least 1 pixel")
    tokens, patches = _RULES[told["kind"]](width, height, told)
    return ImageTokens(tokens, patches, not told.get("cross", False), family, told["source"])


def image_families() -> tuple[str, ...]:
    return tuple(_families())


def family_of(model_name: str) -> str | None:
    """The family that a model's name says, "Qwen2.5-VL-7B" or "llama-3.2-11b-vision"; None: none is recognised."""
    name = model_name.lower().replace("_", "-")
    for family, marks in _MARKS.items():
        if all(mark in name for mark in marks):
            return family
    return None


def encoder_flops(vision_parameters: int, patches: int) -> float:
    """FLOP of the vision encoder for one image: 2 a parameter and patch; attention (some per cent) is left out."""
    return 2.0 * vision_parameters * patches


_MARKS = {
    "qwen3-vl": ("qwen3", "vl"),
    "qwen2-vl": ("qwen2", "vl"),  # Qwen2-VL and Qwen2.5-VL share the processor
    "llava-next": ("llava", "next"),
    "llava-1.5": ("llava", "1.5"),
    "pixtral": ("pixtral",),
    "gemma-3": ("gemma-3",),
    "internvl": ("internvl",),
    "llama-3.2-vision": ("llama", "3.2", "vision"),
}


def _grid(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    """Both sides rounded to the unit; scaled where the image has too many or too few units. Python's own rounding."""
    if max(width, height) / min(width, height) > 200:
        raise DeclarationError(f"an image of {width} x {height} pixels", why="the aspect ratio exceeds 200")
    unit = int(told["unit"])
    rows, columns = max(1, round(height / unit)), max(1, round(width / unit))
    most, least = int(told["max_tokens"]), int(told["min_tokens"])
    if rows * columns > most:
        shrink = math.sqrt(height * width / (most * unit * unit))
        rows, columns = math.floor(height / shrink / unit), math.floor(width / shrink / unit)
    elif rows * columns < least:
        grow = math.sqrt(least * unit * unit / (height * width))
        rows, columns = math.ceil(height * grow / unit), math.ceil(width * grow / unit)
    tokens = max(1, rows) * max(1, columns)
    return tokens, tokens * int(told["patches_per_token"])


def _rows(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    """One token a patch, and one at the end of each row."""
    unit, ratio = int(told["unit"]), max(width, height) / int(told["longest"])
    if ratio > 1:
        width, height = max(round(width / ratio), 1), max(round(height / ratio), 1)
    columns, rows = (width - 1) // unit + 1, (height - 1) // unit + 1
    return (columns + 1) * rows, columns * rows * int(told["patches_per_token"])


def _fixed(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    return int(told["tokens"]), int(told["patches"])


def _anyres(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    """The grid of tiles that keeps most pixels, its padding cut off, a newline a row, and the whole image small."""
    tile, side = int(told["tile"]), int(told["tile"]) // int(told["patch"])

    def kept(grid: list[int]) -> tuple[int, int]:
        scale = min(grid[1] * tile / width, grid[0] * tile / height)
        used = min(int(width * scale) * int(height * scale), width * height)
        return used, -(grid[0] * grid[1] * tile * tile - used)  # most pixels of the image, then least waste

    grid = max(told["grids"], key=kept)
    rows, columns = side * grid[0], side * grid[1]
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    patches = (grid[0] * grid[1] + 1) * (side * side + 1)
    return rows * columns + rows + side * side, patches


def _tiles(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    """The grid of tiles whose aspect ratio is closest; of equal ones the larger while the image fills half of it."""
    most, tile = int(told["max_tiles"]), int(told["tile"])
    best, distance = (1, 1), math.inf
    for grid in sorted(_arrangements(most), key=lambda g: (g[0] * g[1], g)):
        off = abs(width / height - grid[0] / grid[1])
        if off < distance:
            best, distance = grid, off
        elif off == distance and width * height > 0.5 * tile * tile * grid[0] * grid[1]:
            best = grid
    count = best[0] * best[1]
    count += 1 if count > 1 and told.get("thumbnail") else 0
    return count * int(told["tokens_per_tile"]), count * int(told["patches_per_tile"])


def _canvas(width: int, height: int, told: dict[str, Any]) -> tuple[int, int]:
    """The canvas of tiles that enlarges the image least, or else shrinks it least; the smallest of equal ones."""
    tile = int(told["tile"])
    scales = {
        grid: min(grid[0] * tile / width, grid[1] * tile / height) for grid in _arrangements(int(told["max_tiles"]))
    }
    enlarging = [scale for scale in scales.values() if scale >= 1]
    chosen = min(enlarging) if enlarging else max(scales.values())
    count = min(grid[0] * grid[1] for grid, scale in scales.items() if scale == chosen)
    return count * int(told["tokens_per_tile"]), count * int(told["patches_per_tile"])


def _arrangements(most: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most]


_RULES = {"grid": _grid, "rows": _rows, "fixed": _fixed, "anyres": _anyres, "tiles": _tiles, "canvas": _canvas}


@cache
def _families() -> dict[str, dict[str, Any]]:
    told: dict[str, dict[str, Any]] = yaml.safe_load(
        Path(__file__).with_name("image_tokens.yaml").read_text(encoding="utf-8")
    )
    return told
