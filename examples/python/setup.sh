#!/bin/sh
# Makes .venv/ with the requirements, and gen/ with the stubs of ../../proto. Run it again after the contract changed.
# PYTHON names another interpreter; 3.9 is the oldest.
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
    echo "setup.sh: $PYTHON is missing or older than 3.9. Install Python 3.9 or newer, or name one: PYTHON=python3.11 ./setup.sh" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "setup.sh: $PYTHON can't make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
fi

"$PYTHON" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt

# Made beside and moved into place, so that gen/ is never half of it. Only leasehold/ is generated:
# google.rpc comes with googleapis-common-protos.
rm -rf gen.new
mkdir gen.new
.venv/bin/python -m grpc_tools.protoc -I ../../proto \
    --python_out=gen.new --pyi_out=gen.new --grpc_python_out=gen.new ../../proto/leasehold/v1/*.proto
cp ../../proto/grpc_service_config.json gen.new/
rm -rf gen
mv gen.new gen
echo "ready: $PWD/.venv/bin/python, stubs in $PWD/gen"
