"""The script `demo`: an agent that works on a real directory with the tools it is given.

The script reads tool results as a model would, and assumes nothing about the directory or the exact
form of a tool's input and output: inputs are fitted to the declared schemas, and results are quoted
(`demo_reading.py` selects the quotes).

The script keeps no state: the calls already made in this turn determine the next step, so a
repeated request gets the same reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .demo_reading import (
    about,
    count_of,
    failure_of,
    folders_in,
    lines_of,
    listed,
    main_file,
    names_in,
    quoted,
)
from .request import Request, text_of
from .script import Block, Reply, text, thinking, tool_use

LIST, READ, SEARCH, EDIT, RUN = (
    "list_directory",
    "read_file",
    "search_files",
    "edit_file",
    "run_command",
)
# The names that a tool's schema may use for each meaning; the first one that it has is used.
_ALIASES = {
    "path": ("path", "file_path", "file", "filename", "directory", "dir", "root"),
    "query": ("query", "pattern", "text", "regex", "needle", "words"),
    "command": ("command", "cmd", "line", "script"),
    "old": ("old_text", "old_string", "old_str", "old", "find", "search"),
    "new": ("new_text", "new_string", "new_str", "new", "replace", "replacement"),
}
_COMMAND = re.compile(r"\b(?:run|execute|call|try)\b[^`\n]{0,40}`([^`]+)`", re.IGNORECASE)
_BARE_COMMAND = re.compile(r"^\s*(?:run|execute)\s+(?!`)(\S.*)$", re.IGNORECASE | re.MULTILINE)
_READ = re.compile(r"\b(?:read|open|show|cat|print)\s+(?:me\s+)?[`'\"]?([\w./-]*\w\.\w+|README)")
_SEARCH = re.compile(r"\b(?:search|grep|find|look)\s+(?:for\s+)?[`'\"]([^`'\"]+)[`'\"]", re.I)
_EDIT = re.compile(
    r"replace\s+[`'\"](.+?)[`'\"]\s+(?:with|by)\s+[`'\"](.*?)[`'\"]\s+in\s+[`'\"]?([\w./-]*\w)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_IN_QUOTES = re.compile(r"[`'\"]([^`'\"]+)[`'\"]")
_TOUR = re.compile(
    r"\b(explore|look around|tour|director\w*|project|repo\w*|folder|what is (?:this|here)"
    r"|summari[sz]e|describe|overview)\b",
    re.IGNORECASE,
)
_STORY = re.compile(r"\blong story\b", re.IGNORECASE)
STORY_S = 20.0
"""How long the answer with the story streams, so that a hand can kill a worker meanwhile."""
STORY = (
    "A clerk kept a book of everything the town asked of her. She wrote each promise down before "
    "she went to keep it, and each result before she told anyone.\n\n"
    "One night the lamp went out in the middle of a line, and she was gone. In the morning another "
    "clerk opened the book. He read from the first page to the last, and knew what was promised, "
    "what was done, and what nobody could know. He did not do again what was done, and he kept "
    "what was promised. Where the book could not say whether a coin had been paid, he asked.\n\n"
    "The town noticed nothing, except that the line broken off in the night was whole. Such clerks "
    "may come and go, the people say, as long as the book is kept."
)
_QUOTE_CHARS = 320
_QUOTE_LINES = 6


WHO = "I am a scripted stand-in for a model, as no API key is set; my tools are real."
"""The start of a conversation's first reply, so that no reader takes the reply for a model's."""


def demo(request: Request) -> Reply:
    """The agent's next reply: tool calls until it has the results that it needs, then an answer."""
    reply = _reply(request)
    if any(message["role"] == "assistant" for message in request.messages):
        return reply
    first = next((block for block in reply.blocks if block.get("type") == "text"), None)
    if first is None or "stand-in" in first["text"]:
        return reply
    blocks = [text(f"{WHO} {b['text']}") if b is first else b for b in reply.blocks]
    return replace(reply, blocks=blocks)


