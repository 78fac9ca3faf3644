"""Allows every call of `report` that waits for approval, and denies all others."""

import foldlog

with foldlog.connect() as log:
    for state in log.sessions(status="asks"):
        session = log.session(state.session_id, user=state.user)
        for ask in state.approvals:
            decide = session.approve if ask.tool == "report" else session.deny
            decide(ask)
            print(f"{state.session_id}: {decide.__name__} {ask.tool} {ask.arguments}")
