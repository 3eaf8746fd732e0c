# ctx as a container: no root, a read-only root file system, one volume for the store.
#   docker build -t ctx .
#   docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:7331:7331 -e CTX_API_KEY=... \
#     -v "$PWD/docs:/data/docs:ro" -v ctx-store:/data/.ctx ctx
# The server binds beyond loopback inside the container, so it wants a key; -p 127.0.0.1:... keeps it on this machine.
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/ctx
COPY requirements/runtime.txt ./
RUN /opt/ctx/bin/pip install --no-cache-dir --require-hashes -r runtime.txt
COPY . .
# EXTRAS=cluster: the client of PostgreSQL too, for [store] url (docs/deploy/compose.yaml).
ARG EXTRAS=
RUN /opt/ctx/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && if [ -n "$EXTRAS" ]; then /opt/ctx/bin/pip install --no-cache-dir --no-build-isolation ".[$EXTRAS]"; fi \
 && /opt/ctx/bin/python -m compileall -q /opt/ctx/lib

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 ctx && install -d -o ctx -m 700 /data/.ctx
COPY --from=build /opt/ctx /opt/ctx
COPY docs/deploy/container.toml /data/ctx.toml
USER ctx
# The file is named, so that nobody has to trust it. Copies of git sources, memories and keys: in the volume, as the
# home folder is read-only.
ENV CTX_CONFIG=/data/ctx.toml XDG_CACHE_HOME=/data/.ctx/cache XDG_DATA_HOME=/data/.ctx/data XDG_STATE_HOME=/data/.ctx/state
WORKDIR /data
VOLUME /data/.ctx
EXPOSE 7331
HEALTHCHECK --interval=30s --timeout=5s CMD ["/opt/ctx/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7331/health', timeout=4)"]
ENTRYPOINT ["/opt/ctx/bin/ctx"]
CMD ["serve", "mcp", "--log-format", "json"]
