"""The tools of foldlog's default agent, which read and edit one directory and run commands there.

`tools(directory)` returns the tools; default_agent.py has the agent. Editing files and running
commands need approval; reading does not. The size of a result is limited; a cut
result ends with a note on how to request the rest.
"""

import json
import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from ...log.blobs import INLINE_BYTES_MAX, BlobError
from ...schemas.tokens import estimate, prefix
from .log_text import LOG_LINES_MAX, looks_like_log
from .results import ROWS_MAX
from .tool import Shortened, Tool, ToolCancelled, ToolContext, ToolFailed, tool
from .workdir import CLOSED, Workdir

SEARCH_SCRIPT = Path(__file__).with_name("search_script.py")
SEARCH_KILL_S = 15  # the script ends by itself after 10 s, unless its pattern backtracks forever
PATTERN_CHARS_MAX = 1_000
ENTRIES_MAX = 20_000  # of one directory, sorted in memory
LINES_DEFAULT, LINES_MAX = 400, 2_000
LINE_CHARS_MAX = 2_000  # about 800 tokens; a longer line is data
SCAN_BYTES_MAX = 64 * 1024 * 1024  # limit of read_file's scan for an offset or the last line
BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile("\r?\n")
EDIT_BYTES_MAX = 2 * 1024 * 1024
PAGE_BYTES_MAX = INLINE_BYTES_MAX - 1_000  # of a result read in pages; the last line names the next
COMMAND_S_MAX = 600
COMMAND_ENV = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}
COMMAND_ENV |= {"GIT_TERMINAL_PROMPT": "0"}  # there is no terminal for a password
DirectoryPath = Annotated[str, "relative to the working directory"]


def _room(ctx: ToolContext) -> int:
    """The number of tokens that a tool may use for the content of its result. The rest of the limit
    is for the notice that the tool adds."""
    return ctx.result_tokens * 4 // 5


@tool(effect="pure")
def list_directory(
    ctx: ToolContext,
    path: DirectoryPath = ".",
    pattern: Annotated[str, "only names that match this glob"] = "*",
    offset: Annotated[int, "skip this many entries"] = 0,
) -> str:
    """List a directory: directories first (ending in /), then files with their size in bytes.

    At most 100 entries are given; ask for the rest with offset, or narrow it down with pattern.
    """
    rows: list[tuple[bool, str, str]] = []
    with Workdir(ctx.workdir).directory(path) as fd, os.scandir(fd) as entries:
        for entry in entries:
            if entry.name == CLOSED or not fnmatchcase(entry.name, pattern):
                continue
            if len(rows) >= ENTRIES_MAX:
                raise ToolFailed(f"{path} has more than {ENTRIES_MAX} entries, use a pattern")
            rows.append(_row(entry, fd))
    lines = [line for _, _, line in sorted(rows)][max(0, offset) :]
    more = len(lines) - ROWS_MAX
    shown = lines[:ROWS_MAX] or [f"(no more of {len(rows)} entries of {path} that match {pattern})"]
    if more > 0:
        shown.append(f"{more} more; continue with offset {max(0, offset) + ROWS_MAX}")
    return "\n".join(shown)


def _row(entry: os.DirEntry[str], fd: int) -> tuple[bool, str, str]:
    """The sort key and line of an entry: (whether it is not a directory, name, line)."""
    name = _printable(entry.name)
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return True, name, f"{name}  (gone)"
    if stat.S_ISDIR(found.st_mode):
        return False, name, f"{name}/"
    if stat.S_ISLNK(found.st_mode):
        with suppress(OSError):
            return True, name, f"{name} -> {_printable(os.readlink(entry.name, dir_fd=fd))}"
    return True, name, f"{name}  {found.st_size}"


