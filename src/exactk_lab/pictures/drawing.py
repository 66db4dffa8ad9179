"""What every picture is drawn with: colours for light and dark pages, and a canvas that writes SVG.

Knows no picture. Text is in the reader's own font, so widths are estimates: leave room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


@dataclass(frozen=True)
class Colours:
    """Of one theme; named for what they are for."""

    ink: str
    muted: str
    line: str
    surface: str
    soft: str
    accent: str
    good: str
    bad: str
    kinds: tuple[str, ...]


LIGHT = Colours(
    ink="#1f2937",
    muted="#64748b",
    line="#cbd5e1",
    surface="#ffffff",
    soft="#eef2f7",
    accent="#2b6cb0",
    good="#15803d",
    bad="#b91c1c",
    kinds=("#b45309", "#0f766e", "#6d28d9", "#be185d", "#475569", "#4d7c0f"),
)
DARK = Colours(
    ink="#e5e7eb",
    muted="#94a3b8",
    line="#475569",
    surface="#1e293b",
    soft="#27313f",
    accent="#7cb7ff",
    good="#4ade80",
    bad="#f87171",
    kinds=("#fbbf24", "#5eead4", "#c4b5fd", "#f9a8d4", "#cbd5e1", "#bef264"),
)
THEMES = {"light": LIGHT, "dark": DARK}


@dataclass
class Canvas:
    """Elements of one picture, in the order they are drawn; `svg()` is the file."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)

    def add(self, name: str, **attributes: object) -> None:
        """An element; underscores in names of attributes are dashes, None leaves one out."""
        written = " ".join(
            f'{key.rstrip("_").replace("_", "-")}="{_plain(value)}"'
            for key, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{name} {written}/>")

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        stroke: str | None = None,
        radius: float = 8,
        stroke_width: float = 1.5,
        opacity: float | None = None,
    ) -> None:
        self.add(
            "rect",
            x=x,
            y=y,
            width=width,
            height=height,
            rx=radius,
            fill=fill,
            stroke=stroke,
            stroke_width=stroke_width if stroke else None,
            opacity=opacity,
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        stroke: str,
        width: float = 1.5,
        dash: str | None = None,
        opacity: float | None = None,
    ) -> None:
        self.add(
            "line",
            x1=x1,
            y1=y1,
            x2=x2,
            y2=y2,
            stroke=stroke,
            stroke_width=width,
            stroke_dasharray=dash,
            opacity=opacity,
            stroke_linecap="round",
        )

    def circle(
        self, x: float, y: float, r: float, fill: str, stroke: str | None = None, width: float = 1.5
    ) -> None:
        self.add("circle", cx=x, cy=y, r=r, fill=fill, stroke=stroke, stroke_width=width if stroke else None)

    def path(
        self, d: str, stroke: str, width: float = 2, fill: str = "none", opacity: float | None = None
    ) -> None:
        self.add(
            "path",
            d=d,
            stroke=stroke,
            stroke_width=width,
            fill=fill,
            opacity=opacity,
            stroke_linejoin="round",
            stroke_linecap="round",
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        fill: str,
        size: float = 13,
        weight: int | None = None,
        anchor: str = "start",
        mono: bool = False,
    ) -> None:
        held = f' font-weight="{weight}"' if weight else ""
        font = f' font-family="{MONO}"' if mono else ""
        space = ' xml:space="preserve"' if mono else ""
        self.parts.append(
            f'<text x="{_plain(x)}" y="{_plain(y)}" fill="{fill}" font-size="{_plain(size)}" '
            f'text-anchor="{anchor}"{held}{font}{space}>{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, stroke: str) -> None:
        """To the right or down, with a head."""
        self.line(x1, y1, x2, y2, stroke)
        if abs(x2 - x1) >= abs(y2 - y1):
            self.path(
                f"M{_plain(x2 - 6)} {_plain(y2 - 4)} L{_plain(x2)} {_plain(y2)} L{_plain(x2 - 6)} {_plain(y2 + 4)}",
                stroke,
                1.5,
            )
        else:
            self.path(
                f"M{_plain(x2 - 4)} {_plain(y2 - 6)} L{_plain(x2)} {_plain(y2)} L{_plain(x2 + 4)} {_plain(y2 - 6)}",
                stroke,
                1.5,
            )

    def svg(self) -> str:
        """The whole file."""
        width, height = _plain(self.width), _plain(self.height)
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{FONT}">'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", *self.parts, "</svg>", ""])


def _plain(value: object) -> str:
    """12.0 is 12, 1/3 is 0.33: short files that change only where the picture does."""
    return f"{round(value, 2):g}" if isinstance(value, float) else escape(str(value))
