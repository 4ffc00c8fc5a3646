"""Where the answers are decided, for the guard beside it: each back end has read() and put_back(), no other write."""

import importlib
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

Config = dict[str, Any]
CHUNK = 240


class Unknown(Exception):
    """Something could not be read: nothing is decided and nothing is written."""


class NotOurs(Exception):
    """The record is somebody else's, or was changed by somebody else: it is left as it is."""


# ---- the journal beside the record


def decode(texts: list[str]) -> Config | None:
    """The journal of TXT strings in any order; None when there is none. Raises NotOurs when it is not one of ours."""
    if not texts:
        return None
    parts = {}
    for text in texts:
        head = re.match(r"(\d\d)/(\d\d) ", text)
        if not head or int(head.group(2)) != len(texts):
            raise NotOurs("the journal is incomplete")
        parts[int(head.group(1))] = text[head.end() :]
    try:
        journal: Config = json.loads("".join(parts[i] for i in range(1, len(texts) + 1)))
    except (KeyError, ValueError):
        raise NotOurs("the journal cannot be read") from None
    return journal


def encode(journal: Config) -> list[str]:
    text = json.dumps(journal, separators=(",", ":"), sort_keys=True).replace(";", "\\u003b")
    chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    return [f"{i:02d}/{len(chunks):02d} {chunk}" for i, chunk in enumerate(chunks, 1)]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unquoted(content: str) -> str:
    return "".join(re.sub(r"\\(.)", r"\1", part) for part in re.findall(r'"((?:[^"\\]|\\.)*)"', content))


def shares(weights: dict[str, int]) -> dict[str, float]:
    total = float(sum(weights.values()))
    return {a: w / total for a, w in weights.items() if w > 0} if total > 0 else {}


# ---- where the answers are decided: read() and put_back(), no other write


class PowerDns:
    def __init__(self, config: Config) -> None:
        self.config, self.where = config, config["backend"]

    def read(self) -> Config:
        name = self.config["name"]
        weights: dict[str, int] = {}
        ttl, journal = None, []
        for at in (name, "_inferlift." + name):
            for rrset in self._call("GET", "?rrset_name=" + at)["rrsets"]:
                contents = [r["content"] for r in rrset["records"] if not r.get("disabled")]
                if rrset["name"] == name and rrset["type"] == "LUA":
                    pairs = re.findall(r"\{(\d+),'([0-9.]+)'\}", contents[0])
                    weights, ttl = {a: int(w) for w, a in pairs}, rrset["ttl"]
                elif rrset["name"] == name and rrset["type"] == "A":
                    weights, ttl = dict.fromkeys(contents, 1), rrset["ttl"]
                elif rrset["name"] == "_inferlift." + name and rrset["type"] == "TXT":
                    journal = [unquoted(c) for c in contents]
        return {"weights": weights, "ttl_s": ttl, "journal": decode(journal)}

    def put_back(self, record: Config, journal: Config) -> None:
        name, ttl = self.config["name"], record["ttl_s"]
        script = "A \"pickwrandom({{100,'" + self.config["old"] + "'}})\""
        rrsets = [
            rrset(name, "LUA", ttl, [script]),
            rrset("_inferlift." + name, "TXT", ttl, [quoted(t) for t in encode(journal)]),
        ]
        self._call("PATCH", "", {"rrsets": rrsets})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        zone = urllib.parse.quote(self.config["zone"], safe="").replace("%", "=")
        url = f"{self.where['url'].rstrip('/')}/api/v1/servers/localhost/zones/{zone}{path}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 (fetch looks at it)
        request.add_header("X-API-Key", secret(self.where["key_file"]))
        request.add_header("Content-Type", "application/json")
        return fetch(request, self.where.get("ca"))


def rrset(name: str, type_: str, ttl: int, contents: list[str]) -> Config:
    records = [{"content": c, "disabled": False} for c in contents]
    return {"name": name, "type": type_, "ttl": ttl, "changetype": "REPLACE", "records": records}


