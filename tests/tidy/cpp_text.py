"""C++ as text, for tidy.py: comments and literals blanked; functions and classes found.

Text and not an AST: good enough for the house style, in a second and without packages.
"""
import re

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|'
                   r'"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)


def blank_comments_and_literals(text):
    """Same length and lines, so that offsets stay valid; include names stay readable."""
    def blank(match):
        token = match.group(0)
        start = text.rfind("\n", 0, match.start()) + 1
        if token[0] == '"' and re.match(r"\s*#\s*include\s*$", text[start:match.start()]):
            return token
        inner = re.sub(r"[^\n]", " ", token)
        return inner if token[0] == "/" else '"' + inner[2:] + '"'
    return TOKEN.sub(blank, text)


def functions(code):
    """(first offset, last offset) of each function body with its head, outermost ones only.

    A brace opens a function when, at namespace or class level, the text since the last ; { or }
    holds a parameter list and neither an initialiser nor a class head.
    """
    stack, head, start, initialising = [], 0, None, False
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.M)
    for offset, char in enumerate(code):
        if char == "{":
            body = "body" not in stack and (initialising or opens_function(code[head:offset]))
            if body and not initialising:
                start = offset - len(code[head:offset].lstrip())
            stack.append("body" if body else "other")
        elif char == "}" and stack:
            if stack.pop() == "body":
                # x_{x} in a constructor's head looks like a body, but more of the head follows.
                initialising = bool(re.match(r"\s*[,{]", code[offset + 1:offset + 200]))
                if not initialising:
                    yield start, offset
        if char in ";{}":
            head = offset + 1


def opens_function(head):
    flat = head
    while True:
        shorter = re.sub(r"\([^()]*\)", "\x00", flat)
        if shorter == flat:
            break
        flat = shorter
    if "\x00" not in flat:
        return False
    flat = re.sub(r"\boperator\s*[^\s\w\x00]+", "operator", flat)
    while re.search(r"<[^<>]*>", flat):
        flat = re.sub(r"<[^<>]*>", "", flat)
    flat = re.sub(r"\b(?:alignas|__attribute__|requires|decltype|noexcept)\s*\x00", "", flat)
    if re.search(r"\b(?:namespace|class|struct|union|enum)\b(?![^\x00]*\x00)", flat):
        return False
    return "=" not in flat.split("\x00")[0] and "\x00" in flat


CLASS_HEAD = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+(?:alignas\s*\([^()]*\)\s*)?"
                        r"([\w:]+)(?:\s+final)?\s*(?::[^{;]*)?\{")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static_assert|enum|class|struct|union)\b|"
                       r"(?:inline )?static constexpr\b")


def classes(code):
    """(offset, name, functions, data members) of each class, struct or union with a body: what its
    body declares, without constants, deleted functions and what nested types hold."""
    closing = closing_braces(code)
    for head in CLASS_HEAD.finditer(code):
        counts = {"function": 0, "member": 0}
        for text in declarations(code, head.end(), closing):
            what, number = declared(text)
            counts[what] += number
        yield head.start(), head.group(1), counts["function"], counts["member"]


def closing_braces(code):
    opened, closing = [], {}
    for brace in re.finditer(r"[{}]", code):
        if brace.group(0) == "{":
            opened.append(brace.start())
        elif opened:
            closing[opened.pop()] = brace.start()
    return closing


def declarations(code, begin, closing):
    """What stands between semicolons in the body that begins here, {} for what is in braces."""
    end, flat = closing.get(begin - 1, len(code)), ""
    while begin < end:
        brace = code.find("{", begin, end)
        flat += code[begin:brace if brace >= 0 else end]
        if brace < 0:
            break
        begin = closing.get(brace, end) + 1
        head = ACCESS.sub("", flat[flat.rfind(";") + 1:])
        is_type = re.match(r"\s*(?:template\s*<[^{]*>\s*)?(?:class|struct|union|enum)\b", head)
        # After a function's body comes another declaration, after an initialiser more of it.
        ends = not is_type and re.match(r"\s*[^\s;,.{)<+*/?|-]", code[begin:end])
        flat += "{};" if ends else "{}"
    return ACCESS.sub("", re.sub(r"^[ \t]*#.*", "", flat, flags=re.M)).split(";")


def declared(text):
    """("function" or "member", how many) of one declaration in a class."""
    text = re.sub(r"\boperator\s*(?:\(\)|[^\w\s(]+)", "operator", " ".join(text.split()))
    text = without_nested(r"<[^<>]*>", text.replace("->", ""))
    text = re.sub(r"\[\[.*?\]\]|\b(?:alignas|decltype|requires|explicit) ?\([^()]*\)", "", text)
    text = re.sub(r"^ ?template ?(?:requires \w+)?", "", text).strip()
    if not text or NO_MEMBER.match(text):
        return "member", 0
    before, call, after = text.partition("(")
    if call and "=" not in before and not after.startswith("*"):
        return "function", 0 if re.search(r"= ?delete$", text) else 1
    return "member", 1 + without_nested(r"\([^()]*\)", text.replace("{}", "")).count(",")


def without_nested(pattern, text):
    while re.search(pattern, text):
        text = re.sub(pattern, "", text)
    return text