def _reply(request: Request) -> Reply:
    prompt = text_of(request.messages[request.turn_start]["content"])
    if _STORY.search(prompt):
        return Reply([text(STORY)], chunk="word", pace_s=STORY_S / len(STORY.split()))
    called = {call["name"] for call in request.turn_calls}
    if _is_tour(request, prompt):
        return _tour(request, prompt, called)
    for pattern, step in ((_EDIT, _edit), (_SEARCH, _search), (_READ, _read)):
        match = pattern.search(prompt)
        if match:
            return step(request, match, called)
    command = _command_in(prompt)
    if command is not None and RUN in request.tool_names:
        return _run(request, command, called)
    return _named_tool(request, prompt, called) or _talk(request, prompt)


def _is_tour(request: Request, prompt: str) -> bool:
    if not {LIST, READ, SEARCH, RUN} & set(request.tool_names):
        return False
    first = request.turn_start == 0 and not (_EDIT.search(prompt) or _BARE_COMMAND.search(prompt))
    return first or bool(_TOUR.search(prompt))


def _command_in(prompt: str) -> str | None:
    match = _COMMAND.search(prompt) or _BARE_COMMAND.search(prompt)
    return match[1].strip() if match else None


def call(request: Request, name: str, **arguments: str) -> list[Block]:
    """A call of a tool with its input fitted to the schema; no block if the tool is not declared.
    """
    tools = request.body.get("tools") or ()
    tool: Mapping[str, Any] | None = next((t for t in tools if t.get("name") == name), None)
    if tool is None:
        return []
    properties = (tool.get("input_schema") or {}).get("properties") or {}
    fitted = {}
    for meaning, value in arguments.items():
        names = [alias for alias in _ALIASES[meaning] if alias in properties]
        fitted[names[0] if names else _ALIASES[meaning][0]] = value
    return [tool_use(name, fitted)]


def _reply_of(*blocks: Block) -> Reply:
    return Reply(list(blocks), chunk="word")


# a tour of the directory -------------------------------------------------------------------------


def _tour(request: Request, prompt: str, called: set[str]) -> Reply:
    if LIST in request.tool_names and LIST not in called:
        plan = (
            "I know nothing about this directory yet. I'll list it, read the file that describes "
            "it, search for open TODOs, and run one command."
        )
        return _reply_of(
            thinking(plan),
            text("I'll start by listing this directory."),
            *call(request, LIST, path="."),
        )
    listing = request.result_of(LIST) or ""
    names = names_in(listing)
    file = main_file(names)
    if not called & {READ, SEARCH}:
        calls = call(request, READ, path=file) if file else []
        calls += call(request, SEARCH, query="TODO", path=".")
        if calls:
            plan = f"I'll read `{file}`, which should describe the project, " if file else "I'll "
            plan += "and search for TODOs at the same time." if file else "search for TODOs."
            return _reply_of(text(plan), *calls)
    command = _command_in(prompt) or _default_command(names, file)
    if RUN not in called:
        calls = call(request, RUN, command=command)
        if calls:
            return _reply_of(
                thinking("The files describe the project; a command shows its current state."),
                text(f"Now one command: `{command}`."),
                *calls,
            )
    return _reply_of(text(_tour_answer(request, names, file)))


def _default_command(names: list[str], file: str | None) -> str:
    if any(name.startswith(".git") for name in names):
        return "git log --oneline -n 5"
    return f"wc -l {file}" if file and " " not in file else "ls -la"


def _tour_answer(request: Request, names: list[str], file: str | None) -> str:
    parts = [
        "Here is what I found, in the order in which I looked.",
        _listing_section(request, names),
        _file_section(request, file),
        _todo_section(request),
        _command_section(request),
        _added_message(request),
        _advice(names, file),
    ]
    return "\n\n".join(part for part in parts if part)


