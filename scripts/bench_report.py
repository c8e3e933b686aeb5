#!/usr/bin/env python3
"""Makes one report of what the benches measured: target/bench/report.json, report.md and report.svg.

Each bench leaves a file of its own in target/bench; this adds the machine, the versions and the date.
"""

import html
import json
import os
import pathlib
import platform
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "target" / "bench"
PARTS = ("worker", "gateway", "orchestrator", "node", "edge", "workflow")
# In the chart: what is measured as a share of its goal, so that all have one axis.
LONGEST = 2.0


def said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=20)
    except OSError:
        return "unknown"
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if pathlib.Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":", 1)[1].strip() for line in cpu.splitlines() if line.startswith("model name")]
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": names[0] if names else platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "memory_gib": round(pages * size / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": said("git", "rev-parse", "--short", "HEAD"),
        "rustc": said("rustc", "--version"),
        "nats_server": said(str(ROOT / ".tools/bin/nats-server"), "--version"),
        "python": platform.python_version(),
    }


def shown(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def verdict(row):
    return "" if row["goal"] is None else "met" if row["met"] else "**missed**"


def markdown(report):
    about = report["machine"]
    lines = ["# What was measured", "", ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items()), ""]
    for part, rows in report["parts"].items():
        lines += [f"## {part}", "", "| what | measured | goal | |", "|---|---|---|---|"]
        lines += [f"| {row['name']} | {shown(row['value'])} {row['unit']} | {row['goal'] or ''} | {verdict(row)} |"
                  for row in rows]
        lines.append("")
    return "\n".join(lines)


def share(row):
    """How much of its goal was reached; more than one is better."""
    kind, bound = row["goal"].split()
    bound = float(bound)
    if kind == ">=":
        return row["value"] / bound
    return bound / row["value"] if row["value"] > 0 else LONGEST


def chart(report):
    """A bar for each number that has a goal; the line is the goal."""
    rows = [row for part in report["parts"].values() for row in part if row["goal"]]
    left, width, height, gap = 430, 900, 22, 8
    scale = (width - left - 90) / LONGEST
    total = 60 + len(rows) * (height + gap)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{total}" fill="#ffffff"/>',
           f'<text x="12" y="24" font-size="16" fill="#111">Measured, as a share of the goal ({html.escape(str(report["machine"]["cores"]))} '
           f'cores, {html.escape(report["machine"]["date"])})</text>']
    for index, row in enumerate(rows):
        y = 44 + index * (height + gap)
        reached = min(share(row), LONGEST)
        colour = "#2a7f4f" if row["met"] else "#b3402e"
        label = f'{shown(row["value"])} {row["unit"]} (goal {row["goal"]})'
        out.append(f'<text x="{left - 10}" y="{y + 16}" text-anchor="end" fill="#111">{html.escape(row["name"])}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{max(reached * scale, 1):.1f}" height="{height}" rx="2" fill="{colour}"/>')
        out.append(f'<text x="{left + 6}" y="{y + 16}" fill="#ffffff">{html.escape(label)}</text>')
    at = left + scale
    out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="36" y2="{total - 8}" stroke="#111" stroke-dasharray="4 3"/>')
    out.append("</svg>")
    return "\n".join(out)


def main():
    parts = {}
    for part in PARTS:
        file = BENCH / f"{part}.json"
        if file.is_file():
            parts[part] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    if not parts:
        raise SystemExit("nothing was measured yet; `make bench` measures")
    report = {"machine": machine(), "parts": parts}
    (BENCH / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (BENCH / "report.md").write_text(markdown(report), encoding="utf-8")
    (BENCH / "report.svg").write_text(chart(report), encoding="utf-8")
    print("written to target/bench: report.json, report.md, report.svg")


if __name__ == "__main__":
    main()
