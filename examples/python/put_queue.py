"""The operator's side: states what completion in the notification queue proves, and its lease and retry policy."""

import argparse
import sys

from leasehold_worker import RpcError, add_server_flags, connect_by_flags, reason_of
from leasehold_worker.connection import duration
from leasehold_worker.stubs import admin_service_pb2 as pb, admin_service_pb2_grpc, queue_pb2, retry_pb2


def main():
    parser = argparse.ArgumentParser(description="Makes or changes the notification queue.")
    add_server_flags(parser)
    parser.add_argument("--queue", default="notify")
    parser.add_argument("--boundary", default="provider_accepted")
    parser.add_argument("--lease", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--max-attempts", type=int, default=3)
    given = parser.parse_args()
    queue = queue_pb2.Queue(
        name=given.queue,
        boundary=given.boundary,
        lease_duration=duration(given.lease),
        retry=retry_pb2.RetryPolicy(max_attempts=given.max_attempts),
    )
    admin = admin_service_pb2_grpc.AdminServiceStub(connect_by_flags(given))
    try:
        answer = admin.PutQueue(pb.PutQueueRequest(queue=queue, reason="the notification example"), timeout=10)
    except RpcError as error:
        print(f"refused   {reason_of(error)}: {error.details()}", file=sys.stderr)
        return 1
    print(f"queue     {answer.queue.name}: boundary {answer.queue.boundary}, {'made' if answer.created else 'changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
