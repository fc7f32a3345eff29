"""fields.py - bad values for every field of a request, derived from the descriptors and from the
rule that the proto comment states at the field.

    for bad in fields.mutations(request):        # request: a valid one with everything set
        bad.path, bad.what, bad.wire             # "session.tenant_id", "129 characters", bytes

What the comments are read for: "[A-Za-z0-9._-]" (an id), "Absolute, clean" (a path), "Required",
"A..B" of a number, "Output only" (nothing but the wire's own rules is tried there).
"""
import functools
import glob
import os
import re
import subprocess
import tempfile

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor as F

from stubs import GRPC_PROTO, PROTO

MARK = "@bErTh-MaRk@"
INTS = {F.TYPE_INT32: 31, F.TYPE_INT64: 63, F.TYPE_SINT32: 31, F.TYPE_SINT64: 63}
UNSIGNED = {F.TYPE_UINT32: 32, F.TYPE_UINT64: 64}
STANDARD = ("google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.FieldMask")


@functools.cache
def comments():
    """{full name of a message or field: comment}"""
    found = {}
    files = [os.path.relpath(path, PROTO) for path in glob.glob(os.path.join(PROTO, "berth", "*", "v1", "*.proto"))]
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I" + PROTO, "-I/usr/include", "-I" + GRPC_PROTO, "--include_source_info",
                        "--descriptor_set_out=" + out.name, *files], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read()).file
    for file in files:
        texts = {tuple(place.path): " ".join((place.leading_comments + " " + place.trailing_comments).split())
                 for place in file.source_code_info.location}

        def walk(message, path, name, texts=texts):
            found[name] = texts.get(path, "")
            for i, field in enumerate(message.field):
                found[f"{name}.{field.name}"] = texts.get(path + (2, i), "")
            for i, nested in enumerate(message.nested_type):
                walk(nested, path + (3, i), f"{name}.{nested.name}")
        for i, message in enumerate(file.message_type):
            walk(message, (4, i), f"{file.package}.{message.name}")
    return found


def rule_of(field):
    """The comment at the field; a message comment that says "Each ..." holds for its fields."""
    own = comments().get(field.full_name, "")
    shared = comments().get(field.containing_type.full_name, "")
    return own + (" " + shared if "Each " in shared or "Absent duration" in shared else "")


class Bad:
    """One request with one bad value."""

    def __init__(self, path, what, wire, may=("INVALID_ARGUMENT",)):
        self.path, self.what, self.wire, self.may = path, what, wire, may
        self.fresh = None  # the message made for this one: the rest of it is missing, too

    def __str__(self):
        return f"{self.path}: {self.what}"


def _at(request, steps):
    """The message that holds the last step, made on the way where it is not there."""
    message = request
    for step in steps:
        if isinstance(step, int):
            message = message[step]
        else:
            message = getattr(message, step)
    return message


def _sub(message, field):
    """(steps, descriptor) of the message below field: the first element of a repeated one."""
    if field.label == F.LABEL_REPEATED:
        items = getattr(message, field.name)
        if not items:
            items.add()
        return [field.name, 0]
    getattr(message, field.name).SetInParent()
    return [field.name]


def _is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _ids(field, rule):
    if "[A-Za-z0-9._-]" not in rule:
        return
    limit = max([int(n) for n in re.findall(r"\d+\.\.(\d+)(?: characters)? of \[A-Za-z0-9", rule)] or [128])
    if "mpty" not in rule and "ptional" not in rule:
        yield "empty", ""
    yield f"{limit + 1} characters", "a" * (limit + 1)
    for bad in ("a/b", "a b", "a\n", "\u00e4", "..", "a{b}", "*"):
        yield repr(bad), bad


def _paths(field, rule):
    if "bsolute, clean" not in rule:
        return
    if "mpty" not in rule:
        yield "empty", ""
    for bad in ("workspace", "/a//b", "/a/../b", "/a/./b", "/a/", "/" + "a/" * 2048 + "b", "/" + "x" * 256):
        yield repr(bad[:24]), bad


SCALE = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
RANGE = re.compile(r"(?<![\d.])(\d+) ?([KMGTP]iB)?\.\.(\d+)(?!\d)(?: ?([KMGTP]iB))?(?!\.\d)(?! ?(?:characters|bytes of|of \[))")


def _numbers(field, rule):
    limits = RANGE.search(rule)
    bits = INTS.get(field.type) or UNSIGNED.get(field.type)
    if not bits or "more is cut" in rule:
        return
    if limits:
        low, high = (int(limits.group(n)) * SCALE[limits.group(n + 1) or ""] for n in (1, 3))
        if low > 0 and field.containing_oneof is None:
            if not re.search(r"(?<![\d.])0( = |:|,| or )", rule):
                yield str(low - 1), low - 1
            elif low > 1:
                yield "1", 1
        if high + 1 < 2 ** bits:
            yield str(high + 1), high + 1
            yield "the greatest there is", 2 ** bits - 1
    if field.type in INTS and "egative" not in rule.replace("Not negative", "").replace("negative is INVALID", ""):
        yield "negative", -1
        yield "the least there is", -(2 ** bits)


