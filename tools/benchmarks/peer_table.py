"""Evaluates the times of tools/bench peers: medians, ratios to the best peer, geometric means, and the report in Markdown."""
import math
import statistics

TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "pytorch": "PyTorch", "mxnet": "MXNet"}
SHOAL = "shoal "  # "shoal f32", "shoal f32-fast": each precision counts as an engine


def engine_of(name):
    """Of "openvino bf16" and "openvino": "openvino"."""
    return name.partition(" ")[0]


def precision_of(name):
    """Of "openvino bf16": "bf16". Of "openvino": "f32"."""
    return name.partition(" ")[2] or "f32"


def title(name):
    engine = engine_of(name)
    return name.replace(engine, TITLES.get(engine, engine.replace("shoal", "Shoal")))


def is_shoal(engine):
    return engine.startswith(SHOAL)


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def summarize(times):
    """{engine: time of each round} -> medians and best times, the best peer, and Shoal's ratio to it, round by round."""
    engines = {name: {"median_ms": statistics.median(rounds), "best_ms": min(rounds)} for name, rounds in times.items()}
    peers = [name for name in times if not is_shoal(name)]
    row = {"engines": engines, "best_peer": None, "ratios": {}, "ratios_of_best": {}}
    if peers:
        best = row["best_peer"] = min(peers, key=lambda name: engines[name]["median_ms"])
        row["ratios"] = {name: statistics.median(a / b for a, b in zip(rounds, times[best]))
                         for name, rounds in times.items() if is_shoal(name)}
        fastest = min(engines[name]["best_ms"] for name in peers)
        row["ratios_of_best"] = {name: engines[name]["best_ms"] / fastest for name in row["ratios"]}
    return row


def line(row):
    """One row as a line of progress."""
    times = [f"{title(name)} {milliseconds(entry['median_ms'])} ms" for name, entry in row["engines"].items()]
    return ", ".join(times + [f"{title(name)} ÷ {title(row['best_peer'])} = {ratio:.2f}" for name, ratio in row["ratios"].items()])


def means(rows):
    """{Shoal's engine: {geometric mean of its ratios, the worst ratio, geometric mean of the ratios of best times, rows}}."""
    result = {}
    for name in names(rows, "ratios"):
        of_it = [row for row in rows if name in row["ratios"]]
        ratios = [row["ratios"][name] for row in of_it]
        result[name] = {"geometric_mean": geometric_mean(ratios), "worst": max(ratios),
                        "geometric_mean_of_best": geometric_mean(row["ratios_of_best"][name] for row in of_it), "rows": len(of_it)}
    return result


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def milliseconds(value):
    """With two digits behind the point below 10 ms."""
    return cell(value, 2 if value is not None and value < 10 else 1)


def names(items, key):
    """The engines, each once, in the order of their first row."""
    return list(dict.fromkeys(name for item in items for name in item[key]))


def speed_markdown(rows, summary):
    engines = names(rows, "engines")
    shoals = [name for name in engines if is_shoal(name)]
    body = []
    for row in rows:
        times = [row["engines"].get(name, {}).get("median_ms") for name in engines]
        best = row["best_peer"]
        body.append([row["model"], str(row["batch"]), str(row["threads"]), *map(milliseconds, times),
                     *(cell(row["ratios"].get(name), 2) for name in shoals), title(best) if best else "–"])
    body.append(["**geometric mean**", "", "", *[""] * len(engines),
                 *(f"**{summary[name]['geometric_mean']:.2f}**" if name in summary else "–" for name in shoals), ""])
    return table(["network", "batch", "threads", *(f"{title(name)}, ms" for name in engines),
                  *(f"{title(name)} ÷ best peer" for name in shoals), "best peer"], body)


def cold_markdown(cold):
    return table(["engine", "first start, s", "second start with caches, s"],
                 [[title(name), cell(entry["first_s"], 2), cell(entry["second_s"], 2)] for name, entry in cold["engines"].items()])


def memory_markdown(memory):
    counts = memory["processes"]
    return table(["engine", *(f"{n} × , MB" for n in counts), "each further, MB"],
                 [[title(name), *(cell(mb, 0) for mb in sizes), cell((sizes[-1] - sizes[0]) / max(1, counts[-1] - counts[0]))]
                  for name, sizes in memory["engines"].items()])


def markdown(result):
    """The report: its command, the table of times, rows above 1.0, cold start, memory, and missing engines."""
    parts = [f"`{result['command']}`: {result['seconds'] / 60:.0f} minutes on {result['machine']['cores']} cores of "
             f"{result['machine']['cpu']}. Peers: {', '.join(result['peers'])}.\n"]
    if "rows" in result:
        clock = "Wall time" if result["clock"] == "wall" else "CPU time"
        parts += [f"{clock} of one inference, median of {result['rounds']} rounds:\n",
                  speed_markdown(result["rows"], result["summary"])]
        parts += [f"{title(name)}: worst row {entry['worst']:.2f}; geometric mean of the best times instead of medians "
                  f"{entry['geometric_mean_of_best']:.2f}.\n" for name, entry in result["summary"].items()]
        slower = [f"- {row['model']}, batch {row['batch']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}: "
                  f"{title(name)} {ratio:.2f} × {title(row['best_peer'])}"
                  for row in result["rows"] for name, ratio in row["ratios"].items() if ratio > 1]
        if slower:
            parts += ["Rows above 1.0:\n", "\n".join(slower) + "\n"]
    if "cold" in result:
        parts += [f"From the start of the process to its first answer, {result['cold']['model']}, batch 1, one thread:\n",
                  cold_markdown(result["cold"])]
    if "memory" in result:
        parts += [f"PSS of N workers of one pool against N processes of each peer, {result['memory']['model']}, batch 1:\n",
                  memory_markdown(result["memory"])]
    if result["missing"]:
        parts += ["Missing:\n", "\n".join(f"- {text}" for text in result["missing"]) + "\n"]
    return "\n".join(parts)
