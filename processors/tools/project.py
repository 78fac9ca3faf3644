"""build_and_deploy: the one tool that may lock a session to a project.

A session is locked to a project once: by this tool with confirm_new_project, which only a person
should allow, or by PROJECT_LOCKED when a person opens an existing project. The fold refuses a lock
that any other tool requests, or a call whose arguments do not confirm it.
"""

from collections.abc import Sequence
from typing import Annotated

from ...schemas.ids import is_id, why_not_an_id
from ..fold.field_writers import PROJECT_TOOL
from .context import ToolContext
from .log_text import last_lines
from .tool import Tool, ToolCancelled, ToolFailed, tool

PROJECT_ENV = "FOLDLOG_PROJECT"
"""The environment variable with the project's id."""


def build_and_deploy(command: Sequence[str], *, timeout_s: float = 600) -> Tool:
    """A tool that builds and deploys the session's project by running `command`.

    The command runs in the agent's working directory, with the project's id in FOLDLOG_PROJECT. In
    a session without a project, the call must confirm a new project. The session is locked to it
    after the command has succeeded.
    """
    argv = [str(part) for part in command]

    @tool(name=PROJECT_TOOL, effect="once", approval="ask", timeout_s=timeout_s)
    async def build(
        ctx: ToolContext,
        project_id: Annotated[str, "1-128 characters of [A-Za-z0-9._:@-]"],
        confirm_new_project: Annotated[bool, "true only if the user wants a new project"] = False,
    ) -> str:
        """Build and deploy the project of this session. Gives the last 200 lines of the output.

        A session has one project for ever. If it has none yet, confirm_new_project makes one.
        """
        if not is_id(project_id):
            raise ToolFailed(why_not_an_id("project_id", project_id))
        if ctx.project_id is not None and (ctx.project_id != project_id or confirm_new_project):
            raise ToolFailed(f"project_id already locked: this session's is {ctx.project_id}")
        if ctx.project_id is None and not confirm_new_project:
            raise ToolFailed(
                "this session has no project: ask the user whether a new one is wanted, then call "
                "with confirm_new_project; an existing one is opened by the user"
            )
        try:
            ended = await ctx.children.run(argv, cwd=ctx.workdir, env={PROJECT_ENV: project_id})
        except OSError as error:
            raise ToolFailed(f"{argv[0]} was not started: {error}") from error
        shown = last_lines(ended.output.decode("utf-8", "replace"))
        if ended.why is not None:
            raise ToolCancelled(f"{shown}\n[killed ({ended.why}), what it had done stays done]")
        if ended.code != 0:
            raise ToolFailed(f"{shown}\n[exit code {ended.code}, no project was locked]")
        if ctx.project_id is None:
            ctx.lock_project(project_id)
        return shown

    return build
