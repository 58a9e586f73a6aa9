# SPDX-License-Identifier: Apache-2.0
"""Drawings of bars and points as complete SVG files, with a background of their own, so that they are readable in light
and dark themes."""

import math
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

# Of series, for light and for dark ground: they differ in lightness, for colour-blind readers.
COLOURS = [
    ("#1f5fa8", "#79b8ff"),
    ("#c2571a", "#ffab70"),
    ("#2c8a4b", "#7ee2a0"),
    ("#7d4cc2", "#c9a6ff"),
    ("#9a7b00", "#f2d35c"),
    ("#0f8b8d", "#5fd6d8"),
    ("#b0305c", "#ff8fb3"),
    ("#6b7280", "#a8b0bb"),
]
STYLE = {"ground": ("#ffffff", "#0d1117"), "text": ("#1f2328", "#e6edf3"), "line": ("#d0d7de", "#30363d")}
FONT, SMALL, GAP, BAR, MARGIN = 12, 11, 10, 15, 16


def style():
    def rules(which):
        fills = [f".{name}{{fill:{pair[which]}}}" for name, pair in STYLE.items() if name != "line"]
        fills += [f".s{n}{{fill:{pair[which]}}}.l{n}{{stroke:{pair[which]}}}" for n, pair in enumerate(COLOURS)]
        # Labels on bars.
        fills.append(f".on{{fill:{STYLE['ground'][which]}}}")
        return "".join(fills) + f".line{{stroke:{STYLE['line'][which]}}}"

    font = f"text{{font-family:sans-serif;font-size:{FONT}px}}.small{{font-size:{SMALL}px}}"
    return f"<style>{font}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}</style>"


def width_of(text, size=FONT):
    """Approximate width of a text."""
    return len(text) * size * 0.58


@dataclass
class Drawing:
    title: str
    width: int = 860
    parts: list = field(default_factory=list)

    def text(self, x, y, text, anchor="start", kind="text"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>')

    def bar(self, x, y, width, series, about, height=BAR):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" class="s{series}">'
            f"<title>{escape(about)}</title></rect>"
        )

    def line(self, x1, y1, x2, y2, kind="line", width=1):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" stroke-width="{width}"/>'
        )

    def point(self, x, y, series, about):
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="s{series}"><title>{escape(about)}</title></circle>'
        )

    def legend(self, names, y):
        """Below y; returns the y below it."""
        x = MARGIN
        for series, name in enumerate(names):
            needed = 18 + width_of(name) + 12
            if x + needed > self.width - MARGIN and x > MARGIN:
                x, y = MARGIN, y + 20
            self.parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" class="s{series}"/>')
            self.text(x + 18, y + 10.5, name)
            x += needed
        return y + 12 + GAP

    def file(self, height):
        ground = f'<rect width="{self.width}" height="{height:.0f}" rx="6" class="ground"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:.0f}" width="{self.width}" '
            f'height="{height:.0f}" role="img" aria-label="{escape(self.title)}">\n{style()}\n{ground}\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def begun(title, names):
    """A drawing with its title and legend, and where it goes on."""
    drawing = Drawing(title)
    drawing.text(MARGIN, MARGIN + FONT, title)
    return drawing, drawing.legend(names, MARGIN + FONT + GAP) if names else MARGIN + FONT + GAP


def steps(most):
    """Round numbers from 0 that reach `most`."""
    size = 1.0
    while most / size > 8:
        for factor in (2, 2.5, 2):
            if most / size > 8:
                size *= factor
    while most / size < 3:
        size /= 2
    return [size * n for n in range(int(most / size) + 1)]


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def frame(drawing, labels, most, unit, y, height):
    """The axis of horizontal bars: where it begins, and how many pixels one is."""
    left = MARGIN + max(width_of(label) for label in labels) + GAP
    scale = (drawing.width - MARGIN - 52 - left) / most
    for step in steps(most):
        x = left + step * scale
        drawing.line(x, y, x, y + height)
        drawing.text(x, y + height + 14, f"{step:,g}", "middle", "text small")
    drawing.text(drawing.width - MARGIN, y + height + 14, unit, "end", "text small")
    return left, scale


def bars(title, names, rows, unit):
    """Rows are (label, one value for each name or None): bars beneath each other, those of a row together."""
    drawing, y = begun(title, names)
    most = max(value for _, values in rows for value in values if value is not None)
    height = sum(sum(value is not None for value in values) * BAR + GAP for _, values in rows)
    left, scale = frame(drawing, [label for label, _ in rows], most, unit, y, height)
    for label, values in rows:
        there = [(series, value) for series, value in enumerate(values) if value is not None]
        drawing.text(left - 6, y + GAP / 2 + len(there) * BAR / 2 + 4, label, "end")
        for place, (series, value) in enumerate(there):
            top = y + GAP / 2 + place * BAR
            drawing.bar(left, top, value * scale, series, f"{label}, {names[series]}: {number(value)} {unit}", BAR - 1)
            drawing.text(left + value * scale + 4, top + BAR - 4, number(value), kind="text small")
        y += len(there) * BAR + GAP
    return drawing.file(y + 14 + MARGIN)


def stacks(title, names, rows, unit):
    """Rows are (label, one value for each name): one bar each, made of pieces."""
    drawing, y = begun(title, names)
    most = max(sum(values) for _, values in rows)
    height = len(rows) * (BAR + 4 + GAP)
    left, scale = frame(drawing, [label for label, _ in rows], most, unit, y, height)
    for label, values in rows:
        x, top = left, y + GAP / 2
        drawing.text(left - 6, top + BAR - 2, label, "end")
        for series, value in enumerate(values):
            if value <= 0:
                continue
            drawing.bar(x, top, value * scale, series, f"{label}, {names[series]}: {number(value)} {unit}", BAR + 4)
            if value * scale > width_of(f"{value:.0f}", SMALL) + 4:
                drawing.text(x + value * scale / 2, top + BAR - 1, f"{value:.0f}", "middle", "on small")
            x += value * scale
        drawing.text(x + 4, top + BAR - 1, number(sum(values)), kind="text small")
        y += BAR + 4 + GAP
    return drawing.file(y + 14 + MARGIN)


def curves(title, names, ticks, series, unit):
    """Series are lists with a value for each tick, or None; the upright axis is logarithmic, in powers of ten."""
    drawing, y = begun(title, names)
    values = [value for each in series for value in each if value]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    decades = max(high - low, 1)
    height, left = 56 * decades, MARGIN + 70
    across = (drawing.width - MARGIN - left - 40) / max(len(ticks) - 1, 1)

    def up(value):
        return y + height - (math.log10(value) - low) * height / decades

    for decade in range(decades + 1):
        place = y + height - decade * height / decades
        drawing.line(left, place, drawing.width - MARGIN, place)
        drawing.text(left - 6, place + 4, f"{10.0 ** (low + decade):,g} {unit}", "end", "text small")
    for place, tick in enumerate(ticks):
        drawing.text(left + 20 + place * across, y + height + 16, tick, "middle", "text small")
    for number_of, each in enumerate(series):
        there = [(left + 20 + place * across, up(value), value) for place, value in enumerate(each) if value]
        for before, after in zip(there, there[1:], strict=False):
            drawing.line(*before[:2], *after[:2], kind=f"l{number_of}", width=2)
        for (x, place, value), tick in zip(there, ticks, strict=False):
            drawing.point(x, place, number_of, f"{names[number_of]}, {tick}: {value:,.1f} {unit}")
    return drawing.file(y + height + 16 + MARGIN)
