from seedbed.v1 import engine_pb2 as _engine_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RollbackRecord(_message.Message):
    __slots__ = ("version", "to_version", "from_digest", "to_digest", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TO_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    to_version: int
    from_digest: bytes
    to_digest: bytes
    reason: str
    def __init__(self, version: _Optional[int] = ..., to_version: _Optional[int] = ..., from_digest: _Optional[bytes] = ..., to_digest: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Adaptation(_message.Message):
    __slots__ = ("model", "base_digest", "dtype", "scope", "noise_version", "rank", "rounding", "start_digest", "version", "digest", "records")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NOISE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    START_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    base_digest: bytes
    dtype: str
    scope: str
    noise_version: int
    rank: int
    rounding: _engine_pb2.Rounding
    start_digest: bytes
    version: int
    digest: bytes
    records: _containers.RepeatedCompositeFieldContainer[_engine_pb2.UpdateRecord]
    def __init__(self, model: _Optional[str] = ..., base_digest: _Optional[bytes] = ..., dtype: _Optional[str] = ..., scope: _Optional[str] = ..., noise_version: _Optional[int] = ..., rank: _Optional[int] = ..., rounding: _Optional[_Union[_engine_pb2.Rounding, str]] = ..., start_digest: _Optional[bytes] = ..., version: _Optional[int] = ..., digest: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[_engine_pb2.UpdateRecord, _Mapping]]] = ...) -> None: ...
