"""The numbers in the text of results/leaderboard/README.md that are not in its tables."""

from pathlib import Path

import pandas as pd

from benchmark.reports.statistics import paired_difference

FOLDER = Path(__file__).resolve().parents[1] / "results" / "leaderboard"
LOW, HIGH = (rf"(?<! holm) {end}$" for end in ("low", "high"))
BETWEEN = {"feddyn": "fedavg", "fedavgm": "fedavg", "fedetf": "fedetf", "fedld": "fedld"}
"""Row of the tuned track -> the row of the default track that it is compared with."""


def main() -> None:
    """Print the counts of intervals of both tracks, and the differences between them."""
    ranks = pd.read_csv(FOLDER / "ranks.csv").query("method not in ['Central', 'Local']").set_index("method")
    above = {}
    for track, part in ranks.groupby("track"):
        low, high, holm_low, holm_high = (
            part.filter(regex=ends).to_numpy() for ends in (LOW, HIGH, " holm low$", " holm high$")
        )
        resolved, after_holm = (low > 0) | (high < 0), (holm_low > 0) | (holm_high < 0)
        print(
            f"{track}: {(low < high).sum()} intervals, without zero {resolved.sum()}, after Holm {after_holm.sum()}"
        )
        above[track] = part.filter(regex=LOW) > 0
    tuned, default = above["tuned"], above["default"].loc[above["tuned"].index]
    counts = (frame.to_numpy().sum() for frame in (default, default & tuned, tuned))
    print("above zero by default: {}, in both tracks: {}, tuned: {}".format(*counts))

    runs = pd.read_csv(FOLDER / "results.csv").query("data == 'cmnist_gsc'")
    values = {key: part.set_index("seed")["value"].to_dict() for key, part in runs.groupby(["track", "row"])}
    for row, base in BETWEEN.items():
        found = paired_difference(values["tuned", row], values["default", base])
        if found and found.interval:
            low, high = found.interval
            print(f"CMNIST, {row} tuned - {base} by default: {found.mean:.1f} [{low:.1f}, {high:.1f}]")


if __name__ == "__main__":
    main()
