# The worker and the gateway of docker-compose.yml: the locked packages, then the built wheel of this checkout.
FROM python:3.12-slim

# The same lock as `make setup`: what runs here is what the tests ran.
COPY requirements.lock /build/
RUN pip install --no-cache-dir --require-hashes -r /build/requirements.lock

COPY . /build/foldlog
RUN pip install --no-cache-dir --no-deps --no-build-isolation /build/foldlog \
    && rm -rf /build \
    && useradd --system --no-create-home foldlog \
    && mkdir -p /var/lib/foldlog/worker /var/lib/foldlog/gateway /var/lib/foldlog/blobs \
    && chown -R foldlog /var/lib/foldlog

# Named volumes take the owner of the directory they are mounted on.
USER foldlog
WORKDIR /var/lib/foldlog
ENV FOLDLOG_HOME=/var/lib/foldlog \
    FOLDLOG_STATE_DIR=/var/lib/foldlog/worker \
    FOLDLOG_BLOBS=/var/lib/foldlog/blobs \
    PYTHONUNBUFFERED=1

ENTRYPOINT ["foldlog"]
CMD ["worker", "--supervise"]
