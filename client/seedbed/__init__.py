"""The light side of Seedbed: what an agent needs, without torch and without SGLang.

`seedbed.v1` holds the generated protobuf messages and gRPC stubs of the public contracts.
"""
