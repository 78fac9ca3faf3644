"""The headers that keep browsers from treating a response as an active page.

Routes send them, and so do connections that are refused.
"""

INERT = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"sandbox; default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
}
"""Responses mostly contain text written by users, so none may run as a page. The inspector's own
files send a policy of their own instead."""
