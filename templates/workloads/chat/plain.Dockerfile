# What answers on a model host where the old side is a model server alone: the chat app without words of its own.
# The base can be given when building: --build-arg BASE=...
ARG BASE=alpine:3.20
FROM ${BASE}

SHELL ["/bin/ash", "-eo", "pipefail", "-c"]

RUN apk add --no-cache python3 py3-aiohttp ca-certificates tzdata \
 && cp /usr/share/zoneinfo/UTC /etc/localtime

RUN addgroup -S app \
 && adduser -S -D -H -h /app -s /sbin/nologin -G app app

WORKDIR /app
COPY app.py plain/wording.py ./

RUN apk add --no-cache --virtual .build-deps py3-pip \
 && python3 -m pip check \
 && python3 -m compileall -q /app \
 && apk del .build-deps

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    APP_HOST=0.0.0.0 \
    APP_PORT=8080 \
    DATA_DIR=/data

VOLUME ["/data"]
EXPOSE 8080
USER app

HEALTHCHECK --interval=10s --timeout=10s --retries=3 CMD ["python3", "/app/app.py", "--health"]
ENTRYPOINT ["python3", "/app/app.py"]
