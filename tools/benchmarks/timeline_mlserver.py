"""The perceptron of tools/bench timeline as a custom runtime of MLServer, which loads this file in its own virtual environment.

Computes with numpy what Shoal's executor computes, from the same checkpoint. Written as MLServer's documentation says
("Custom Inference Runtimes").
"""
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from mxnet_checkpoint import read_params


class Perceptron(MLModel):
    async def load(self) -> bool:
        params = read_params(f"{self.settings.parameters.uri}-0000.params")
        self.layers = [(np.array(params[f"fc{i}_weight"]).T, np.array(params[f"fc{i}_bias"])) for i in range(3)]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        values = NumpyCodec.decode_input(payload.inputs[0])
        for weight, bias in self.layers:
            values = np.maximum(values @ weight + bias, 0)
        exponents = np.exp(values - values.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("prob", probabilities)])
