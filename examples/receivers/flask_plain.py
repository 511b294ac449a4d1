"""A receiver with no library but Flask. Run: RECADO_WEBHOOK_SECRET=whsec_… flask --app flask_plain run"""

import base64
import hmac
import os
import re
import time

from flask import Flask, Response, abort, request

KEY = base64.b64decode(os.environ["RECADO_WEBHOOK_SECRET"].removeprefix("whsec_"), validate=True)
if not KEY:  # anyone can sign with an empty key
    raise ValueError("RECADO_WEBHOOK_SECRET is empty. Set it to the secret of the endpoint, whsec_…")
app = Flask(__name__)
app.logger.setLevel("INFO")


@app.post("/webhooks")
def receive() -> Response:
    body = request.get_data()  # the bytes as they came: anything parsed and written again has another signature
    event_id, sent_at = (request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
    if not re.fullmatch("[A-Za-z0-9_-]+", event_id) or not re.fullmatch("[0-9]{1,12}", sent_at):
        abort(403)
    signed = f"{event_id}.{sent_at}.".encode() + body  # id and time, too: X-Signature covers the body only
    expected = b"v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256"))
    signatures = request.headers.get("webhook-signature", "").split()
    if not any(hmac.compare_digest(expected, signature.encode()) for signature in signatures):
        abort(403)
    if abs(time.time() - int(sent_at)) > 300:
        abort(403)
    app.logger.info("received %s", request.get_json(force=True))
    return Response(status=204)
