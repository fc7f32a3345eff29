# Parses each file of argv, and runs nothing of it. python3 -I -S.
import sys
import warnings

warnings.simplefilter("ignore")
for number, path in enumerate(sys.argv[1:]):
    line, why = 0, None
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line, why = error.lineno or 0, str(error.msg)
    except Exception as error:
        why = type(error).__name__ + ": " + str(error)
    state = "ok" if why is None else "bad"
    text = (why or "").replace("\0", " ").encode("utf-8", "replace")[:600]
    sys.stdout.buffer.write(f"{number} {state} {max(line, 0)} ".encode() + text + b"\0")
    sys.stdout.buffer.flush()