def _printable(name: str) -> str:
    """A file name on one line, even if it is not text."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text if text.isprintable() else repr(text)


@tool(effect="pure")
def read_file(
    ctx: ToolContext,
    path: DirectoryPath,
    offset: Annotated[int, "first line, counted from 1"] = 1,
    limit: Annotated[int, "number of lines"] = LINES_DEFAULT,
) -> str:
    """Read lines of a text file, each with its number and a tab in front.

    Long files are given in parts: the last line of the result says how to read on.
    """
    first, room = max(1, offset), _room(ctx)
    last = first + min(max(1, limit), LINES_MAX) - 1
    lines: list[str] = []
    number, after, scanned = 0, 0, 0
    with Workdir(ctx.workdir).file(path) as fd, open(fd, "rb", closefd=False) as file:
        if b"\0" in file.peek(8192)[:8192]:
            raise ToolFailed(f"{path} is binary ({os.fstat(fd).st_size} bytes)")
        while scanned < SCAN_BYTES_MAX and (line := file.readline(SCAN_BYTES_MAX)):
            number, scanned = number + 1, scanned + len(line)
            if first <= number <= last and not after:
                shown = f"{number}\t{_line(line)}"
                room -= estimate(shown + "\n")
                if room >= 0 or not lines:
                    lines.append(shown)
                    continue
            after += number >= first
        complete = not file.read(1)
    if not number:
        return "(the file is empty)"
    if not lines:
        raise ToolFailed(f"{path} has {number} lines, there is no line {first}")
    if after:
        least = "" if complete else "at least "
        lines.append(f"[{least}{after} more lines; continue with offset {first + len(lines)}]")
    return "\n".join(lines)


def _line(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    if len(text) <= LINE_CHARS_MAX:
        return text
    return (
        f"{text[:LINE_CHARS_MAX]} [{len(text) - LINE_CHARS_MAX} characters of this line left out]"
    )


@tool(effect="pure", timeout_s=30)
async def search_files(
    ctx: ToolContext,
    pattern: Annotated[str, "a regular expression; empty to list the files that match glob"],
    path: Annotated[str, "directory or file to search, relative to the working directory"] = ".",
    glob: Annotated[str | None, "only files whose name or path matches, such as *.py"] = None,
    literal: Annotated[bool, "take the pattern as plain text"] = False,
    ignore_case: bool = False,
    offset: Annotated[int, "skip this many matches"] = 0,
) -> str:
    """Search the lines of text files. Gives path:line: text, at most 100 and how many more.

    Skips .git, node_modules, .venv, __pycache__, binary files and files over 2 MiB.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ToolFailed(f"the pattern is longer than {PATTERN_CHARS_MAX} characters")
    request = {
        "pattern": re.escape(pattern) if literal else pattern,
        "name": path,
        "glob": glob,
        "ignore_case": ignore_case,
        "offset": max(0, offset),
        "rows": ROWS_MAX,
    }
    with Workdir(ctx.workdir).any(path) as (fd, _):
        ended = await ctx.children.run(
            [sys.executable, "-I", "-S", str(SEARCH_SCRIPT), str(fd), json.dumps(request)],
            timeout_s=SEARCH_KILL_S,
            pass_fds=[fd],
        )
    if ended.why not in (None, "timeout"):
        raise ToolCancelled(f"the search was stopped ({ended.why})")
    return _found(ended.output, ended.why is not None, ended.code, max(0, offset))


def _found(output: bytes, killed: bool, code: int, offset: int) -> str:
    """The result for the model: the rows that the script printed, and how many more there are."""
    lines = output.decode("utf-8", "replace").splitlines()
    parsed = [_parsed(line) for line in lines]
    rows = [value for value in parsed if isinstance(value, str)]
    counts = next((value for value in parsed if isinstance(value, dict)), None)
    if counts is None and not killed:
        raise ToolFailed(lines[-1] if lines else f"the search ended with code {code}")
    if counts is None:
        rows.append(
            f"[stopped after {SEARCH_KILL_S} s: the pattern may never end on some line; "
            "make it simpler, or use literal, glob or path]"
        )
        return "\n".join(rows)
    if not rows:
        rows.append(f"(no match in {counts['files']} files, {counts['skipped']} skipped)")
    if counts["more"]:
        least = "" if counts["complete"] else "at least "
        rows.append(f"{least}{counts['more']} more; continue with offset {offset + ROWS_MAX}")
    elif not counts["complete"]:
        rows.append("[the search took too long and is not complete; use glob or path]")
    return "\n".join(rows)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


