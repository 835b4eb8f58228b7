from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Coverage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COVERAGE_UNSPECIFIED: _ClassVar[Coverage]
    COVERAGE_MATRIX: _ClassVar[Coverage]
    COVERAGE_BIAS: _ClassVar[Coverage]
    COVERAGE_NORM: _ClassVar[Coverage]
    COVERAGE_EXCLUDED: _ClassVar[Coverage]

class Rounding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUNDING_UNSPECIFIED: _ClassVar[Rounding]
    ROUNDING_NEAREST: _ClassVar[Rounding]
    ROUNDING_STOCHASTIC: _ClassVar[Rounding]
COVERAGE_UNSPECIFIED: Coverage
COVERAGE_MATRIX: Coverage
COVERAGE_BIAS: Coverage
COVERAGE_NORM: Coverage
COVERAGE_EXCLUDED: Coverage
ROUNDING_UNSPECIFIED: Rounding
ROUNDING_NEAREST: Rounding
ROUNDING_STOCHASTIC: Rounding

class Address(_message.Message):
    __slots__ = ("seed", "sigma")
    SEED_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    seed: int
    sigma: float
    def __init__(self, seed: _Optional[int] = ..., sigma: _Optional[float] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("name", "shape", "coverage")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    coverage: Coverage
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., coverage: _Optional[_Union[Coverage, str]] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("version", "digest", "epoch", "term")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    version: int
    digest: bytes
    epoch: int
    term: int
    def __init__(self, version: _Optional[int] = ..., digest: _Optional[bytes] = ..., epoch: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("term", "parameters")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    term: int
    parameters: bool
    def __init__(self, term: _Optional[int] = ..., parameters: _Optional[bool] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("state", "model", "model_path", "architecture", "dtype", "device", "base_digest", "noise_version", "rank", "scope", "slots", "context_length", "max_running_requests", "parameters", "slot_bytes", "weight_bytes", "tool_call_parser", "reasoning_parser")
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NOISE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SLOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_PARSER_FIELD_NUMBER: _ClassVar[int]
    REASONING_PARSER_FIELD_NUMBER: _ClassVar[int]
    state: State
    model: str
    model_path: str
    architecture: str
    dtype: str
    device: str
    base_digest: bytes
    noise_version: int
    rank: int
    scope: str
    slots: int
    context_length: int
    max_running_requests: int
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    slot_bytes: int
    weight_bytes: int
    tool_call_parser: str
    reasoning_parser: str
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., model: _Optional[str] = ..., model_path: _Optional[str] = ..., architecture: _Optional[str] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., base_digest: _Optional[bytes] = ..., noise_version: _Optional[int] = ..., rank: _Optional[int] = ..., scope: _Optional[str] = ..., slots: _Optional[int] = ..., context_length: _Optional[int] = ..., max_running_requests: _Optional[int] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., slot_bytes: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., tool_call_parser: _Optional[str] = ..., reasoning_parser: _Optional[str] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "max_new_tokens", "stop", "ignore_eos", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    max_new_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., max_new_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., seed: _Optional[int] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("text", "token_ids", "address", "sampling", "logprobs", "prompt_logprobs_from")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FROM_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: TokenIds
    address: Address
    sampling: Sampling
    logprobs: bool
    prompt_logprobs_from: int
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., logprobs: _Optional[bool] = ..., prompt_logprobs_from: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("id", "logprob")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    id: int
    logprob: float
    def __init__(self, id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("text", "ids", "logprobs", "finish")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    text: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    finish: Finish
    def __init__(self, text: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason", "prompt_tokens", "completion_tokens", "cached_tokens", "prompt_logprobs", "first_version", "last_version")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FIRST_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_VERSION_FIELD_NUMBER: _ClassVar[int]
    reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    first_version: int
    last_version: int
    def __init__(self, reason: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., prompt_logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., first_version: _Optional[int] = ..., last_version: _Optional[int] = ...) -> None: ...

class OpenAIRequest(_message.Message):
    __slots__ = ("route", "body", "address")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    route: str
    body: bytes
    address: Address
    def __init__(self, route: _Optional[str] = ..., body: _Optional[bytes] = ..., address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class OpenAIResponse(_message.Message):
    __slots__ = ("head", "chunk", "tail")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    head: OpenAIHead
    chunk: bytes
    tail: OpenAITail
    def __init__(self, head: _Optional[_Union[OpenAIHead, _Mapping]] = ..., chunk: _Optional[bytes] = ..., tail: _Optional[_Union[OpenAITail, _Mapping]] = ...) -> None: ...

class OpenAIHead(_message.Message):
    __slots__ = ("status", "content_type", "version")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    status: int
    content_type: str
    version: int
    def __init__(self, status: _Optional[int] = ..., content_type: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class OpenAITail(_message.Message):
    __slots__ = ("version", "prompt_tokens", "completion_tokens", "cached_tokens", "finish_reasons")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., finish_reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class OpenAICallsRequest(_message.Message):
    __slots__ = ("begun", "cancelled")
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    begun: _containers.RepeatedCompositeFieldContainer[OpenAICall]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, begun: _Optional[_Iterable[_Union[OpenAICall, _Mapping]]] = ..., cancelled: _Optional[_Iterable[int]] = ...) -> None: ...

class OpenAICall(_message.Message):
    __slots__ = ("id", "request")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    id: int
    request: OpenAIRequest
    def __init__(self, id: _Optional[int] = ..., request: _Optional[_Union[OpenAIRequest, _Mapping]] = ...) -> None: ...

class OpenAICallsResponse(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[OpenAIPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[OpenAIPart, _Mapping]]] = ...) -> None: ...

class OpenAIPart(_message.Message):
    __slots__ = ("id", "response", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: int
    response: OpenAIResponse
    failure: OpenAIFailure
    def __init__(self, id: _Optional[int] = ..., response: _Optional[_Union[OpenAIResponse, _Mapping]] = ..., failure: _Optional[_Union[OpenAIFailure, _Mapping]] = ...) -> None: ...

class OpenAIFailure(_message.Message):
    __slots__ = ("code", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    details: str
    def __init__(self, code: _Optional[int] = ..., details: _Optional[str] = ...) -> None: ...

class PrepareMembersRequest(_message.Message):
    __slots__ = ("seeds",)
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    seeds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seeds: _Optional[_Iterable[int]] = ...) -> None: ...

class PrepareMembersResponse(_message.Message):
    __slots__ = ("resident",)
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    resident: int
    def __init__(self, resident: _Optional[int] = ...) -> None: ...

class UpdateRecord(_message.Message):
    __slots__ = ("version", "noise_version", "rank", "seeds", "coefficients", "matrix_multiplier", "vector_multiplier", "rounding", "sigma", "alpha", "from_digest", "decay")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOISE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    COEFFICIENTS_FIELD_NUMBER: _ClassVar[int]
    MATRIX_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    VECTOR_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    FROM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECAY_FIELD_NUMBER: _ClassVar[int]
    version: int
    noise_version: int
    rank: int
    seeds: _containers.RepeatedScalarFieldContainer[int]
    coefficients: bytes
    matrix_multiplier: float
    vector_multiplier: float
    rounding: Rounding
    sigma: float
    alpha: float
    from_digest: bytes
    decay: float
    def __init__(self, version: _Optional[int] = ..., noise_version: _Optional[int] = ..., rank: _Optional[int] = ..., seeds: _Optional[_Iterable[int]] = ..., coefficients: _Optional[bytes] = ..., matrix_multiplier: _Optional[float] = ..., vector_multiplier: _Optional[float] = ..., rounding: _Optional[_Union[Rounding, str]] = ..., sigma: _Optional[float] = ..., alpha: _Optional[float] = ..., from_digest: _Optional[bytes] = ..., decay: _Optional[float] = ...) -> None: ...

class ApplyUpdateRequest(_message.Message):
    __slots__ = ("term", "from_version", "from_digest", "record")
    TERM_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    term: int
    from_version: int
    from_digest: bytes
    record: UpdateRecord
    def __init__(self, term: _Optional[int] = ..., from_version: _Optional[int] = ..., from_digest: _Optional[bytes] = ..., record: _Optional[_Union[UpdateRecord, _Mapping]] = ...) -> None: ...

class ApplyUpdateResponse(_message.Message):
    __slots__ = ("state", "seconds", "update_seconds", "digest_seconds", "cosine", "retracted")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COSINE_FIELD_NUMBER: _ClassVar[int]
    RETRACTED_FIELD_NUMBER: _ClassVar[int]
    state: State
    seconds: float
    update_seconds: float
    digest_seconds: float
    cosine: float
    retracted: int
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., seconds: _Optional[float] = ..., update_seconds: _Optional[float] = ..., digest_seconds: _Optional[float] = ..., cosine: _Optional[float] = ..., retracted: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("term", "folder", "version", "records", "digest", "as_version")
    TERM_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    AS_VERSION_FIELD_NUMBER: _ClassVar[int]
    term: int
    folder: str
    version: int
    records: _containers.RepeatedCompositeFieldContainer[UpdateRecord]
    digest: bytes
    as_version: int
    def __init__(self, term: _Optional[int] = ..., folder: _Optional[str] = ..., version: _Optional[int] = ..., records: _Optional[_Iterable[_Union[UpdateRecord, _Mapping]]] = ..., digest: _Optional[bytes] = ..., as_version: _Optional[int] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: State
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("folder", "term", "version")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    folder: str
    term: int
    version: int
    def __init__(self, folder: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class SnapshotResponse(_message.Message):
    __slots__ = ("state", "bytes")
    STATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    state: State
    bytes: int
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., bytes: _Optional[int] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DigestResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: State
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...
