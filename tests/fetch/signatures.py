"""Recomputes the Signature Version 4 of a request that came: by the standard library, and by botocore where it is installed."""
import hashlib
import hmac
import re
import urllib.parse

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
REGION = "eu-central-1"


def signed_names(headers):
    return re.search(r"SignedHeaders=([^,]+)", headers["authorization"])[1].split(";")


def says(headers, expected):
    sent = re.search(r"Signature=([0-9a-f]{64})$", headers["authorization"])
    return None if sent and sent[1] == expected else f"the signature must be {expected}"


def missing(headers):
    """What an answer of S3 would complain about first."""
    if "authorization" not in headers:
        return "no Authorization"
    must = {"host", *(name for name in headers if name.startswith("x-amz-"))}
    left_out = must - set(signed_names(headers))
    return f"not signed: {sorted(left_out)}" if left_out else None


def by_hand(target, sent):
    """What is wrong with the request for this target (path and query as sent); None: nothing."""
    headers = {name.lower(): value for name, value in sent.items()}
    wrong = missing(headers)
    if wrong:
        return wrong
    path, _, query = target.partition("?")
    names = signed_names(headers)
    query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&") if part))
    canonical = "\n".join(["GET", path, query, *(f"{name}:{' '.join(headers[name].split())}" for name in names), "", ";".join(names),
                           headers["x-amz-content-sha256"]])
    # S3 decodes the path and encodes it again: whoever encodes otherwise has signed something else.
    if urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~") != path:
        return f"the path {path} is not encoded as S3 does it"
    time, scope = headers["x-amz-date"], f"{headers['x-amz-date'][:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + KEYS["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return says(headers, hmac.new(key, text.encode(), hashlib.sha256).hexdigest())


def by_botocore(target, sent):
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    headers = {name.lower(): value for name, value in sent.items()}
    wrong = missing(headers)
    if wrong:
        return wrong
    signed = {name: headers[name] for name in signed_names(headers)}
    request = AWSRequest("GET", f"http://{headers['host']}{target}", headers=signed)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials(*KEYS.values()), "s3", REGION)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    return says(headers, auth.signature(text, request))
