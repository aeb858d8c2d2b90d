"""Vector indexes in memory: definitions, rows, filters, scores."""
from __future__ import annotations
import json, threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
import bson, numpy as np
from bson.binary import Binary
from bson import ObjectId

MISSING = object()
COMPARE = {"$gt": lambda a, b: a > b, "$gte": lambda a, b: a >= b, "$lt": lambda a, b: a < b, "$lte": lambda a, b: a <= b}


class SearchError(Exception):
    def __init__(self, message: str, code: int = 8, name: str = "UnknownError") -> None:
        super().__init__(message); self.code = code; self.name = name


def get_path(doc: Any, path: str) -> list[Any]:
    head, _, rest = path.partition(".")
    if isinstance(doc, list):
        return [v for d in doc for v in get_path(d, path)]
    if not isinstance(doc, dict) or head not in doc:
        return []
    value = doc[head]
    if rest:
        return get_path(value, rest)
    return list(value) if isinstance(value, list) else [value]


def kind(v: Any) -> str:
    if v is None: return "null"
    if isinstance(v, bool): return "bool"
    if isinstance(v, (int, float)): return "number"
    if isinstance(v, str): return "string"
    if isinstance(v, datetime): return "date"
    if isinstance(v, ObjectId): return "objectId"
    if isinstance(v, Binary) and v.subtype == 4: return "uuid"
    return "other"


def same(a: Any, b: Any) -> bool:
    return kind(a) == kind(b) and a == b


def matches(values: dict[str, list[Any]], flt: dict[str, Any]) -> bool:
    for key, cond in flt.items():
        if key == "$and":
            if not all(matches(values, f) for f in cond): return False
        elif key == "$or":
            if not any(matches(values, f) for f in cond): return False
        elif key == "$nor":
            if any(matches(values, f) for f in cond): return False
        else:
            have = values.get(key, [])
            ops = cond if isinstance(cond, dict) else {"$eq": cond}
            for op, want in ops.items():
                if not apply(op, want, have): return False
    return True


def apply(op: str, want: Any, have: list[Any]) -> bool:
    if op == "$eq": return any(same(h, want) for h in have)
    if op == "$ne": return not any(same(h, want) for h in have)
    if op == "$in": return any(same(h, w) for h in have for w in want)
    if op == "$nin": return not any(same(h, w) for h in have for w in want)
    if op == "$exists": return bool(have) == bool(want)
    if op == "$not": return not all(apply(o, w, have) for o, w in want.items())
    if op in COMPARE: return any(kind(h) == kind(want) and COMPARE[op](h, want) for h in have)
    raise SearchError(f"Operand type is not supported for $vectorSearch: unsupported operator {op}")


def filter_paths(flt: dict[str, Any]) -> set[str]:
    out: set[str] = set()
    for k, v in flt.items():
        if k in ("$and", "$or", "$nor"):
            for f in v: out |= filter_paths(f)
        else: out.add(k)
    return out


class VectorIndex:
    def __init__(self, definition: dict[str, Any]) -> None:
        self.fields = definition["fields"]
        self.vector = next(f for f in self.fields if f["type"] == "vector")
        self.filters = [f["path"] for f in self.fields if f["type"] == "filter"]
        self.rows: dict[Any, tuple[np.ndarray, dict[str, list[Any]]]] = {}
        self.matrix: np.ndarray | None = None
        self.loaded = False
        self.dirty: dict[bytes, Any] = {}
        self.stale = True
        self.lock = threading.Lock()

    @staticmethod
    def key(i: Any) -> bytes:
        return bson.encode({"": i})

    def touch(self, ids: list[Any] | None) -> None:
        if ids is None: self.stale = True
        else:
            for i in ids: self.dirty[self.key(i)] = i

    def refresh(self, collection: Any) -> None:
        with self.lock:
            if self.stale:
                self.stale = False; self.dirty.clear(); self.rows.clear()
                query: dict[str, Any] = {}
                touched: dict[bytes, Any] = {}
            else:
                touched, self.dirty = self.dirty, {}
                if not touched: return
                for k in touched: self.rows.pop(k, None)
                query = {"_id": {"$in": list(touched.values())}}
            self.matrix = None
            projection = {self.vector["path"]: 1, **{p: 1 for p in self.filters}}
            for doc in collection.find(query, projection):
                v = self.vector_of(doc)
                if v is not None:
                    self.rows[self.key(doc["_id"])] = (v, {"": doc["_id"], **{p: get_path(doc, p) for p in self.filters}})

    def vector_of(self, doc: Any) -> np.ndarray | None:
        value: Any = doc
        for part in self.vector["path"].split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, list) or len(value) != self.vector["numDimensions"]: return None
        try: v = np.asarray(value, dtype=np.float32)
        except (ValueError, TypeError): return None
        if self.vector["similarity"] == "cosine":
            n = float(np.linalg.norm(v))
            if n == 0: return None
            v = v / n
        return v

    def search(self, q: list[float], limit: int, flt: dict[str, Any] | None) -> list[tuple[Any, float]]:
        unknown = filter_paths(flt or {}) - set(self.filters)
        if unknown:
            raise SearchError(f"PlanExecutor error during aggregation :: caused by :: Path '{sorted(unknown)[0]}' needs to be indexed as filter")
        with self.lock:
            rows = list(self.rows.values())
        rows = [r for r in rows if not flt or matches(r[1], flt)]
        if not rows: return []
        m = np.stack([r[0] for r in rows]); x = np.asarray(q, dtype=np.float32)
        s = self.vector["similarity"]
        if s == "cosine": scores = (1 + m @ (x / (np.linalg.norm(x) or 1))) / 2
        elif s == "dotProduct": scores = (1 + m @ x) / 2
        else: scores = 1 / (1 + ((m - x) ** 2).sum(1))
        order = np.argsort(-scores, kind="stable")[:limit]
        return [(rows[i][1][""], float(scores[i])) for i in order]