def _durations(rule):
    yield "negative", dict(seconds=-1)
    yield "negative by nanos", dict(nanos=-1)
    yield "a second of nanos", dict(nanos=1_000_000_000)
    yield "of mixed sign", dict(seconds=1, nanos=-1)
    yield "the longest there is", dict(seconds=2 ** 63 - 1)


def mutations(request, skip=()):
    """Yields Bad for every field below request. skip: paths that are not judged."""
    for bad in _walk(request, [], "", request.DESCRIPTOR, frozenset(), skip, ""):
        bad.fresh = _fresh(request, bad.path)
        yield bad


def _fresh(request, path):
    """The first message on the way to path that request does not have."""
    message, parts = request, path.split(".")
    for i, name in enumerate(parts[:-1]):
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.label == F.LABEL_REPEATED or not message.HasField(name):
            return ".".join(parts[:i + 1])
        message = getattr(message, name)
    return None


def _wire(request, steps, change):
    copy = type(request)()
    copy.CopyFrom(request)
    holder = copy
    for step in steps:
        if isinstance(step, int):
            if not holder:
                holder.add()
            holder = holder[step]
        else:
            value = getattr(holder, step)
            if hasattr(value, "SetInParent"):
                value.SetInParent()
            holder = value
    change(holder)
    return copy.SerializeToString()


def _strings_on_the_wire(request, steps, path, put):
    """Bad bytes that no library would send."""
    wire = _wire(request, steps, put)
    mark = MARK.encode()
    assert wire.count(mark) == 1, path
    for what, bad in (("invalid UTF-8", b"\xff\xfe"), ("a cut code point", b"\xe2\x82"),
                      ("a surrogate", b"\xed\xa0\x80"), ("an overlong slash", b"\xc0\xaf"), ("a NUL", b"a\0b")):
        yield Bad(path, what, wire.replace(mark, bad + b"x" * (len(mark) - len(bad))))


def _walk(request, steps, path, descriptor, seen, skip, outer_rule):
    for field in descriptor.fields:
        here = f"{path}.{field.name}".lstrip(".")
        if here in skip:
            continue
        rule = (rule_of(field) + " " + outer_rule).strip()
        output = "Output only" in rule or "checked by the caller" in rule
        name = field.name
        repeated = field.label == F.LABEL_REPEATED

        if _is_map(field):
            key, value = field.message_type.fields
            if key.type == F.TYPE_STRING and value.type == F.TYPE_STRING:
                yield from _strings_on_the_wire(request, steps, here, lambda m, n=name: getattr(m, n).update({MARK: "v"}))
                yield from _strings_on_the_wire(request, steps, here, lambda m, n=name: getattr(m, n).update({"k": MARK}))
            continue

        if field.message_type is not None:
            kind = field.message_type.full_name
            if kind == "google.protobuf.Duration":
                if not output and not repeated:
                    for what, parts in _durations(rule):
                        yield Bad(here, what, _wire(request, steps, lambda m, n=name, p=parts: [
                            setattr(getattr(m, n), k, v) for k, v in p.items()]))
                continue
            if kind == "google.protobuf.FieldMask":
                yield Bad(here, "a path that does not exist", _wire(
                    request, steps, lambda m, n=name: getattr(m, n).paths.append("no_such_field")))
                yield from _strings_on_the_wire(request, steps, here, lambda m, n=name: getattr(m, n).paths.append(MARK))
                continue
            if kind in STANDARD or kind in seen:
                continue
            if not output and not repeated and re.search(r"\bRequired\b", rule_of(field)):
                yield Bad(here, "missing", _wire(request, steps, lambda m, n=name: m.ClearField(n)))
            below = [name, 0] if repeated else [name]
            yield from _walk(request, steps + below, here, field.message_type, seen | {kind}, skip,
                             "Output only" if output else "")
            continue

        def put(value, n=name, many=repeated):
            def change(message):
                if many:
                    del getattr(message, n)[:]
                    getattr(message, n).append(value)
                else:
                    setattr(message, n, value)
            return change

        if field.type == F.TYPE_STRING:
            yield from _strings_on_the_wire(request, steps, here, put(MARK))
            if not output:
                yield Bad(here, "1 MiB long", _wire(request, steps, put("x" * (1 << 20))),
                          may=("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"))
                for what, value in [*_ids(field, rule), *_paths(field, rule)]:
                    yield Bad(here, what, _wire(request, steps, put(value)))
        elif field.type == F.TYPE_ENUM and not output:
            for value in (99, -1):
                yield Bad(here, f"unknown value {value}", _wire(request, steps, put(value)))
        elif not output and (field.type in INTS or field.type in UNSIGNED) and not repeated:
            for what, value in _numbers(field, rule):
                yield Bad(here, what, _wire(request, steps, put(value)))
