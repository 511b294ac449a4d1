"""A receiver with no library but Flask. Run: RECADO_WEBHOOK_SECRET=whsec_… flask --app flask_plain run"""

import hashlib
import hmac
import os
import re
import time

from flask import Flask, Response, abort, request

SECRET = os.environ["RECADO_WEBHOOK_SECRET"]
app = Flask(__name__)
app.logger.setLevel("INFO")


@app.post("/webhooks")
def receive() -> Response:
    body = request.get_data()  # the bytes as they came: anything parsed and written again has another signature
    expected = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), request.headers.get("X-Signature", "").encode()):
        abort(403)
    sent_at = request.headers.get("webhook-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", sent_at) or abs(time.time() - int(sent_at)) > 300:
        abort(403)
    app.logger.info("received %s", request.get_json(force=True))
    return Response(status=204)
