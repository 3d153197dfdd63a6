# FedTables in a container; docs/how-to/containers.md says how to build and start it.
FROM python:3.11-slim

# git: every run notes the commit that made it. Debian keeps only the newest version of a package, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*

# The packages first, so that a change of the code does not install them again.
WORKDIR /fedtables
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY scripts/setup_environment.py scripts/
RUN PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 python scripts/setup_environment.py

COPY . .
RUN git config --system --add safe.directory /fedtables

# Results, raw data and prepared data are read and written here: mount a folder. Libraries keep their caches in HOME.
ENV PYTHONPATH=/fedtables HOME=/tmp
WORKDIR /workspace
ENTRYPOINT ["/fedtables/.venv/bin/python", "-m", "benchmark"]
CMD ["table", "table=1", "preset=quick", "launcher=local"]
