"""An app as the README writes it, which tells of its first message, and of Ray, and ends itself."""

from __future__ import annotations

import json
import os
import signal
import sys

import rocketray as rr

app = rr.App("tour")


@app.agent(app.topic("Purchases", value_type=bytes))
async def large(purchases: rr.Stream[bytes]) -> None:
    async for purchase in purchases:
        sys.stdout.write(json.dumps({"got": purchase.decode(), "ray": "ray" in sys.modules}))
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    app.main()
