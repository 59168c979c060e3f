"""Evaluates the samples of tools/bench against: turns, medians, ratios, the verdict and its table. Lower is better in every row."""
import statistics

from peer_table import geometric_mean

SIDES = ("old", "new")
NETWORKS = "networks"  # the part whose geometric mean counts


def turns(round_, repeats):
    """[(side, number)] of a round: `repeats` pairs whose order alternates, as in old new, new old. The next round begins with the
    other side. So a machine that gets slower all the time slows both sides alike."""
    return [(side, pair) for pair in range(repeats) for side in (SIDES if (round_ + pair) % 2 == 0 else SIDES[::-1])]


def row(part, what, unit, samples):
    """samples: {side: a list per round of the values of all repeats}. The best repeat counts, because a process may lie badly in memory
    all its life. The ratio is the median of the ratios of all rounds."""
    best = {side: [min(values) for values in samples[side]] for side in SIDES}
    ratios = [new / old for old, new in zip(best["old"], best["new"])]
    return {"part": part, "what": what, "unit": unit, **{side: statistics.median(best[side]) for side in SIDES},
            "ratio": statistics.median(ratios), "ratios": ratios}


def line(row):
    """One row as a line of progress."""
    return f"{row['part']}, {row['what']}: old {row['old']:.3f} {row['unit']}, new {row['new']:.3f}, new ÷ old = {row['ratio']:.3f}"


def judge(rows, missing, mean_limit, row_limit):
    """Whether the new build holds the limits: the geometric mean of the networks' ratios, and each row's ratio. What could not be compared
    is no success."""
    networks = [row["ratio"] for row in rows if row["part"] == NETWORKS]
    mean = geometric_mean(networks) if networks else None
    problems = [f"{len(missing)} could not be compared"] if missing else [] if rows else ["nothing was compared"]
    if networks and mean > mean_limit:
        problems.append(f"geometric mean {mean:.4f} > {mean_limit:g}")
    problems += [f"{row['part']}, {row['what']}: {row['ratio']:.4f} > {row_limit:g}" for row in rows if row["ratio"] > row_limit]
    if problems:
        verdict = "not held: " + "; ".join(problems)
    else:
        verdict = f"held: geometric mean of {len(networks)} {mean:.4f} <= {mean_limit:g}; " if networks else "held: "
        verdict += f"worst of {len(rows)} {max(row['ratio'] for row in rows):.4f} <= {row_limit:g}"
    return {"geometric_mean": mean, "mean_limit": mean_limit, "row_limit": row_limit, "ok": not problems, "verdict": verdict}


def aligned(head, rows):
    """A table in Markdown that also reads well on a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines) + "\n"


def build(side):
    return f"commit {side['commit']}, build id {side['build_id'][:12]}"


def report(result):
    """The builds, the table, the rows that could not be compared, and the verdict in the last line."""
    rows = [[row["part"], row["what"], row["unit"], f"{row['old']:.3f}", f"{row['new']:.3f}", f"{row['ratio']:.3f}",
             f"{min(row['ratios']):.3f} to {max(row['ratios']):.3f}"] for row in result["rows"]]
    machine, clock = result["machine"], "CPU time" if result["clock"] == "cpu" else "wall time"
    parts = [f"`{result['command']}`: {result['seconds'] / 60:.0f} minutes on {machine['cores']} cores of {machine['cpu']}, {result['date']}.",
             *(f"{side}: {build(result[side])}." for side in SIDES),
             f"Medians of {result['rounds']} rounds; the best of {result['repeats']} repeats counts in each round; networks in {clock}.\n"]
    if result["old"]["build_id"] == result["new"]["build_id"]:
        parts.append("Both builds are the same: the ratios show the noise.\n")
    if rows:
        parts.append(aligned(["part", "what", "unit", "old", "new", "new ÷ old", "in the rounds"], rows))
    if result["missing"]:
        parts += ["Not compared:", "\n".join(f"- {text}" for text in result["missing"]) + "\n"]
    return "\n".join([*parts, result["verdict"]])
