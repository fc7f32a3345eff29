#!/usr/bin/env python3
"""Renders a CSV file as a table of plain text."""
import csv
import sys

import berth_tables


def render(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(" | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        assert render([["a", "b"], ["10", "2"]]) == "a  | b\n10 | 2"
        print("tables", berth_tables.VERSION)
    else:
        with open(sys.argv[1], newline="") as file:
            print(render(list(csv.reader(file))))