def _listing_section(request: Request, names: list[str]) -> str:
    listing = request.result_of(LIST)
    if listing is None:
        return ""
    if _failed(request, LIST):
        return f"**What is here.** I could not list the directory: {quoted(listing, 200)}"
    folders = folders_in(names)
    files = [name for name in names if name not in folders]
    sentences = [f"**What is here.** The listing has {count_of(len(names), 'entry', 'entries')}."]
    if folders:
        sentences.append(f"The folders are {listed(folders, 8)}.")
    if files:
        sentences.append(f"The files are {listed(files, 8)}.")
    if any(name.startswith("test") for name in names):
        sentences.append("There are tests, so changes can be checked.")
    return " ".join(sentences)


def _file_section(request: Request, file: str | None) -> str:
    content = request.result_of(READ)
    if content is None or file is None:
        return ""
    if _failed(request, READ):
        return f"**The description.** `{file}` could not be read: {quoted(content, 200)}"
    title, paragraph = about(content)
    size = count_of(len(lines_of(content)), "line", "lines")
    opening = f"**The description.** I read {size} of `{file}`."
    if title:
        opening += f' It is headed "{title}".'
    if paragraph:
        opening += f" In its own words:\n\n> {quoted(paragraph, _QUOTE_CHARS)}"
    return opening


def _todo_section(request: Request) -> str:
    result = request.result_of(SEARCH)
    if result is None:
        return ""
    if _failed(request, SEARCH):
        return f"**Open TODOs.** The search did not work: {quoted(result, 200)}"
    hits = [line for line in lines_of(result) if "TODO" in line]
    if not hits:
        return "**Open TODOs.** I searched for `TODO` and found none."
    shown = "\n".join(f"- `{quoted(hit, 100)}`" for hit in hits[:3])
    return f"**Open TODOs.** {count_of(len(hits), 'line', 'lines')} with `TODO`:\n\n{shown}"


def _command_section(request: Request) -> str:
    runs = [call for call in request.turn_calls if call["name"] == RUN]
    output = request.result_of(RUN)
    if not runs or output is None:
        return ""
    command = next((v for v in runs[-1]["input"].values() if isinstance(v, str)), "the command")
    failure = failure_of(output, _failed(request, RUN))
    if failure is not None:
        return f"**The command.** `{quoted(command, 120)}` {failure}"
    lines = [line for line in lines_of(output) if line.strip()]
    if not lines:
        return f"**The command.** `{quoted(command, 120)}` ran and printed nothing."
    shown = "\n".join(quoted(line, 100) for line in lines[:_QUOTE_LINES])
    more = len(lines) - _QUOTE_LINES
    rest = f"\n\n... and {count_of(more, 'line', 'lines')} more." if more > 0 else ""
    return f"**The command.** `{quoted(command, 120)}` printed:\n\n```\n{shown}\n```{rest}"


def _added_message(request: Request) -> str:
    late = request.last_user_text
    opened = text_of(request.messages[request.turn_start]["content"])
    if late == opened:
        return ""
    return f'**While I worked** you added: "{quoted(late, 200)}". I have taken note of it.'


def _advice(names: list[str], file: str | None) -> str:
    other = next((name for name in names if name != file and "." in name.strip(".")), file)
    offer = f"to read `{other}`, " if other else ""
    return (
        "**Next.** Every sentence above comes from a tool result that is now in the log. To go "
        f"deeper, ask me {offer}to search for a word in quotes, or to run a command in backquotes. "
        "I ask before I change anything, and if my worker dies, the next one resumes from the log."
    )


# single requests ---------------------------------------------------------------------------------


def _read(request: Request, match: re.Match[str], called: set[str]) -> Reply:
    file = match[1]
    if READ in request.tool_names and READ not in called:
        return _reply_of(text(f"I'll read `{file}`."), *call(request, READ, path=file))
    return _reply_of(text(_file_section(request, file) or f"I have no tool to read `{file}`."))


def _search(request: Request, match: re.Match[str], called: set[str]) -> Reply:
    word = match[1]
    if SEARCH in request.tool_names and SEARCH not in called:
        calls = call(request, SEARCH, query=word, path=".")
        return _reply_of(text(f"I'll search for `{word}`."), *calls)
    result = request.result_of(SEARCH)
    if result is None:
        return _reply_of(text("I have no tool to search with."))
    lines = [line for line in lines_of(result) if line.strip()]
    shown = "\n".join(f"- `{quoted(line, 120)}`" for line in lines[:_QUOTE_LINES])
    found = count_of(len(lines), "line", "lines")
    return _reply_of(text(f"The search for `{word}` gave {found}:\n\n{shown}"))


