# syntax=docker/dockerfile:1
# Two images of the same server:
#   docker build --target cpu -t seedbed:cpu .
#   docker build --target gpu -t seedbed:gpu .
# Run one with its port published on loopback only, because the server asks nobody for a key:
#   docker run --rm -p 127.0.0.1:8600:8600 -v seedbed:/data seedbed:cpu
#   docker run --rm --gpus all -p 127.0.0.1:8600:8600 -v seedbed:/data seedbed:gpu --model Qwen/Qwen3-0.6B

FROM python:3.11-slim-bookworm AS files
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY client client
COPY server server
COPY agents agents

# --- CPU ------------------------------------------------------------------------------------------------------
FROM python:3.11-slim-bookworm AS cpu-build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/seedbed
ENV PATH=/opt/seedbed/bin:$PATH
WORKDIR /app
COPY requirements requirements
RUN pip install -r requirements/cpu-torch.txt --extra-index-url https://download.pytorch.org/whl/cpu
RUN pip install -c requirements/cpu-torch.txt -r requirements/cpu.txt
RUN pip install --no-deps -r requirements/cpu-no-deps.txt
COPY --from=files /app /app
RUN pip install --no-deps /app

FROM python:3.11-slim-bookworm AS cpu
# soundfile, which SGLang imports, loads libsndfile; torch loads libgomp.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 libsndfile1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=cpu-build /opt/seedbed /opt/seedbed
ENV SEEDBED_DEVICE=cpu OMP_WAIT_POLICY=passive
ENV PATH=/opt/seedbed/bin:$PATH PYTHONUNBUFFERED=1 \
    SEEDBED_HOST=0.0.0.0 SEEDBED_ALLOW_REMOTE=true SEEDBED_HOME=/data/stores SEEDBED_CACHE=/data/cache HF_HOME=/data/hub
RUN useradd --create-home --uid 10001 seedbed && install -d -o seedbed -g seedbed /data
USER seedbed
WORKDIR /home/seedbed
VOLUME /data
EXPOSE 8600
STOPSIGNAL SIGINT
# Alive is enough: while the engine starts, /readyz says so to whoever routes traffic.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8600/healthz', timeout=4)"]
ENTRYPOINT ["seedbed", "serve"]

# --- GPU ------------------------------------------------------------------------------------------------------
# SGLang's kernels are compiled at run time, so the compiler stays in the image.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS gpu-build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-dev python3-venv build-essential \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/seedbed
ENV PATH=/opt/seedbed/bin:$PATH
WORKDIR /app
COPY requirements requirements
RUN pip install -r requirements/gpu.txt
COPY --from=files /app /app
RUN pip install "/app[server,agents]"

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS gpu
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-dev build-essential libsndfile1 \
      libnuma1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=gpu-build /opt/seedbed /opt/seedbed
ENV SEEDBED_DEVICE=cuda
ENV PATH=/opt/seedbed/bin:$PATH PYTHONUNBUFFERED=1 \
    SEEDBED_HOST=0.0.0.0 SEEDBED_ALLOW_REMOTE=true SEEDBED_HOME=/data/stores SEEDBED_CACHE=/data/cache HF_HOME=/data/hub
RUN useradd --create-home --uid 10001 seedbed && install -d -o seedbed -g seedbed /data
USER seedbed
WORKDIR /home/seedbed
VOLUME /data
EXPOSE 8600
STOPSIGNAL SIGINT
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8600/healthz', timeout=4)"]
ENTRYPOINT ["seedbed", "serve"]
