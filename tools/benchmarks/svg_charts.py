"""Draws recorded results of tools/bench as SVG: light and dark, without fonts that must be loaded. Needs only the standard library."""
from html import escape

import peer_table

WIDTH = 640            # units of the drawing; a README shows it a little larger, a phone at half of that
NATURAL_WIDTH = 760    # pixels, if there is room
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', 'Liberation Sans', Helvetica, Arial, sans-serif"
# GitHub's backgrounds. Contrast with the background is at least 4.5 for text and 3 for lines (tests/charts_test.py).
THEMES = {
    "light": {"background": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0", "ours": "#0550ae", "ours_fill": "#0969da",
              "peer": "#59636e", "peer_fill": "#6e7781", "bad": "#cf222e", "gap": "#ffd8d3"},
    "dark": {"background": "#0d1117", "ink": "#f0f6fc", "muted": "#9198a1", "grid": "#30363d", "ours": "#79c0ff", "ours_fill": "#4493f8",
             "peer": "#9198a1", "peer_fill": "#7d8590", "bad": "#ff7b72", "gap": "#5d1f1f"},
}


def thousands(number):
    return f"{number:,}".replace(",", " ")


def memory_text(mb):
    return f"{mb / 1000:.1f} GB" if mb >= 1000 else f"{mb:.0f} MB"


def span(values, unit, digits):
    """"3 to 5 ms", or "3 ms" if both ends read alike."""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def seconds_text(values):
    return span([v * 1000 for v in values], "ms", 0) if max(values) < 0.1 else span(values, "s", 1)


def each_further(sizes, counts):
    return (sizes[-1] - sizes[0]) / (counts[-1] - counts[0])