class Rfc2136:
    """The key's policy on the server allows A at the name and TXT beside it, and nothing else (docs/switch.md)."""

    def __init__(self, config: Config) -> None:
        self.config, self.where = config, config["backend"]

    def read(self) -> Config:
        name = self.config["name"]
        addresses, ttl = self._ask(name, "A")
        texts, _ = self._ask("_inferlift." + name, "TXT")
        self.found = addresses, texts
        journal = decode([unquoted(t) for t in texts])
        return {"weights": dict.fromkeys(addresses, 1), "ttl_s": ttl, "journal": journal}

    def put_back(self, record: Config, journal: Config) -> None:
        import dns.rcode
        import dns.rdata
        import dns.update

        name, ttl = self.config["name"], record["ttl_s"]
        addresses, texts = self.found
        update = dns.update.Update(self.config["zone"])
        update.present(name, *[dns.rdata.from_text("IN", "A", a) for a in addresses])
        update.present("_inferlift." + name, *[dns.rdata.from_text("IN", "TXT", t) for t in texts])
        update.replace(name, ttl, "A", self.config["old"])
        book = [dns.rdata.from_text("IN", "TXT", quoted(t)) for t in encode(journal)]
        update.replace("_inferlift." + name, ttl, *book)
        code = dns.rcode.to_text(self._exchange(update).rcode())
        if code in ("NXRRSET", "YXRRSET", "NXDOMAIN", "YXDOMAIN"):
            raise NotOurs("somebody else changed the record meanwhile")
        if code != "NOERROR":
            raise Unknown(f"the name server answers {code} to the update")

    def _ask(self, name: str, type_: str) -> tuple[list[str], int]:
        import dns.message
        import dns.rcode
        import dns.rdatatype

        answer = self._exchange(dns.message.make_query(name, type_))
        if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise Unknown(f"the name server answers {dns.rcode.to_text(answer.rcode())}")
        wanted = dns.rdatatype.from_text(type_)
        sets = [s for s in answer.answer if s.rdtype == wanted and s.name.to_text().lower() == name]
        return sorted(r.to_text() for s in sets for r in s), min([s.ttl for s in sets] or [0])

    def _exchange(self, message: Any) -> Any:
        import dns.exception
        import dns.query
        import dns.tsig

        key = dns.tsig.Key(self.where["key_name"], secret(self.where["key_file"]), self.where["algorithm"])
        message.use_tsig(key)
        try:
            return dns.query.tcp(message, self.where["server"], port=self.where["port"], timeout=5)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise Unknown(f"the name server: {type(error).__name__}") from None


class Route53:
    """The credentials are those of the host's own role, narrowed to this zone, these two names, these types."""

    def __init__(self, config: Config, client: Any = None) -> None:
        self.config, self.where, self.client = config, config["backend"], client

    def read(self) -> Config:
        name = self.config["name"]
        weights: dict[str, int] = {}
        ttl, journal = None, []
        self.found: list[Config] = []
        for at, type_ in ((name, "A"), ("_inferlift." + name, "TXT")):
            for record in self._at(at, type_):
                values = [r["Value"] for r in record.get("ResourceRecords", [])]
                self.found.append(record)
                if type_ == "TXT":
                    journal = [unquoted(v) for v in values]
                elif len(values) == 1 and not {"Region", "Failover", "GeoLocation", "AliasTarget"} & set(record):
                    weights[values[0]], ttl = record.get("Weight", 1), record["TTL"]
                else:
                    raise NotOurs("the record is not a plain set of weights")
        return {"weights": {a: w for a, w in weights.items() if w > 0}, "ttl_s": ttl, "journal": decode(journal)}

    def put_back(self, record: Config, journal: Config) -> None:
        name, old = self.config["name"], self.config["old"]
        wanted: list[Config] = []
        for present in self.found:
            if present["Type"] == "TXT":
                values = [{"Value": quoted(t)} for t in encode(journal)]
                wanted.append(dict(present, ResourceRecords=values))
                continue
            ours = present["ResourceRecords"][0]["Value"] == old
            if ours or not present.get("HealthCheckId"):  # a zero with a health check may be answered: left out
                wanted.append(dict(present, Weight=100 if ours else 0))
        if old not in [r["ResourceRecords"][0]["Value"] for r in wanted]:
            raise NotOurs(f"the old side has no entry in the set of {name}")
        changes = [{"Action": "DELETE", "ResourceRecordSet": r} for r in self.found]
        changes += [{"Action": "CREATE", "ResourceRecordSet": r} for r in wanted]
        batch = {"Comment": "inferlift guard: rolled back", "Changes": changes}
        self._call("change_resource_record_sets", HostedZoneId=self.where["zone_id"], ChangeBatch=batch)

    def _at(self, name: str, type_: str) -> list[Config]:
        page = self._call(
            "list_resource_record_sets", HostedZoneId=self.where["zone_id"], StartRecordName=name, StartRecordType=type_
        )
        return [r for r in page["ResourceRecordSets"] if r["Name"].lower() == name and r["Type"] == type_]

    def _call(self, method: str, **named: Any) -> Any:
        if self.client is None:
            boto3: Any = importlib.import_module("boto3")
            config = importlib.import_module("botocore.config").Config(retries={"max_attempts": 0})
            self.client = boto3.client("route53", region_name="us-east-1", config=config)
        try:
            return getattr(self.client, method)(**named)
        except Exception as error:  # botocore's errors have no other common base than this
            raise Unknown(f"Route 53: {str(error)[:200]}") from None


BACKENDS = {"powerdns": PowerDns, "rfc2136": Rfc2136, "route53": Route53}


# ---- asked by HTTP


def fetch(request: urllib.request.Request, ca: str | None, parsed: bool = True) -> Any:
    """JSON, or {} of an empty answer. Never through a proxy. Raises Unknown."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if request.full_url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    elif not request.full_url.startswith("http:"):
        raise Unknown("only http and https are asked")
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text and parsed else {}
    except urllib.error.HTTPError as error:
        raise Unknown(f"{request.host} answers {error.code}") from None
    except (OSError, ValueError) as error:
        raise Unknown(f"{request.host}: {type(error).__name__}") from None


def secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        raise Unknown(f"the secret {path} cannot be read") from None
