"""Where exports are kept: a folder that stands for an object store. Snapshots are frozen when an export is asked for; artifacts are
written by attempts, each under its own fencing token, so that no attempt can touch another one's.

Which artifact counts is never decided here: it is the one whose reference Leasehold accepted with the attempt's success.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path


class Artifacts:
    def __init__(self, folder):
        self._folder = Path(folder)

    def freeze(self, export, notes):
        """Keeps the notes as they are now. Frozen once: asked again for the same export, the first snapshot stands."""
        ref = f"snapshots/{export}.json"
        path = self._folder / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x") as file:
                json.dump(notes, file)
        except FileExistsError:
            pass
        return ref

    def snapshot(self, ref):
        return json.loads((self._folder / ref).read_text())

    def put(self, export, token, chunks):
        """Writes an artifact whole or not at all. Returns its reference, digest and size. An exception from `chunks` leaves nothing."""
        ref = f"exports/{export}/{token}.ndjson"
        path = self._folder / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        draft = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{token}-", delete=False)  # noqa: SIM115 - renamed below
        try:
            with draft as file:
                for chunk in chunks:
                    file.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft.name, path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
        return ref, f"sha256:{digest.hexdigest()}", size

    def read(self, ref):
        return (self._folder / ref).read_bytes()

    def of(self, export):
        """References of all artifacts of an export that are whole, whoever wrote them."""
        folder = self._folder / "exports" / export
        return sorted(f"exports/{export}/{path.name}" for path in folder.glob("*.ndjson"))


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
