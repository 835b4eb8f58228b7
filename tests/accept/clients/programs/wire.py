"""What really goes over the wire: HTTP clients that keep every byte, and that fail where they are told to.

Both of the HTTP libraries that the clients use have the same interface under two names, `httpx` and `httpx2`.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Exchange:
    """One request and what came back, as far as it came."""

    method: str
    path: str
    request_headers: dict[str, str]
    request_body: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False

    @property
    def retry(self) -> int:
        """What the SDK says about how often it has tried before."""
        return int(self.request_headers.get("x-stainless-retry-count", 0))

    @property
    def completion(self) -> str | None:
        return self.headers.get("x-seedbed-completion")

    @property
    def asked(self) -> dict[str, Any]:
        """The JSON body of the request."""
        return json.loads(self.request_body) if self.request_body else {}


@dataclass
class Record:
    """All exchanges of a case, and the failures that it wants.

    A fault is taken by the next request: `refuse` fails before it is sent, `lose` when the whole answer is
    there, `hang up` after its headers, closing the connection.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    faults: deque[str] = field(default_factory=deque)

    def begin(self, request: Any) -> tuple[Exchange, str]:
        exchange = Exchange(
            request.method, request.url.path, {k.lower(): v for k, v in request.headers.items()}, b""
        )
        self.exchanges.append(exchange)
        return exchange, self.faults.popleft() if self.faults else ""


def _heard(exchange: Exchange, response: Any) -> None:
    exchange.status = response.status_code
    exchange.headers = {k.lower(): v for k, v in response.headers.items()}


def sync_client(library: Any, record: Record, **options: Any) -> Any:
    """`httpx.Client` or `httpx2.Client` that writes into `record`."""

    class Stream(library.SyncByteStream):
        def __init__(self, inner: Any, exchange: Exchange) -> None:
            self._inner, self._exchange = inner, exchange

        def __iter__(self) -> Any:
            for part in self._inner:
                self._exchange.body += part
                yield part
            self._exchange.ended = True

        def close(self) -> None:
            self._inner.close()

    class Transport(library.BaseTransport):
        def __init__(self) -> None:
            self._inner = library.HTTPTransport(limits=library.Limits(max_connections=100))

        def handle_request(self, request: Any) -> Any:
            exchange, fault = record.begin(request)
            exchange.request_body = request.read()
            if fault == "refuse":
                raise library.ConnectError("as the test wants it", request=request)
            response = self._inner.handle_request(request)
            _heard(exchange, response)
            if fault == "lose":
                exchange.body += b"".join(response.stream)
                exchange.ended = True
            if fault:
                response.close()
                raise library.ReadError("as the test wants it", request=request)
            response.stream = Stream(response.stream, exchange)
            return response

        def close(self) -> None:
            self._inner.close()

    return library.Client(transport=Transport(), timeout=120.0, **options)


def async_client(library: Any, record: Record, **options: Any) -> Any:
    """The same as `AsyncClient`."""

    class Stream(library.AsyncByteStream):
        def __init__(self, inner: Any, exchange: Exchange) -> None:
            self._inner, self._exchange = inner, exchange

        async def __aiter__(self) -> Any:
            async for part in self._inner:
                self._exchange.body += part
                yield part
            self._exchange.ended = True

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Transport(library.AsyncBaseTransport):
        def __init__(self) -> None:
            self._inner = library.AsyncHTTPTransport(limits=library.Limits(max_connections=100))

        async def handle_async_request(self, request: Any) -> Any:
            exchange, fault = record.begin(request)
            exchange.request_body = await request.aread()
            if fault == "refuse":
                raise library.ConnectError("as the test wants it", request=request)
            response = await self._inner.handle_async_request(request)
            _heard(exchange, response)
            if fault == "lose":
                async for part in response.stream:
                    exchange.body += part
                exchange.ended = True
            if fault:
                await response.aclose()
                raise library.ReadError("as the test wants it", request=request)
            response.stream = Stream(response.stream, exchange)
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    return library.AsyncClient(transport=Transport(), timeout=120.0, **options)