@tool(effect="idempotent", approval="ask", timeout_s=30)
def edit_file(
    ctx: ToolContext,
    path: DirectoryPath,
    old_text: Annotated[str, "text that is in the file exactly once; empty to make a new file"],
    new_text: Annotated[str, "what replaces it"],
) -> str:
    """Replace one text in a file, or make a new file (with its directories).

    old_text must be copied exactly, without line numbers, with enough lines around it to be
    unique.
    """
    directory = Workdir(ctx.workdir)
    if len(new_text) > EDIT_BYTES_MAX:
        raise ToolFailed(f"new_text is longer than {EDIT_BYTES_MAX} characters")
    found = directory.read(path, EDIT_BYTES_MAX)
    if ctx.attempt > 1 and found is not None:
        if ctx.side_log.intent.get("becomes") == sha256(found).hexdigest():
            return f"already done: an earlier attempt edited {path}, nothing was changed"
        if not ctx.side_log.intent and _may_be_done(found, old_text, new_text):
            may = f"an earlier attempt may have edited {path}. Read it before you edit it again"
            raise ToolFailed(may)
    if found is None:
        if old_text:
            raise ToolFailed(f"there is no {path}; to make it, leave old_text empty")
        edited, done = _bytes(new_text), f"made {path}, {new_text.count(chr(10)) + 1} lines"
    else:
        edited, line = edited_text(path, found, old_text, new_text)
        done = f"edited {path} at line {line}"
    ctx.side_log.intend({"becomes": sha256(edited).hexdigest()})
    directory.replace(path, edited, found)
    return done


def edited_text(path: str, found: bytes, old_text: str, new_text: str) -> tuple[bytes, int]:
    """The content of a file after an edit, and the first changed line. A byte order mark stays, and
    line ends too: old_text matches LF and CRLF, and new_text gets what it replaces.

    Raises ToolFailed, with a text for the model, if old_text is not in the file exactly once.
    """
    try:
        text = found.decode()
    except UnicodeDecodeError:
        raise ToolFailed(f"{path} is not UTF-8 text, it was not edited") from None
    if not old_text:
        raise ToolFailed(f"{path} already exists; to change it, give the old_text to replace")
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    text = text.removeprefix(mark)
    if mark:
        old_text, new_text = (t.removeprefix(mark) for t in (old_text, new_text))
    matches = list(_in_any_line_ends(old_text).finditer(text)) if old_text else []
    if len(matches) != 1:
        what = f"is {len(matches)} times in {path}" if matches else f"is not in {path}"
        if not matches and new_text and new_text in text:
            what += ", but new_text is: maybe it was edited before"
        raise ToolFailed(f"old_text {what}; read the file and copy a unique part of it")
    (match,) = matches
    if "\r\n" not in old_text + new_text:
        new_text = _with_line_ends(old_text, new_text, text, match)
    edited = text[: match.start()] + new_text + text[match.end() :]
    return _bytes(mark + edited), text.count("\n", 0, match.start()) + 1


def _in_any_line_ends(old: str) -> re.Pattern[str]:
    """Matches a text in a file, whichever line ends the file has where the text has LF."""
    return re.compile(r"\r?\n".join(re.escape(line) for line in re.split(r"(?<!\r)\n", old)))


def _with_line_ends(old: str, new: str, text: str, match: re.Match[str]) -> str:
    """The new text with the line ends that it replaces: lines that stay as they are keep theirs. If
    the new text replaces no line end, it gets the line end of the line in which it stands."""
    lines, before = new.split("\n"), old.split("\n")
    if len(lines) == 1:
        return new
    ends = _LINE_END.findall(match[0])
    if not ends:
        near = _LINE_END.search(text, match.end()) or next(_LINE_END.finditer(text), None)
        ends = [near[0] if near else "\n"]
    pairs = zip(reversed(before), reversed(lines), strict=False)
    stay = min(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)), len(ends))
    more = len(lines) - 1 - len(ends)
    chosen = [
        ends[n - more] if len(lines) - 1 - n <= stay else ends[min(n, len(ends) - 1)]
        for n in range(len(lines) - 1)
    ]
    return "".join(line + end for line, end in zip(lines, [*chosen, ""], strict=True))


def _may_be_done(found: bytes, old: str, new: str) -> bool:
    """Whether a file may be the result of an edit whose intent is not known."""
    text = found.replace(b"\r\n", b"\n").decode("utf-8", "replace").removeprefix(BYTE_ORDER_MARK)
    old, new = (t.replace("\r\n", "\n").removeprefix(BYTE_ORDER_MARK) for t in (old, new))
    if not old or not new:
        return text == new if not old else old not in text
    return new in text and not any(old in part for part in text.split(new))


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolFailed("the text has half of a surrogate pair, it can't be written") from None


