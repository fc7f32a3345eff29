"""bundles.py - skills of tests/skills/, packed as the world ships them, and the packages that they need,
built here so that no index is asked.

    files = skill("table-tools")                   {path: bytes or (bytes, mode)}
    data = pack(files, "zip", wrap="table-tools")  also "tar", "tar.gz", "tar.zst"
"""
import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

FORMATS = ("zip", "tar", "tar.gz", "tar.zst")
SKILLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "skills")
MACOS_LITTER = {"__MACOSX/._SKILL.md": b"\0\5\x16\7", ".DS_Store": b"\0\0\0\1Bud1"}


def skill(name):
    """The files of a skill, with their run bits."""
    found = {}
    for folder, _, names in os.walk(os.path.join(SKILLS, name)):
        for each in names:
            path = os.path.join(folder, each)
            with open(path, "rb") as file:
                mode = 0o755 if os.stat(path).st_mode & 0o100 else 0o644
                found[os.path.relpath(path, os.path.join(SKILLS, name))] = (file.read(), mode)
    return found


def simple(name, description="Does one thing.", body="# How\n", front="", **files):
    """A skill of SKILL.md and files (name_of.ext: keyword name_of__ext)."""
    text = f"---\nname: {name}\ndescription: {description}\n{front}---\n{body}"
    return {"SKILL.md": text.encode()} | {
        path.replace("__", "."): data.encode() for path, data in files.items()}


def pack(files, kind="tar", wrap=""):
    members = {(wrap + "/" if wrap else "") + path: data if isinstance(data, tuple) else (data, 0o644)
               for path, data in files.items()}
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, (data, mode) in members.items():
                info = zipfile.ZipInfo(path)
                info.create_system, info.external_attr = 3, (0o100000 | mode) << 16
                archive.writestr(info, data, zipfile.ZIP_DEFLATED)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w:gz" if kind == "tar.gz" else "w", format=tarfile.PAX_FORMAT) as archive:
        for path, (data, mode) in members.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), mode
            archive.addfile(info, io.BytesIO(data))
    if kind == "tar.zst":
        return subprocess.run(["zstd", "-q", "-c"], input=out.getvalue(), stdout=subprocess.PIPE, check=True).stdout
    return out.getvalue()


def wheel(name, version="1.0", code=None, requires=()):
    """(file name, bytes) of a pure wheel with a module and a command <name>-cmd that prints name and version."""
    code = code or f"VERSION = {version!r}\n\ndef main():\n    print({name!r}, VERSION)\n"
    info = f"{name}-{version}.dist-info/"
    files = {f"{name}/__init__.py": code,
             info + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" +
             "".join(f"Requires-Dist: {each}\n" for each in requires),
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             info + "entry_points.txt": f"[console_scripts]\n{name}-cmd = {name}:main\n"}
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[info + "RECORD"] = record + info + "RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()


def npm_package(name, version="1.0.0", **more):
    """(file name, bytes) of a package that exports its name and version, and has a command <name>-cmd."""
    manifest = {"name": name, "version": version, "main": "index.js", "bin": {name + "-cmd": "cmd.js"}} | more
    data = pack({"package/package.json": json.dumps(manifest).encode(),
                 "package/index.js": f"module.exports = '{name} {version}';\n".encode(),
                 "package/cmd.js": (b"#!/usr/bin/env node\nconsole.log(require('./index.js'));\n", 0o755)}, "tar.gz")
    return f"{name}-{version}.tgz", data


def lock_of(dependencies, name, version="1.0.0"):
    """package-lock.json of a package with these: {name: (file name, bytes)} of npm_package()."""
    def entry(each, data):
        return {"version": "1.0.0", "resolved": f"https://registry.invalid/{each}/-/{each}-1.0.0.tgz",
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    return json.dumps({
        "name": name, "version": version, "lockfileVersion": 3, "requires": True,
        "packages": {"": {"name": name, "version": version, "dependencies": {each: "1.0.0" for each in dependencies}}} |
        {"node_modules/" + each: entry(each, data) for each, (_, data) in dependencies.items()}}).encode()
