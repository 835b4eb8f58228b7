"""The contracts in proto/: write their stubs into client/, check that they are current, and lint them.

    python -m tools.proto generate | check | lint

The rules of `lint` are the usual ones for public contracts: a versioned package in a folder of the same name,
services that end in Service, a request and a response of its own for each rpc, UPPER_SNAKE enum values that
carry the enum's name and start with UNSPECIFIED, lower_snake_case fields, and a comment on every service, rpc
and enum.
"""

import filecmp
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parent.parent
PROTO, CLIENT = ROOT / "proto", ROOT / "client"
PACKAGE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\.v[1-9][0-9]*")
PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# Field numbers in descriptor.proto, of which the paths of comments are made.
FILE_ENUM, FILE_SERVICE, SERVICE_METHOD = 5, 6, 2


def generate(target: Path, source: Path = PROTO) -> list[Path]:
    """Write messages, stubs and their types for every contract below `source` into `target`."""
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")]
    _protoc(source, *outputs)
    return sorted(path for path in target.rglob("*_pb2*.py*") if path.suffix in (".py", ".pyi"))


def stale() -> list[str]:
    """Paths below client/ that differ from what the contracts give now."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {path.relative_to(folder): path for path in generate(Path(folder))}
        present = {path.relative_to(CLIENT) for path in CLIENT.rglob("*_pb2*.py*") if path.suffix != ".pyc"}
        differing = [name for name in fresh if name not in present or not _same(fresh[name], CLIENT / name)]
        return sorted(map(str, {*differing, *(present - set(fresh))}))


def lint(source: Path = PROTO) -> list[str]:
    """One line for each thing in the contracts below `source` that breaks a rule."""
    with tempfile.NamedTemporaryFile(suffix=".binpb") as file:
        _protoc(source, "--include_source_info", f"--descriptor_set_out={file.name}")
        descriptors = FileDescriptorSet.FromString(Path(file.name).read_bytes())
    return [f"{file.name}: {finding}" for file in descriptors.file for finding in _lint_file(file)]


def _lint_file(file: FileDescriptorProto) -> Iterator[str]:
    if file.syntax != "proto3":
        yield "syntax must be proto3"
    if not PACKAGE.fullmatch(file.package):
        yield f"package {file.package or '(none)'} must be lower case and end with a version: seedbed.v1"
    folder, name = str(Path(file.name).parent), Path(file.name).stem
    if folder != file.package.replace(".", "/"):
        yield f"package {file.package} must lie in the folder {file.package.replace('.', '/')}"
    if not LOWER_SNAKE.fullmatch(name):
        yield f"file name {name} must be lower_snake_case"
    commented = {
        tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()
    }
    used: dict[str, str] = {}
    for i, service in enumerate(file.service):
        yield from _lint_service(service, file.package, (FILE_SERVICE, i), commented, used)
    for i, enum in enumerate(file.enum_type):
        if (FILE_ENUM, i) not in commented:
            yield f"enum {enum.name} has no comment"
        yield from _lint_enum(enum)
    for message in file.message_type:
        yield from _lint_message(message)


def _lint_service(
    service: ServiceDescriptorProto,
    package: str,
    path: tuple[int, int],
    commented: set[tuple[int, ...]],
    used: dict[str, str],
) -> Iterator[str]:
    if not (PASCAL.fullmatch(service.name) and service.name.endswith("Service")):
        yield f"service {service.name} must be PascalCase and end with Service"
    if path not in commented:
        yield f"service {service.name} has no comment"
    for i, method in enumerate(service.method):
        name = f"{service.name}.{method.name}"
        if not PASCAL.fullmatch(method.name):
            yield f"rpc {name} must be PascalCase"
        if (*path, SERVICE_METHOD, i) not in commented:
            yield f"rpc {name} has no comment"
        for kind, given in (("Request", method.input_type), ("Response", method.output_type)):
            if given != f".{package}.{method.name}{kind}":
                yield f"rpc {name} must use {method.name}{kind}, not {given.rsplit('.', 1)[-1]}"
            if used.setdefault(given, name) != name:
                yield f"rpc {name} shares {given.rsplit('.', 1)[-1]} with {used[given]}"


def _lint_enum(enum: EnumDescriptorProto) -> Iterator[str]:
    if not PASCAL.fullmatch(enum.name):
        yield f"enum {enum.name} must be PascalCase"
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    for value in enum.value:
        if not (UPPER_SNAKE.fullmatch(value.name) and value.name.startswith(prefix)):
            yield f"enum value {value.name} must be UPPER_SNAKE_CASE and start with {prefix}"
        if value.number == 0 and value.name != f"{prefix}UNSPECIFIED":
            yield f"enum value {value.name} is 0, which must be {prefix}UNSPECIFIED"


def _lint_message(message: DescriptorProto) -> Iterator[str]:
    if not PASCAL.fullmatch(message.name):
        yield f"message {message.name} must be PascalCase"
    for field in message.field:
        if not LOWER_SNAKE.fullmatch(field.name):
            yield f"field {message.name}.{field.name} must be lower_snake_case"
    for oneof in message.oneof_decl:
        # protoc makes a oneof with a leading underscore for every `optional` field.
        if not LOWER_SNAKE.fullmatch(oneof.name.removeprefix("_")):
            yield f"oneof {message.name}.{oneof.name} must be lower_snake_case"
    for enum in message.enum_type:
        yield from _lint_enum(enum)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from _lint_message(nested)


def _protoc(source: Path, *options: str) -> None:
    files = sorted(str(path.relative_to(source)) for path in source.rglob("*.proto"))
    if not files:
        raise SystemExit(f"{source}: there are no .proto files")
    # The plugins of protoc are scripts beside this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", *options, *files]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip() or f"protoc failed with code {done.returncode}")


def _same(one: Path, other: Path) -> bool:
    return filecmp.cmp(one, other, shallow=False)


def main(arguments: list[str]) -> int:
    """Run one of the three commands; 0 when there is nothing to complain about."""
    match arguments:
        case ["generate"]:
            for path in generate(CLIENT):
                print(path.relative_to(ROOT))
            return 0
        case ["check"]:
            findings = [f"{name} is not what the contracts give; run ./run proto" for name in stale()]
        case ["lint"]:
            findings = lint()
        case _:
            print("usage: python -m tools.proto generate | check | lint", file=sys.stderr)
            return 2
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
