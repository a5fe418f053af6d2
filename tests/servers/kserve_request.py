"""One request of ones by each of kserve's clients, in a process of its own: protobuf refuses the messages of kserve and of tritonclient, which
have the same names, in one process.

    kserve_request.py HTTP_PORT GRPC_PORT MODEL INPUT=SIZExSIZE...

Writes a line for each client: JSON of the outputs by name.
"""

import asyncio
import json
import sys

import numpy
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig


def request(model: str, inputs: list[str]) -> InferRequest:
    given = []
    for text in inputs:
        name, _, sizes = text.partition("=")
        value = numpy.ones([int(s) for s in sizes.split("x")], numpy.float32)
        given.append(InferInput(name, list(value.shape), "FP32"))
        given[-1].set_data_from_numpy(value, binary_data=False)
    return InferRequest(model_name=model, infer_inputs=given)


async def main() -> None:
    http, grpc, model, *inputs = sys.argv[1:]
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    answers = [await rest.infer(f"http://127.0.0.1:{http}", request(model, inputs), model_name=model)]
    answers.append(await InferenceGRPCClient(f"127.0.0.1:{grpc}").infer(request(model, inputs)))
    for answer in answers:
        print(json.dumps({o.name: o.as_numpy().tolist() for o in answer.outputs}))


asyncio.run(main())
