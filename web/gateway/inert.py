"""The headers that keep browsers from treating a response as an active page.

All routes send these headers, and so do refused connections.
"""

INERT = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"sandbox; default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
}
"""Most responses contain text written by users, so a browser must not run them as a page. The
inspector's own files send a different policy.
"""
