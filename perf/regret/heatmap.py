"""The picture: a field for each collective and number of ranks, a row per link, a column per size,
a colour per regret."""
from xml.sax.saxutils import escape

from score import DEFAULT, best_of, complete, regret_of, tried_times_of, what_of

BOX, HEIGHT = 46, 18
LABEL, HEAD, GAP = 84, 40, 26
# Up to this regret: this colour.
COLOURS = ((0.03, "#e8f5e9"), (0.15, "#c5e1a5"), (0.35, "#fff59d"), (1.0, "#ffb74d"),
           (3.0, "#e57373"), (float("inf"), "#b71c1c"))
LEFT_OUT = "#e0e0e0"


def size_name(size):
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def colour_of(regret):
    return next(colour for limit, colour in COLOURS if regret <= limit)


def in_order(values):
    return list(dict.fromkeys(values))


def text(x, y, words, size=10, anchor="start"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">'
            f'{escape(words)}</text>')


def box(x, y, cell):
    """A cell; a pointer over it shows what was best."""
    if "left_out" in cell:
        fill, words, title = LEFT_OUT, "", cell["left_out"]
    else:
        regret, best, times = regret_of(cell), best_of(cell), tried_times_of(cell)
        fill, words = colour_of(regret), f"{regret * 100:.0f}"
        title = (f"{cell['chosen']} by default {times[DEFAULT]:.1f} us, "
                 f"best {best} {times[best]:.1f} us")
    return (f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{BOX}" '
            f'height="{HEIGHT}" fill="{fill}" stroke="#ffffff"/>'
            f'{text(x + BOX / 2, y + 13, words, anchor="middle")}</g>')


def field(x, y, head, cells, links, sizes):
    lines = [text(x, y + 12, head, 12)]
    for column, size in enumerate(sizes):
        lines.append(text(x + LABEL + (column + 0.5) * BOX, y + HEAD - 8, size_name(size),
                          anchor="middle"))
    for row, link in enumerate(links):
        lines.append(text(x, y + HEAD + row * HEIGHT + 13, link))
    for cell in cells:
        lines.append(box(x + LABEL + sizes.index(cell["bytes"]) * BOX,
                         y + HEAD + links.index(cell["link"]) * HEIGHT, cell))
    return lines


def legend(x, y):
    lines, before = [text(x, y + 13, "regret, %")], 0
    for number, (limit, colour) in enumerate(COLOURS):
        at = x + LABEL + number * 2 * BOX
        words = f"to {limit * 100:g}" if limit < 1e9 else f"over {before * 100:g}"
        lines.append(f'<rect x="{at}" y="{y}" width="{BOX}" height="{HEIGHT}" fill="{colour}"/>')
        lines.append(text(at + BOX + 4, y + 13, words))
        before = limit
    lines.append(text(x + LABEL + len(COLOURS) * 2 * BOX, y + 13, "grey: left out"))
    return lines


def heat_map(cells, head):
    """An SVG document."""
    whats = in_order(map(what_of, cells))
    ranks = sorted({cell["ranks"] for cell in cells})
    links = in_order(cell["link"] for cell in cells)
    sizes = sorted({cell["bytes"] for cell in cells})
    width = LABEL + len(sizes) * BOX + GAP
    height = HEAD + len(links) * HEIGHT + GAP
    lines = [text(10, 20, head, 14), *legend(10, 30)]
    for row, what in enumerate(whats):
        for column, number in enumerate(ranks):
            own = [cell for cell in cells if what_of(cell) == what and cell["ranks"] == number]
            name = f"{what}, {number} ranks: {len(complete(own))} cells"
            lines += field(10 + column * width, 64 + row * height, name, own, links, sizes)
    total = (max(len(ranks) * width, LABEL + 16 * BOX) + 20, len(whats) * height + 74)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{total[0]}" height="{total[1]}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n' +
            "\n".join(lines) + "\n</svg>\n")
