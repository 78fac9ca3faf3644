"""The headers by which no answer is a page that acts, whoever answers: a route, or the connection.
"""

INERT = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"sandbox; default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
}
"""What an answer shows is never a page that acts: most of it was written by users. The inspector's
own files bring a policy of their own instead."""
