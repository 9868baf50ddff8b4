"""The channel to the server, and what its errors mean to a worker."""

import random
from pathlib import Path

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import RpcError  # noqa: F401 - for programs that need no more of gRPC

from . import stubs

# What will not go away by asking again: the call is wrong, or this worker may not make it.
HOPELESS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}

OPTIONS = [
    # A worker should be back soon after the server is; gRPC's own ceiling is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # Finds a dead connection under a long poll.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


def connect(server, ca_file=None, token=None):
    """Opens a channel to `server` (host:port). Without `ca_file` it is not encrypted: for this machine only."""
    options = [*OPTIONS, ("grpc.service_config", stubs.SERVICE_CONFIG.read_text())]
    if not ca_file:
        if token:
            raise SystemExit("a token is sent over TLS only: name a CA file")
        return grpc.insecure_channel(server, options)
    credentials = grpc.ssl_channel_credentials(Path(ca_file).read_bytes())
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(server, credentials, options)


def add_server_flags(parser):
    """The flags that name a server, the same for every program here."""
    parser.add_argument("--server", default="127.0.0.1:7233", metavar="HOST:PORT")
    parser.add_argument("--ca-file", metavar="FILE", help="speak TLS, and trust this CA")
    parser.add_argument("--token-file", metavar="FILE", help="send this bearer token (needs --ca-file)")


def connect_by_flags(flags):
    token = Path(flags.token_file).read_text().strip() if flags.token_file else None
    return connect(flags.server, flags.ca_file, token)


def hopeless(error):
    """Whether a repeat of the call can't help. Everything else may have been carried out: repeat it."""
    return error.code() in HOPELESS


def reason_of(error):
    """The server's name for an error, e.g. LEASE_SUPERSEDED; gRPC's own when it came from elsewhere."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return reason_in(status_pb2.Status.FromString(value)) or error.code().name
    return error.code().name


def reason_in(status):
    """The reason within a google.rpc.Status. Empty: it has none."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return info.reason
    return ""


def pauses(first=0.1, longest=3.0):
    """Growing waits between repeats, with jitter so that workers don't come back as one."""
    ceiling = first
    while True:
        yield random.uniform(ceiling / 2, ceiling)
        ceiling = min(longest, ceiling * 2)


def seconds(duration):
    """A protobuf Duration as seconds."""
    return duration.seconds + duration.nanos / 1e9


def duration(value):
    """Seconds as a protobuf Duration. None stays absent."""
    if value is None:
        return None
    message = duration_pb2.Duration()
    message.FromNanoseconds(round(value * 1e9))
    return message
