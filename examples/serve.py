"""A small inference server: digits over HTTP, classified on the device.

POST /classify takes JSON, {"pixels": [64 values from 0 to 16]}, and returns {"digit": 3, "probability": 0.98}. One
thread answers requests in turn, because they share a device. The model is trained at the start, for a second or two.

    python examples/serve.py --port 8000
    python examples/serve.py --once      # sends one request to itself, prints the answer and exits
"""

import argparse
import json
import os
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from sklearn.datasets import load_digits
from torch import nn

LONGEST_BODY = 10_000
PIXELS = 64


def make_model(device: torch.device) -> nn.Module:
    """Return a classifier of scikit-learn's digits, trained on a device."""
    torch.manual_seed(0)
    pixels, classes = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32, device=device)
    labels = torch.tensor(classes, device=device)
    model = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


class Handler(BaseHTTPRequestHandler):
    """Answers requests with the server's model."""

    # Seconds that a client may take to send its request.
    timeout = 10
    server: "Server"

    def do_POST(self) -> None:
        """Classify an image."""
        try:
            length = int(self.headers.get("Content-Length", 0))
            if self.path != "/classify" or not 0 < length <= LONGEST_BODY:
                raise ValueError("POST /classify takes up to 10 kB of JSON")
            pixels = json.loads(self.rfile.read(length))["pixels"]
            answer, status = self.server.classify(pixels), 200
        except (ValueError, TypeError, KeyError) as error:
            answer, status = {"error": str(error)}, 400
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(HTTPServer):
    """A server with a model.

    Args:
        port: the port on this machine; 0 for a free one.
        device: the model's device.
    """

    def __init__(self, port: int, device: torch.device) -> None:
        self.device = device
        self.model = make_model(device)
        # Builds the kernels now rather than at the first request.
        self.classify([0.0] * PIXELS)
        super().__init__(("127.0.0.1", port), Handler)

    def classify(self, pixels: list[float]) -> dict[str, float]:
        """Return the digit of an image of 64 pixels, and its probability.

        Raises:
            ValueError: there are more or fewer pixels.
        """
        image = torch.tensor(pixels, dtype=torch.float32)
        if image.shape != (PIXELS,):
            raise ValueError(f"an image has {PIXELS} pixels, not {list(image.shape)}")
        with torch.inference_mode():
            probability, digit = self.model(image.to(self.device)).softmax(0).max(0)
        return {"digit": int(digit), "probability": round(float(probability), 4)}


def ask(address: str, pixels: list[float]) -> dict[str, float]:
    """Return the server's answer for an image."""
    body = json.dumps({"pixels": pixels}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}/classify", body), timeout=60) as reply:
        return json.load(reply)


def main() -> int:
    """Serve until Ctrl-C, or one request.

    Returns:
        The exit code: 1 if the answer to the one request is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("opencl"))
    parser.add_argument("--port", type=int, default=0, help="0, the default, selects a free one")
    parser.add_argument("--once", action="store_true", help="send one request to itself and exit")
    options = parser.parse_args()

    with Server(options.port, options.device) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        print(f"serving on {address}", flush=True)
        if not options.once:
            server.serve_forever()
        worker = threading.Thread(target=server.handle_request)
        worker.start()
        images, labels = load_digits(return_X_y=True)
        answer = ask(address, images[3].tolist())
        worker.join()
    print(f"an image of {labels[3]}: {answer}")
    return int(answer["digit"] != labels[3])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print()
