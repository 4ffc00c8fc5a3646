"""One line of text in a picture: PNG or JPEG in (bytes, or base64 of them), text and its mean confidence out.

The model is a PaddleOCR recogniser as ONNX, whose metadata hold its characters. Pictures of one batch are padded to
the widest of them.
"""

import base64
import io
import json
import math

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils
from PIL import Image

HEIGHT = 48  # of the model's input
LEAST_WIDTH, MOST_WIDTH = 320, 3200


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["threads"]["string_value"])
        options.inter_op_num_threads = 1
        wanted = ["CPUExecutionProvider"]
        if args["model_instance_kind"] == "GPU":
            wanted.insert(0, ("CUDAExecutionProvider", {"device_id": args["model_instance_device_id"]}))
        path = parameters["weights"]["string_value"]
        self.session = onnxruntime.InferenceSession(path, options, providers=wanted)
        self.input = self.session.get_inputs()[0].name
        characters = self.session.get_modelmeta().custom_metadata_map["character"].splitlines()
        self.characters = ["", *characters, " "]  # class 0 is the blank between two equal letters

    def execute(self, requests):
        counts, lines, errors = [], [], []
        for request in requests:
            try:
                images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().reshape(-1)
                prepared = [picture(image) for image in images]
                errors.append(None)
            except (OSError, ValueError) as error:  # one broken picture must not fail the others of its batch
                prepared = []
                errors.append(pb_utils.TritonError(f"not a picture: {error}"))
            counts.append(len(prepared))
            lines += prepared
        texts = self.read(lines) if lines else []
        answers = []
        for count, error in zip(counts, errors, strict=True):
            mine, texts = texts[:count], texts[count:]
            answers.append(pb_utils.InferenceResponse(tensors(mine) if error is None else [], error))
        return answers

    def read(self, lines):
        width = min(max(LEAST_WIDTH, *(line.shape[2] for line in lines)), MOST_WIDTH)
        batch = np.zeros((len(lines), 3, HEIGHT, width), dtype=np.float32)
        for row, line in zip(batch, lines, strict=True):
            row[:, :, : line.shape[2]] = line
        scores = self.session.run(None, {self.input: batch})[0]
        return [self.text(row) for row in scores]

    def text(self, scores):
        """Greedy CTC: the best class of each column, repeats and blanks taken out."""
        best, sure = scores.argmax(axis=1), scores.max(axis=1)
        kept = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
        text = "".join(self.characters[index] for index in best[kept])
        return text, float(sure[kept].mean()) if kept.any() else 0.0


def picture(data):
    data = bytes(data)
    if data[:4] not in (b"\x89PNG", b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1", b"\xff\xd8\xff\xdb"):
        data = base64.b64decode(data, validate=True)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width = min(max(1, math.ceil(HEIGHT * image.width / image.height)), MOST_WIDTH)
    pixels = np.asarray(image.resize((width, HEIGHT), Image.Resampling.BILINEAR), dtype=np.float32)
    bgr = pixels[:, :, ::-1].transpose(2, 0, 1)
    return (bgr / 255 - 0.5) / 0.5


def tensors(rows):
    texts = np.array([[text.encode()] for text, _ in rows], dtype=np.object_)
    sure = np.array([[score] for _, score in rows], dtype=np.float32)
    return [pb_utils.Tensor("TEXT", texts), pb_utils.Tensor("SCORE", sure)]