@tool(effect="once", approval="ask", timeout_s=COMMAND_S_MAX + 30)
async def run_command(
    ctx: ToolContext,
    command: Annotated[str, "for sh -c, in the working directory, without input"],
    timeout_s: Annotated[int, "seconds after which it is killed, at most 600"] = 60,
) -> Shortened | str:
    """Run a shell command. Gives the last 200 lines of its output and its exit code.

    What it starts in the background is killed when it ends.
    """
    directory = Workdir(ctx.workdir).root
    timeout_s = min(max(1, timeout_s), COMMAND_S_MAX)
    if "\0" in command:
        raise ToolFailed("the command has a NUL character")
    try:
        ended = await ctx.children.run(
            ["sh", "-c", command], cwd=directory, timeout_s=timeout_s, env=COMMAND_ENV
        )
    except OSError as error:  # nothing was started
        raise ToolFailed(f"the command was not started: {error}") from error
    whole = ended.output.decode("utf-8", "replace")
    if ended.left_out:
        whole = f"[{ended.left_out} bytes in the middle were not kept]\n{whole}"
    shown = _last_lines(whole, _room(ctx))
    stays = "it and all it had started; what it had done until then stays done"
    if ended.why == "timeout":
        raise ToolFailed(f"{shown}\n[killed after {timeout_s} s, {stays}]")
    if ended.why is not None:
        raise ToolCancelled(f"{shown}\n[killed ({ended.why}), {stays}]")
    end = f"[exit code {ended.code}]" if ended.code >= 0 else f"[killed by signal {-ended.code}]"
    text = f"{shown}{end}" if shown.endswith("\n") or not shown else f"{shown}\n{end}"
    return text if shown == whole else Shortened(text, whole)


def _last_lines(text: str, tokens: int) -> str:
    """The end of a text, limited to LOG_LINES_MAX lines and `tokens` tokens."""
    lines = text.splitlines(keepends=True)
    shown = "".join(lines[-LOG_LINES_MAX:])
    shown = prefix(shown[::-1], tokens)[::-1]
    if shown == text:
        return text
    left_out = len(lines) - shown.count("\n") - (not shown.endswith("\n"))
    return f"[the first {left_out} of {len(lines)} lines are left out]\n{shown}"


@tool(effect="pure")
def read_result(
    ctx: ToolContext,
    ref: Annotated[str, "as a notice names it"],
    offset: Annotated[int, "first character, counted from 0"] = 0,
) -> str:
    """Read on in a tool result that was cut; its notice names the ref and the offset."""
    none = ToolFailed(f"no result of this session is kept as {ref[:80]!r}")
    if ref not in ctx.refs:  # otherwise a ref could open other people's results
        raise none
    try:
        text = ctx.blobs.get(ref).decode()
    except BlobError:
        raise none from None
    except UnicodeDecodeError:
        raise ToolFailed("this result is binary, it can't be shown") from None
    first = max(0, offset)
    if first >= len(text):
        raise ToolFailed(f"the result has {len(text)} characters, nothing follows {first}")
    part = _page(text[first:], _room(ctx))
    rest = len(text) - first - len(part)
    more = f"\n[{rest} more characters; continue with offset {first + len(part)}]" if rest else ""
    return part + more


def _page(text: str, tokens: int) -> str:
    """As much from the beginning of a text as fits into one result without being cut. It has at
    least one character."""
    part = prefix(text, tokens) or text[:1]
    part = part.encode()[:PAGE_BYTES_MAX].decode("utf-8", "ignore")
    if looks_like_log(part):  # a log would be cut to its last lines
        part = "".join(part.splitlines(keepends=True)[: LOG_LINES_MAX - 2])
    return part


@tool(effect="pure", stops=True)
def complete(summary: Annotated[str, "what was done and what is left, for the user"]) -> str:
    """Say that the task is done. Ends the turn: call it last, and alone."""
    return "done"


ALL = (list_directory, read_file, search_files, edit_file, run_command, read_result, complete)


def tools(directory: Path | str) -> list[Tool]:
    """The built-in tools, confined to a directory."""
    workdir = Path(directory).absolute()
    return [replace(each, workdir=workdir) for each in ALL]