class Drawing:
    """Collects the elements of one SVG file."""

    def __init__(self, theme, height, title, description):
        self.colors = THEMES[theme]
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{NATURAL_WIDTH}" '
            f'height="{NATURAL_WIDTH * height // WIDTH}" role="img" aria-labelledby="title description" font-family="{FONT}" font-size="15">',
            f'<title id="title">{escape(title)}</title>', f'<desc id="description">{escape(description)}</desc>',
            f'<rect width="{WIDTH}" height="{height}" rx="6" fill="{self.colors["background"]}"/>']

    def text(self, x, y, words, color="ink", **attributes):
        extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{self.colors[color]}"{extra}>{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, color, width=1.0, **attributes):
        extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{self.colors[color]}" stroke-width="{width:g}"{extra}/>')

    def path(self, points, color, width):
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="{d}" fill="none" stroke="{self.colors[color]}" stroke-width="{width:g}" stroke-linejoin="round"/>')

    def rect(self, x, y, width, height, color):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{self.colors[color]}"/>')

    def dot(self, x, y, radius, color):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{self.colors[color]}"/>')

    def heading(self, title, *lines):
        self.text(20, 36, title, font_size=21, font_weight=700)
        for row, words in enumerate(lines):
            self.text(20, 61 + 20 * row, words, "muted")

    def finish(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def apart(positions, distance):
    """Moves labels at these heights (ascending) as little as that they are at least `distance` apart: groups move together."""
    groups = []  # [sum of wanted heights minus offsets, count]
    for position in positions:
        groups.append([position, 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] + groups[-2][1] * distance > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total - count * groups[-1][1] * distance
            groups[-1][1] += count
    return [total / count + i * distance for total, count in groups for i in range(count)]


def footer(result):
    machine = result["machine"]
    return f"{machine['cores']} cores of {machine['cpu']}, {result['date']}"


def memory_chart(result, theme):
    """PSS against the number of workers or processes, one line for each engine."""
    memory = result["memory"]
    counts, engines = memory["processes"], memory["engines"]
    pool = engines["shoal pool"]
    peers = {name: sizes for name, sizes in engines.items() if name != "shoal pool"}
    others = [each_further(sizes, counts) for sizes in peers.values()]
    title = f"A further worker costs {each_further(pool, counts):.0f} MB, not {span(others, 'MB', 0)}"
    ends = [f"{peer_table.title(name)} {memory_text(sizes[-1])}" for name, sizes in peers.items()]
    drawing = Drawing(theme, 420, title, f"Line chart of the memory of {counts[0]} to {counts[-1]} workers. With {counts[-1]} of them: Shoal "
                      f"{memory_text(pool[-1])}, {', '.join(ends)}.")
    drawing.heading(title, "Memory (PSS) of Shoal's workers, and of as many processes of other engines:",
                    f"ResNet-50, {memory['parameter_file_mb']:.0f} MB of parameters")
    left, right, top, bottom = 62, 452, 108, 352
    most_gb = int(max(max(sizes) for sizes in engines.values()) / 1000) + 1
    step = 1 if most_gb <= 4 else 2

    def x(count):
        return left + (right - left) * (count - counts[0]) / (counts[-1] - counts[0])

    def y(mb):
        return bottom - (bottom - top) * mb / 1000 / most_gb

    for gb in range(0, most_gb + 1, step):
        drawing.line(left, y(gb * 1000), right, y(gb * 1000), "grid")
        drawing.text(left - 10, y(gb * 1000) + 5, f"{gb} GB" if gb else "0", "muted", text_anchor="end")
    for count in counts:
        drawing.text(x(count), bottom + 24, str(count), "muted", text_anchor="middle")
    drawing.text((left + right) / 2, bottom + 47, "workers, or processes", "muted", text_anchor="middle")
    order = sorted(engines, key=lambda name: -engines[name][-1])
    places = apart([y(engines[name][-1]) for name in order], 19)
    for name, place in zip(order, places):
        sizes, ours = engines[name], name == "shoal pool"
        points = [(x(count), y(mb)) for count, mb in zip(counts, sizes)]
        drawing.path(points, "ours_fill" if ours else "peer_fill", 4 if ours else 2)
        for px, py in points:
            drawing.dot(px, py, 5 if ours else 3, "ours_fill" if ours else "peer_fill")
        words = f"{'Shoal' if ours else peer_table.title(name)} {memory_text(sizes[-1])}"
        drawing.text(right + 14, place + 5, words, "ours" if ours else "ink", font_weight=700 if ours else 400)
    drawing.text(WIDTH - 20, 406, footer(result), "muted", font_size=13, text_anchor="end")
    return drawing.finish()


def replaced_text(server):
    known = [seconds for seconds in server["replaced_s"] if seconds is not None]
    return f"replacement ready after {seconds_text(known)}" if known else "no replacement was ready"


def failed(server):
    return f"{server['errors'] or 'no'} request{'s' * (server['errors'] > 1)} failed"


def timeline_chart(result, theme):
    """Answers per 100 ms of each server, its kills, its failed requests, and the time with a worker less."""
    ours, peer = result["servers"]
    seconds, bin_s = result["seconds"], result["bin_s"]
    title = f"kill -9: {failed(ours)} in {ours['name']}, {peer['errors'] or 'none'} in {peer['name']}"
    kills = len(ours["kills_s"])
    drawing = Drawing(theme, 508, title, f"Two charts over {seconds:g} seconds. A worker of each server is killed {kills} times. " + " ".join(f"{s['name']}: {thousands(s['answers'])} answers, {s['errors']} errors; {replaced_text(s)}." for s in (ours, peer)))
    interval = ours["kills_s"][1] - ours["kills_s"][0] if kills > 1 else seconds
    drawing.heading(title, f"Answers per {bin_s * 1000:.0f} ms. Both serve the same model with {result['workers']} workers;",
                    f"every {interval:.0f} s one of them is killed. {result['threads']} clients ask without a pause.")
    left, right, height = 48, WIDTH - 20, 112
    most = max(max(server["timeline"]["answers"]) for server in (ours, peer))
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if most / s <= 4)
    most = (most // step + 1) * step

    def x(second):
        return left + (right - left) * second / seconds

    for server, top, color in ((ours, 136, "ours"), (peer, 306, "peer")):
        panel(drawing, server, top, height, color, x, bin_s, seconds, most, step)
    bottom = 306 + height
    for second in range(0, int(seconds) + 1, 6 if seconds > 12 else 2):
        anchor = "start" if second == 0 else "end" if second == seconds else "middle"
        drawing.text(x(second), bottom + 22, f"{second} s", "muted", text_anchor=anchor)
    drawing.line(left + 4, bottom + 39, left + 4, bottom + 56, "bad", 1.5, stroke_dasharray="4 3")
    drawing.text(left + 13, bottom + 52, "kill -9", font_size=13)
    drawing.dot(left + 72, bottom + 47.5, 4, "bad")
    drawing.text(left + 82, bottom + 52, "a failed request", font_size=13)
    drawing.rect(left + 194, bottom + 40, 14, 14, "gap")
    drawing.text(left + 214, bottom + 52, "a worker is missing", font_size=13)
    drawing.text(left, bottom + 76, "Heights differ also because Shoal's clients use shared memory, MLServer's HTTP and JSON", "muted", font_size=13)
    drawing.text(right, bottom + 52, footer(result), "muted", font_size=13, text_anchor="end")
    return drawing.finish()


def panel(drawing, server, top, height, color, x, bin_s, seconds, most, step):
    bottom, answers, errors = top + height, server["timeline"]["answers"], server["timeline"]["errors"]

    def y(count):
        return bottom - height * count / most

    drawing.text(48, top - 12, f"{server['name']} {server['version']}", color if color == "ours" else "ink", font_weight=700)
    words = f"{failed(server)}; {replaced_text(server)}"
    drawing.text(WIDTH - 20, top - 12, words, "bad" if server["errors"] else "ours", text_anchor="end", font_weight=600)
    for kill, replaced in zip(server["kills_s"], server["replaced_s"]):
        end = seconds if replaced is None else min(seconds, kill + replaced)
        drawing.rect(x(kill), top, max(1.5, x(end) - x(kill)), height, "gap")
    for count in range(0, most + 1, step):
        drawing.line(x(0), y(count), x(seconds), y(count), "grid")
        drawing.text(40, y(count) + 5, str(count), "muted", text_anchor="end", font_size=13)
    points = [(x(0), bottom)]
    for index, count in enumerate(answers):
        points += [(x(index * bin_s), y(count)), (x((index + 1) * bin_s), y(count))]
    points.append((x(len(answers) * bin_s), bottom))
    d = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points) + "Z"
    drawing.parts.append(f'<path d="{d}" fill="{drawing.colors[color + "_fill"]}"/>')
    for kill in server["kills_s"]:
        drawing.line(x(kill), top - 4, x(kill), bottom, "bad", 1.5, stroke_dasharray="4 3")
    for index, count in enumerate(errors):
        shown = min(count, 10)
        for i in range(shown):
            drawing.dot(x((index + 0.5) * bin_s), top + 6 + 10 * i, 4, "bad")
        if count > shown:
            drawing.text(x((index + 0.5) * bin_s) + 7, top + 8, f"{count}", "bad", font_size=13, font_weight=700)
