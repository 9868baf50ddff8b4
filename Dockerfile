# One binary in a small image. It needs a Postgres of its own (14 or newer) and says so if it has none:
#
#   docker build -t leasehold .
#   docker run -e LEASEHOLD_DATABASE_URL=postgres://user:password@host/database -p 7233:7233 -p 7280:7280 leasehold serve --insecure
#
# In a container it has to listen on every address, and without credentials it refuses that unless told `--insecure`: then whoever
# reaches the port may do anything. So the image does not say it for you; put it behind a network policy, or give it credentials.

FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches stay outside the image: a rebuild compiles only what has changed.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin leasehold && cp target/release/leasehold /leasehold

FROM debian:bookworm-slim
# The roots by which it trusts a database or a collector that speaks TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /leasehold /usr/local/bin/leasehold
USER 65532:65532
ENV LEASEHOLD_LISTEN=0.0.0.0:7233 LEASEHOLD_HTTP_LISTEN=0.0.0.0:7280
# gRPC, and HTTP (console, metrics, readiness).
EXPOSE 7233 7280
# Asks grpc.health.v1 on LEASEHOLD_SERVER, by default this container's own port.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["leasehold", "health"]
# SIGTERM drains: health first, then long polls, streams and batches. Give it --grace-seconds and a little more.
STOPSIGNAL SIGTERM
ENTRYPOINT ["leasehold"]
CMD ["serve"]
