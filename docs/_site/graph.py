"""The import graph of docs/architecture.md as an SVG: Mermaid's script would have to be fetched."""

import re

_WIDTH, _ROW, _BOX = 760, 74, (104, 30)


def graph_svg(mermaid: str) -> str:
    """Return a Mermaid graph of edges `a --> b` as an SVG, each node below all that point to it."""
    edges = re.findall(r"(\w+) --> (\w+)", mermaid)
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    depth = dict.fromkeys(names, 0)
    for _ in names:  # a longest path has no more edges than nodes
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    place: dict[str, tuple[float, float]] = {}
    for level in range(max(depth.values()) + 1):
        row = [name for name in names if depth[name] == level]
        parents = {n: [place[a][0] for a, b in edges if b == n and a in place] for n in row}
        row.sort(key=lambda n: sum(parents[n]) / len(parents[n]) if parents[n] else 0)
        for i, name in enumerate(row):
            place[name] = (_WIDTH * (i + 0.5) / len(row), 24 + _ROW * level)
    width, height = _BOX
    lines = [_line(*place[a], *place[b], height) for a, b in edges]
    boxes = [
        f'<rect x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" height="{height}" '
        f'rx="5" fill="var(--md-code-bg-color)" stroke="currentColor"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="currentColor">{name}</text>'
        for name, (x, y) in place.items()
    ]
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="currentColor"/></marker></defs>'
    )
    bottom = 24 + _ROW * max(depth.values()) + height
    return (
        f'<svg viewBox="0 0 {_WIDTH} {bottom}" role="img" aria-label="Import graph" font-size="14" '
        f'style="max-width: 100%; height: auto">{marker}{"".join([*lines, *boxes])}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, height: int) -> str:
    return (
        f'<line x1="{x1:.0f}" y1="{y1 + height / 2:.0f}" x2="{x2:.0f}" y2="{y2 - height / 2:.0f}" '
        'stroke="currentColor" stroke-opacity="0.55" marker-end="url(#arrow)"/>'
    )