def _edit(request: Request, match: re.Match[str], called: set[str]) -> Reply:
    old, new, file = match.groups()
    if READ in request.tool_names and READ not in called:
        opening = f"I'll read `{file}` first, to see what I am changing."
        return _reply_of(text(opening), *call(request, READ, path=file))
    if EDIT in request.tool_names and EDIT not in called:
        calls = call(request, EDIT, path=file, old=old, new=new)
        return _reply_of(text(f"Now I'll replace `{old}` with `{new}` in `{file}`."), *calls)
    result = request.result_of(EDIT)
    if result is None:
        return _reply_of(text("I have no tool to edit files with."))
    failure = failure_of(result, _failed(request, EDIT))
    if failure is not None:
        return _reply_of(text(f"The edit of `{file}` {failure}"))
    return _reply_of(text(f"Done: `{file}` is edited. The tool reports: {quoted(result, 200)}"))


def _run(request: Request, command: str, called: set[str]) -> Reply:
    if RUN not in called:
        return _reply_of(text(f"I'll run `{command}`."), *call(request, RUN, command=command))
    return _reply_of(text(_command_section(request)))


def _named_tool(request: Request, prompt: str, called: set[str]) -> Reply | None:
    """Call the tool that the message names: "charge 1900" calls `charge` with 1900."""
    for tool in request.body.get("tools") or ():
        name = str(tool.get("name"))
        arguments = _arguments(tool["input_schema"], prompt) if "input_schema" in tool else None
        if arguments is None or not re.search(rf"\b{re.escape(name)}\b", prompt, re.IGNORECASE):
            continue
        if name not in called:
            return _reply_of(text(f"I'll call `{name}`."), tool_use(name, arguments))
        result = request.result_of(name) or ""
        outcome = failure_of(result, _failed(request, name)) or f"returned: {quoted(result, 200)}"
        return _reply_of(text(f"`{name}` {outcome}"))
    return None


def _arguments(schema: Mapping[str, Any], prompt: str) -> dict[str, Any] | None:
    """The required arguments from a message: its numbers and its texts in quotes, in order."""
    numbers, texts = iter(_NUMBER.findall(prompt)), iter(_IN_QUOTES.findall(prompt))
    found: dict[str, Any] = {}
    for name in schema.get("required") or ():
        kind = (schema.get("properties") or {}).get(name, {}).get("type")
        value = next(texts if kind == "string" else numbers, None)
        if value is None or kind not in ("string", "integer", "number"):
            return None
        found[name] = value if kind == "string" else int(value)
    return found


def _talk(request: Request, prompt: str) -> Reply:
    tools = listed(request.tool_names, 8) if request.tool_names else "no tools"
    earlier = sorted(
        {
            block["name"]
            for message in request.messages
            if message["role"] == "assistant" and isinstance(message["content"], list)
            for block in message["content"]
            if block.get("type") == "tool_use"
        }
    )
    so_far = f" In this conversation I have used {listed(earlier, 8)}." if earlier else ""
    hint = (
        "Ask me to explore this directory, to read a file, to search for a 'word' in quotes, or "
        "to run `a command` in backquotes."
        if {LIST, READ, SEARCH, RUN} & set(request.tool_names)
        else "Name a tool, with its numbers and its texts in quotes, and I call it."
    )
    return _reply_of(
        text(
            f'You said: "{quoted(prompt.strip(), 200)}". I am a scripted stand-in for a model, so '
            f"small talk is not my strength, but my tools are real: {tools}.{so_far} {hint}"
        )
    )


def _failed(request: Request, name: str) -> bool:
    ids = {call["id"] for call in request.turn_calls if call["name"] == name}
    found = [block for block in request.turn_results if block["tool_use_id"] in ids]
    return bool(found and found[-1].get("is_error"))
