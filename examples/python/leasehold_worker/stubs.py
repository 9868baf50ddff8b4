"""The generated stubs, found in ../gen, and what must be so before gRPC is loaded. Import this before `grpc`."""

import os
import sys
from pathlib import Path

GEN = Path(__file__).resolve().parent.parent / "gen"
SERVICE_CONFIG = GEN / "grpc_service_config.json"

# Programs that are started from here (by a handler, a test) must not run gRPC's fork handlers on their way: on Python 3.9,
# where subprocess forks, they have hung there.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

if str(GEN) not in sys.path:
    sys.path.insert(0, str(GEN))

try:
    from leasehold.v1 import (  # noqa: F401 - for the others here
        admin_service_pb2,
        admin_service_pb2_grpc,
        attempt_pb2,
        lease_pb2,
        queue_pb2,
        repair_service_pb2,
        repair_service_pb2_grpc,
        retry_pb2,
        task_pb2,
        task_service_pb2,
        task_service_pb2_grpc,
        worker_service_pb2,
        worker_service_pb2_grpc,
    )
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: run ./setup.sh, then use .venv/bin/python") from missing
