# docker build -t hyperslab .
# docker run -p 8000:8000 hyperslab                                            the demo store
# docker run -p 8000:8000 -v ./data:/data:ro hyperslab serve /data             a folder of arrays
# docker run -p 8000:8000 -v ./hyperslab.toml:/etc/hyperslab.toml:ro hyperslab serve --config /etc/hyperslab.toml

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY app app
RUN python -m venv /opt/hyperslab \
    && python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && for wheel in /wheels/*.whl; do /opt/hyperslab/bin/pip install --no-cache-dir "${wheel}[server,codecs]"; done

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/hyperslab hyperslab
COPY --from=build /opt/hyperslab /opt/hyperslab
ENV PATH=/opt/hyperslab/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HYPERSLAB_HOST=0.0.0.0 \
    HYPERSLAB_PORT=8000 \
    HYPERSLAB_DEMO_DIR=/var/lib/hyperslab
USER 10001
WORKDIR /var/lib/hyperslab
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"HYPERSLAB_PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["hyperslab"]
CMD ["serve"]
