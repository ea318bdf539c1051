"""A plot as SVG: lines over two logarithmic axes, each with its points and its name. By hand: a library would be the largest thing here."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 420, 70, 50, 40, 190
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#555555")
Points = Sequence[tuple[float, float]]


def plot(title: str, x_name: str, y_name: str, lines: Mapping[str, Points]) -> str:
    """The SVG of `lines`; every x and y is above zero."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x_low, x_high = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    y_low, y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / max(1, x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = (math.log10(y) - y_low) / max(1, y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return LEFT + across, HEIGHT - BOTTOM - up

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><text x="{LEFT}" y="22" font-size="15">{title}</text>',
    ]
    for power in range(x_low, x_high + 1):
        x, base = place(10.0**power, 10.0**y_low)
        out.append(f'<path d="M{x:.1f} {TOP}V{base:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{base + 16:.1f}" text-anchor="middle">{10.0**power:,g}</text>')
    for power in range(y_low, y_high + 1):
        x, y = place(10.0**x_low, 10.0**power)
        out.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{x_name}</text>')
    out.append(f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{y_name}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(x, y) for x, y in points]
        path = " ".join(f"{'ML'[at > 0]}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(placed))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 14 + 18 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])
