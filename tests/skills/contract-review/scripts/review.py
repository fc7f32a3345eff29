"""Says which points of the checklist a text does not mention."""
import pathlib
import sys

import berth_contracts

checklist = pathlib.Path(__file__).parent.parent / "references" / "checklist.md"
points = [line.split(". ", 1)[1] for line in checklist.read_text(encoding="utf-8").splitlines() if ". " in line]
text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
print("缺:", "、".join(point for point in points if point not in text) or "无", berth_contracts.VERSION)
