"""Just enough SVG for our charts: text, lines and boxes at whole pixels, always written the same."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FONT = "font-family='sans-serif' font-size='12'"


class Canvas:
    """A picture of a fixed size on white. Coordinates are pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
            f"viewBox='0 0 {width} {height}' role='img' {FONT}>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
        ]

    def text(self, x: int, y: int, words: str, anchor: str = "start", bold: bool = False) -> None:
        """`anchor`: which end of the words stands at x (start, middle, end)."""
        weight = " font-weight='bold'" if bold else ""
        self._parts.append(f"<text x='{x}' y='{y}' text-anchor='{anchor}'{weight}>{escape(words)}</text>")

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: str = "#cccccc") -> None:
        (x1, y1), (x2, y2) = start, end
        self._parts.append(f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{colour}'/>")

    def path(self, points: Sequence[tuple[int, int]], colour: str, dashed: bool = False) -> None:
        """A broken line through all points."""
        dashes = " stroke-dasharray='6 4'" if dashed else ""
        where = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f"<polyline points='{where}' fill='none' stroke='{colour}' stroke-width='2'{dashes}/>")

    def box(self, corner: tuple[int, int], size: tuple[int, int], colour: str, words: str) -> None:
        """A filled box; `words` show when somebody points at it."""
        (x, y), (width, height) = corner, size
        hint = f"<title>{escape(words)}</title>"
        self._parts.append(f"<rect x='{x}' y='{y}' width='{width}' height='{height}' fill='{colour}'>{hint}</rect>")

    def written(self) -> str:
        """The whole picture."""
        return "\n".join((*self._parts, "</svg>", ""))
