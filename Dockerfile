# The wheel is built with the locked tools, and only the wheel leaves this stage.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements-demo.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-demo.lock
COPY pyproject.toml README.md LICENSE ./
COPY activities activities
COPY workflows workflows
COPY holdfast holdfast
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist .

FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1
COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.lock && rm /tmp/requirements.lock
COPY --from=build /dist /tmp/dist
RUN pip install --no-cache-dir --no-deps --no-index /tmp/dist/*.whl && rm -r /tmp/dist
# What the agents import besides, as arguments of pip; `pip check` refuses what does not fit.
ARG PACKAGES=""
RUN if [ -n "$PACKAGES" ]; then pip install --no-cache-dir $PACKAGES && pip check; fi
# A named volume takes over the owner of the directory that it is mounted on.
RUN useradd --create-home --uid 10001 holdfast \
    && install --directory --owner holdfast --group holdfast /var/lib/holdfast /var/lib/holdfast/archive
USER holdfast
WORKDIR /home/holdfast
ENTRYPOINT ["holdfast"]
CMD ["worker"]
