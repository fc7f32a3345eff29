"""The contrast of two colours of the house, as a ratio."""
import json
import pathlib
import sys

COLOURS = json.loads((pathlib.Path(__file__).parent.parent / "assets" / "colours.json").read_text())


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


dark, light = sorted(luminance(COLOURS[name]) for name in sys.argv[1:3])
print(f"{(light + 0.05) / (dark + 0.05):.1f}")
