"""Draw the pictures of lines.jsonl: `python render.py` (needs Pillow 13; the pictures are kept beside this file).

Lines as an office scans them, in black on paper white; each is 320 x 48 pixels, as the profile says.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).parent
WIDTH, HEIGHT = 320, 48
COUNT = 40


def texts() -> list[str]:
    chance = random.Random(20240603)  # noqa: S311 - for variety, not for secrets
    kinds = (
        lambda: f"Invoice 2026-{chance.randint(100, 999)}",
        lambda: f"{chance.randint(10, 9999)}.{chance.randint(10, 99)} EUR",
        lambda: f"Order {chance.choice('ABDEFHKMNRTX')}{chance.choice('ABDEFHKMNRTX')}{chance.randint(1000, 9999)}",
        lambda: f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
        lambda: f"{chance.randint(2, 980)} kg {chance.choice(('net', 'gross'))}",
        lambda: chance.choice(
            ("Goods received in full", "Paid by bank transfer", "Handle with care", "Total amount due")
        ),
    )
    return [kinds[k % len(kinds)]() for k in range(COUNT)]


def main() -> None:
    font = ImageFont.load_default(size=28)
    rows = []
    for number, text in enumerate(texts(), 1):
        picture = Image.new("L", (WIDTH, HEIGHT), 245)
        draw = ImageDraw.Draw(picture)
        box = draw.textbbox((0, 0), text, font=font)
        draw.text((8, (HEIGHT - box[3] - box[1]) / 2), text, font=font, fill=20)
        name = f"lines/{number:02}.png"
        picture.save(HERE / name, optimize=True)
        rows.append(json.dumps({"image": name, "check": "exact", "answer": text}))
    (HERE / "lines.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
