# Two images: `--target cpu`, and `--target cuda` for NVIDIA GPUs. docs/hosts.md says how they are run.
# The versions are those of locks/ and scripts/install.py, as in `make demo`.
FROM debian:bookworm-slim AS python
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/*

FROM python AS packages
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/workbench
WORKDIR /build
ENV PATH=/opt/workbench/bin:$PATH
COPY locks/notebook.txt locks/
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --requirement locks/notebook.txt

FROM packages AS wheel
COPY . .
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

# torch alone: what every build of it needs is in the lock. With --no-index pip holds the whole to our bounds.
FROM packages AS packages-cpu
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels pip install --no-cache-dir --no-index /wheels/*.whl

FROM packages AS packages-cuda
RUN pip install --no-cache-dir torch==2.13.0
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels pip install --no-cache-dir --no-index /wheels/*.whl

# No pip but the environment's, no compiler. Everything that is kept lies in the volume, the Hub's models too.
FROM python AS runtime
RUN useradd --uid 1000 --create-home workbench && install --directory --owner workbench --group workbench /workspace
ENV PATH=/opt/workbench/bin:$PATH \
    HF_HOME=/workspace/huggingface \
    WORKBENCH_HOME=/workspace/workbench
WORKDIR /workspace
VOLUME /workspace
EXPOSE 7860
# The login form, which needs no login.
HEALTHCHECK --interval=30s --timeout=10s --start-period=2m \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=8)"]
ENTRYPOINT ["tini", "--", "workbench"]
CMD ["webui", "--listen", "--port", "7860"]
# A host that mounts the volume as root's own: --build-arg RUN_AS=root
ARG RUN_AS=workbench
USER ${RUN_AS}

FROM runtime AS cuda
COPY --from=packages-cuda /opt/workbench /opt/workbench

FROM runtime AS cpu
COPY --from=packages-cpu /opt/workbench /opt/workbench
