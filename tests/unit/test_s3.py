"""What an archive asks of a bucket that it may read and write, and not list."""

import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import pytest

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import S3Store, open_store


class Bucket(BaseHTTPRequestHandler):
    """S3 without leave to list: it says 403 of what is missing."""

    objects: dict[str, bytes]
    asked: list[str]
    is_shut = False
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Return an object, or its length."""
        path, _, query = self.path.partition("?")
        self.asked.append("LIST" if "list-type" in query else self.command)
        data = None if self.is_shut or "list-type" in query else self.objects.get(path)
        denied = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        self.answer(403 if data is None else 200, denied if data is None else data)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        """Put an object, unless it is there."""
        self.asked.append(self.command)
        data = self.rfile.read(int(self.headers["Content-Length"]))
        is_there = self.headers.get("If-None-Match") and self.path in self.objects
        taken = b"<Error><Code>PreconditionFailed</Code></Error>"
        if not is_there:
            self.objects[self.path] = data
        self.answer(412 if is_there else 200, taken if is_there else b"")

    def answer(self, status: int, data: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 10:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Generator[type[Bucket]]:
    """Serve a bucket."""
    Bucket.objects, Bucket.asked, Bucket.is_shut = {}, [], False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever).start()
    known: Any = fsspec  # it ships no types
    known.get_filesystem_class("s3").clear_instance_cache()  # one of another server
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    yield Bucket
    server.shutdown()
    server.server_close()


def test_what_is_there_and_what_is_missing_is_told_without_a_list(bucket: type[Bucket]) -> None:
    store = open_store("s3://b/root", {})
    assert isinstance(store, S3Store)
    assert store.size("x") is None
    store.write("x", b"some")
    assert (store.size("x"), store.read("x")) == (4, b"some")
    assert bucket.asked == ["HEAD", "PUT", "HEAD", "GET"]
    assert store.written("x") == 1_793_527_200
    with pytest.raises(FileNotFoundError):
        store.read("y")
    assert store.size("y") is None
    assert "LIST" not in bucket.asked
    bucket.is_shut = True
    for ask in (store.read, store.size):
        with pytest.raises(PermissionError):  # not taken for a missing one
            ask("x")


def test_an_answer_and_a_record_are_put_and_read_back_by_a_request_each(
    bucket: type[Bucket],
) -> None:
    archive = Archive("s3://b/root")
    name = archive.put(b"answer")
    bucket.asked.clear()  # the first one looked whether the archive is encrypted
    assert archive.find_record("tasks/t") is None
    archive.put_record("tasks/t", {"answer": archive.put(b"another")})
    assert archive.find_record("tasks/t") == {"answer": archive.put(b"another")}
    assert archive.get(name) == b"answer"
    assert "LIST" not in bucket.asked
    assert bucket.asked[-6:] == ["PUT", "PUT", "GET", "PUT", "HEAD", "GET"]
    [path] = [path for path, data in bucket.objects.items() if data == b"answer"]
    bucket.objects[path] = b"answ"  # cut short
    archive.put(b"answer")
    assert archive.get(name) == b"answer"