class Registry:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.definitions: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}
        self.indexes: dict[tuple[str, str], VectorIndex] = {}

    def save(self) -> None:
        tmp = self.path.with_suffix(".tmp"); tmp.write_text(json.dumps(self.definitions)); tmp.replace(self.path)

    def get(self, ns: str, name: str) -> VectorIndex | None:
        d = self.definitions.get(ns, {}).get(name)
        if d is None: return None
        if (ns, name) not in self.indexes: self.indexes[ns, name] = VectorIndex(d["definition"])
        return self.indexes[ns, name]

    def touch(self, ns: str, ids: list[Any] | None) -> None:
        for (n, _), index in self.indexes.items():
            if n == ns: index.touch(ids)

    def validate(self, definition: Any) -> None:
        fields = definition.get("fields") if isinstance(definition, dict) else None
        if not isinstance(fields, list) or not any(f.get("type") == "vector" for f in fields):
            raise SearchError('"fields" must contain at least one "vector" field', 9, "FailedToParse")
        for f in fields:
            if f.get("type") == "vector" and not (isinstance(f.get("numDimensions"), int) and 1 <= f["numDimensions"] <= 8192):
                raise SearchError('"numDimensions" must be within 1 and 8192', 9, "FailedToParse")
            if f.get("type") == "vector" and f.get("similarity") not in ("cosine", "dotProduct", "euclidean"):
                raise SearchError('"similarity" must be one of cosine, dotProduct, euclidean', 9, "FailedToParse")

    def create(self, ns: str, spec: dict[str, Any]) -> dict[str, Any]:
        name = spec.get("name", "default")
        self.validate(spec.get("definition"))
        here = self.definitions.setdefault(ns, {})
        if name in here:
            raise SearchError(f"Index {name} already exists", 68, "IndexAlreadyExists")
        here[name] = {"id": str(ObjectId()), "definition": spec["definition"]}
        self.save()
        return {"id": here[name]["id"], "name": name}

    def update(self, ns: str, name: str, definition: dict[str, Any]) -> None:
        self.validate(definition)
        if name not in self.definitions.get(ns, {}):
            raise SearchError(f"Index {name} not found", 27, "IndexNotFound")
        self.definitions[ns][name]["definition"] = definition
        self.indexes.pop((ns, name), None); self.save()

    def drop(self, ns: str, name: str) -> None:
        if name not in self.definitions.get(ns, {}):
            raise SearchError(f"Index {name} not found", 27, "IndexNotFound")
        del self.definitions[ns][name]; self.indexes.pop((ns, name), None); self.save()

    def forget(self, prefix: str) -> None:
        for ns in list(self.definitions):
            if ns == prefix or ns.startswith(prefix + "."):
                del self.definitions[ns]
        for k in list(self.indexes):
            if k[0] == prefix or k[0].startswith(prefix + "."): del self.indexes[k]
        self.save()

    def list(self, ns: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        out = []
        for name, d in self.definitions.get(ns, {}).items():
            if wanted.get("name", name) != name or wanted.get("id", d["id"]) != d["id"]: continue
            out.append({"id": d["id"], "name": name, "type": "vectorSearch", "status": "READY", "queryable": True,
                        "latestVersion": 0, "latestDefinition": d["definition"]})
        return out
