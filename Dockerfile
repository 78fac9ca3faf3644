# The worker and the gateway of docker-compose.yml: the locked packages, then this checkout's wheel.
FROM python:3.12-slim

# The same lock as `make setup`, so the image runs the versions that were tested.
COPY requirements.lock /build/
RUN pip install --no-cache-dir --require-hashes -r /build/requirements.lock

COPY . /build/foldlog
RUN pip install --no-cache-dir --no-deps --no-build-isolation /build/foldlog \
    && rm -rf /build \
    && useradd --system --no-create-home foldlog \
    && mkdir -p /var/lib/foldlog/worker /var/lib/foldlog/gateway /var/lib/foldlog/blobs \
        /var/lib/foldlog/fleet \
    && chown -R foldlog /var/lib/foldlog

# A named volume takes the owner of the directory it is mounted on.
USER foldlog
WORKDIR /var/lib/foldlog
ENV FOLDLOG_HOME=/var/lib/foldlog \
    FOLDLOG_STATE_DIR=/var/lib/foldlog/worker \
    FOLDLOG_BLOBS=/var/lib/foldlog/blobs \
    PYTHONUNBUFFERED=1

ENTRYPOINT ["foldlog"]
CMD ["worker", "--supervise"]
