"""The files of C++ sources that checks read, and their text without comments and strings."""
import os, re

LEFT_OUT = ("build", "shared", ".")  # begins of folders' names


def sources(root, suffixes=(".h", ".cpp")):
    """Paths of the sources below a folder, in order."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(d for d in inner if not d.startswith(LEFT_OUT))
        yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(suffixes))


def plain(text):
    """The text without comments, preprocessor lines, and what stands in quotes. Lines keep their numbers."""
    literal = r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
    lines = lambda m: "\n" * m[0].count("\n")
    text = re.sub(r"//[^\n]*|/\*.*?\*/|" + literal, lambda m: ('""' if m[0][0] in "R\"'" else " ") + lines(m), text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lines, text, flags=re.M)


def closing(text, at, pair):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0: return i + 1
    return len(text)
