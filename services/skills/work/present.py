# Says of each package of argv whether it is in the environment: name=<distribution>, or
# manifest=<pyproject.toml> for those that it declares without a condition. The current folder
# is the skill's. python3 -I -S: nothing of the environment is imported.
import glob
import importlib.metadata
import re
import sys

try:
    import tomllib
except ImportError:
    tomllib = None


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(path):
    if tomllib is None:
        return []
    with open(path, "rb") as file:
        lines = tomllib.load(file).get("project", {}).get("dependencies", [])
    names = [re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line) for line in lines if ";" not in line]
    return [name.group(1) for name in names if name]


places = glob.glob(".venv/lib/python*/site-packages")
have = {plain(each.metadata["Name"] or "") for each in importlib.metadata.distributions(path=places)}
for number, word in enumerate(sys.argv[1:]):
    kind, value = word.split("=", 1)
    try:
        wanted = [value] if kind == "name" else declared(value)
        absent = [name for name in wanted if plain(name) not in have]
        text = ", ".join(absent)
    except Exception as error:
        absent, text = [value], type(error).__name__ + ": " + str(error)
    text = text.replace("\0", " ").encode("utf-8", "replace")[:600]
    sys.stdout.buffer.write(f"{number} {'bad' if absent else 'ok'} 0 ".encode() + text + b"\0")
    sys.stdout.buffer.flush()
