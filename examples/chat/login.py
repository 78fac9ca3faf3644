"""The page's own server: it signs people in, and gives their browsers a token for the gateway.

python -m uvicorn login:app --port 8100
"""

import os
import time

import jwt
from fastapi import FastAPI, Response

SECRET = os.environ["FOLDLOG_GATEWAY_SECRET"]
LIFE_S = 900  # an hour at most; every page load and every use of the page renews it

app = FastAPI()


@app.post("/login/{user}")  # put your own login here
def login(user: str, response: Response) -> None:
    """Set the cookie that the gateway reads."""
    now = int(time.time())
    claims = {"sub": user, "aud": "foldlog", "iat": now, "exp": now + LIFE_S}
    token = jwt.encode(claims, SECRET, "HS256")
    response.set_cookie(
        "foldlog_token", token, max_age=LIFE_S, path="/api",
        httponly=True, secure=True, samesite="strict",
    )
