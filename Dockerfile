# The server as an image: docker build -t attend-server .
#
# BASE may also be debian:trixie-slim.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
COPY deploy/install-deps.sh /src/deploy/
RUN /src/deploy/install-deps.sh --only build \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DATTEND_BUILD_TESTS=OFF -DATTEND_BUILD_BENCH=OFF \
 && cmake --build --preset release \
 && cmake --install build/release --prefix /out --strip \
 && deploy/runtime-packages.sh /out/bin/* > /out/packages

FROM ${BASE}
COPY --from=build /out/packages /tmp/packages
RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update -qq \
 && xargs apt-get install -y -qq --no-install-recommends < /tmp/packages \
 && rm -rf /var/lib/apt/lists/* /tmp/packages \
 && groupadd --gid 10001 attend \
 && useradd --uid 10001 --gid attend --no-create-home --home-dir /nonexistent \
            --shell /usr/sbin/nologin attend
COPY --from=build /out/bin/ /usr/local/bin/
USER 10001:10001

# A container's port can only be published if the server listens beyond loopback. It speaks without
# encryption, so whoever publishes the port decides who may reach it: see SECURITY.md. Flags given
# after the image's name win over these.
ENV ATTEND_LISTEN=0.0.0.0:50051 \
    ATTEND_ADMIN_LISTEN=0.0.0.0:9090 \
    ATTEND_ALLOW_INSECURE_REMOTE=true
EXPOSE 50051 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["attend", "--server", "127.0.0.1:50051", "--timeout", "2", "health"]
ENTRYPOINT ["attend-server"]
